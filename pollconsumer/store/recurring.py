"""Recurrences in the store: their definitions, when each is due next, and what became of their occurrences.

They live with the queue that their occurrences go to, so that enqueueing one and setting the next is one script.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from pollconsumer.core.errors import BadData, NotFound
from pollconsumer.core.message import NewMessage
from pollconsumer.core.recurrence import Recurrence, tick
from pollconsumer.store import rows
from pollconsumer.store.keys import Keys, queue_names
from pollconsumer.store.rights import OPERATOR, demand

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pollconsumer.store.reservations import Holder
    from pollconsumer.store.wire import Wire

BATCH = 50


class Standing(NamedTuple):
    """A recurrence as it stands; instants in epoch ms."""

    recurrence: Recurrence
    owner: str
    next: int | None
    paused: bool
    enqueued: int
    skipped: int
    last: str | None


class Recurring:
    def __init__(self, wire: Wire, namespace: str) -> None:
        self._wire = wire
        self._keys = Keys(namespace)

    def define(self, owner: str, queues: Sequence[str], recurrences: Sequence[Recurrence]) -> list[str]:
        """Make ``owner``'s recurrences, in all of ``queues``, exactly these. Returns the names of those removed.

        One that is new or changed begins with its first instant from now on; one that is as it was goes on.
        """
        now = self._now()
        script = self._wire.scripts["define"]
        commands = []
        for queue in queues:
            args: list[Any] = [owner]
            for recurrence in recurrences:
                if recurrence.queue == queue:
                    first = recurrence.next_after(now) if recurrence.enabled else None
                    definition = json.dumps(recurrence.as_json(), sort_keys=True)
                    args += (recurrence.name, definition, "" if first is None else first)
            commands.append(self._wire.script(script, self._keys.of_script(script, queue), args))
        return [name.decode() for removed in self._wire.all(commands) for name in removed] if commands else []

    def tick(self, holder: Holder, queue: str, skipped: Callable[[str, int], None]) -> int:
        """Enqueue the occurrences that are due in ``queue``. Returns how many. ``skipped`` is told of those that were
        missed and not made up for."""
        script = self._wire.scripts["due"]
        now, due = self._wire.call(script, self._keys.of_script(script, queue), [BATCH])
        enqueued = 0
        for name, instant, definition in zip(due[::3], due[1::3], due[2::3], strict=True):
            recurrence = _read(definition)
            told = tick(recurrence, int(float(instant)), now)
            args: list[Any] = [
                holder.lineage, holder.fence, name, instant, "" if told.next is None else told.next, told.skipped,
                int(recurrence.overlap == "skip"),
            ]  # fmt: skip
            for each in told.enqueue:
                args += (occurrence_id(recurrence, each), each, occurrence_record(recurrence, each))
            recur = self._wire.scripts["recur"]
            enqueued += max(0, self._wire.call(recur, self._keys.of_script(recur, queue), args))
            if told.skipped:
                skipped(recurrence.name, told.skipped)
        return enqueued

    def standing(self) -> Iterator[Standing]:
        """Every recurrence, by queue and name."""
        for queue in queue_names(self._wire.command("SMEMBERS", self._keys.control("queues"))):
            keys = [self._keys.queue(queue, name) for name in ("n", "nz", "nc")]
            definitions, due, counts = self._wire.all(
                [("HGETALL", keys[0]), ("ZRANGE", keys[1], 0, -1, "WITHSCORES"), ("HGETALL", keys[2])]
            )
            next_due = dict(zip(due[::2], due[1::2], strict=True))
            count = dict(zip(counts[::2], counts[1::2], strict=True))
            for name, stored in sorted(zip(definitions[::2], definitions[1::2], strict=True)):
                owner, _, definition = stored.partition(b"\n")
                last = count.get(name + b":last")
                yield Standing(
                    recurrence=_read(definition),
                    owner=owner.decode(),
                    next=int(float(next_due[name])) if name in next_due else None,
                    paused=name + b":paused" in count,
                    enqueued=int(count.get(name + b":enqueued", 0)),
                    skipped=int(count.get(name + b":skipped", 0)),
                    last=last.decode() if last else None,
                )

    def find(self, name: str) -> Standing:
        """Raises NotFound."""
        for standing in self.standing():
            if standing.recurrence.name == name:
                return standing
        raise NotFound("no such recurrence", name, "recurrences list shows those there are, once a launch defined them")

    def pause(self, recurrence: Recurrence) -> None:
        """No occurrences until it is resumed; those of the meantime are not missed."""
        self._hold(recurrence, "")

    def resume(self, recurrence: Recurrence) -> None:
        """Raises BadData where it is not a pause that keeps it from recurring."""
        if not recurrence.enabled:
            raise BadData("cannot resume", recurrence.name, "it is disabled: enable it where it is defined")
        following = recurrence.next_after(self._now())
        self._hold(recurrence, "" if following is None else following)

    def _hold(self, recurrence: Recurrence, instant: int | str) -> None:
        demand(self._wire, OPERATOR, self._keys.queue(recurrence.queue, "n"))
        script = self._wire.scripts["hold"]
        self._wire.call(script, self._keys.of_script(script, recurrence.queue), [recurrence.name, instant])

    def _now(self) -> int:
        seconds, microseconds = self._wire.command("TIME")
        return int(seconds) * 1000 + int(microseconds) // 1000


def occurrence_id(recurrence: Recurrence, instant: int) -> str:
    """One and the same however often an instant is come upon."""
    moment = datetime.fromtimestamp(instant / 1000, UTC)
    return f"{recurrence.name}@{moment.isoformat(timespec='seconds').replace('+00:00', 'Z')}"


def occurrence_payload(recurrence: Recurrence, instant: int) -> dict[str, Any]:
    if not recurrence.occurrence_wanted:
        return recurrence.payload
    return recurrence.payload | {"occurrence": datetime.fromtimestamp(instant / 1000, UTC).isoformat()}


def occurrence_record(recurrence: Recurrence, instant: int) -> bytes:
    payload = json.dumps(occurrence_payload(recurrence, instant), ensure_ascii=False).encode()
    return rows.new_record(NewMessage("", recurrence.queue, recurrence.handler, payload, recurrence.priority))


def _read(definition: bytes) -> Recurrence:
    return Recurrence(**json.loads(definition))
