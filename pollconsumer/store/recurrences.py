"""Recurrences in the store, and what launches do with them: define those of a configuration, enqueue due occurrences.

A recurrence is stored with the queue of its occurrences: one script enqueues an occurrence and sets the next
instant."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from pollconsumer.core import events
from pollconsumer.core.choices import After, Overlap
from pollconsumer.core.errors import OF_ANY_QUEUE, BadData, NotFound, PollConsumerError, StoreRefused
from pollconsumer.core.events import Event
from pollconsumer.core.lifecycle import State, state_of
from pollconsumer.core.notation.instants import epoch_ms, moment_of
from pollconsumer.core.recurrence import Recurrence, Replaced, Tick, recurrence_from_json, tick, tick_after_end
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.queues.maintenance import stop_message
from pollconsumer.store.records.occurrences import (
    Occurrence,
    PreviousOccurrence,
    id_of,
    occurrence_of,
    read_previous,
    record_of,
)
from pollconsumer.store.records.reservations import Claim
from pollconsumer.store.records.rows import ENDING, ended_at, id_bytes, id_text, read_row
from pollconsumer.store.server import count_of, fields_like, literal, now_ms, readable_queues, unreachable

PAGE = 1000
"""About how many recurrences are read in a round trip."""
COUNTERS = (b"enqueued", b"skipped", b"last", b"paused", b"previous")
_NO_DEFINITION = "it has no definition"
MAX_PAGE_RECURRENCES = 200
"""Maximum number of due recurrences for which one round trip enqueues occurrences, by a run of a script for each."""
MOST_ANEW = 10_000
"""How many of a queue's recurrences a launch examines after a clock was set back: those with the latest instants."""
PUT_AT_RUN_TIME = b'{"rule":'
"""How the stored definition of a recurrence that was put at run time begins."""


class RecurrenceStatus(NamedTuple):
    """A recurrence and its state. ``recurrence``: None if its definition is unreadable; ``error`` says why.
    ``phase_ms``: one of its instants, in epoch ms, from which its periods count. ``last``, ``last_state``: its last
    occurrence's id and state; state None if it is no longer stored. ``awaited``: a configuration defines it, and no
    launch has stored it yet."""

    name: str
    queue: str
    recurrence: Recurrence | None
    error: str | None
    owners: tuple[str, ...]
    next: datetime | None
    phase_ms: int
    paused: bool
    enqueued: int
    skipped: int
    last: str | None
    last_state: State | None
    previous: PreviousOccurrence | None
    raw_name: bytes
    awaited: bool = False

    @property
    def ended(self) -> bool:
        """Whether the recurrence was put at run time, and has no further occurrence."""
        rule = self.recurrence
        return rule is not None and rule.at_run_time and rule.enabled and not self.paused and self.next is None

    @property
    def created_by(self) -> str | None:
        """Who put the recurrence; None if that is unknown, or the definition is unreadable."""
        return None if self.recurrence is None else self.recurrence.created_by


def awaited(recurrence: Recurrence, now_ms: int) -> RecurrenceStatus:
    """The status of a recurrence that the next launch will store."""
    following = recurrence.next_after(now_ms) if recurrence.enabled else None
    return RecurrenceStatus(
        recurrence.name, recurrence.queue, recurrence, error=None, owners=(), next=moment_of(following),
        phase_ms=following or 0,
        paused=False, enqueued=0, skipped=0, last=None, last_state=None, previous=None,
        raw_name=recurrence.name.encode(), awaited=True,
    )  # fmt: skip


def missing(name: str) -> NotFound:
    """The error if there is no recurrence with this name."""
    return NotFound("no such recurrence", name, "recurrences list shows those that there are")


def readable(status: RecurrenceStatus) -> Recurrence:
    """The recurrence of ``status``. BadData if its definition is unreadable."""
    if status.recurrence is None or status.error is not None:
        raise BadData("cannot read recurrence", status.name, f"{status.error}; recurrences remove removes it")
    return status.recurrence


