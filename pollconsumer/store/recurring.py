"""Recurrences in the store: definitions, next instants, and counts.

They are stored with the queue of their occurrences, so that enqueueing one and setting the next instant is one script.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from pollconsumer.core import events
from pollconsumer.core.choices import Overlap
from pollconsumer.core.errors import (
    BadData,
    LeaseLost,
    NotFound,
    PermissionDenied,
    PollConsumerError,
    StoreRefused,
    StoreUnreachable,
)
from pollconsumer.core.events import Event
from pollconsumer.core.message import NewMessage
from pollconsumer.core.notation.instants import datetime_of, iso_of
from pollconsumer.core.recurrence import Recurrence, of_json, tick
from pollconsumer.store import rows
from pollconsumer.store.id_text import id_bytes, id_text
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.reservations import Holder
from pollconsumer.store.rights import OPERATOR, demand
from pollconsumer.store.server import count_of, known_queues, now_ms
from pollconsumer.store.wire import Wire

MAX_BATCH_RECURRENCES = 50
OF_ANY_QUEUE = (LeaseLost, PermissionDenied, StoreUnreachable)
"""Errors that are not due to a single queue's keys."""


class RecurrenceStatus(NamedTuple):
    """A recurrence and its state; instants in epoch ms. ``recurrence`` is None if it is unreadable, and ``error`` says
    why."""

    name: str
    queue: str
    recurrence: Recurrence | None
    error: str | None
    owners: tuple[str, ...]
    next: int | None
    paused: bool
    enqueued: int
    skipped: int
    last: str | None
    raw_name: bytes


class Recurring:
    def __init__(self, wire: Wire, namespace: str) -> None:
        self._wire = wire
        self._keys = Keys(namespace)

    def define(
        self, owner: str, queues: Sequence[str], recurrences: Sequence[Recurrence], emit: Callable[[Event], None]
    ) -> None:
        """Replace ``owner``'s recurrences in all of ``queues``.

        A new or changed one starts with its first instant from now on, but what is due stays due; an unchanged one
        continues. One with another owner stays when this one no longer defines it.
        """
        now = now_ms(self._wire)
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
        for queue, (removed, contested) in self._each(queues, commands, emit):
            for name, due in zip(removed[::2], removed[1::2], strict=True):
                if name not in homes:
                    emit(events.RecurrenceRemoved(id_text(name)))
                elif due:
                    elsewhere = self._keys.queue(homes[name], "next_instants")
                    self._wire.command("ZADD", elsewhere, "XX", "LT", int(due), name)
            for name in contested:
                emit(events.RecurrenceContested(id_text(name), queue))

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

    def try_again(self, holder: Holder, queue: str) -> None:
        """Return recurrences that were set aside: this launch may be able to read them."""
        self._wire.run("try_again", self._keys, queue, [holder.lineage, holder.fence])

    def tick(self, holder: Holder, queue: str, attended_since_ms: int, emit: Callable[[Event], None]) -> int:
        """Enqueue the due occurrences of ``queue``. Returns how many.

        ``attended_since_ms``: since when a launch has been there, by the server's clock.

        An unreadable recurrence is set aside until `try_again`.
        """
        now, due = self._wire.run("due", self._keys, queue, [MAX_BATCH_RECURRENCES])
        enqueued = 0
        unreadable: list[bytes] = []
        for name, instant, definition in zip(due[::3], due[1::3], due[2::3], strict=True):
            try:
                recurrence = _read(name, definition)
                plan = tick(recurrence, _instant(instant), now, attended_since_ms)
            except ValueError as error:
                unreadable += (name, instant)
                emit(events.RecurrenceUnreadable(id_text(name), queue, str(error)))
                continue
            args: list[Any] = [
                holder.lineage, holder.fence, name, instant, "" if plan.next is None else plan.next, plan.skipped,
                int(recurrence.overlap is Overlap.SKIP),
            ]  # fmt: skip
            for each in plan.enqueue:
                args += (occurrence_id(recurrence, each), each, occurrence_record(recurrence, each))
            enqueued += max(0, self._wire.run("recur", self._keys, queue, args))
            if plan.skipped:
                emit(events.OccurrencesSkipped(recurrence.name, plan.skipped))
        if unreadable:
            self._wire.run("set_aside", self._keys, queue, [holder.lineage, holder.fence, *unreadable])
        return enqueued

    def standing(self, emit: Callable[[Event], None]) -> Iterator[RecurrenceStatus]:
        """Every recurrence, by queue and name, of usable queues."""
        for queue in known_queues(self._wire, self._keys):
            key = partial(self._keys.queue, queue)
            commands: list[tuple[Any, ...]] = [
                ("HGETALL", key(name)) for name in ("recurrences", "recurrence_counters", "recurrence_owners")
            ]
            commands += [
                ("ZRANGE", key(name), 0, -1, "WITHSCORES") for name in ("next_instants", "recurrences_unreadable")
            ]
            try:
                found = self._wire.all(commands)
            except StoreRefused as error:
                emit(events.QueueLeftOut(queue, str(error)))
                continue
            definitions, count, owners, due, aside = (dict(zip(each[::2], each[1::2], strict=True)) for each in found)
            for name in sorted(definitions.keys() | due.keys() | aside.keys()):
                yield _standing(
                    queue, name, definitions.get(name, b""), (aside | due).get(name), count, owners.get(name, b"")
                )

    def find(self, name: str) -> RecurrenceStatus:
        """The first one of that name. Raises NotFound."""
        return self._named(name)[0]

    def _named(self, name: str) -> list[RecurrenceStatus]:
        """In every usable queue: a look-up by name does not concern the others."""
        if found := [each for each in self.standing(lambda _: None) if each.raw_name == id_bytes(name)]:
            return found
        raise NotFound("no such recurrence", name, "recurrences list shows those there are, once a launch defined them")

    def remove(self, name: str) -> None:
        """In every queue. The next launch that defines it adds it again. Raises NotFound."""
        for standing in self._named(name):
            demand(self._wire, OPERATOR, self._keys.queue(standing.queue, "recurrences"))
            self._wire.run("undefine", self._keys, standing.queue, [standing.raw_name])

    def pause(self, standing: RecurrenceStatus) -> None:
        """Yield no occurrences until it is resumed; those in between are not missed."""
        self._hold(standing, "")

    def resume(self, standing: RecurrenceStatus) -> None:
        """Raises BadData if it is not paused but disabled."""
        recurrence = readable(standing)
        if not recurrence.enabled:
            raise BadData("cannot resume", recurrence.name, "it is disabled: enable it where it is defined")
        following = recurrence.next_after(now_ms(self._wire))
        self._hold(standing, "" if following is None else following)

    def _hold(self, standing: RecurrenceStatus, instant: int | str) -> None:
        demand(self._wire, OPERATOR, self._keys.queue(standing.queue, "recurrences"))
        self._wire.run("hold", self._keys, standing.queue, [standing.raw_name, instant])


