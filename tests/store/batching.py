"""A batch as the store sees it: members in two queues, and callbacks at a home that is neither of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pollconsumer.core.messages.continuation import Continuation, encoded, identified, packed
from pollconsumer.core.messages.message import NewMessage
from pollconsumer.store.queues import outbox
from pollconsumer.store.queues.batches import Batches, NewBatch
from pollconsumer.store.queues.outbox import member_end_entry, pack
from pollconsumer.store.reading.batch_reader import BatchReader, BatchStatus
from tests.store.acting import HOUR, QUEUE, Launch, Looking, message

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pollconsumer.store.queues.redis_store import RedisStore
    from pollconsumer.store.records.reservations import Reservation
    from pollconsumer.store.records.steps import Completion

HOME, OTHER = "home", "other"
CALLBACKS = ("then", "failed", "ended")


def callback(batch: str, name: str, home: str = HOME) -> NewMessage:
    return message(f"{batch}:{name}", queue=home)._replace(continuation=encoded(Continuation(called_by=home)))


def new_batch(
    batch: str = "b", *, expires: int = 0, total: int | None = None, home: str = HOME, spares: bool = False
) -> NewBatch:
    callbacks = {name: packed(callback(batch, name, home)) for name in CALLBACKS}
    return NewBatch(home, batch, callbacks, expires, total, spares)


def member(number: int, queue: str = QUEUE, batch: str = "b", home: str = HOME) -> NewMessage:
    return identified(message("", queue=queue), f"{batch}.{number}", home)


def complete_member(r: Reservation, result: str = "", *, added: Iterable[NewMessage] = ()) -> Completion:
    """Complete a member, perhaps with members that it adds."""
    added = [*added]
    outgoing = pack(added, 0) if added else b""
    return r, 0.0, 0.0, (HOUR, result.encode(), outgoing, member_end_entry(HOME, len(added)))


class OneBatch:
    """The batch "b"; it is open. ``spares``: its cancelled members count as completed."""

    def __init__(self, store: RedisStore, *, expires: int = 0, spares: bool = False) -> None:
        self.store, self.batches = store, Batches(store.producer)
        self._reader = BatchReader(store.wire, store.keys.namespace)
        store.producer.register(HOME)
        assert self.batches.open(new_batch(expires=expires, spares=spares)) == ""
        self.launches = {queue: Launch(store, queue=queue) for queue in (QUEUE, OTHER)}

    def add(self, *members: NewMessage) -> None:
        self.store.enqueue(members)

    def close(self, members: int) -> str:
        return self.batches.close(HOME, "b", members)

    def send(self) -> None:
        """Have all outboxes sent."""
        for queue in (QUEUE, OTHER, HOME):
            outbox.send(self.store, queue, print)

    def fail_over(self, members: int) -> None:
        """The home's node is another one, without the last writes: it is as when the batch was closed."""
        home = Looking(self.store, HOME)
        for name in ("batches", "batch_members", "batch_instants", "outbox", "ready", "records", "rows"):
            self.store.wire.command("DEL", home.key(name))
        self.batches.open(new_batch())
        self.close(members)

    def status(self) -> BatchStatus:
        return self._reader.batch("b", HOME)

    def counts(self) -> tuple[str, int, int, int, int, int]:
        found = self.status()
        return found.state, found.total, found.completed, found.dead, found.cancelled, found.expired

    def called(self) -> list[str]:
        """The callbacks that were enqueued, in their order, without the batch's id."""
        return [each.removeprefix("b:") for each in Looking(self.store, HOME).listed("ready")]
