"""What launches write to the queues. Each method is one script, or one round trip of several."""

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
"""A server's clock shows an instant for so many seconds, since instants are milliseconds, rounded down."""
MOST_DELAYED = 0.5
"""A reply may come so many seconds later than others did. If it is later still, a clock was set."""


class ServerClock:
    """How the clocks of a store's servers relate to this machine's monotonic clock.

    A reply comes some time after the instant in it. A step that waits for a message may be answered any time after it
    was sent. Two facts are known: half of the shortest round trip, and which reply came soonest after its instant.
    """

    def __init__(self) -> None:
        self._one_way = inf
        """The least number of seconds that a reply takes."""
        self._ahead: dict[str, float] = {}
        """The difference between this machine's clock and the instant in the reply that came soonest, in seconds; by
        queue, since each queue may be on a server of its own."""

    def shown_at(self, queue: str, instant: int, sent: float, read: float) -> float:
        """The time on the monotonic clock at which the server of ``queue`` showed ``instant``, in epoch ms, given when
        a step was ``sent`` and its reply ``read``. ``sent`` is minus infinity if the step took several round trips."""
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
"""Number of messages that are promoted at once. This takes the server a millisecond, or a few if it is slow."""


class RedisStore:
    """The store, as launches write to it. ``producer`` enqueues follow-ups, and entries of outboxes. ``maintenance`` is
    what a launch does for queues besides handling."""

    def __init__(self, wire: Wire, namespace: str, clocks: Clocks = SYSTEM_CLOCKS) -> None:
        self.wire, self._clocks = wire, clocks
        self.producer = Producer(wire, namespace, clocks)
        self.keys, self.maintenance = self.producer.keys, Maintenance(self.producer)
        self._server_clock = ServerClock()
        self._beginnings: dict[tuple[str, str, str, str], Command] = {}
        """The results of `_beginning`, by script, queue and claim."""

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
        """Release, uncharged, the messages that a dead holder had not started, and recover the rest.

        Messages ``in_flight`` are charged an attempt and a death. Messages whose handler had ``ended`` are charged an
        attempt. ``spent``: messages in flight or ended in their last attempt. They are charged the attempt, and become
        dead letters when they are reserved next. A message that is recorded as begun at most once becomes a dead letter
        at once. ``known``: see `Maintenance.recover`.
        """
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
        """Settle and reserve, in one write. Before that, store ``reports``, and promote what is due in the queues
        ``promoting``.

        With ``wait``, the step is carried out as soon as a queue or its schedule has a marker, at most ``wait`` seconds
        later. The blocking read is sent with the steps, so that a wake-up costs one round trip. A reservation lasts at
        most ``lasts_ms``. After a lost reply, all reservations except those to ``keep`` are released, and the step is
        repeated. A row that already has its new value counts as settled. LeaseLost if a newer launch has announced
        itself. After NodeLost, each queue's part may have been carried out: call `release_unanswered` before sending it
        again.
        """
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
        """Add the answer of `reserve_one.lua`: 0 for a message with options, empty if there is none."""
        if answer == 0:
            stepped.needs_full_step.append(queue)
        elif answer:
            message_id, record, row = answer
            at = rows.reserved_at(row)
            shown_at = self._server_clock.shown_at(queue, at, sent, read)
            stepped.reserved += reservations_of(queue, [message_id], [record], [1, row], at, shown_at)

    def _add_step(self, stepped: Stepped, step: QueueStep, answer: Sequence[Any], sent: float, read: float) -> None:
        """Add the answer of `step.lua` to ``step``, and when it was ``sent`` and ``read``."""
        at, stale, waiting, ids, records, changes, wait_ms, left, newer_found, dead = answer
        queue = step.queue
        stepped.stale += stale
        if step.groups and (last := step.groups[-1][2][-1]) not in stale:
            self.wire.last_acknowledged = queue, last, True, self._clocks.monotonic()
        stepped.successor = stepped.successor or bool(waiting)
        stepped.held_back = stepped.held_back or bool(left)
        if wait_ms >= 0 and (stepped.more_in is None or wait_ms < stepped.more_in * 1000):
            stepped.more_in = wait_ms / 1000
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
        """The beginning of a command by which a launch changes ``queue``: script, keys, and the claim to the lease."""
        which = name, queue, claim.lease_name, claim.fence
        if (known := self._beginnings.get(which)) is not None:
            return known
        script = self.wire.scripts[name]
        keys = self.keys.names_for(script, queue)
        if script.keys[-1] == "successor_waits":
            keys[-1] += f":{claim.group}"
        beginning = self._beginnings[which] = self.wire.script(script, keys, [claim.lease_name, claim.fence])
        return beginning

    def release_unanswered(
        self, claim: Claim, steps: Sequence[QueueStep], keep: Callable[[str], Iterable[bytes]] = lambda _: ()
    ) -> None:
        """Release what an unanswered step may have reserved, except what is to ``keep``, and what the step settles."""
        for step in steps:
            if step.wanted:
                self.unreserve(claim, step.queue, [*keep(step.queue), *step.ids()])

    def release(self, claim: Claim, steps: Sequence[QueueStep]) -> bool:
        """Settle ``steps`` without reserving, in as many round trips as it takes. Returns whether the next launch waits
        for the lease. This is reported to one caller only."""
        return any(answer[2] for answer in self.wire.all([self._step_of(claim, step, 0) for step in steps]))

    def part(self, queues: Iterable[str]) -> None:
        """Raise NodeLost, from now on, if some of ``queues``, but not the leases, have lost their node of a cluster.
        The caller then goes on with the others."""
        self.wire.isolate_keys([self.keys.queue(queue, "ready") for queue in queues])

    def lost(self, queues: Iterable[str]) -> set[str]:
        """Which of ``queues`` have lost their node of a cluster, while the node with the leases answers."""
        return lost_queues(self.wire, self.keys, queues)

    def unreserve(
        self, claim: Claim, queue: str, keep: Iterable[bytes], ended: Sequence[bytes] = (), spent: Sequence[bytes] = ()
    ) -> int:
        """Release this holder's reservations in ``queue``, except those to ``keep``, and those of messages recorded as
        begun at most once. No attempt is charged, unless a message has ``ended`` or is ``spent``."""
        args: list[Any] = [claim.lease_name, claim.fence, rows.pack6(int(claim.fence))]
        for listed in (ended, spent):
            args += [len(listed), *listed]
        args += keep
        return int(self.wire.run("unreserve", self.keys, queue, args))

    def begin(self, claim: Claim, reservations: Sequence[Reservation]) -> list[bytes]:
        """Record that ``reservations``, all of one queue, are handled at most once, before they are handled. Returns
        the ids of stale reservations. LeaseLost if a newer launch has announced itself."""
        args: list[Any] = [claim.lease_name, claim.fence]
        for each in reservations:
            args += (each.id, each.row, rows.begun(each.row))
        stale: list[bytes] = self.wire.run("begin", self.keys, reservations[0].queue, args)
        for each in reservations:
            if each.id not in stale:
                each.row = rows.begun(each.row)
        return stale

    def checkpoint(self, claim: Claim, reservation: Reservation, state: bytes, reports: Reports | None = None) -> None:
        """Store a message's checkpoint, with ``reports``. LeaseLost if the message is no longer this holder's."""
        self._keep(claim, reservation, (reservation.id, state), reports)

    def record(self, claim: Claim, reservation: Reservation, entry: StepEntry, reports: Reports | None = None) -> None:
        """Record a step of a message, with ``reports``. LeaseLost if the message is no longer this holder's."""
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
        """Store what handlers report. It tries once. Unanswered if the server does not answer, LeaseLost if a newer
        launch has announced itself."""
        self.wire.once(self._reporting(claim, reports))

    def _reporting(self, claim: Claim, reports: Reports) -> list[Command]:
        """The commands that store ``reports``. They change nothing of a message that another launch has reserved since,
        or that is forgotten."""
        commands, fence = list[Command](), rows.pack6(int(claim.fence))
        for queue, its_reports in reports.items():
            progress = chain.from_iterable(starmap(_report_arguments, its_reports.items()))
            commands.append((*self._beginning("progress", claim, queue), fence, *progress))
        return commands

    def recorded(self, reservation: Reservation) -> tuple[bytes | None, Recorded | None]:
        """The last checkpoint of a message; and its steps and signals, None if it has none."""
        return read_recorded(self.wire, self.keys.queue(reservation.queue, "checkpoints"), reservation.id)

    def previous(self, queue: str, recurrences: Iterable[bytes]) -> list[PreviousOccurrence | None]:
        """The last completed occurrence of each of ``recurrences``; None for one without any."""
        fields = [name + b":previous" for name in recurrences]
        (found,) = self.wire.all([("HMGET", self.keys.queue(queue, "recurrence_counters"), *fields)], parting=False)
        return [read_previous(each) for each in found]

    def promote(self, claim: Claim, queue: str, most: int) -> Promoted:
        """Move at most ``most`` due messages to ``queue``."""
        return Promoted.of(self.wire.run("promote", self.keys, queue, [claim.lease_name, claim.fence, most]))

    def enqueue(self, messages: Sequence[NewMessage], origin: Origin | None = None) -> list[Enqueued]:
        """Enqueue messages: see `Producer.enqueue`."""
        return self.producer.enqueue(messages, origin)

    def queues(self) -> list[str]:
        """Every queue that ever had a message or a consumer, by name."""
        return known_queues(self.wire, self.keys)


def _report_arguments(name: bytes, each: Progress | LogEntry) -> tuple[bytes, str, str, int]:
    """A report as arguments of `progress.lua`."""
    if isinstance(each, LogEntry):
        return name.partition(b"\n")[0], f"{each.head}{each.text}]", each.head, each.most
    return name, json.dumps(each[:3], separators=(",", ":")), "", 0
