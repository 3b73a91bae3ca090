"""Arguments and results of a step: what it settles, its limits, what it has reserved and promoted. And what handlers
leave between attempts: progress, checkpoints and steps."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, Self

from pollconsumer.core import json_values
from pollconsumer.core.errors import BadData
from pollconsumer.core.messages.message_steps import (
    AttemptLog,
    Progress,
    Recorded,
    checked,
    head_and_signals,
    step_fields,
)
from pollconsumer.core.notation.instants import datetime_of
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.records import rows
from pollconsumer.store.records.reservations import DeadLetter, Reservation

CompletionEffects = tuple[int, bytes, bytes, bytes]
"""What a completion leaves besides its row: how long its result is kept, in ms; the result; follow-ups; and, for a
member of a batch, the report of its end. Each is b"" for none."""
_NO_EFFECTS: CompletionEffects = 0, b"", b"", b""
Completion = tuple[Reservation, float, float, CompletionEffects | None]
"""A reservation whose handler has returned, and when the handler started and ended, on the monotonic clock."""
CompletedGroup = tuple[bytes, bytes, list[bytes], list[bytes]]
"""Completed messages that are alike: their row, their new row and their ids; and their unique keys and concurrency
keys, if the flags of the row say that they have any."""
GroupEffects = tuple[int, int, bytes, bytes, list[bytes], int, bytes]
"""What a run of completed messages leaves: the position of the first in the step, from 1; how long their results are
kept, in ms; follow-ups of the first message, and which occurrence it is, each b"" for none; one result of each message,
or no results; how many are members of a batch; and the report of their ends."""


class LogEntry(NamedTuple):
    """What an attempt has logged and printed. ``head``: the beginning of the entry, which is unlike that of other
    attempts. ``text`` is JSON. Entries of earlier attempts stay as long as all have ``most`` bytes together."""

    head: str
    text: str
    most: int


Reports = Mapping[str, Mapping[bytes, Progress | LogEntry]]
"""Reports about messages, by queue and then by what they replace. Progress has the message's id. A log entry has the
id, a line feed and the attempt's instant."""
_INSTANT = 6


class Limits(NamedTuple):
    """The limits of a queue. ``max_in_flight``: messages in flight at one time. ``quota``: messages handed out in any
    ``period_ms``. ``rate``: in any ``rate_period_ms``, messages with one rate key and no rate of their own. None for no
    limit."""

    max_in_flight: int | None = None
    quota: int | None = None
    period_ms: int | None = None
    rate: int | None = None
    rate_period_ms: int | None = None

    def packed(self) -> str:
        """The limits as an argument of `step.lua`."""
        return " ".join("" if limit is None else str(limit) for limit in self) if any(self) else ""


class Kept(NamedTuple):
    """How many ended messages are kept at most, and for how many ms; None for no limit."""

    number: int | None = None
    ms: int | None = None


class Retention(NamedTuple):
    """What one queue keeps. ``finished``: the time and the number for completed, for cancelled and
    for expired messages each; None for the default."""

    finished: Kept | None = None
    dead: Kept = Kept()


