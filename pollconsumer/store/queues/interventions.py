"""Operators' writes to messages and queues."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pollconsumer.core.errors import BadData, NotFound
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.queues.intervention_log import note
from pollconsumer.store.queues.producer import ID_MEMORY_MS, MOST_REMEMBERED
from pollconsumer.store.records import rows
from pollconsumer.store.records.id_text import id_bytes, id_text
from pollconsumer.store.rights import CHANGING, OPERATOR, demand

MAX_PAGE_IDS = 100
_NEXT = {b"scheduled": "cancel", b"ready": "cancel", b"reserved": "stop"}
"""The script that stops a message, by the state in which the one before found it."""


class Interventions:
    def __init__(self, wire: Wire, namespace: str) -> None:
        self._wire = wire
        self._keys = Keys(namespace)
        self._allowed: set[str] = set()

    def cancel(self, queue: str, message_id: str) -> None:
        """Cancel a message that is not reserved yet. BadData if it is too late, NotFound if there is none."""
        self._settle_with("cancel", queue, message_id)

    def stop(self, queue: str, message_id: str) -> None:
        """End a message that has not ended: cancel it if it is not reserved yet, else ask its launch to stop it.

        BadData if it has ended, NotFound if there is none.
        """
        self._demand(queue)
        stored, rows_key = id_bytes(message_id), self._keys.queue(queue, "rows")
        script, name = self._wire.scripts["stop"], "stop"
        while True:
            if name == "stop":
                fence = rows.fence(self._wire.command("HGET", rows_key, stored) or b"")
                keys = self._keys.of_script(script, queue)
                keys[-1] += f":{fence}"
                state = self._wire.call(script, keys, [stored, fence])
            else:
                state = self._wire.run("cancel", self._keys, queue, [stored])
            if state == b"cancelled" and self._wire.repeated:
                state = b""  # done by this call, whose reply was lost
            if state not in _NEXT:
                break
            name = _NEXT[state]
        self._refuse("stop", message_id, state)
        note(self._wire, self._keys, "stop", queue, [message_id])

    def cancel_all(self, queue: str, ids: Sequence[str]) -> list[str]:
        """Cancel messages of ``queue`` that are not reserved yet. Returns the ids of what is cancelled now."""
        self._demand(queue)
        script = self._wire.scripts["cancel"]
        keys = self._keys.of_script(script, queue)
        cancelled: list[str] = []
        for first in range(0, len(ids), MAX_PAGE_IDS):
            page = ids[first : first + MAX_PAGE_IDS]
            states = self._wire.all([self._wire.script(script, keys, [id_bytes(message_id)]) for message_id in page])
            cancelled += [each for each, state in zip(page, states, strict=True) if state in (b"", b"cancelled")]
        self._note("cancel", queue, cancelled)
        return cancelled

    def reschedule(self, queue: str, message_id: str, *, due: int | None = None, delay: int | None = None) -> None:
        """Set the due time of a message that is not reserved yet, in epoch ms or in ms from the server's now.

        BadData if it is too late, NotFound if there is none.
        """
        self.change(queue, message_id, due=due, delay=delay)

    def change(
        self,
        queue: str,
        message_id: str,
        *,
        due: int | None = None,
        delay: int | None = None,
        priority: int | None = None,
        payload: bytes = b"",
    ) -> None:
        """Give a message that is not reserved yet another due time, priority or encoded payload. Raises as
        `reschedule`."""
        if priority is not None:
            demand(self._wire, CHANGING, self._keys.queue(queue, "rows"))  # GUARD rights to change
        when = f"={due}" if due is not None else "" if delay is None else f"+{delay}"
        self._settle_with("change", queue, message_id, when, "" if priority is None else priority, payload)

    def redrive(self, queue: str, ids: Sequence[str], *, from_start: bool = False) -> list[str]:
        """Return dead letters to ``queue``; ``from_start``: without their checkpoints, steps and signals. Returns the
        ids that were redriven.

        Each is redriven from the generation that it is in now, so that a repeated call redrives none that died again.
        """
        rows_key = self._keys.queue(queue, "rows")

        def with_generations(page: list[bytes]) -> list[bytes | int]:
            found = self._wire.command("HMGET", rows_key, *page)
            pairs = zip(page, map(rows.generation, found), strict=True)
            return [int(from_start), *(part for pair in pairs for part in pair)]

        return self._in_pages("redrive", queue, list(dict.fromkeys(ids)), with_generations)

    def purge(self, queue: str, ids: Sequence[str]) -> list[str]:
        """Forget dead letters, except their ids. Returns the ids that were purged."""
        return self._in_pages("purge", queue, ids, lambda page: [ID_MEMORY_MS, MOST_REMEMBERED, *page])

    def pause(self, queue: str, *, paused: bool, lasts_ms: int = 0) -> None:
        """Pause or resume ``queue``; a pause of ``lasts_ms`` ends by itself. An unknown queue can be paused, before the
        first message; resuming it is NotFound."""
        self._demand(queue)
        if paused:
            self._wire.call(
                "register", [self._keys.control("queues"), self._keys.control("queues_marker")], [queue, "-"]
            )
        elif not self._wire.command("SISMEMBER", self._keys.control("queues"), queue):
            raise NotFound("no such queue", queue, "status lists those there are")
        self._wire.run("pause", self._keys, queue, [int(paused), lasts_ms])
        note(self._wire, self._keys, "pause" if paused else "resume", queue)

    def _demand(self, queue: str) -> None:
        """Check an operator's rights before the first write to a queue."""
        if queue not in self._allowed:
            demand(self._wire, OPERATOR, self._keys.queue(queue, "rows"))  # GUARD rights
            self._allowed.add(queue)

    def _settle_with(self, name: str, queue: str, message_id: str, *args: str | int | bytes) -> None:
        self._demand(queue)
        state = self._wire.run(name, self._keys, queue, [id_bytes(message_id), *args])
        if not (name == "cancel" and state == b"cancelled"):
            self._refuse(name, message_id, state)
        note(self._wire, self._keys, name, queue, [message_id])

    @staticmethod
    def _refuse(name: str, message_id: str, state: bytes | None) -> None:
        """Raise the error for what a script says, unless it has done its work."""
        if state is None:
            from pollconsumer.core.messages.sequel import not_there

            raise not_there(message_id)
        if state == b"newer":
            raise BadData(f"cannot {name}", message_id, "a newer pollconsumer wrote it: use that one")
        if state:
            raise BadData(f"cannot {name}", message_id, f"it is {state.decode()} already")

    def _in_pages(
        self, name: str, queue: str, ids: Sequence[str], arguments: Callable[[list[bytes]], Sequence[bytes | int]]
    ) -> list[str]:
        self._demand(queue)
        done: list[str] = []
        for first in range(0, len(ids), MAX_PAGE_IDS):
            page = [id_bytes(message_id) for message_id in ids[first : first + MAX_PAGE_IDS]]
            done += map(id_text, self._wire.run(name, self._keys, queue, arguments(page)))
        self._note(name, queue, done)
        return done

    def _note(self, what: str, queue: str, done: Sequence[str]) -> None:
        if done:
            note(self._wire, self._keys, what, queue, done)
