"""Actions on messages, queues, handlers and batches by people and programs: cancel, change, redrive, pause, rerun.

A redrive returns the same dead letter to its queue, with its id, steps and checkpoint. Its follow-ups are enqueued at
most once. A rerun enqueues a new message like an ended one, as often as somebody wants, while the record is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import compress
from typing import Any, NamedTuple

from pollconsumer.core.errors import BadData, NotFound, StoreUnreachable
from pollconsumer.core.lifecycle import State
from pollconsumer.core.messages.continuation import decoded, followed_again, not_there
from pollconsumer.core.messages.message import (
    CREATED_BY,
    LONGEST_CREATOR,
    NewMessage,
    check_new_headers,
    checked,
    created_header,
    decoded_options,
    variable_of,
)
from pollconsumer.core.messages.message_steps import MOST_BYTES, signal_line
from pollconsumer.core.messages.payloads import Malformed, decode_payload
from pollconsumer.core.notation.text import printable
from pollconsumer.store.audit_log import demand_operator, note
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.queues.maintenance import offer_parked, stop_message
from pollconsumer.store.queues.producer import ID_MEMORY_MS, MOST_REMEMBERED, Producer, new_id
from pollconsumer.store.reading.batch_reader import MALFORMED, BatchReader, BatchStatus
from pollconsumer.store.reading.inspector import Inspector
from pollconsumer.store.reading.ledger import all_names, leases_of
from pollconsumer.store.reading.messages import Message, by_queue
from pollconsumer.store.records import rows
from pollconsumer.store.records.rows import content, id_bytes, id_text, is_newer, message_in
from pollconsumer.store.rights import CHANGING, PRODUCER, demand
from pollconsumer.store.server import known_queues

MAX_PAGE_IDS = 100
EachPage = Callable[[int, list[str]], object]
"""Called after each page of an action on many messages: with the page's size, and the ids that were changed."""


def nobody(_asked: int, _done: list[str]) -> None:
    """An `EachPage` that does nothing, for callers that show no progress."""


