"""A trial of the server: in a namespace of its own, messages go through all states. It finds what the server lacks.
Each step uses a queue of its own, so that its failure does not affect others."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from pollconsumer.core.errors import LeaseLost, PermissionDenied, PollConsumerError, StoreRefused, StoreUnreachable
from pollconsumer.core.messages.continuation import Continuation, encoded, identified, packed
from pollconsumer.core.messages.message import NewMessage
from pollconsumer.core.messages.message_steps import Step, StepEntry, as_recorded
from pollconsumer.core.recurrence import Recurrence
from pollconsumer.store.actions import MessageActions
from pollconsumer.store.client.replies import not_understood
from pollconsumer.store.client.wire import MARKER, MISREAD, Wire
from pollconsumer.store.keyspace import QUEUE_KEYS, TRIAL, Keys
from pollconsumer.store.leases import Group, Leases
from pollconsumer.store.queues import outbox
from pollconsumer.store.queues.batches import Batches, NewBatch
from pollconsumer.store.queues.outbox import member_end_entry
from pollconsumer.store.queues.producer import Enqueued
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.reading.inspector import Inspector
from pollconsumer.store.records.reservations import Claim, Reservation
from pollconsumer.store.records.steps import Completion, Kept, QueueStep, Retention, Settlement
from pollconsumer.store.recurrence_actions import Recurrences
from pollconsumer.store.recurrences import LaunchRecurrences
from pollconsumer.store.rights import LAUNCH, OPERATOR, PRODUCER, lacking

WITHIN = 2.0
"""Seconds within which a due message must be promoted. A wake-up may take half of that."""
BLOCKED_AFTER = 0.1
"""Seconds after which a blocking command that was sent certainly blocks in the server."""
HOUR = 3_600_000
CONTROL = (
    "fences", "leases", "launches", "ledger", "queues", "queues_marker", "seen", "totals", MARKER,
    "lease:consumer:hold-lease:0", "next:consumer:hold-lease", "baton:consumer:hold-lease",
)  # fmt: skip
"""Words and suffixes of the keys of the namespace, which are removed after the trial."""
UNKNOWN = "NO-SUCH-COMMAND"


class TriedQueue:
    """The queue of one step, and a launch that serves it. ``another``: a second connection, for a blocking command."""

    def __init__(self, wire: Wire, another: Wire, namespace: str, name: str, fence: int = 1) -> None:
        self.wire, self.another, self.namespace, self.name = wire, another, namespace, name
        self.store, self.person = RedisStore(wire, namespace), MessageActions(wire, namespace)
        self.inspector = Inspector(wire, namespace)
        self.group = Group("consumer", (name,), 1)
        self.claim = Claim(f"{self.group.name}:0", str(fence), self.group.name)
        self.recovered = self.store.maintenance.announce(self.claim, name)

    def message(self, message_id: str = "", **options: Any) -> NewMessage:
        return NewMessage(message_id, self.name, "trial", b"{}", **options)

    def enqueue(self, *ids: str, **options: Any) -> list[Enqueued]:
        return self.store.enqueue([self.message(each, **options) for each in ids])

    def step(self, *ended: Reservation | Settlement, member_end: bytes = b"", wait: float = 0.0) -> list[Reservation]:
        """Settle what has ``ended``: a reservation as completed, a settlement as it is. Returns new reservations."""
        queue_step, now = QueueStep(self.name, wanted=9), time.monotonic()
        completions: list[Completion] = [
            (r, now, now, (HOUR, b"7", b"", member_end)) for r in ended if isinstance(r, Reservation)
        ]
        queue_step.complete(completions)
        queue_step.settlements += [each for each in ended if isinstance(each, Settlement)]
        return self.store.step(self.claim, [queue_step], lasts_ms=HOUR, now=time.monotonic, wait=wait).reserved

    def take(self, *ids: str) -> list[Reservation]:
        """Reserve the ready messages. Raises StoreRefused unless they are ``ids``."""
        reserved = self.step()
        expect(names(reserved), [*ids])
        return reserved

    def take_new(self) -> Reservation:
        self.enqueue("a")
        return self.take("a")[0]

    def die(self, reservation: Reservation) -> None:
        at = reservation.reserved_at
        self.step(Settlement.dead(reservation, at, at, error="trial"))

    def promote(self) -> None:
        """Wait until one message is promoted. Raises StoreRefused if that takes too long."""
        until = time.monotonic() + WITHIN
        while not (moved := self.store.promote(self.claim, self.name, 9).moved) and time.monotonic() < until:
            pass
        expect(moved, 1)


def names(reservations: list[Reservation]) -> list[str]:
    return [each.name for each in reservations]


def expect(found: object, wanted: object) -> None:
    """Raise StoreRefused unless ``found`` equals ``wanted``."""
    if found != wanted:
        fix = "docs/store.md lists the servers that were tried"
        raise StoreRefused("answered otherwise", f"{found!r}, not {wanted!r}", fix)


def hold_lease(queue: TriedQueue) -> None:
    leases = Leases(queue.wire, queue.namespace)
    take = partial(leases.acquire, queue.group, description="{}", entry="{}")
    first, second = take("first"), take("second")
    expect([type(first).__name__, type(second).__name__], ["Claim", "HeldLeases"])
    assert isinstance(first, Claim)
    expect(leases.renew(first, "{}"), True)
    expect(leases.release(first, "{}"), True)
    second = take("second")
    expect(isinstance(second, Claim) and int(second.fence) > int(first.fence), True)


def complete_message(queue: TriedQueue) -> None:
    queue.enqueue("a")
    queue.enqueue("b", priority=-1)
    queue.step(*queue.take("b", "a"))
    found = queue.inspector.message("a", queue.name)
    expect((str(found.state), found.result), ("completed", 7))
    expect(queue.store.maintenance.trim(queue.name, Retention(Kept(0, 0))), 2)
    expect(queue.enqueue("a"), [("a", True)])


def begin_at_most_once(queue: TriedQueue) -> None:
    expect(queue.store.begin(queue.claim, [queue.take_new()]), [])


def try_again(queue: TriedQueue) -> None:
    first = queue.take_new()
    queue.step(Settlement.retrying(first, first.reserved_at, first.reserved_at, delay_ms=1, error="trial"))
    queue.promote()
    expect([each.attempt for each in queue.take("a")], [2])


def redrive_dead_letter(queue: TriedQueue) -> None:
    queue.die(queue.take_new())
    expect(queue.person.redrive(queue.name, ["a"]), ["a"])
    queue.die(*queue.take("a"))
    expect(queue.person.purge(queue.name, ["a"]), ["a"])


def promote_due_message(queue: TriedQueue) -> None:
    queue.enqueue("a", delay=1)
    queue.enqueue("b", "c", delay=HOUR)
    queue.person.cancel(queue.name, "c")
    queue.promote()
    queue.take("a")
    queue.person.change(queue.name, "b", delay=1)
    queue.promote()
    queue.take("b")


def hold_unique_key(queue: TriedQueue) -> None:
    queue.enqueue("a", key="k")
    expect(queue.enqueue("b", key="k"), [("a", True)])
    queue.step(*queue.take("a"))
    expect(queue.enqueue("c", key="k"), [("c", False)])


def hold_concurrency_key(queue: TriedQueue) -> None:
    queue.enqueue("a", "b", concurrency_key="k")
    expect(names(queue.step(*queue.take("a"))), ["b"])


def use_up_rate(queue: TriedQueue) -> None:
    queue.enqueue("a", "b", rate_key="k", rate="1/1h")
    queue.take("a")
    expect(queue.inspector.counts(queue.name).scheduled, 1)


def enqueue_occurrence(queue: TriedQueue) -> None:
    recurrence = Recurrence("hourly", "trial", every=3600.0, queue=queue.name, at_run_time=True)
    launch, people = LaunchRecurrences(queue.wire, queue.namespace), Recurrences(queue.wire, queue.namespace)
    launch.define("trial", [queue.name], [], ignore)
    people.put([(recurrence, "now")])
    expect(launch.tick(queue.claim, queue.name, lambda now: now, ignore), 1)
    queue.step(*queue.step())
    expect([str(each.message.state) for each in people.history(people.find("hourly"), 2)], ["completed"])


def call_back_after_batch(queue: TriedQueue) -> None:
    batches = Batches(queue.store.producer)
    callback = queue.message("batch:then", continuation=encoded(Continuation(called_by=queue.name)))
    expect(batches.open(NewBatch(queue.name, "batch", {"then": packed(callback)})), "")
    member = identified(queue.message(), "batch.0", queue.name)
    queue.store.enqueue([member, member._replace(id="batch.1")])
    expect(batches.close(queue.name, "batch", 2), "")
    queue.step(*queue.take("batch.0", "batch.1"), member_end=member_end_entry(queue.name))
    outbox.send(queue.store, queue.name, ignore)
    queue.take("batch:then")


def wait_for_signal(queue: TriedQueue) -> None:
    first = queue.take_new()
    step = as_recorded(Step("approved", 1, None, HOUR))
    queue.store.record(queue.claim, first, StepEntry(1, 1, step, "approved"))
    queue.step(Settlement.asleep(first, wakes_in_ms=HOUR, took=0))
    expect(queue.person.signal(queue.name, "a", "approved", 7), True)
    queue.promote()
    _, recorded = queue.store.recorded(*queue.take("a"))
    expect(recorded and [each.value for each in recorded.signals], [7])


def recover_orphan(queue: TriedQueue) -> None:
    orphan = queue.take_new()
    successor = TriedQueue(queue.wire, queue.another, queue.namespace, queue.name, fence=2)
    expect(successor.recovered, 1)
    with suppress(LeaseLost):
        expect(names(queue.step(orphan)), "a refusal")
    expect([each.crashes for each in successor.take("a")], [1])


def wake_waiting_launch(queue: TriedQueue) -> None:
    waiting = TriedQueue(queue.another, queue.wire, queue.namespace, queue.name)
    with ThreadPoolExecutor(1) as threads:
        stepping = threads.submit(waiting.step, wait=WITHIN)
        time.sleep(BLOCKED_AFTER)
        queue.enqueue("a")
        enqueued = time.monotonic()
        expect(names(stepping.result()), ["a"])
    expect("late" if time.monotonic() > enqueued + WITHIN / 2 else "at once", "at once")


def ignore(*_: object) -> None:
    """Takes a report, and does nothing."""


STEPS: dict[str, Callable[[TriedQueue], None]] = {
    step.__name__.replace("_", "-"): step
    for step in (
        hold_lease, complete_message, begin_at_most_once, try_again, redrive_dead_letter, promote_due_message,
        hold_unique_key, hold_concurrency_key, use_up_rate, enqueue_occurrence, call_back_after_batch, wait_for_signal,
        recover_orphan, wake_waiting_launch,
    )
}  # fmt: skip
"""The steps, by the names of their queues."""


class Lack(NamedTuple):
    """Something that the server lacks: the ``step`` of the trial that failed, and its error."""

    step: str
    error: PollConsumerError

    @property
    def exit_code(self) -> int:
        known = isinstance(self.error, (PermissionDenied, StoreUnreachable))
        return self.error.exit_code if known else StoreRefused.exit_code


class ServerTrial:
    def __init__(self, wire: Wire, another: Wire, namespace: str) -> None:
        """``another``: a second connection to the same server, for a blocking command. The trial's namespace begins
        with ``namespace``, so that the same rights to keys suffice."""
        self._wire, self._another = wire, another
        self.namespace = f"{namespace}:{TRIAL}{os.urandom(8).hex()}"

    def lacks(self) -> list[Lack]:
        """Try all steps, unless a command is refused. Returns what the server lacks. Removes the trial's keys."""
        if refused := self._refused_commands():
            fix = "grant it to the store's user, or have the server enable it"
            return [Lack("commands", PermissionDenied("refused", each, fix)) for each in refused]
        found = list[Lack]()
        try:
            for name, step in STEPS.items():
                try:
                    step(TriedQueue(self._wire, self._another, self.namespace, name))
                except PollConsumerError as error:
                    found.append(Lack(name, error))
                    if isinstance(error, StoreUnreachable):
                        break
                except MISREAD:  # a server that tells the time as Redis does, but answers a script in another form
                    found.append(Lack(name, not_understood(self._wire.last_answer)))
        finally:
            found += self._remove()
        return found

    def _refused_commands(self) -> list[str]:
        """The commands of producers, launches and operators that the server refuses. Without `acl_check_cmd`, each is
        sent with a key that does not exist, since a script's error does not tell which command was refused."""
        key, rights = Keys(self.namespace).control("fences"), sorted({*f"{PRODUCER} {LAUNCH} {OPERATOR}".split()})
        if lacking(self._wire, UNKNOWN, key):
            return [each.decode() for each in lacking(self._wire, " ".join(rights), key)]
        unknown = str(self._refusal_of(UNKNOWN, key)).partition(UNKNOWN)[0]
        refusals = {right: self._refusal_of(right, key) for right in rights}
        return [
            right
            for right, error in refusals.items()
            if isinstance(error, PermissionDenied) or (error is not None and str(error).startswith(unknown))
        ]

    def _refusal_of(self, command: str, key: str) -> PollConsumerError | None:
        try:
            self._wire.once([(*command.split("|"), key)])
        except PollConsumerError as error:
            return error
        return None

    def _remove(self) -> list[Lack]:
        keys = Keys(self.namespace)
        names = [keys.control(name) for name in CONTROL]
        for queue in STEPS:
            names += [keys.queue(queue, word) for word in QUEUE_KEYS]
            names.append(f"{keys.queue(queue, 'successor_waits')}:consumer:{queue}")
            names.append(f"{{{self.namespace}:{queue}}}:{MARKER}")
        try:
            self._wire.all([("DEL", name) for name in names])
        except PollConsumerError as error:
            return [Lack(f"removal of {self.namespace}", error)]
        return []
