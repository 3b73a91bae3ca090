"""Recurrences as they stand: read by name, or a page at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from pollconsumer.core.errors import BadData, NotFound, StoreRefused
from pollconsumer.core.lifecycle import State, state_of
from pollconsumer.core.news import events
from pollconsumer.core.news.events import Event
from pollconsumer.core.notation.instants import moment_of
from pollconsumer.core.recurrence import Recurrence, Replaced, of_json
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.records.occurrences import PreviousOccurrence, read_previous
from pollconsumer.store.records.rows import id_bytes, id_text, read_row
from pollconsumer.store.server import count_of, readable_queues, unreachable

PAGE = 1000
"""How many recurrences are read at once, about."""
COUNTERS = (b"enqueued", b"skipped", b"last", b"paused", b"previous")


class RecurrenceStatus(NamedTuple):
    """A recurrence and its state. ``recurrence`` is None if it is unreadable, and ``error`` says why. ``phase_ms``: an
    instant of it, in epoch ms, from which its periods count. ``last``: the id of its last occurrence, and
    ``last_state`` its state, None if it is no longer kept. ``awaited``: a configuration defines it, and no launch has
    brought it yet."""

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
        """Whether the recurrence was put at run time, and yields nothing any more."""
        rule = self.recurrence
        return rule is not None and rule.at_run_time and rule.enabled and not self.paused and self.next is None

    @property
    def created_by(self) -> str | None:
        """Who put it; None if that is not known."""
        return None if self.recurrence is None else self.recurrence.created_by


def awaited(recurrence: Recurrence, now_ms: int) -> RecurrenceStatus:
    """The status of a recurrence that no launch has brought yet: as the next launch brings it."""
    following = recurrence.next_after(now_ms) if recurrence.enabled else None
    return RecurrenceStatus(
        recurrence.name, recurrence.queue, recurrence, error=None, owners=(), next=moment_of(following),
        phase_ms=following or 0,
        paused=False, enqueued=0, skipped=0, last=None, last_state=None, previous=None,
        raw_name=recurrence.name.encode(), awaited=True,
    )  # fmt: skip


def missing(name: str) -> NotFound:
    """The error for a name that no recurrence has."""
    return NotFound("no such recurrence", name, "recurrences list shows those that there are")


def readable(standing: RecurrenceStatus) -> Recurrence:
    """The recurrence of a status. Raises BadData if it is unreadable."""
    if standing.recurrence is None or standing.error is not None:
        raise BadData("cannot read recurrence", standing.name, f"{standing.error}; recurrences remove removes it")
    return standing.recurrence


class RecurrenceReader:
    def __init__(self, wire: Wire, namespace: str) -> None:
        self._wire = wire
        self._keys = Keys(namespace)

    def standing(
        self, emit: Callable[[Event], None], prefix: str = "", created_by: str | None = None
    ) -> Iterator[RecurrenceStatus]:
        """The recurrences whose names begin with ``prefix``, all or those put by ``created_by``: queue by queue, a page
        at a time, each page by name. One that is put or removed meanwhile may be missed; one may come twice. Queues
        with unusable keys are left out."""
        for queue in readable_queues(self._wire, self._keys):
            try:
                for page in self._pages(queue, prefix):
                    yield from (each for each in page if created_by in (None, each.created_by))
            except StoreRefused as error:
                emit(events.QueueLeftOut(queue, str(error)))

    def _pages(self, queue: str, prefix: str) -> Iterator[list[RecurrenceStatus]]:
        """Recurrences that have a definition; then what is set aside and has lost its definition."""
        for names in self._fields(queue, "recurrences", "MATCH", _beginning(prefix)):
            yield self.read({queue: names})
        key = self._keys.queue(queue, "recurrences_unreadable")
        for first in range(0, self._wire.command("ZCARD", key), PAGE):
            aside = self._wire.command("ZRANGE", key, first, first + PAGE - 1)
            lost = [each for each in self.read({queue: aside}) if each.error == _NO_DEFINITION]
            yield [each for each in lost if each.name.startswith(prefix)]

    def doubtful(self, most: int) -> Iterator[RecurrenceStatus]:
        """Recurrences that may be in want of a launch: all that launches define, a page at a time; and of the ones that
        are set aside as unreadable, ``most`` of each queue, the earliest first. Recurrences that were put at run time,
        perhaps very many, are read only if they are set aside. Queues with unusable keys are left out."""
        for queue in readable_queues(self._wire, self._keys):
            with suppress(StoreRefused):
                for names in self._fields(queue, "recurrence_owners"):
                    yield from self.read({queue: names})
                aside = self._wire.command("ZRANGE", self._keys.queue(queue, "recurrences_unreadable"), 0, most - 1)
                yield from (each for each in self.read({queue: aside}) if not each.owners)

    def _fields(self, queue: str, word: str, *options: Any) -> Iterator[list[bytes]]:
        """The fields of a hash, a page at a time."""
        cursor, key = b"0", self._keys.queue(queue, word)
        while True:
            cursor, found = self._wire.command("HSCAN", key, cursor, *options, "COUNT", PAGE)
            yield found[::2]
            if cursor == b"0":
                break

    def find(self, name: str) -> RecurrenceStatus:
        """The first recurrence of that name. Raises NotFound."""
        return self._named(name)[0]

    def _named(self, name: str) -> list[RecurrenceStatus]:
        """The recurrences of that name, of every usable queue: a look-up by name does not concern the others. NotFound
        if there is none."""
        if not isinstance(name, str):  # a TypeError below would be taken for an answer that cannot be read
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
        """The recurrences of ``names``, which are given by queue, that there are; sorted by name in each queue."""
        commands: list[tuple[Any, ...]] = []
        asked = {queue: sorted(set(of_queue)) for queue, of_queue in names.items() if of_queue}
        for queue, of_queue in asked.items():
            key = partial(self._keys.queue, queue)
            commands += [("HMGET", key(word), *of_queue) for word in ("recurrences", "recurrence_owners")]
            commands += [("ZMSCORE", key(word), *of_queue) for word in ("next_instants", "recurrences_unreadable")]
            counters = [b"%b:%b" % (name, what) for name in of_queue for what in COUNTERS]
            commands.append(("HMGET", key("recurrence_counters"), *counters))
        answers = iter(self._wire.all(commands) if commands else [])
        found = []
        for queue, of_queue in asked.items():
            definitions, owners, scores, aside, counts = (next(answers) for _ in range(5))
            held = [counts[at : at + len(COUNTERS)] for at in range(0, len(counts), len(COUNTERS))]
            of_each = zip(of_queue, definitions, owners, scores, aside, held, strict=True)
            found += [
                _standing(queue, name, definition, owner, score if set_aside is None else set_aside, count)
                for name, definition, owner, score, set_aside, count in of_each
                if (definition, score, set_aside) != (None, None, None)
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


_NO_DEFINITION = "it has no definition"


def _beginning(prefix: str) -> str:
    """The server's pattern of texts that begin with ``prefix``."""
    return re.sub(r"([*?\[\]\\])", r"\\\1", prefix) + "*"


