"""Every write that a person makes to what producers and launches have made: to single messages, and to queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pollconsumer.core.errors import BadData, NotFound
from pollconsumer.store.id_memory import ID_MEMORY_MS, MOST_REMEMBERED
from pollconsumer.store.id_text import id_bytes, id_text
from pollconsumer.store.keys import Keys
from pollconsumer.store.rights import OPERATOR, demand

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pollconsumer.store.wire import Wire

BATCH = 200


class Interventions:
    def __init__(self, wire: Wire, namespace: str) -> None:
        self._wire = wire
        self._keys = Keys(namespace)
        self._allowed: set[str] = set()

    def cancel(self, queue: str, message_id: str) -> None:
        """End a message that is not reserved yet. BadData when it is too late, NotFound when there is none."""
        self._settle_with("cancel", queue, message_id, [])

    def reschedule(self, queue: str, message_id: str, *, due: int | None = None, delay: int | None = None) -> None:
        """Give a message that is not reserved yet another due time, as epoch ms or as ms from the server's now.

        BadData when it is too late, NotFound when there is none.
        """
        when = f"+{delay}" if due is None else f"={due}"
        self._settle_with("reschedule", queue, message_id, [when])

    def redrive(self, queue: str, ids: Sequence[str]) -> list[str]:
        """Return dead letters to ``queue``. Returns the ids of those that could be."""
        return self._in_batches("redrive", queue, ids)

    def purge(self, queue: str, ids: Sequence[str]) -> list[str]:
        """Forget dead letters, all but their ids. Returns the ids of those that were some."""
        return self._in_batches("purge", queue, ids, ID_MEMORY_MS, MOST_REMEMBERED)

    def pause(self, queue: str, *, paused: bool) -> None:
        """Have ``queue`` hand out nothing, or go on.

        One that is not known yet can be paused, before anything is enqueued; NotFound when it is to go on.
        """
        self._demand(queue)
        if paused:
            self._wire.call(
                "register", [self._keys.control("queues"), self._keys.control("queues_marker")], [queue, "-"]
            )
        elif not self._wire.command("SISMEMBER", self._keys.control("queues"), queue):
            raise NotFound("no such queue", queue, "status lists those there are")
        script = self._wire.scripts["pause"]
        self._wire.call(script, self._keys.of_script(script, queue), [int(paused)])

    def _demand(self, queue: str) -> None:
        """The rights of an operator, before the first write to a queue."""
        if queue not in self._allowed:
            demand(self._wire, OPERATOR, self._keys.queue(queue, "rows"))
            self._allowed.add(queue)

    def _settle_with(self, name: str, queue: str, message_id: str, args: list[str]) -> None:
        self._demand(queue)
        script = self._wire.scripts[name]
        state = self._wire.call(script, self._keys.of_script(script, queue), [id_bytes(message_id), *args])
        if state is None:
            raise NotFound("no such message", message_id, "list shows those that are kept")
        if state == b"newer":
            raise BadData(f"cannot {name}", message_id, "a newer pollconsumer wrote it: use that one")
        if state and not (name == "cancel" and state == b"cancelled"):
            raise BadData(f"cannot {name}", message_id, f"it is {state.decode()} already")

    def _in_batches(self, name: str, queue: str, ids: Sequence[str], *limits: int) -> list[str]:
        self._demand(queue)
        script = self._wire.scripts[name]
        done: list[str] = []
        for first in range(0, len(ids), BATCH):
            stored = [id_bytes(message_id) for message_id in ids[first : first + BATCH]]
            done += map(id_text, self._wire.call(script, self._keys.of_script(script, queue), [*limits, *stored]))
        return done