class MessageActions:
    def __init__(self, wire: Wire, namespace: str) -> None:
        self._wire = wire
        self._keys = Keys(namespace)
        self._allowed: set[str] = set()

    def cancel(self, queue: str, message_id: str) -> None:
        """Cancel a message that is not reserved. A second call does nothing. BadData if it is reserved or has ended
        otherwise. NotFound if there is no such message."""
        self._demand(queue)
        [state] = self._wire.run("cancel", self._keys, queue, [id_bytes(message_id)])
        if state != b"cancelled":
            self._refuse("cancel", message_id, state)
            note(self._wire, self._keys, "cancel", queue, [message_id])

    def stop(self, queue: str, message_id: str) -> None:
        """Cancel a message that is not reserved, or else ask its launch to stop it.

        BadData if it has ended. NotFound if there is no such message."""
        self._demand(queue)
        self._refuse("stop", message_id, stop_message(self._wire, self._keys, queue, id_bytes(message_id)))
        note(self._wire, self._keys, "stop", queue, [message_id])

    def cancel_all(self, queue: str, ids: Sequence[str], each: EachPage = nobody) -> list[str]:
        """Cancel those of the messages ``ids`` that are not reserved. Returns their ids. ``each``: see `EachPage`."""

        def cancel(page: list[bytes]) -> Iterator[bytes]:
            return compress(page, (state == b"" for state in self._wire.run("cancel", self._keys, queue, page)))

        return self._in_pages("cancel", queue, ids, cancel, each)

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
        """Change a message that is not reserved: the due time, as ``due`` in epoch ms or as ``delay`` in ms from the
        server's now; the priority; or, unless it is empty, the encoded ``payload``. BadData if it is reserved or has
        ended, or for a priority if it has an order key. NotFound if there is no such message."""
        if priority is not None:
            demand(self._wire, CHANGING, self._keys.queue(queue, "rows"))  # GUARD rights to change
        when = f"={due}" if due is not None else "" if delay is None else f"+{delay}"
        self._demand(queue)
        args = [id_bytes(message_id), when, "" if priority is None else priority, payload]
        self._refuse("change", message_id, self._wire.run("change", self._keys, queue, args))
        note(self._wire, self._keys, "change", queue, [message_id])

    def signal(self, queue: str, message_id: str, name: str, value: Any) -> bool:
        """Send a message the signal ``name``, with a ``value`` of at most 64 KiB of JSON. Returns False if an earlier
        signal of that name had another value, which stays. NotFound if there is no such message. BadData if it has
        ended, if its signals exceed 1 MiB, or if name or value is invalid."""
        begins, encoded = signal_line(name, value)
        demand(self._wire, PRODUCER, self._keys.queue(queue, "rows"))  # GUARD rights to signal
        args = [id_bytes(message_id), begins, encoded, MOST_BYTES]
        answer: bytes | None = self._wire.run("signal", self._keys, queue, args)
        if answer == b"full":
            raise BadData("cannot signal", message_id, f"its signals have {MOST_BYTES} bytes; store values elsewhere")
        if answer != b"sent":
            self._refuse("signal", message_id, answer)
        return answer == b""

    def redrive(
        self, queue: str, ids: Sequence[str], each: EachPage = nobody, *, from_start: bool = False
    ) -> list[str]:
        """Return dead letters to ``queue``, with attempts reset to zero. ``from_start``: without their checkpoints,
        steps and signals. Returns the ids of those that this call redrove.

        A call that is repeated after a lost reply leaves a message alone that became a dead letter again in between."""
        rows_key = self._keys.queue(queue, "rows")

        def redrive(page: list[bytes]) -> Iterable[bytes]:
            found = self._wire.command("HMGET", rows_key, *page)
            pairs = zip(page, map(rows.generation, found), strict=True)
            args = [int(from_start), *(part for pair in pairs for part in pair)]
            redriven: list[bytes] = self._wire.run("redrive", self._keys, queue, args)
            return redriven

        return self._in_pages("redrive", queue, list(dict.fromkeys(ids)), redrive, each)

    def purge(self, queue: str, ids: Sequence[str], each: EachPage = nobody) -> list[str]:
        """Delete dead letters, but remember their ids, so that none is soon enqueued again. Returns the ids deleted."""

        def purge(page: list[bytes]) -> Iterable[bytes]:
            purged: list[bytes] = self._wire.run("purge", self._keys, queue, [ID_MEMORY_MS, MOST_REMEMBERED, *page])
            return purged

        return self._in_pages("purge", queue, ids, purge, each)

    def pause(self, queue: str, *, paused: bool, lasts_ms: int = 0) -> None:
        """Pause or resume ``queue``. A pause ends after ``lasts_ms``; 0: it does not end by itself. A queue may be
        paused before its first message. NotFound for resuming an unknown queue."""
        self._demand(queue)
        if paused:
            self._wire.call(
                "register", [self._keys.control("queues"), self._keys.control("queues_marker")], [queue, "-"]
            )
        elif not self._wire.command("SISMEMBER", self._keys.control("queues"), queue):
            raise NotFound("no such queue", queue, "status lists those there are")
        if self._wire.run("pause", self._keys, queue, [int(paused), lasts_ms]):
            note(self._wire, self._keys, "pause" if paused else "resume", queue)

    def _demand(self, queue: str) -> None:
        """Raise PermissionDenied if an operator's rights to ``queue`` are missing, before anything is written."""
        if queue not in self._allowed:
            demand_operator(self._wire, self._keys, self._keys.queue(queue, "rows"))  # GUARD rights
            self._allowed.add(queue)

    @staticmethod
    def _refuse(name: str, message_id: str, state: bytes | None) -> None:
        """Raise the error for the ``state`` that a script returned. None: there is no such message. Empty: no error."""
        if state in (None, b"none"):
            raise not_there(message_id)
        if state == b"newer":
            raise BadData(f"cannot {name}", message_id, "a newer pollconsumer wrote it: use that one")
        if state == b"ordered":
            raise BadData(
                f"cannot {name}", message_id, "it has an order key, and is handled in its order: give no priority"
            )
        if state:
            raise BadData(f"cannot {name}", message_id, f"it is {state.decode()} already")

    def _in_pages(
        self, name: str, queue: str, ids: Sequence[str], act: Callable[[list[bytes]], Iterable[bytes]], each: EachPage
    ) -> list[str]:
        """Call ``act`` for one page of ids after the other. Returns all that ``act`` returned. The audit log gets one
        entry for all pages, even if an error ends the action early."""
        self._demand(queue)
        done: list[str] = []
        try:
            for first in range(0, len(ids), MAX_PAGE_IDS):
                page = ids[first : first + MAX_PAGE_IDS]
                acted = [*map(id_text, act([*map(id_bytes, page)]))]
                done += acted
                each(len(page), acted)
        except BaseException:
            with suppress(StoreUnreachable):
                self._note(name, queue, done)  # GUARD what was done before it was cut short
            raise
        self._note(name, queue, done)
        return done

    def _note(self, what: str, queue: str, done: Sequence[str]) -> None:
        if done:
            note(self._wire, self._keys, what, queue, done)


