"""Reruns: a message that has ended is enqueued again as a new message.

A redrive returns a dead letter with its id, its steps and its checkpoint, and its follow-ups follow once. A rerun is a
message of its own. So every ended message can be run again, as often as somebody likes, while its record is kept.
"""

from __future__ import annotations

from pollconsumer.core.errors import BadData
from pollconsumer.core.lifecycle import State
from pollconsumer.core.messages.continuation import decoded, followed_again
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
from pollconsumer.core.messages.payloads import Malformed, decode_payload
from pollconsumer.core.notation.text import printable
from pollconsumer.store.audit_log import demand_operator, note
from pollconsumer.store.queues.producer import Producer, new_id
from pollconsumer.store.reading.inspector import Inspector
from pollconsumer.store.reading.messages import Message
from pollconsumer.store.records.rows import content, id_bytes, is_newer, message_in

INSTEAD = {
    State.SCHEDULED: "it is scheduled: reschedule it to have it run sooner",
    State.READY: "it is ready: the next launch of its queue handles it",
    State.RESERVED: "it is in flight: wait until it has ended",
}
"""Why a message that has not ended is not run again, and what to do instead."""
NOT_KEPT = (
    "its payload is no longer kept: of messages over 1 KiB only dead letters keep it; enqueue it with its payload"
)


class Reruns:
    def __init__(self, producer: Producer) -> None:
        """``producer`` enqueues the new messages."""
        self._producer, self._wire, self._keys = producer, producer.wire, producer.keys
        self._inspector = Inspector(self._wire, self._keys.namespace)

    def rerun(self, queue: str, message_id: str) -> str:
        """Enqueue an ended message once more. Returns the new message's id.

        BadData if the message has not ended, if its payload is not kept or cannot be read, or if another message has
        its unique key. NotFound if there is no such message. Also raises the errors of enqueueing.
        """
        demand_operator(self._wire, self._keys, self._keys.queue(queue, "rows"))  # GUARD rights to run again
        message = self._inspector.message(message_id, queue)
        if message.state in INSTEAD:  # GUARD only what has ended is run again
            raise _refusal(message_id, INSTEAD[message.state])
        enqueued = self._producer.enqueue_one(self._again(message))
        if enqueued.duplicate:
            raise _refusal(message_id, f"{enqueued.id} has its unique key: wait until that has ended")
        note(self._wire, self._keys, "rerun", queue, [message_id])
        return enqueued.id

    def _again(self, message: Message) -> NewMessage:
        """A new message with the handler, payload and options of ``message``. Its payload stays as it is, encoded or
        not."""
        record = self._wire.command("HGET", self._keys.queue(message.queue, "records"), id_bytes(message.id))
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