def read_definition(queue: str, name: bytes, definition: bytes | None) -> Recurrence:
    """The recurrence ``name`` by its stored definition. ValueError if that is missing or corrupt, of a newer version,
    or of another name."""
    if definition is None:
        raise ValueError(_NO_DEFINITION)
    # An earlier version wrote the owner and a line feed before it.
    recurrence = of_json(definition[definition.find(b"\n") + 1 :], id_text(name), queue)
    if recurrence.name.encode() != name:
        raise ValueError(f"its definition is one of {recurrence.name}")
    return recurrence


def read_replaced(queue: str, name: bytes, stored: bytes | None) -> list[Replaced]:
    """What is due by earlier definitions; unreadable ones are left out."""
    found = []
    for entry in (stored or b"").split(b"\n"):
        until, _, rest = entry.partition(b" ")
        following, _, definition = rest.partition(b" ")
        with suppress(ValueError):
            found.append(Replaced(int(until), int(following), read_definition(queue, name, definition)))
    return found


def read_instant(score: bytes) -> int:
    """The next instant by its ``score``. ValueError if it is corrupt, or beyond the calendar."""
    instant = float(score)
    if not 0 <= instant < 1e14:
        raise ValueError(f"its next instant is {score.decode()}, which no rule yields")
    return int(instant)


def _standing(
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