class RecurrenceReader:
    def __init__(self, wire: Wire, namespace: str) -> None:
        self._wire = wire
        self._keys = Keys(namespace)

    def statuses(
        self, emit: Callable[[Event], None], prefix: str = "", created_by: str | None = None
    ) -> Iterator[RecurrenceStatus]:
        """The recurrences whose names begin with ``prefix``; with ``created_by``, only those that this person put. They
        come queue by queue, in pages sorted by name. One that is put or removed meanwhile may be missed, or come twice.
        Queues with corrupt keys are left out, and reported."""
        for queue in readable_queues(self._wire, self._keys):
            try:
                for page in self._pages(queue, prefix):
                    yield from (each for each in page if created_by in (None, each.created_by))
            except StoreRefused as error:
                emit(events.QueueLeftOut(queue, str(error)))

    def _pages(self, queue: str, prefix: str) -> Iterator[list[RecurrenceStatus]]:
        """The recurrences of a queue in pages: those with a definition, then quarantined ones that have lost it."""
        for names in fields_like(self._wire, self._keys.queue(queue, "recurrences"), f"{literal(prefix)}*"):
            yield self.read({queue: names})
        key = self._keys.queue(queue, "recurrences_unreadable")
        for first in range(0, self._wire.command("ZCARD", key), PAGE):
            quarantined = self._wire.command("ZRANGE", key, first, first + PAGE - 1)
            lost = [each for each in self.read({queue: quarantined}) if each.error == _NO_DEFINITION]
            yield [each for each in lost if each.name.startswith(prefix)]

    def unowned(self, most: int) -> Iterator[RecurrenceStatus]:
        """Recurrences to examine for missing owners and unreadable definitions: all that launches define, and the
        ``most`` earliest quarantined ones of each queue. Others, put at run time, may be very many. Queues with corrupt
        keys are left out."""
        for queue in readable_queues(self._wire, self._keys):
            with suppress(StoreRefused):
                for names in fields_like(self._wire, self._keys.queue(queue, "recurrence_owners"), "*"):
                    yield from self.read({queue: names})
                quarantined = self._wire.command(
                    "ZRANGE", self._keys.queue(queue, "recurrences_unreadable"), 0, most - 1
                )
                yield from (each for each in self.read({queue: quarantined}) if not each.owners)

    def find(self, name: str) -> RecurrenceStatus:
        """The first recurrence of that name. NotFound if there is none."""
        return self._named(name)[0]

    def _named(self, name: str) -> list[RecurrenceStatus]:
        """The recurrences of that name in all queues, except queues with corrupt keys. NotFound if there is none."""
        if not isinstance(name, str):  # below, a TypeError would be taken for an unreadable answer
            raise missing(repr(name))
        queues = readable_queues(self._wire, self._keys)
        try:
            found = self.read({queue: [id_bytes(name)] for queue in queues})
        except StoreRefused:
            found = []
            for queue in queues:
                with suppress(StoreRefused):
                    found += self.read({queue: [id_bytes(name)]})
        if not found and self._wire.unread:
            raise unreachable(self._wire.unread)
        if not found:
            raise missing(name)
        return found

    def read(self, names: dict[str, Sequence[bytes]]) -> list[RecurrenceStatus]:
        """The recurrences with these ``names``, given by queue, that exist. Sorted by name within each queue."""
        commands: list[tuple[Any, ...]] = []
        asked = {queue: sorted(set(its_names)) for queue, its_names in names.items() if its_names}
        for queue, its_names in asked.items():
            key = partial(self._keys.queue, queue)
            commands += [("HMGET", key(word), *its_names) for word in ("recurrences", "recurrence_owners")]
            commands += [("ZMSCORE", key(word), *its_names) for word in ("next_instants", "recurrences_unreadable")]
            counters = [b"%b:%b" % (name, what) for name in its_names for what in COUNTERS]
            commands.append(("HMGET", key("recurrence_counters"), *counters))
        answers = iter(self._wire.all(commands) if commands else [])
        found = []
        for queue, its_names in asked.items():
            definitions, owners, scores, quarantined, counts = (next(answers) for _ in range(5))
            held = [counts[at : at + len(COUNTERS)] for at in range(0, len(counts), len(COUNTERS))]
            zipped = zip(its_names, definitions, owners, scores, quarantined, held, strict=True)
            found += [
                _status(queue, name, definition, owner, score if quarantined_at is None else quarantined_at, count)
                for name, definition, owner, score, quarantined_at, count in zipped
                if (definition, score, quarantined_at) != (None, None, None)
            ]
        return self._with_states(found)

    def _with_states(self, found: list[RecurrenceStatus]) -> list[RecurrenceStatus]:
        lasts: dict[str, list[bytes]] = {}
        for each in found:
            if each.last is not None:
                lasts.setdefault(each.queue, []).append(id_bytes(each.last))
        if not lasts:
            return found
        answers = self._wire.all([("HMGET", self._keys.queue(queue, "rows"), *ids) for queue, ids in lasts.items()])
        rows = {queue: iter(held) for queue, held in zip(lasts, answers, strict=True)}
        states = [None if each.last is None else next(rows[each.queue]) for each in found]
        return [
            each if row is None else each._replace(last_state=state_of(read_row(row).timestamps))
            for each, row in zip(found, states, strict=True)
        ]


