"""Actions on recurrences by people and programs: put, remove, pause, resume, trigger, and read their history."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from pollconsumer.core.errors import BadData, NotReplicated
from pollconsumer.core.notation.instants import datetime_of, epoch_ms
from pollconsumer.core.recurrence import First, Recurrence
from pollconsumer.store.audit_log import demand_noting, demand_operator, note
from pollconsumer.store.client.replies import refuse_without
from pollconsumer.store.reading.inspector import Inspector
from pollconsumer.store.records import occurrences
from pollconsumer.store.records.rows import id_bytes, id_text
from pollconsumer.store.recurrences import RecurrenceReader, RecurrenceStatus, missing, readable
from pollconsumer.store.rights import OPERATOR
from pollconsumer.store.server import TIME, known_queues, now_ms, to_ms

if TYPE_CHECKING:
    from pollconsumer.store.client.wire import Strict
    from pollconsumer.store.reading.messages import Message

PUT_PAGE, AT_ONCE = 50, 500
"""How many recurrences one run of the script puts, in about a millisecond; and how many one round trip puts."""
TAKEN = "a configuration defines one of that name; choose another name, or change it there"
Put = tuple[Recurrence, First]
"""A recurrence, and its first instant, which counts only if the recurrence is new or its rule has changed."""


class Occurred(NamedTuple):
    """A past occurrence: its instant and its message."""

    instant: datetime
    message: Message

    @property
    def late_seconds(self) -> float | None:
        """Seconds from the instant to the handler's start; if that is unknown, to the reservation; None before."""
        times = self.message.timestamps
        began = times.started_at or times.reserved_at
        return None if began is None else max(0.0, (began - self.instant).total_seconds())