class Settlement(NamedTuple):
    """What the store is told of a reserved message that is not completed. ``ms``: the delay until the message is
    offered again, 0 if it is not scheduled; for a dead letter, 1 if it holds its order key. ``text``: the error of the
    attempt, or why the message waits."""

    id: bytes
    row: bytes
    new_row: bytes
    kind: str
    ms: int = 0
    text: str = ""
    took: int | str = ""
    """How many milliseconds the handler took; "" if the message was not handled."""

    @classmethod
    def retrying(cls, reservation: Reservation, started: int, failed: int, *, delay_ms: int, error: str) -> Self:
        row = reservation.row
        return cls(reservation.id, row, rows.retrying(row, failed), "retry", delay_ms, error, failed - started)

    @classmethod
    def deferred(cls, reservation: Reservation, *, delay_ms: int, error: str, took: int) -> Self:
        """The settlement of a message that its handler defers. No attempt is charged."""
        row = rows.deferred(reservation.row)
        return cls(reservation.id, reservation.row, row, "retry", delay_ms, error, took)

    @classmethod
    def dead(
        cls,
        reservation: Reservation,
        started: int,
        failed: int,
        *,
        error: str,
        counted: bool = True,
        holds: bool = False,
    ) -> Self:
        """The settlement of a message that becomes a dead letter. ``counted``: the attempt was made. ``holds``: the
        messages behind it with its order key wait until it is redriven or purged."""
        row = reservation.row
        new_row = rows.dead(row if counted else rows.unstarted(row), started, failed)
        return cls(reservation.id, row, new_row, "dead", int(holds), error, failed - started if counted else "")

    @classmethod
    def expired(cls, reservation: Reservation, now: int) -> Self:
        """The settlement of a message that has expired. It was not handled, and no attempt is charged."""
        return cls(reservation.id, reservation.row, rows.expired(reservation.row, now), "expire")

    @classmethod
    def stopped(cls, reservation: Reservation, started: int, ended: int, *, error: str) -> Self:
        """The settlement of a message that is cancelled, because a person stopped it while it was in flight."""
        row = reservation.row
        return cls(reservation.id, row, rows.stopped(row, started, ended), "cancel", 0, error, ended - started)

    @classmethod
    def released(cls, reservation: Reservation, deaths: int = 0) -> Self:
        """The settlement of a message that goes back to the head of its queue. No attempt is charged. ``deaths`` is
        added to its number of deaths."""
        return cls(reservation.id, reservation.row, rows.released(reservation.row, deaths), "release")

    @classmethod
    def parked(cls, reservation: Reservation, *, offered_in_ms: int, problem: str) -> Self:
        """The settlement of a message that waits, uncharged, until a launch knows its handler, or that is resumed."""
        row = reservation.row
        return cls(reservation.id, row, rows.parked(row), "park", offered_in_ms, problem)

    @classmethod
    def asleep(cls, reservation: Reservation, *, wakes_in_ms: int, took: int) -> Self:
        """The settlement of a message that leaves its slot, uncharged, until a sleep ends or a signal comes."""
        row = rows.deferred(reservation.row)
        return cls(reservation.id, reservation.row, row, "asleep", wakes_in_ms, "", took)

    @classmethod
    def postponed(cls, reservation: Reservation, *, offered_in_ms: int, problem: str = "") -> Self:
        """The settlement of a message that is left for later, perhaps for a newer version. No attempt is charged. It
        counts as parked, too."""
        row = reservation.row
        return cls(reservation.id, row, rows.deferred(row), "park", offered_in_ms, problem)