def readable(standing: RecurrenceStatus) -> Recurrence:
    """Raises BadData if it is unreadable."""
    if standing.recurrence is None or standing.error is not None:
        raise BadData("cannot read recurrence", standing.name, f"{standing.error}; recurrences remove removes it")
    return standing.recurrence


def occurrence_id(recurrence: Recurrence, instant: int) -> str:
    """Deterministic: the same instant always yields the same id."""
    return f"{recurrence.name}@{iso_of(datetime_of(instant), 'seconds')}"


def occurrence_payload(recurrence: Recurrence, instant: int) -> dict[str, Any]:
    if not recurrence.occurrence_wanted:
        return recurrence.payload
    return recurrence.payload | {"occurrence": datetime_of(instant).isoformat()}


def occurrence_record(recurrence: Recurrence, instant: int) -> bytes:
    payload = json.dumps(occurrence_payload(recurrence, instant), ensure_ascii=False).encode()
    return rows.new_record(NewMessage("", recurrence.queue, recurrence.handler, payload, recurrence.priority))


def _read(name: bytes, definition: bytes) -> Recurrence:
    """ValueError if it is invalid."""
    if not definition:
        raise ValueError("it has no definition")
    # An earlier version wrote the owner and a line feed before it.
    recurrence = of_json(definition[definition.find(b"\n") + 1 :])
    if recurrence.name.encode() != name:
        raise ValueError(f"its definition is one of {recurrence.name}")
    return recurrence


def _instant(score: bytes) -> int:
    """ValueError for an instant that is corrupt, or beyond the calendar."""
    instant = float(score)
    if not 0 <= instant < 1e14:
        raise ValueError(f"its next instant is {score.decode()}, which no rule yields")
    return int(instant)


def _standing(
    queue: str, name: bytes, definition: bytes, score: bytes | None, count: dict[bytes, bytes], owner: bytes
) -> RecurrenceStatus:
    recurrence, following, error = None, None, None
    try:
        recurrence = _read(name, definition)
        following = None if score is None else _instant(score)
        recurrence.next_after(following or 0)
    except ValueError as refused:
        error = str(refused)
    last = count.get(name + b":last")
    return RecurrenceStatus(
        name=id_text(name),
        queue=queue,
        recurrence=recurrence,
        error=error,
        owners=tuple(id_text(each) for each in owner.split(b"\n") if each),
        next=following,
        paused=name + b":paused" in count,
        enqueued=count_of(count.get(name + b":enqueued")),
        skipped=count_of(count.get(name + b":skipped")),
        last=id_text(last) if last else None,
        raw_name=name,
    )
