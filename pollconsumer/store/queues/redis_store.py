"""What launches write to queues. Each method runs one script, or several in one round trip."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, starmap
from math import inf
from types import MappingProxyType
from typing import Any

from pollconsumer.core.errors import LeaseLost
from pollconsumer.core.messages.message import NewMessage
from pollconsumer.core.messages.message_steps import Progress, Recorded, StepEntry
from pollconsumer.store.client.connection import Command
from pollconsumer.store.client.patience import SYSTEM_CLOCKS, Clocks
from pollconsumer.store.client.replies import Unanswered
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.queues.maintenance import Maintenance
from pollconsumer.store.queues.producer import Enqueued, Origin, Producer
from pollconsumer.store.records import rows
from pollconsumer.store.records.occurrences import PreviousOccurrence, read_previous
from pollconsumer.store.records.reservations import Claim, DeadLetter, Reservation, dead_letters_of, reservations_of
from pollconsumer.store.records.steps import LogEntry, Promoted, QueueStep, Reports, Stepped, read_recorded
from pollconsumer.store.server import known_queues, lost_queues

SHOWN_FOR = 0.001
"""Seconds for which a server's clock shows the same millisecond."""
MOST_DELAYED = 0.5
"""Seconds by which a reply may be later than earlier ones. If it is later still, a clock was set."""


class ServerClock:
    """Converts instants of a store's servers to this machine's monotonic clock.

    A reply arrives some time after the instant in it, and a step that waits for a message may be answered at any time.
    So two facts are used: half of the shortest round trip, and the reply that arrived soonest after its instant."""

    def __init__(self) -> None:
        self._one_way = inf
        """The seconds that a reply is assumed to travel: half of the shortest round trip."""
        self._ahead: dict[str, float] = {}
        """By queue, since each may be on another server: the least difference, in seconds, between the arrival of a
        reply on this machine's clock and the instant in it."""

    def shown_at(self, queue: str, instant: int, sent: float, read: float) -> float:
        """When, on the monotonic clock, the server of ``queue`` showed ``instant``, which is in epoch ms. ``sent``:
        when the step was sent, minus infinity if it took several round trips. ``read``: when its reply was read."""
        took, ahead, one_way = read - sent, read - instant / 1000, self._one_way
        if took < one_way + one_way:
            one_way = self._one_way = took / 2
        elif one_way == inf:
            one_way = 0.0
        late = ahead - self._ahead.get(queue, inf)
        # Otherwise this reply came soonest. Or the clock was set, or has drifted: it cannot have shown the instant by
        # then.
        if 0.0 < late <= took + SHOWN_FOR and late <= MOST_DELAYED:
            one_way += late
            return read - one_way if one_way < took + SHOWN_FOR else sent - SHOWN_FOR
        self._ahead[queue] = ahead
        return read - one_way


PROMOTE_PAGE = 250
"""Number of messages that one script promotes, which takes the server a few milliseconds at most."""