class QueueStep:
    """One queue's part of a step: settlements, how many messages to reserve, and the limits."""

    def __init__(self, queue: str, wanted: int = 0, limits: str = "") -> None:
        self.queue, self.wanted, self.limits = queue, wanted, limits
        self.single = False
        """Whether to reserve one message only, if it is without options: see `reserve_one.lua`."""
        self.trims: Retention | None = None
        """What the queue keeps, if the step trims it first."""
        self.completed = 0
        """How many messages are completed."""
        self.groups: list[CompletedGroup] = []
        self.group_effects: list[GroupEffects] = []
        self.settlements: list[Settlement] = []
        self.occurred: set[bytes] = set()
        """Recurrences whose occurrences are completed."""
        self.reports_ends = False
        """Whether a settlement may report the end of a message with a continuation."""

    def complete(self, completions: Sequence[Completion]) -> None:
        """Add completed messages, in the order in which they ended. Hot path: short messages that were enqueued
        together differ only in their ids."""
        last_row, since, until, ids = b"", 0.0, 0.0, list[bytes]()
        flags, leaves, groups_before = 0, False, len(self.groups)
        for reservation, started, ended, effects in completions:
            row = reservation.row
            if row != last_row or started < since or ended >= until:
                common = reservation.common
                at, shown_at = common.reserved_at, common.shown_at
                started_ms, ended_ms = at + int((started - shown_at) * 1000), at + int((ended - shown_at) * 1000)
                # Messages that start and end in the same millisecond have the same row.
                since = shown_at + (started_ms - at) / 1000
                until = shown_at + (ended_ms + 1 - at) / 1000 if started_ms == ended_ms else 0.0
                last_row, ids, flags = row, [], flags | row[rows.FLAGS]
                self.groups.append((row, rows.completed(row, started_ms, ended_ms), ids, []))
            ids.append(reservation.id)
            if effects is not None:
                leaves = True
        groups, occurs = self.groups[groups_before:], False
        for _, _, ids, _ in groups:
            occurs = occurs or b"Z" in b"".join(ids)  # the id of an occurrence ends with it
        if leaves or occurs:
            self._add_effects(completions, occurs=occurs)
        if flags & rows.KEYED:
            self._add_keys(completions, groups)
        self.completed += len(completions)

    def _add_effects(self, completions: Sequence[Completion], *, occurs: bool) -> None:
        """Add what completed messages leave. Mostly each has a result."""
        first = self.completed + 1
        ms, results, outgoing, member_end = zip(*[each[3] or _NO_EFFECTS for each in completions], strict=True)
        if (
            len(set(ms)) == len(set(member_end)) == 1
            and (all(results) or not any(results))
            and not (occurs or any(outgoing))
        ):
            self._add_results(first, ms[0], results, member_end[0])
            return
        for number, (reservation, _, ended, effects) in enumerate(completions, first):
            kept_ms, result, sent, end = effects or _NO_EFFECTS
            which, occurrence = b"", reservation.occurrence
            if occurrence is not None:
                self.occurred.add(occurrence.recurrence)
                which = occurrence.completed(reservation.server_ms(ended))
            if sent or which:
                self.group_effects.append(
                    (number, kept_ms, sent, which, [result] if result else [], 1 if end else 0, end)
                )
            elif result or end:
                self._add_results(number, kept_ms, [result], end)

    def _add_results(self, first: int, ms: int, results: Sequence[bytes], member_end: bytes) -> None:
        """Add the results of consecutive messages, all of which have one or none, and the reports of their ends.
        Results that are kept for the same time make one entry."""
        kept, members = [*results] if results[0] else [], len(results) if member_end else 0
        if self.group_effects:
            first_before, ms_before, outgoing, which, before, members_before, member_end_before = self.group_effects[-1]
            follow = first_before + (members_before or len(before)) == first and bool(before) == bool(kept)
            if follow and (ms_before, member_end_before) == (ms, member_end) and not (outgoing or which):
                before += kept
                self.group_effects[-1] = first_before, ms, b"", b"", before, members_before + members, member_end
                return
        self.group_effects.append((first, ms, b"", b"", kept, members, member_end))

    def _add_keys(self, completions: Sequence[Completion], groups: Iterable[CompletedGroup]) -> None:
        at = 0
        for row, _, ids, keys in groups:
            in_group, at = completions[at : at + len(ids)], at + len(ids)
            if row[rows.FLAGS] & rows.UNIQUE_KEY:
                keys += [each[0].unique_key for each in in_group]
            if row[rows.FLAGS] & rows.CONCURRENCY_KEY:
                keys += [each[0].concurrency_key for each in in_group]

    def has_outgoing(self) -> bool:
        """Whether the step leaves anything in the outbox: follow-ups, or reports of ends."""
        return self.reports_ends or any(
            outgoing or member_end for _, _, outgoing, _, _, _, member_end in self.group_effects
        )

    def packed(self) -> list[Any]:
        """The settlements, for `step.lua`. Numbers of completions are text already, since converting them here would
        mean looking at each part."""
        packed: list[Any] = [b"%d" % self.completed, b"", b""]
        for _, _, ids, _ in self.groups:
            packed += ids
        for row, new_row, ids, keys in self.groups:
            packed += (b"%d" % len(ids), row, new_row)
            packed += keys
        ends = len(packed)
        packed[1] = b"%d" % (ends - 3)
        for first, ms, outgoing, which, results, members, member_end in self.group_effects:
            packed += (b"%d" % first, b"%d" % len(results), b"%d" % ms, outgoing, which, b"%d" % members, member_end)
            packed += results
        packed[2] = b"%d" % (len(packed) - ends)
        packed += chain.from_iterable(self.settlements)
        return packed

    def ids(self) -> list[bytes]:
        return [*chain.from_iterable(ids for _, _, ids, _ in self.groups), *(each.id for each in self.settlements)]


