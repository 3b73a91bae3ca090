"""Launches on demand that end: whether another is started for what they leave."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from pollconsumer.core.window import StopReason, Window
from pollconsumer.interface import on_demand
from pollconsumer.store.queues.redis_store import RedisStore
from tests.conftest import NAMESPACE
from tests.store.acting import message

if TYPE_CHECKING:
    from tests.store.servers import Server


@pytest.mark.parametrize(
    ("worked", "ahead", "started"),
    [
        (55.0, (60.0, 120.0), 0),  # the next tick is near
        (45.0, (60.0, 120.0), 1),
        (61.0, (60.0, 960.0), 1),  # the tick came while a message lasted: the next one is 15 minutes away
        (900.0, (60.0, 960.0), 1),
        (951.0, (60.0, 960.0), 0),
        (290.0, None, 1),  # no schedule
    ],
)
@pytest.mark.parametrize("left", [True, False])
def test_a_launch_that_leaves_messages_is_followed_unless_a_tick_is_near_also_beyond_its_window(
    valkey: Server,
    monkeypatch: pytest.MonkeyPatch,
    worked: float,
    ahead: tuple[float, float] | None,
    started: int,
    *,
    left: bool,
) -> None:
    store, now, at_exit, starts = RedisStore(valkey.wire(), NAMESPACE), [100.0], list[Any](), list[Any]()
    launch = SimpleNamespace(
        store=store, window=Window(100.0, 155.0), clock=lambda: now[0], plan=SimpleNamespace(next_launches=ahead)
    )
    settings = SimpleNamespace(consumer=SimpleNamespace(queues=("default",)))
    monkeypatch.setattr(on_demand, "before_exit", at_exit.append)
    monkeypatch.setattr(on_demand, "start_launch", lambda *_, **__: starts.append(1))
    key = store.keys.queue("default", "presence")

    def work() -> StopReason:
        assert 55_000 < store.wire.command("PTTL", key) <= 70_000
        now[0] += worked
        if left:
            store.enqueue([message("a", queue="default")])
        return StopReason.NO_TIME_TO_HANDLE

    on_demand.present_during(cast("Any", launch), cast("Any", settings), ("default",), work)
    assert store.wire.command("EXISTS", key) == 0
    (follow,) = at_exit
    follow(lambda: 1.0)
    assert len(starts) == (started if left else 0)
