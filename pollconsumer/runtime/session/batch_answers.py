"""What a handler is answered about a batch, in values of JSON."""

from __future__ import annotations

from typing import Any

from pollconsumer.core.errors import NotFound, UsageError
from pollconsumer.core.messages.sequel import decoded, member_of
from pollconsumer.store.queues.batches import Batches
from pollconsumer.store.queues.producer import Producer
from pollconsumer.store.reading.batch_reader import BatchReader
from pollconsumer.store.reading.messages import Message

_TOLD = ("state", "total", "completed", "dead", "cancelled", "expired")


def answer_about(producer: Producer, sequel: bytes, what: str, home: str, batch_id: str, *more: Any) -> Any:
    """The answer to a handler's question about a batch. ``number``, with how many: the first of these numbers, for
    members to be added; UsageError if its message, which has this ``sequel``, does not end a member. ``status``: its
    counts. Both None if there is no such batch. ``members``, with which ones and a chunk: a page of them, and the next
    chunk, None if there is none."""
    if what == "number":
        if decoded(sequel)[0].links:  # GUARD a batch grows with the end of a chain
            raise UsageError("batch.add", "before the last link of a chain", "add members in the last link")
        return Batches(producer).number_members(home, batch_id, more[0])
    reader = BatchReader(producer.wire, producer.keys.namespace)
    try:
        batch = reader.batch(batch_id, home)
    except NotFound:
        return None if what == "status" else ([], None)
    if what == "status":
        return {name: getattr(batch, name) for name in _TOLD}
    found, after = reader.page(batch, *more)
    return [outcome_of(each) for each in found], after


def outcome_of(message: Message) -> tuple[Any, ...]:
    """How a member ended, as a `MemberOutcome` in values of JSON."""
    member = member_of(message.id)
    number = member[1] if member else None
    ended = message.id, number, message.handler, str(message.state), message.result, message.last_error
    return *ended, message.payload, dict(message.headers)