def read_definition(queue: str, name: bytes, definition: bytes | None) -> Recurrence:
    """The recurrence ``name`` from its stored definition. ValueError if that is missing, corrupt, of a newer version,
    or of another recurrence."""
    if definition is None:
        raise ValueError(_NO_DEFINITION)
    # An earlier version wrote the owner and a line feed in front of it.
    recurrence = recurrence_from_json(definition[definition.find(b"\n") + 1 :], id_text(name), queue)
    if recurrence.name.encode() != name:
        raise ValueError(f"its definition is one of {recurrence.name}")
    return recurrence


def read_replaced(queue: str, name: bytes, stored: bytes | None) -> list[Replaced]:
    """Replaced definitions of a recurrence by which an occurrence is still due. Unreadable ones are left out."""
    found = []
    for entry in (stored or b"").split(b"\n"):
        until, _, rest = entry.partition(b" ")
        following, _, definition = rest.partition(b" ")
        with suppress(ValueError):
            found.append(Replaced(int(until), int(following), read_definition(queue, name, definition)))
    return found


def read_instant(score: bytes) -> int:
    """The next instant in epoch ms, from a sorted set's ``score``. ValueError if it is corrupt, or no date."""
    instant = float(score)
    if not 0 <= instant < 1e14:
        raise ValueError(f"its next instant is {score.decode()}, which no rule yields")
    return int(instant)


def _status(
    queue: str, name: bytes, definition: bytes | None, owner: bytes | None, score: bytes | None, count: list[bytes]
) -> RecurrenceStatus:
    enqueued, skipped, last, paused, previous = count
    recurrence, following, error = None, None, None
    try:
        recurrence = read_definition(queue, name, definition)
        following = None if score is None else read_instant(score)
        recurrence.next_after(following or 0)
    except ValueError as refused:
        error = str(refused)
    return RecurrenceStatus(
        name=id_text(name),
        queue=queue,
        recurrence=recurrence,
        error=error,
        owners=tuple(id_text(each) for each in (owner or b"").split(b"\n") if each),
        next=moment_of(following),
        phase_ms=following or count_of(paused),
        paused=paused is not None,
        enqueued=count_of(enqueued),
        skipped=count_of(skipped),
        last=id_text(last) if last else None,
        last_state=None,
        previous=read_previous(previous),
        raw_name=name,
    )