LISTENED_FOR_MS = 60_000
"""Milliseconds after which a stop marker expires; the same as in ``lua/stop.lua``."""


class HandlerPauses:
    def __init__(self, wire: Wire, namespace: str) -> None:
        self._wire, self._keys = wire, Keys(namespace)
        self._key = self._keys.control("paused_handlers")

    def pause(self, handler: str) -> None:
        """Pause ``handler``: launches park its messages from now on."""
        self._turn(handler, "pause")
        self._wake_launches()

    def resume(self, handler: str) -> None:
        """End the pause of ``handler``, and make its parked messages due at once. NotFound if it is not paused; even
        then messages are made due, in case an earlier call was interrupted."""
        was_paused = self._turn(handler, "resume")
        self._wake_launches()
        names = all_names(self._wire, self._keys, [handler])
        for queue in known_queues(self._wire, self._keys):
            offer_parked(self._wire, self._keys, queue, names)
        if not was_paused:
            raise NotFound("handler is not paused", handler, "status lists those that are")

    def _turn(self, handler: str, what: str) -> bool:
        """Pause or resume ``handler``, as ``what`` says. Returns False if it already was in that state."""
        demand_operator(self._wire, self._keys, self._key)
        keys = [self._key, self._keys.control("answered")]
        turned = bool(self._wire.call("pause_handler", keys, [handler, int(what == "pause")]))
        if turned:
            note(self._wire, self._keys, what, "", [handler])
        return turned

    def _wake_launches(self) -> None:
        """Wake the heartbeats of all consumers, which then read the paused handlers."""
        leases = [each for each in leases_of(self._wire, self._keys) if each["role"] == "consumer"]
        markers = {
            f"{self._keys.queue(queue, 'stop_marker')}:{each['fence']}" for each in leases for queue in each["queues"]
        }
        for marker in sorted(markers):
            self._wire.call("wake", [marker], [LISTENED_FOR_MS])  # GUARD launches are woken


Chunk = int | None
"""The number of the next chunk of a batch; None after the last."""


class CancelledMembers(NamedTuple):
    """How many members were cancelled, and how many were in flight and were asked to stop."""

    cancelled: int
    asked_to_stop: int


class RedrivenMembers(NamedTuple):
    """How many dead members were redriven; and the ids of others, which have no record or whose unique key is taken."""

    redriven: int
    left: list[str]


class BatchActions:
    def __init__(self, wire: Wire, namespace: str) -> None:
        self._wire, self._keys = wire, Keys(namespace)
        self._reader, self._actions = BatchReader(wire, namespace), MessageActions(wire, namespace)

    def cancel(self, batch: BatchStatus) -> Iterator[CancelledMembers]:
        """Cancel the members that have not ended, and ask those in flight to stop. Yields the totals after each chunk.
        A batch with a malformed state is not deleted here: the next launch of its queue, or a mover, deletes it."""
        cancelled = asked_to_stop = 0
        chunk: Chunk = 0
        while chunk is not None:
            done, chunk = self.cancel_chunk(batch, chunk)
            cancelled, asked_to_stop = cancelled + done.cancelled, asked_to_stop + done.asked_to_stop
            yield CancelledMembers(cancelled, asked_to_stop)

    def redrive(self, batch: BatchStatus) -> Iterator[RedrivenMembers]:
        """Redrive the dead members. Yields the totals after each chunk."""
        total = RedrivenMembers(0, [])
        chunk: Chunk = 0
        while chunk is not None:
            done, chunk = self.redrive_chunk(batch, chunk)
            total = RedrivenMembers(total.redriven + done.redriven, total.left + done.left)
            yield total

    def cancel_chunk(self, batch: BatchStatus, chunk: int) -> tuple[CancelledMembers, Chunk]:
        """`cancel` for one chunk. Returns its counts, and the number of the next chunk."""
        cancelled = asked_to_stop = 0
        queues, following = self._chunk(batch, "unended", chunk, lambda message: not message.state.has_ended)
        for queue, ids in queues.items():
            done = self._actions.cancel_all(queue, ids)
            cancelled += len(done)
            for each in set(ids) - set(done):
                with suppress(BadData, NotFound):  # it has ended meanwhile
                    self._actions.stop(queue, each)
                    asked_to_stop += 1
        for inner in self._reader.inner(batch, "unended", chunk):
            *_, done_within = self.cancel(inner)
            cancelled, asked_to_stop = cancelled + done_within.cancelled, asked_to_stop + done_within.asked_to_stop
        if following is None and batch.state == MALFORMED:
            self._wire.command("ZADD", self._keys.queue(batch.queue, "batch_instants"), 0, id_bytes(batch.id))
        return CancelledMembers(cancelled, asked_to_stop), following

    def redrive_chunk(self, batch: BatchStatus, chunk: int) -> tuple[RedrivenMembers, Chunk]:
        """`redrive` for one chunk. Returns its counts, and the number of the next chunk."""
        redriven, left = 0, list[str]()
        queues, following = self._chunk(batch, "dead", chunk, lambda message: message.state is State.DEAD)
        for queue, ids in queues.items():
            done = self._actions.redrive(queue, ids)
            redriven += len(done)
            left += sorted(set(ids) - set(done))
        for inner in self._reader.inner(batch, "dead", chunk):
            *_, done_within = self.redrive(inner)
            redriven, left = redriven + done_within.redriven, left + done_within.left
        return RedrivenMembers(redriven, left), following

    def _chunk(
        self, batch: BatchStatus, which: str, chunk: int, wanted: Callable[[Message], bool]
    ) -> tuple[Mapping[str, Sequence[str]], Chunk]:
        """By queue, the ids of the members in a chunk for which ``wanted`` returns True. Also the number of the next
        chunk. ``which``: the kind of members that are read."""
        found, following = self._reader.page(batch, which, chunk)
        return by_queue((message.queue, message.id) for message in filter(wanted, found)), following


