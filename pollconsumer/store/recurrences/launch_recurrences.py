"""What launches do with recurrences: define what their configuration has, and enqueue what is due.

They are stored with the queue of their occurrences, so that enqueueing one and setting the next instant is one script.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from pollconsumer.core.choices import After, Overlap
from pollconsumer.core.errors import OF_ANY_QUEUE, PollConsumerError
from pollconsumer.core.news import events
from pollconsumer.core.news.events import Event
from pollconsumer.core.recurrence import Recurrence, Tick, tick, tick_after_end
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.records.occurrences import id_of, record_of
from pollconsumer.store.records.reservations import Claim
from pollconsumer.store.records.rows import ENDING, ended_at, id_text
from pollconsumer.store.recurrences.recurrence_reader import read_definition, read_instant, read_replaced
from pollconsumer.store.server import count_of, now_ms

MAX_PAGE_RECURRENCES = 200
"""Recurrences that are ticked in a round trip, each by a script of its own."""
MOST_ANEW = 10_000
"""Recurrences of a queue that a launch looks at after the clock was set back, the last ones due first."""
PUT_AT_RUN_TIME = b'{"rule":'
"""How the definition of a recurrence begins that was put at run time."""


class LaunchRecurrences:
    def __init__(self, wire: Wire, namespace: str) -> None:
        self._wire = wire
        self._keys = Keys(namespace)

    def define(
        self, owner: str, queues: Sequence[str], recurrences: Sequence[Recurrence], emit: Callable[[Event], None]
    ) -> None:
        """Replace ``owner``'s recurrences in all of ``queues``.

        A new or changed one starts with its first instant from now on, but what is due stays due; an unchanged one
        continues. One with another owner stays when this one no longer defines it. One whose name was put at run time
        is left out.
        """
        now = now_ms(self._wire)
        recurrences = self._untaken(queues, recurrences, emit)
        script = self._wire.scripts["define"]
        commands = []
        for queue in queues:
            args: list[Any] = [owner]
            for recurrence in recurrences:
                if recurrence.queue == queue:
                    first = recurrence.next_after(now) if recurrence.enabled else None
                    args += (recurrence.name, recurrence.as_json(), "" if first is None else first)
            commands.append(self._wire.script(script, self._keys.of_script(script, queue), args))
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
        """The recurrences whose names nobody has put at run time, in any queue. A put that comes later is refused, or
        found by the script."""
        if not recurrences:
            return []
        names = [recurrence.name for recurrence in recurrences]
        commands = [("HMGET", self._keys.queue(queue, "recurrences"), *names) for queue in queues]
        taken: dict[str, str] = {}
        for queue, definitions in self._each(queues, commands, lambda _: None):
            of_each = zip(names, definitions, strict=True)
            taken |= {name: queue for name, held in of_each if held is not None and held.startswith(PUT_AT_RUN_TIME)}
        for name, queue in taken.items():
            emit(events.RecurrenceTaken(name, queue))
        return [recurrence for recurrence in recurrences if recurrence.name not in taken]

    def _each(
        self, queues: Sequence[str], commands: Sequence[tuple[Any, ...]], emit: Callable[[Event], None]
    ) -> Iterator[tuple[str, Any]]:
        """Answers to idempotent commands, by queue, in one round trip; without queues whose keys are unusable."""
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
        """Enqueue the due occurrences of ``queue``. Returns how many.

        ``attended_since``: since when a launch has been there, by the server's clock, whose time it is told.

        An unreadable recurrence is set aside until another launch announces itself.
        """
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
            commands.append(self._recur(claim, recurrence, (name, instant, definition), plan))
            if plan.skipped:
                emit(events.OccurrencesSkipped(recurrence.name, plan.skipped))
        if unreadable:
            self._wire.run("set_aside", self._keys, queue, [claim.lineage, claim.fence, *unreadable])
        return sum(max(0, enqueued) for enqueued in self._wire.all(commands)) if commands else 0

    def _last_ends(self, queue: str, names: Sequence[bytes]) -> dict[bytes, int | None]:
        """When the last occurrence of each recurrence ended, in epoch ms: None while it is unfinished, 0 if there was
        none, or nothing is stored of it any more."""
        if not names:
            return {}
        key = partial(self._keys.queue, queue)
        fields = [name + b":last" for name in names]
        lasts = [each or b"" for each in self._wire.command("HMGET", key("recurrence_counters"), *fields)]
        standing = [("HMGET", key("rows"), *lasts), *(("HEXISTS", key("records"), each) for each in lasts)]
        found, *recorded = self._wire.all(standing)
        ends: dict[bytes, int | None] = {}
        for name, row, has_record in zip(names, found, recorded, strict=True):
            unfinished = has_record if row is None else row[ENDING : ENDING + 1] == b"\0"
            ends[name] = None if unfinished else ended_at(row or b"")
        return ends

    def begin_anew(self, claim: Claim, queue: str) -> None:
        """Go on with the first instants from now on, after the server's clock was set back: a recurrence that has
        had a later instant would stand still until then. One that has not begun keeps its first instant."""
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
            of_each = zip(page, definitions, counted[::2], counted[1::2], strict=True)
            for (name, instant), definition, *before in of_each:
                with suppress(ValueError):  # unreadable, which its instant will show
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
        """The command that carries out ``plan``, if due instant and definition are still as they were ``found``."""
        name, instant, definition = found
        # GUARD none beside an unfinished one
        alone = recurrence.overlap is Overlap.SKIP or recurrence.after is After.END
        args: list[Any] = [
            claim.lineage, claim.fence, name, instant, "" if plan.next is None else plan.next, plan.skipped,
            int(alone), "" if recurrence.times is None else recurrence.times, definition,
        ]  # fmt: skip
        for each in plan.enqueue:
            args += (id_of(recurrence.name, each), each, record_of(recurrence, each))
        script = self._wire.scripts["recur"]
        return self._wire.script(script, self._keys.of_script(script, recurrence.queue), args)
