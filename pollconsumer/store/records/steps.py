"""The arguments and results of a step: what it settles, its limits, what it reserves and promotes. Also what handlers
store during an attempt: progress, logged lines, checkpoints and steps."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from math import inf
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
"""What a completion stores besides the message's row: for how many ms its result is kept; the result; follow-ups; and
the report of a batch's member. Each of the last three is empty if there is none."""
_NO_EFFECTS: CompletionEffects = 0, b"", b"", b""
Completion = tuple[Reservation, float, float, CompletionEffects | None]
"""A completed message, when its handler began and ended on the monotonic clock, and its effects, or None."""
CompletedGroup = tuple[bytes, bytes, list[bytes], list[bytes]]
"""Completed messages that are alike: the row that they had, their new row, and their ids. If the row's flags say that
there are keys, also their unique keys and concurrency keys."""
GroupEffects = tuple[int, int, bytes, bytes, list[bytes], int, bytes]
"""The effects of consecutive completed messages in a step: the position of the first, from 1; for how many ms results
are kept; the first one's follow-ups, and which occurrence it is, each empty for none; one result for each message, or
no results; how many of the messages are members of a batch; and the report of these members."""


class LogEntry(NamedTuple):
    """What an attempt has logged and printed. ``head``: how the entry begins, which identifies the attempt. ``text``:
    JSON. ``most``: maximum bytes of a message's entries; the oldest ones are dropped."""

    head: str
    text: str
    most: int


Reports = Mapping[str, Mapping[bytes, Progress | LogEntry]]
"""Reports of handlers, by queue, then by the name under which a later report replaces an earlier one: for progress the
id; for a log entry the id, a line feed and when the message was reserved."""
_INSTANT = 6


class Limits(NamedTuple):
    """The limits of a queue; None: no limit. ``max_in_flight``: messages in flight. ``quota``: messages handed out in
    any ``period_ms``. ``rate``: messages with one rate key, and no rate of their own, in any ``rate_period_ms``."""

    max_in_flight: int | None = None
    quota: int | None = None
    period_ms: int | None = None
    rate: int | None = None
    rate_period_ms: int | None = None

    def packed(self) -> str:
        """The limits as an argument of `step.lua`."""
        return " ".join("" if limit is None else str(limit) for limit in self) if any(self) else ""


class Kept(NamedTuple):
    """The maximum number of ended messages that are kept, and for how many ms; None for no limit."""

    number: int | None = None
    ms: int | None = None


class Retention(NamedTuple):
    """What a queue keeps. ``finished``: messages of each of three states, completed, cancelled and expired; None
    for the default. ``dead``: dead letters."""

    finished: Kept | None = None
    dead: Kept = Kept()


class Settlement(NamedTuple):
    """How a reserved message that is not completed is settled. ``kind``: what becomes of it. ``ms``: the delay until it
    is offered again, 0 if it is not scheduled; for a dead letter 1 if it holds its order key; for one released 1 if its
    handler had begun. ``text``: the error, or why it waits."""

    id: bytes
    row: bytes
    new_row: bytes
    kind: str
    ms: int = 0
    text: str = ""
    took: int | str = ""
    """Milliseconds that the handler took; empty if it was not called."""

    @classmethod
    def retrying(cls, reservation: Reservation, started: int, failed: int, *, delay_ms: int, error: str) -> Self:
        row = reservation.row
        return cls(reservation.id, row, rows.retrying(row, failed), "retry", delay_ms, error, failed - started)

    @classmethod
    def deferred(cls, reservation: Reservation, *, delay_ms: int, error: str, took: int) -> Self:
        """For a message that its handler defers. No attempt is charged. ``took``: see the field."""
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
        """For a message that becomes a dead letter. ``counted``: the attempt counts. ``holds``: messages with its order
        key wait until it is redriven or purged."""
        row = reservation.row
        new_row = rows.dead(row if counted else rows.unstarted(row), started, failed)
        return cls(reservation.id, row, new_row, "dead", int(holds), error, failed - started if counted else "")

    @classmethod
    def expired(cls, reservation: Reservation, now: int) -> Self:
        """For a message that expired before it was handled. No attempt is charged."""
        return cls(reservation.id, reservation.row, rows.expired(reservation.row, now), "expire")

    @classmethod
    def stopped(cls, reservation: Reservation, started: int, ended: int, *, error: str) -> Self:
        """For a message that is cancelled, since somebody asked to stop it while it was in flight."""
        row = reservation.row
        return cls(reservation.id, row, rows.stopped(row, started, ended), "cancel", 0, error, ended - started)

    @classmethod
    def released(cls, reservation: Reservation, deaths: int = 0, *, begun: bool = False) -> Self:
        """For a message that returns to the head of its queue, uncharged. ``deaths`` are added to its number of
        deaths. ``begun``: its handler was called, which counts for its rate."""
        return cls(reservation.id, reservation.row, rows.released(reservation.row, deaths), "release", int(begun))

    @classmethod
    def parked(cls, reservation: Reservation, *, offered_in_ms: int, problem: str) -> Self:
        """Park a message whose handler is unknown or paused. It is offered again after ``offered_in_ms``, uncharged."""
        row = reservation.row
        return cls(reservation.id, row, rows.parked(row), "park", offered_in_ms, problem)

    @classmethod
    def asleep(cls, reservation: Reservation, *, wakes_in_ms: int, took: int) -> Self:
        """For a message that sleeps until a time, or until a signal comes. No attempt is charged."""
        row = rows.deferred(reservation.row)
        return cls(reservation.id, reservation.row, row, "asleep", wakes_in_ms, "", took)

    @classmethod
    def postponed(cls, reservation: Reservation, *, offered_in_ms: int, problem: str = "") -> Self:
        """Postpone a message that could not begin, or that a newer version wrote. It is offered again after
        ``offered_in_ms``, and totals count it as parked. No attempt is charged."""
        row = reservation.row
        return cls(reservation.id, row, rows.deferred(row), "park", offered_in_ms, problem)