class Recurrences(RecurrenceReader):
    def put(self, wanted: Iterable[Put]) -> None:
        """Put recurrences at run time, or replace them, in round trips of a few hundred. Of two with one name, the
        later counts.

        A recurrence whose rule and queue are unchanged goes on with its instants. What is due stays due, unless the
        recurrence is disabled or ends. BadData if a configuration defines a recurrence of the same name; earlier round
        trips are not undone."""
        by_name = {recurrence.name: (recurrence, first) for recurrence, first in wanted}
        chosen = list(by_name.values())
        demand_noting(self._wire, self._keys)  # GUARD rights to note what is put
        for queue in sorted({recurrence.queue for recurrence, _ in chosen}):
            self._register(queue)
        for at in range(0, len(chosen), AT_ONCE):
            self._put(chosen[at : at + AT_ONCE])

    def _put(self, chosen: Sequence[Put]) -> None:
        now, elsewhere = self._look_around([recurrence for recurrence, _ in chosen])
        held = {name: id_text(definition) for moving in elsewhere.values() for name, definition in moving.items()}
        moved = self.read({queue: [*map(id_bytes, moving)] for queue, moving in elsewhere.items()})
        due = {each.name: epoch_ms(each.next) for each in moved if each.next is not None}
        arguments_by_queue: dict[str, list[list[Any]]] = {}
        for recurrence, first in chosen:
            arguments = _as_arguments(recurrence, first, now, due.get(recurrence.name), held.get(recurrence.name, ""))
            arguments_by_queue.setdefault(recurrence.queue, []).append(arguments)
        commands = [
            self._wire.queue_command(
                "put", self._keys, queue, [*chain.from_iterable(its_arguments[at : at + PUT_PAGE])]
            )
            for queue, its_arguments in arguments_by_queue.items()
            for at in range(0, len(its_arguments), PUT_PAGE)
        ]
        for taken in self._wire.all(commands):
            _refuse(taken)
        # If this is interrupted, there are two, and the next call removes the surplus one.
        for queue, moving in elsewhere.items():
            self._wire.all([self._wire.queue_command("undefine", self._keys, queue, [name]) for name in moving])
        for queue in arguments_by_queue:
            names = [recurrence.name for recurrence, _ in chosen if recurrence.queue == queue]
            note(self._wire, self._keys, "put", queue, names)

    def _look_around(self, recurrences: Sequence[Recurrence]) -> tuple[int, dict[str, dict[str, bytes]]]:
        """Look for ``recurrences`` in queues other than theirs. Returns the server's time in epoch ms; and, by queue
        and name, the definitions found. BadData if a configuration defines one of the names."""
        queues, names = known_queues(self._wire, self._keys), [recurrence.name for recurrence in recurrences]
        words = ("recurrences", "recurrence_owners")
        commands = [("HMGET", self._keys.queue(queue, word), *names) for queue in queues for word in words]
        time, *held = self._wire.all([TIME, *commands])
        elsewhere: dict[str, dict[str, bytes]] = {}
        for queue, definitions, owners in zip(queues, held[::2], held[1::2], strict=True):
            _refuse([name.encode() for name, owner in zip(names, owners, strict=True) if owner is not None])
            zipped = zip(recurrences, definitions, strict=True)
            if found := {each.name: held for each, held in zipped if held is not None and each.queue != queue}:
                elsewhere[queue] = found
        return to_ms(time), elsewhere

    def _register(self, queue: str) -> None:
        """Make ``queue`` known to launches. PermissionDenied if a right of an operator is missing."""
        keys = [self._keys.control("queues"), self._keys.control("queues_marker")]
        rows = self._keys.queue(queue, "rows")
        refuse_without(self._wire.call("register", keys, [queue, rows, *OPERATOR.split()]))

    def remove(self, name: str) -> None:
        """Remove the recurrence from every queue. If a configuration defines it, the next launch adds it again.
        NotFound if there is none."""
        removed = False
        for status in self._named(name):
            self._demand(status)
            if self._wire.run("undefine", self._keys, status.queue, [status.raw_name]) is not None:
                note(self._wire, self._keys, "remove", status.queue, [status.name])
                removed = True
        if not removed:
            raise missing(name)

    def pause(self, status: RecurrenceStatus) -> None:
        """Yield no occurrences until `resume`. Occurrences that would have come due in the pause do not count as
        missed. NotFound if the recurrence was removed meanwhile."""
        self._hold(status, "pause", "")

    def resume(self, status: RecurrenceStatus) -> None:
        """Yield occurrences again. BadData if the recurrence is disabled. NotFound if it was removed meanwhile."""
        recurrence = readable(status)
        if not recurrence.enabled:
            raise BadData("cannot resume", recurrence.name, "it is disabled: enable it where it is defined")
        now = now_ms(self._wire)
        if recurrence.at_run_time:
            now = max(now, status.phase_ms - 1)  # GUARD not before the first instant that was asked for
        following = recurrence.next_after(now, status.phase_ms)
        spent = recurrence.times is not None and status.enqueued >= recurrence.times
        none = "ended" if recurrence.at_run_time else ""
        instant = none if following is None or spent else following
        self._hold(status, "resume", instant)

    def trigger(self, status: RecurrenceStatus, strict: Strict | None = None) -> str:
        """Enqueue one more occurrence now. Returns its id. ``strict``: wait for replicas. NotFound if the recurrence
        was removed meanwhile. NotReplicated if it was enqueued, but too few replicas confirmed that in time."""
        recurrence, instant = readable(status), now_ms(self._wire)
        if status.awaited:
            self._register(status.queue)
        self._demand(status, OPERATOR if strict is None else f"{OPERATOR} {strict.right}")
        enqueued = -1
        counters = self._keys.queue(status.queue, "counters")
        awaiting = [] if strict is None else strict.awaiting(self._wire, [counters])
        within = 0.0 if strict is None else strict.within
        while enqueued < 0:  # GUARD an occurrence of another's in the same millisecond
            message_id, record = occurrences.id_of(recurrence.name, instant), occurrences.record_of(recurrence, instant)
            arguments = [status.raw_name, message_id, instant, record, int(status.awaited)]
            command = self._wire.queue_command("trigger", self._keys, status.queue, arguments)
            enqueued, *confirmed = self._wire.all([command, *awaiting], blocking=within)
            instant += 1
        if enqueued == 0:
            raise missing(recurrence.name)
        note(self._wire, self._keys, "trigger", status.queue, [status.name])
        if strict and confirmed and (problem := strict.shortfall(confirmed[-1], self._wire.replicas)):
            self._wire.close()  # the server may no longer be the primary
            raise NotReplicated([message_id], problem)
        return message_id

    def history(self, status: RecurrenceStatus, limit: int) -> list[Occurred]:
        """The last occurrences, ``limit`` at most, newest first: of a hundred in the day up to the latest, those
        whose messages are kept."""
        key = self._keys.queue(status.queue, "recurrence_counters")
        stored = self._wire.command("HGET", key, status.raw_name + b":instants") or b""
        instants = sorted({int.from_bytes(stored[at : at + 6], "big") for at in range(0, len(stored), 6)}, reverse=True)
        by_id = {occurrences.id_of(status.name, instant): instant for instant in instants[:limit]}
        found = Inspector(self._wire, self._keys.namespace).those(status.queue, [*map(id_bytes, by_id)])
        return [Occurred(datetime_of(by_id[message.id]), message) for message in found]

    def _hold(self, status: RecurrenceStatus, what: str, instant: int | str) -> None:
        self._demand(status)
        held = self._wire.run("hold", self._keys, status.queue, [status.raw_name, what, instant])
        if held is None:
            raise missing(status.name)
        if held:
            note(self._wire, self._keys, what, status.queue, [status.name])

    def _demand(self, status: RecurrenceStatus, rights: str = OPERATOR) -> None:
        demand_operator(self._wire, self._keys, self._keys.queue(status.queue, "recurrences"), rights)  # GUARD rights


def _as_arguments(recurrence: Recurrence, first: First, now: int, due: int | None, held: str) -> list[Any]:
    """The arguments of `put.lua`. ``due``, ``held``: the next instant and definition that another queue had,
    if any."""
    begins, (text, head), before = recurrence.begins(first, now), recurrence.as_put(), ""
    if begins is not None and due is not None and due <= now and due < begins:
        before = "" if held.startswith(head) else f"{now} {begins} {held}\n"
        begins = due
    none = "ended" if recurrence.enabled else ""
    until = "" if recurrence.until is None else epoch_ms(recurrence.until)
    limits = [until, "" if recurrence.times is None else recurrence.times]
    return [recurrence.name, text, head, none if begins is None else begins, *limits, before]


def _refuse(taken: Sequence[bytes]) -> None:
    if taken:
        raise BadData("cannot put recurrence", taken[0].decode(), TAKEN)