class RedisStore:
    """The store as launches write to it. ``producer``: enqueues what handlers and outboxes send. ``maintenance``: the
    work other than handling."""

    def __init__(self, wire: Wire, namespace: str, clocks: Clocks = SYSTEM_CLOCKS) -> None:
        self.wire, self._clocks = wire, clocks
        self.producer = Producer(wire, namespace, clocks)
        self.keys, self.maintenance = self.producer.keys, Maintenance(self.producer)
        self._server_clock = ServerClock()
        self._beginnings: dict[tuple[str, str, str, str], Command] = {}
        """Results of `_beginning`, kept for reuse."""

    def requeue(
        self,
        claim: Claim,
        queue: str,
        in_flight: Iterable[bytes],
        ended: Sequence[bytes] = (),
        spent: Sequence[bytes] = (),
        *,
        on_dead_letter: Callable[[DeadLetter], object] = lambda _: None,
        known: Mapping[bytes, str] = MappingProxyType({}),
    ) -> None:
        """Requeue the messages of a dead launch. Messages that it had not started are not charged.

        Messages ``in_flight`` are charged an attempt and a death. Messages whose handlers had ``ended`` are charged an
        attempt. ``spent``: messages in flight, or ended, in their last attempt: they are charged the attempt, and
        become dead letters when they are reserved next. A message that is recorded as begun, since it is delivered at
        most once, becomes a dead letter now. ``known``: see `Maintenance.recover`."""
        self.unreserve(claim, queue, in_flight, ended, spent)
        self.wire.call("retire", [self.keys.queue(queue, "announced")], [claim.lease_name, claim.fence])
        self.maintenance.recover(queue, on_dead_letter=on_dead_letter, known=known)

    def step(
        self,
        claim: Claim,
        steps: Sequence[QueueStep],
        *,
        lasts_ms: int,
        now: Callable[[], float],
        wait: float = 0.0,
        promoting: Sequence[str] = (),
        reports: Reports | None = None,
        keep: Callable[[str], Iterable[bytes]] = lambda _: (),
    ) -> Stepped:
        """Settle and reserve in one write, and return what was found. First, ``reports`` are stored, and due messages
        of the queues ``promoting`` are promoted. ``now`` returns the monotonic time.

        With ``wait``, the server first waits for the marker of a queue or of its schedule, so many seconds at most. A
        reservation lasts for ``lasts_ms`` at most. After a lost reply, all reservations are released except those whose
        ids ``keep`` returns, and the step is repeated. A row that already has its new value counts as settled.
        LeaseLost if a newer launch has announced itself. After NodeLost, the part of each queue may have been carried
        out or not: call `release_unanswered` before a repetition."""
        commands = self._reporting(claim, reports) if reports else []
        for step in steps:
            if step.trims:
                commands.append(self.wire.script(*self.maintenance.trimming(step.queue, step.trims)))
        before, loads = len(commands), self.wire.scripts.loads
        for queue in promoting:
            commands.append((*self._beginning("promote", claim, queue), b"%d" % PROMOTE_PAGE))
        for step in steps:
            commands.append(self._step_of(claim, step, lasts_ms))
        sent = now()
        try:
            if wait > 0:
                names = ("ready_marker", "schedule_marker")
                markers = [self.keys.queue(step.queue, name) for name in names for step in steps]
                blocking = ("BLPOP", *markers, f"{max(0.001, wait):.3f}")
                answers = self.wire.once([blocking, *commands], blocking=wait)[1:]
            else:
                answers = self.wire.once(commands)
        except Unanswered:
            self.wire.close()
            self.wire.part(commands)
            release = partial(self.release_unanswered, claim, steps, keep)
            release()  # GUARD what a lost reply reserved is released
            answers = self.wire.all(commands, on_repeat=release)  # GUARD what the next lost reply reserved is released
            sent = -inf
        if self.wire.scripts.loads != loads:
            sent = -inf
        read, stepped, at = now(), Stepped(), before + len(promoting)
        for answer in answers[before:at]:
            stepped.promoted.append(Promoted.of(answer))
        for step, answer in zip(steps, answers[at:], strict=True):
            if step.single:
                self._add_one(stepped, step.queue, answer, sent, read)
            else:
                self._add_step(stepped, step, answer, sent, read)
        return stepped

    def _add_one(self, stepped: Stepped, queue: str, answer: Any, sent: float, read: float) -> None:
        """Add the answer of `reserve_one.lua`: a message; 0 if a full step is needed; empty if none is ready."""
        if answer == 0:
            stepped.needs_full_step.append(queue)
        elif answer:
            message_id, record, row = answer
            at = rows.reserved_at(row)
            shown_at = self._server_clock.shown_at(queue, at, sent, read)
            stepped.reserved += reservations_of(queue, [message_id], [record], [1, row], at, shown_at)

    def _add_step(self, stepped: Stepped, step: QueueStep, answer: Sequence[Any], sent: float, read: float) -> None:
        """Add the answer of `step.lua` for one queue. ``sent``, ``read``: as in `ServerClock.shown_at`."""
        at, stale, waiting, ids, records, changes, wait_ms, left, newer_found, dead = answer
        queue = step.queue
        stepped.stale += stale
        if step.groups and (last := step.groups[-1][2][-1]) not in stale:
            self.wire.last_acknowledged = queue, last, True, self._clocks.monotonic()
        stepped.successor = stepped.successor or bool(waiting)
        stepped.held_back = stepped.held_back or bool(left)
        if wait_ms >= 0:
            stepped.more_in = min(stepped.more_in, wait_ms / 1000)
        if newer_found:
            stepped.newer.append(queue)
        if dead:
            stepped.dead_letters += dead_letters_of(queue, dead)
        shown_at = self._server_clock.shown_at(queue, at, sent, read)
        if ids:
            stepped.reserved += reservations_of(queue, ids, records, changes, at, shown_at)

    def _step_of(self, claim: Claim, step: QueueStep, lasts_ms: int) -> Command:
        beginning = self._beginning("reserve_one" if step.single else "step", claim, step.queue)
        command = *beginning, rows.pack6(int(claim.fence)), b"%d" % lasts_ms
        return command if step.single else (*command, b"%d" % step.wanted, step.limits, *step.packed())

    def _beginning(self, name: str, claim: Claim, queue: str) -> Command:
        """The beginning of a command by which a launch writes to ``queue``: script, keys, lease name and fence."""
        which = name, queue, claim.lease_name, claim.fence
        if (known := self._beginnings.get(which)) is not None:
            return known
        script = self.wire.scripts[name]
        keys = self.keys.names_for(script.keys, queue)
        if script.keys[-1] == "successor_waits":
            keys[-1] += f":{claim.group}"
        beginning = self._beginnings[which] = self.wire.script(script, keys, [claim.lease_name, claim.fence])
        return beginning

    def release_unanswered(
        self, claim: Claim, steps: Sequence[QueueStep], keep: Callable[[str], Iterable[bytes]] = lambda _: ()
    ) -> None:
        """Release what unanswered ``steps`` may have reserved, except what they settle and ids of ``keep``."""
        for step in steps:
            if step.wanted:
                self.unreserve(claim, step.queue, [*keep(step.queue), *step.ids()])

    def release(self, claim: Claim, steps: Sequence[QueueStep]) -> bool:
        """Settle ``steps``, none of which wants messages. Returns whether the next launch waits for the lease; the
        store reports that only once."""
        return any(answer[2] for answer in self.wire.all([self._step_of(claim, step, 0) for step in steps]))

    def part(self, queues: Iterable[str]) -> None:
        """Raise NodeLost, from now on, in calls for those of ``queues`` whose cluster node is lost, if the leases and
        others of ``queues`` can be reached. The caller goes on with these others."""
        self.wire.isolate_keys([self.keys.queue(queue, "ready") for queue in queues])

    def lost(self, queues: Iterable[str]) -> set[str]:
        """The ``queues`` whose cluster node is lost; none if the node with the leases is lost, too."""
        return lost_queues(self.wire, self.keys, queues)

    def unreserve(
        self, claim: Claim, queue: str, keep: Iterable[bytes], ended: Sequence[bytes] = (), spent: Sequence[bytes] = ()
    ) -> int:
        """Release this launch's reservations in ``queue``, except ids in ``keep`` and messages that are recorded as
        begun. No attempt is charged, except for messages in ``ended`` and ``spent``. Returns the number released."""
        args: list[Any] = [claim.lease_name, claim.fence, rows.pack6(int(claim.fence))]
        for listed in (ended, spent):
            args += [len(listed), *listed]
        args += keep
        return int(self.wire.run("unreserve", self.keys, queue, args))

    def begin(self, claim: Claim, reservations: Sequence[Reservation]) -> list[bytes]:
        """Record that ``reservations``, all of one queue, are begun, since they are delivered at most once. Returns the
        ids of those that are no longer reserved for this launch. LeaseLost if a newer launch has announced itself."""
        args: list[Any] = [claim.lease_name, claim.fence]
        for each in reservations:
            args += (each.id, each.row, rows.begun(each.row))
        stale: list[bytes] = self.wire.run("begin", self.keys, reservations[0].queue, args)
        for each in reservations:
            if each.id not in stale:
                each.row = rows.begun(each.row)
        return stale

    def checkpoint(self, claim: Claim, reservation: Reservation, state: bytes, reports: Reports | None = None) -> None:
        """Store a message's checkpoint, and ``reports``. LeaseLost if this launch does not hold the message."""
        self._keep(claim, reservation, (reservation.id, state), reports)

    def record(self, claim: Claim, reservation: Reservation, entry: StepEntry, reports: Reports | None = None) -> None:
        """Record a step of a message, and store ``reports``. LeaseLost if this launch does not hold the message."""
        self._keep(claim, reservation, entry.fields(reservation.id), reports)

    def _keep(self, claim: Claim, reservation: Reservation, fields: Sequence[bytes], reports: Reports | None) -> None:
        row = rows.checkpointed(reservation.row)
        beginning = self._beginning("checkpoint", claim, reservation.queue)
        command = *beginning, reservation.id, reservation.row, row, *fields
        before = self._reporting(claim, reports) if reports else []
        if not self.wire.all([*before, command])[-1]:
            raise LeaseLost("message", reservation.name, "it was offered to another launch; stop here")
        reservation.row = row

    def report(self, claim: Claim, reports: Reports) -> None:
        """Store reports of handlers, in one try. Unanswered if the server does not answer. LeaseLost if a newer launch
        has announced itself."""
        self.wire.once(self._reporting(claim, reports))

    def _reporting(self, claim: Claim, reports: Reports) -> list[Command]:
        """The commands that store ``reports``. Reports of messages that another launch has reserved since, or that were
        deleted, change nothing."""
        commands, fence = list[Command](), rows.pack6(int(claim.fence))
        for queue, its_reports in reports.items():
            progress = chain.from_iterable(starmap(_report_arguments, its_reports.items()))
            commands.append((*self._beginning("progress", claim, queue), fence, *progress))
        return commands

    def recorded(self, reservation: Reservation) -> tuple[bytes | None, Recorded | None]:
        """A message's last checkpoint, or None; and its steps and signals, or None."""
        return read_recorded(self.wire, self.keys.queue(reservation.queue, "checkpoints"), reservation.id)

    def previous(self, queue: str, recurrences: Iterable[bytes]) -> list[PreviousOccurrence | None]:
        """The last completed occurrence of each recurrence, or None."""
        fields = [name + b":previous" for name in recurrences]
        (found,) = self.wire.all([("HMGET", self.keys.queue(queue, "recurrence_counters"), *fields)], parting=False)
        return [read_previous(each) for each in found]

    def promote(self, claim: Claim, queue: str, most: int) -> Promoted:
        """Promote due messages of ``queue``, ``most`` at most."""
        return Promoted.of(self.wire.run("promote", self.keys, queue, [claim.lease_name, claim.fence, most]))

    def enqueue(self, messages: Sequence[NewMessage], origin: Origin | None = None) -> list[Enqueued]:
        """Enqueue messages: see `Producer.enqueue`."""
        return self.producer.enqueue(messages, origin)

    def queues(self) -> list[str]:
        """The `known_queues` of the store, sorted."""
        return known_queues(self.wire, self.keys)


def _report_arguments(name: bytes, each: Progress | LogEntry) -> tuple[bytes, str, str, int]:
    """A report as arguments of `progress.lua`."""
    if isinstance(each, LogEntry):
        return name.partition(b"\n")[0], f"{each.head}{each.text}]", each.head, each.most
    return name, json.dumps(each[:3], separators=(",", ":")), "", 0