class QueueStep:
    """The part of a step for one queue: settlements, the number of messages to reserve, the limits."""

    def __init__(self, queue: str, wanted: int = 0, limits: str = "") -> None:
        self.queue, self.wanted, self.limits = queue, wanted, limits
        self.single = False
        """Whether to reserve one message only, unless it has options: see `reserve_one.lua`."""
        self.trims: Retention | None = None
        """If set, the step first deletes old messages of the queue, and keeps what this says."""
        self.completed = 0
        """The number of completed messages in the step."""
        self.groups: list[CompletedGroup] = []
        self.group_effects: list[GroupEffects] = []
        self.settlements: list[Settlement] = []
        self.occurred: set[bytes] = set()
        """Recurrences of which an occurrence is completed."""
        self.reports_ends = False
        """Whether a settlement may end a message that has a continuation, whose end is then reported."""

    def complete(self, completions: Sequence[Completion]) -> None:
        """Add completed messages, in the order in which they ended; optimised for messages that differ only in id."""
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
        """Add the effects of completed messages. ``occurs``: some are occurrences."""
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
        """Add the results of consecutive messages, which all have one or all have none, and the reports of their ends.
        Messages whose results are kept for the same time share one entry."""
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
        """Whether the step puts anything into the outbox: follow-ups, or reports of ends."""
        return self.reports_ends or any(
            outgoing or member_end for _, _, outgoing, _, _, _, member_end in self.group_effects
        )

    def packed(self) -> list[Any]:
        """The step's settlements as arguments of `step.lua`. Numbers about completed messages are text already."""
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
    """The result of a promotion. ``next_due``: seconds until a message or recurrence is due, infinity for none.
    ``recurring``: a recurrence is due. ``to_repair``: messages are in flight, wait for a key, or are in the outbox, and
    may be those of a dead launch."""

    moved: int
    next_due: float
    recurring: bool
    to_repair: bool

    @classmethod
    def of(cls, answer: Sequence[int]) -> Self:
        """The promotion, read from the answer of `promote.lua`."""
        moved, next_due, recurring, to_repair = answer
        return cls(moved, inf if next_due < 0 else next_due / 1_000_000, bool(recurring), bool(to_repair))


class Stepped:
    """What a step has reserved and found, in all of its queues."""

    def __init__(self) -> None:
        self.reserved: list[Reservation] = []
        self.stale: list[bytes] = []
        """Ids of settled messages that were not reserved for this launch any more."""
        self.successor = False
        """Whether the next launch waits for the lease."""
        self.more_in = inf
        """Seconds until a limit allows more messages; 0: ask again at once. Infinity if no limit held any back, or if
        the time depends on messages in flight."""
        self.held_back = False
        """Whether a queue has ready messages, and none of them was reserved."""
        self.newer: list[str] = []
        """Queues in which messages of a newer version were deferred."""
        self.promoted: list[Promoted] = []
        """The result of each promotion, in the order of the queues."""
        self.dead_letters: list[DeadLetter] = []
        """Messages that could not be read, and became dead letters."""
        self.needs_full_step: list[str] = []
        """Queues whose next message needs a full step, so that it was not reserved alone (`QueueStep.single`)."""


def read_log(stored: bytes | None) -> list[AttemptLog]:
    """What each attempt has logged, from its stored text, the earliest first. Corrupt entries are left out."""
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
    """The progress, from its stored text. None if that is missing or corrupt."""
    if stored is None:
        return None
    try:
        completions, total, note, *_ = json_values.parse(stored[_INSTANT:])  # a newer version may add fields
        return checked(completions, total, note)._replace(at=datetime_of(int.from_bytes(stored[:_INSTANT], "big")))
    except (ValueError, TypeError, BadData):
        return None


def read_recorded(wire: Wire, key: str, message_id: bytes) -> tuple[bytes | None, Recorded | None]:
    """A message's last checkpoint, or None; and its steps and signals, or None. ``key``: the hash of checkpoints."""
    first = ("HMGET", key, message_id, *head_and_signals(message_id))
    state, head, signals = wire.all([first], parting=False)[0]
    fields, entries = step_fields(message_id, head), list[bytes | None]()
    if fields:
        (entries,) = wire.all([("HMGET", key, *fields)], parting=False)
    return state, None if head is None else Recorded.read(head, entries, signals or b"")