class Promoted(NamedTuple):
    """What a promotion has moved and found. ``next_due``: seconds until the next due time; None if there is none.
    ``recurring``: a recurrence is due now. ``to_repair``: messages are in flight, wait for a place, or are in the
    outbox. They may belong to a launch that died."""

    moved: int
    next_due: float | None
    recurring: bool
    to_repair: bool

    @classmethod
    def of(cls, answer: Sequence[int]) -> Self:
        """The promotion, read from the answer of `promote.lua`."""
        moved, next_due, recurring, to_repair = answer
        return cls(moved, None if next_due < 0 else next_due / 1_000_000, bool(recurring), bool(to_repair))


class Stepped:
    """What a step has found and reserved in all of its queues."""

    def __init__(self) -> None:
        self.reserved: list[Reservation] = []
        self.stale: list[bytes] = []
        """Ids of settled messages that were no longer reserved for this launch."""
        self.successor = False
        """Whether the next launch waits for the lease."""
        self.more_in: float | None = None
        """Seconds until limits allow more; 0 to ask again at once. None if nothing was held back, or if that depends on
        messages in flight."""
        self.held_back = False
        """Whether some queue has ready messages, and none of them was reserved."""
        self.newer: list[str] = []
        """Queues in which messages of a newer version were deferred."""
        self.promoted: list[Promoted] = []
        """The results of the promotions, in the order of the queues."""
        self.dead_letters: list[DeadLetter] = []
        """Malformed messages, which are dead letters now."""
        self.needs_full_step: list[str] = []
        """Queues whose next message has options, although one without options was wanted."""


def read_log(stored: bytes | None) -> list[AttemptLog]:
    """What attempts have logged, from stored text, the earliest first. Corrupt entries are left out."""
    found = []
    for line in (stored or b"").split(b"\n"):
        try:
            at, attempt, text = json_values.parse(line)
            if isinstance(text, str | dict):
                found.append(AttemptLog(int(attempt), datetime_of(at), text))
        except (ValueError, TypeError, OverflowError):
            continue
    return found


def read_progress(stored: bytes | None) -> Progress | None:
    """The progress in stored text; None if it is missing or corrupt."""
    if stored is None:
        return None
    try:
        completions, total, note, *_ = json_values.parse(stored[_INSTANT:])  # a newer version may add fields
        return checked(completions, total, note)._replace(at=datetime_of(int.from_bytes(stored[:_INSTANT], "big")))
    except (ValueError, TypeError, BadData):
        return None


def read_recorded(wire: Wire, key: str, message_id: bytes) -> tuple[bytes | None, Recorded | None]:
    """The last checkpoint of a message, from the hash ``key``; and its steps and signals, None if it has none."""
    first = ("HMGET", key, message_id, *head_and_signals(message_id))
    state, head, signals = wire.all([first], parting=False)[0]
    fields, entries = step_fields(message_id, head), list[bytes | None]()
    if fields:
        (entries,) = wire.all([("HMGET", key, *fields)], parting=False)
    return state, None if head is None else Recorded.read(head, entries, signals or b"")