INSTEAD = {
    State.SCHEDULED: "it is scheduled: reschedule it to have it run sooner",
    State.READY: "it is ready: the next launch of its queue handles it",
    State.RESERVED: "it is in flight: wait until it has ended",
}
"""For each state of a message that has not ended, why it is not run again, and what to do instead."""
NOT_KEPT = (
    "its payload is no longer kept: of messages over 1 KiB only dead letters keep it; enqueue it with its payload"
)


def run_again(producer: Producer, queue: str, message_id: str) -> str:
    """Enqueue an ended message once more, with ``producer``. Returns the new message's id.

    BadData if the message has not ended, if its payload is not kept or cannot be read, or if another message has its
    unique key. NotFound if there is no such message. Also raises the errors of enqueueing."""
    wire, keys = producer.wire, producer.keys
    demand_operator(wire, keys, keys.queue(queue, "rows"))  # GUARD rights to run again
    message = Inspector(wire, keys.namespace).message(message_id, queue)
    if message.state in INSTEAD:  # GUARD only what has ended is run again
        raise _refusal(message_id, INSTEAD[message.state])
    record = wire.command("HGET", keys.queue(queue, "records"), id_bytes(message_id))
    enqueued = producer.enqueue_one(_again(message, record))
    if enqueued.duplicate:
        raise _refusal(message_id, f"{enqueued.id} has its unique key: wait until that has ended")
    note(wire, keys, "rerun", queue, [message_id])
    return enqueued.id


def _again(message: Message, record: bytes | None) -> NewMessage:
    """A new message with the handler, the options and the stored payload of ``message``."""
    if record is None:
        raise _refusal(message.id, NOT_KEPT)
    again = new_id()
    try:
        found = None if _is_newer(record) else checked(message_in(record)._replace(id=again, queue=message.queue))
        decode_payload(b"{}" if found is None else found.payload)
    except (Malformed, LookupError, ValueError):  # BadData is a ValueError
        raise _refusal(message.id, "it cannot be read: enqueue a correct one") from None
    if found is None:  # GUARD what a newer version wrote
        raise _refusal(message.id, "a newer pollconsumer wrote it: use that one")
    own = variable_of(CREATED_BY)
    others = {name: value for name, value in (found.headers or {}).items() if variable_of(name) != own}
    creator = created_header(printable(f"rerun of {message.id}")[:LONGEST_CREATOR])
    return followed_again(found._replace(headers=check_new_headers(others | creator)), again)


def _is_newer(record: bytes) -> bool:
    if is_newer(record):
        return True
    _, _, options, _, continuation = content(record)
    return decoded_options(options)[1] or decoded(continuation)[1]


def _refusal(message_id: str, reason: str) -> BadData:
    return BadData("cannot rerun", message_id, reason)
