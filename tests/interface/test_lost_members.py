"""A store that goes back while a batch is open: its producer is told, and the same code again adds what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pollconsumer import PollConsumer
from pollconsumer.core.errors import WentBack
from pollconsumer.interface.api.batches import PAGE
from pollconsumer.store.queues.batches import Batches
from tests.conftest import NAMESPACE
from tests.store.test_rollback import going_back

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tests.store.servers import Server

__all__ = ["going_back"]


class Producing:
    """A producer of a batch, whose store goes back to where it was before some of the members, and hangs up."""

    def __init__(self, server: Server, keep: Callable[[], Callable[[], None]]) -> None:
        self.app, self.wire, self._keep = PollConsumer(store=server.url, namespace=NAMESPACE), server.wire(), keep

        @self.app.handler("work")
        def work(n: int) -> int:
            return n

        self.work = work

    def fail_over(self) -> None:
        """Bring back what was there when the members began that are lost."""
        self._bring_back()
        self.wire.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    def produce(self, loses: int | None = None, at: int | None = None) -> None:
        """Add two pages and a half. ``loses``: from this member on, at the member ``at``."""
        with self.app.batch("import", then=self.work.args(0)) as batch:
            for n in range(5 * PAGE // 2):
                if n == loses:
                    self._bring_back = self._keep()
                if n == at:
                    self.fail_over()
                batch.add(self.work.args(n))

    def is_whole(self) -> bool:
        """Whether the batch is closed, and has all of its members."""
        batch = self.app.batches.get("import")
        ids = [each.id for each in batch.members()]
        return batch.state == "closed" and ids == [f"import.{n}" for n in range(batch.status().total)]


@pytest.fixture
def producing(valkey: Server, going_back: Callable[[], Callable[[], None]]) -> Producing:
    return Producing(valkey, going_back)


@pytest.mark.parametrize(("loses", "at"), [(1, PAGE), (1, 2 * PAGE), (PAGE, 2 * PAGE), (1, 5 * PAGE // 2 - 1)])
def test_a_batch_of_which_the_store_has_lost_members_is_not_closed_and_the_same_code_adds_them(
    producing: Producing, loses: int, at: int
) -> None:
    with pytest.raises(WentBack, match="batch import is not closed, and may lack members; run the same code again"):
        producing.produce(loses, at)
    assert producing.app.batches.get("import").state == "open"
    producing.produce()
    assert producing.is_whole()


def test_a_store_that_goes_back_as_the_batch_is_closed_is_told_as_well(
    producing: Producing, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = Batches.close

    def lose_and_close(batches: Batches, *args: Any) -> str:
        monkeypatch.setattr(Batches, "close", close)
        producing.fail_over()
        return close(batches, *args)

    monkeypatch.setattr(Batches, "close", lose_and_close)
    with pytest.raises(WentBack):
        producing.produce(1)
    producing.produce()
    assert producing.is_whole()


def test_a_batch_that_is_opened_after_a_loss_is_closed(producing: Producing) -> None:
    with pytest.raises(WentBack):
        producing.produce(1, PAGE)
    with producing.app.batch("another", then=producing.work.args(0)) as batch:
        batch.add(producing.work.args(1))
    assert producing.app.batches.get("another").state == "closed"