class LaunchRecurrences:
    def __init__(self, wire: Wire, namespace: str) -> None:
        self._wire = wire
        self._keys = Keys(namespace)

    def define(
        self, owner: str, queues: Sequence[str], recurrences: Sequence[Recurrence], emit: Callable[[Event], None]
    ) -> None:
        """Replace the recurrences that ``owner``, a group, defines in ``queues``.

        A new or changed recurrence begins with its first instant from now on; an occurrence that is due already stays
        due. An unchanged recurrence goes on. One that another group defines, too, is kept, even if ``owner`` no longer
        defines it. One whose name was put at run time is left out, and reported."""
        now = now_ms(self._wire)
        recurrences = self._untaken(queues, recurrences, emit)
        commands = []
        for queue in queues:
            args: list[Any] = [owner]
            for recurrence in recurrences:
                if recurrence.queue == queue:
                    first = recurrence.next_after(now) if recurrence.enabled else None
                    args += (recurrence.name, recurrence.as_json(), "" if first is None else first)
            commands.append(self._wire.queue_command("define", self._keys, queue, args))
        homes = {recurrence.name.encode(): recurrence.queue for recurrence in recurrences}
        for queue, (removed, contested, taken) in self._each(queues, commands, emit):
            for name, due in zip(removed[::2], removed[1::2], strict=True):
                if name not in homes:
                    emit(events.RecurrenceRemoved(id_text(name)))
                elif due:
                    elsewhere = self._keys.queue(homes[name], "next_instants")
                    # GUARD what is due stays due in another queue
                    self._wire.command("ZADD", elsewhere, "XX", "LT", int(due), name)
            for name in contested:
                emit(events.RecurrenceContested(id_text(name), queue))
            for name in taken:
                emit(events.RecurrenceTaken(id_text(name), queue))

    def _untaken(
        self, queues: Sequence[str], recurrences: Sequence[Recurrence], emit: Callable[[Event], None]
    ) -> list[Recurrence]:
        """``recurrences`` without those whose names somebody has put at run time, which are reported. If a name is put
        after this look, `define.lua` finds it, or the put is refused."""
        if not recurrences:
            return []
        names = [recurrence.name for recurrence in recurrences]
        commands = [("HMGET", self._keys.queue(queue, "recurrences"), *names) for queue in queues]
        taken: dict[str, str] = {}
        for queue, definitions in self._each(queues, commands, lambda _: None):
            zipped = zip(names, definitions, strict=True)
            taken |= {name: queue for name, held in zipped if held is not None and held.startswith(PUT_AT_RUN_TIME)}
        for name, queue in taken.items():
            emit(events.RecurrenceTaken(name, queue))
        return [recurrence for recurrence in recurrences if recurrence.name not in taken]

    def _each(
        self, queues: Sequence[str], commands: Sequence[tuple[Any, ...]], emit: Callable[[Event], None]
    ) -> Iterator[tuple[str, Any]]:
        """The answers to one idempotent command for each queue. Queues with corrupt keys are left out, and reported."""
        try:
            answers = self._wire.all(commands) if commands else []
        except OF_ANY_QUEUE:
            raise
        except PollConsumerError as error:
            if len(queues) == 1:
                emit(events.QueueLeftOut(queues[0], str(error)))
            else:
                for queue, command in zip(queues, commands, strict=True):
                    yield from self._each([queue], [command], emit)
            return
        yield from zip(queues, answers, strict=True)

    def tick(
        self, claim: Claim, queue: str, attended_since: Callable[[int], int], emit: Callable[[Event], None]
    ) -> int:
        """Enqueue the due occurrences of ``queue``. Returns their number.

        ``attended_since``: given the server's time, returns since when launches serve the queue; both in epoch ms.

        An unreadable recurrence is quarantined until a later launch announces itself."""
        now, *due = self._wire.run("due", self._keys, queue, [MAX_PAGE_RECURRENCES])
        attended_since_ms = attended_since(now)
        commands: list[tuple[Any, ...]] = []
        unreadable: list[bytes] = []
        after_ends = [
            name for name, definition in zip(due[0], due[2], strict=True) if b'"after"' in (definition or b"")
        ]
        ends = self._last_ends(queue, after_ends)
        for name, instant, definition, before in zip(*due, strict=True):
            try:
                recurrence = read_definition(queue, name, definition)
                when = read_instant(instant), now, attended_since_ms
                replaced = read_replaced(queue, name, before)
                if recurrence.after is After.END and not replaced:  # GUARD a period that counts from an end
                    plan = tick_after_end(recurrence, *when, ends.get(name, 0))
                else:
                    plan = tick(recurrence, *when, replaced)
            except ValueError as error:
                unreadable += (name, instant)
                emit(events.RecurrenceUnreadable(id_text(name), queue, str(error)))
                continue
            if recurrence.overlap is Overlap.REPLACE and plan.enqueue:
                plan = Tick(plan.enqueue[-1:], plan.skipped + len(plan.enqueue) - 1, plan.next)
                self._stop_before(queue, name, plan.enqueue[0])
            commands.append(self._recur(claim, recurrence, (name, instant, definition), plan))
            if plan.skipped:
                emit(events.OccurrencesSkipped(recurrence.name, plan.skipped))
        if unreadable:
            self._wire.run("quarantine", self._keys, queue, [claim.lease_name, claim.fence, *unreadable])
        return sum(max(0, enqueued) for enqueued in self._wire.all(commands)) if commands else 0

    def _stop_before(self, queue: str, name: bytes, instant: int) -> None:
        """For ``overlap="replace"``: stop the last occurrence if it is unfinished and due before ``instant``."""
        key = self._keys.queue(queue, "recurrence_counters")
        last = self._wire.command("HGET", key, name + b":last") or b""
        found = occurrence_of(last)
        if found is not None and found.instant < instant:  # GUARD earlier ones are replaced
            stop_message(self._wire, self._keys, queue, last)

    def _last_ends(self, queue: str, names: Sequence[bytes]) -> dict[bytes, int | None]:
        """For each recurrence, when its last occurrence ended, in epoch ms. None while it is unfinished. 0 if there was
        none, or it was forgotten and was not completed."""
        if not names:
            return {}
        key = partial(self._keys.queue, queue)
        fields = [name + b":last" for name in names]
        lasts = [each or b"" for each in self._wire.command("HMGET", key("recurrence_counters"), *fields)]
        status = [("HMGET", key("rows"), *lasts), *(("HEXISTS", key("records"), each) for each in lasts)]
        found, *recorded = self._wire.all(status)
        ends, forgotten = dict[bytes, int | None](), dict[bytes, Occurrence]()
        for name, last, row, has_record in zip(names, lasts, found, recorded, strict=True):
            unfinished = has_record if row is None else row[ENDING : ENDING + 1] == b"\0"
            ends[name] = None if unfinished else ended_at(row or b"")
            if row is None and not unfinished and (occurrence := occurrence_of(last)) is not None:
                forgotten[name] = occurrence
        return ends | self._ends_of_forgotten(queue, forgotten)

    def _ends_of_forgotten(self, queue: str, occurrences: dict[bytes, Occurrence]) -> dict[bytes, int]:
        """For each recurrence whose occurrence was its last to be completed: when that was, in epoch ms."""
        if not occurrences:
            return {}
        fields = [name + b":previous" for name in occurrences]
        previous = self._wire.command("HMGET", self._keys.queue(queue, "recurrence_counters"), *fields)
        return {
            name: epoch_ms(last.completed)
            for (name, each), last in zip(occurrences.items(), map(read_previous, previous), strict=True)
            if last is not None and epoch_ms(last.instant) == each.instant
        }

    def begin_anew(self, claim: Claim, queue: str) -> None:
        """After the server's clock was set back: go on with the first instants from now on. Otherwise recurrences would
        yield nothing until the instants that they had reached. A recurrence that was put at run time, and has yielded
        nothing yet, keeps its first instant."""
        now, key = now_ms(self._wire), partial(self._keys.queue, queue)
        farthest = ("+inf", f"({now}", "BYSCORE", "REV", "LIMIT", 0, MOST_ANEW, "WITHSCORES")
        found = self._wire.command("ZRANGE", key("next_instants"), *farthest)
        coming = list(zip(found[::2], found[1::2], strict=True))
        for at in range(0, len(coming), MAX_PAGE_RECURRENCES):
            page = coming[at : at + MAX_PAGE_RECURRENCES]
            names = [name for name, _ in page]
            counts = [b"%b:%b" % (name, what) for name in names for what in (b"enqueued", b"skipped")]
            definitions, counted = self._wire.all(
                [("HMGET", key("recurrences"), *names), ("HMGET", key("recurrence_counters"), *counts)]
            )
            commands = []
            zipped = zip(page, definitions, counted[::2], counted[1::2], strict=True)
            for (name, instant), definition, *before in zipped:
                with suppress(ValueError):  # it is unreadable, which its instant will show
                    recurrence, due = read_definition(queue, name, definition), read_instant(instant)
                    following = recurrence.next_after(now, due)
                    begun = not recurrence.at_run_time or any(map(count_of, before))
                    if begun and following is not None and following < due:
                        plan = Tick((), 0, following)
                        commands.append(self._recur(claim, recurrence, (name, instant, definition), plan))
            if commands:
                self._wire.all(commands)

    def _recur(
        self, claim: Claim, recurrence: Recurrence, found: tuple[bytes, bytes, bytes], plan: Tick
    ) -> tuple[Any, ...]:
        """The command that carries out ``plan``. It does nothing if the instant or the definition is no longer as in
        ``found``: name, instant, definition."""
        name, instant, definition = found
        # GUARD none beside an unfinished one
        alone = recurrence.overlap is Overlap.SKIP or recurrence.after is After.END
        when = 1 if alone else 2 * (recurrence.overlap is Overlap.QUEUE)
        args: list[Any] = [
            claim.lease_name, claim.fence, name, instant, "" if plan.next is None else plan.next, plan.skipped,
            when, "" if recurrence.times is None else recurrence.times, definition,
        ]  # fmt: skip
        for each in plan.enqueue:
            args += (id_of(recurrence.name, each), each, record_of(recurrence, each))
        return self._wire.queue_command("recur", self._keys, recurrence.queue, args)
