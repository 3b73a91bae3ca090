"""What is answered about a batch, to a handler or to a program, in values of JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pollconsumer.core.errors import UsageError
from pollconsumer.core.messages.sequel import decoded, member_of
from pollconsumer.core.notation.instants import epoch_ms
from pollconsumer.store.queues.batches import Batches
from pollconsumer.store.queues.producer import Producer
from pollconsumer.store.reading.messages import Message
from pollconsumer.store.store import Store


def first_number(producer: Producer, sequel: bytes, home: str, batch_id: str, count: int) -> int | None:
    """The first of ``count`` numbers for members to be added by a message that has this ``sequel``; None if there is no
    such batch. UsageError if the message does not end a member."""
    if decoded(sequel)[0].links:  # GUARD a batch grows with the end of a chain
        raise UsageError("batch.add", "before the last link of a chain", "add members in the last link")
    return Batches(producer).number_members(home, batch_id, count)


def answer_about(
    store: Store,
    what: str,
    home: str,
    batch_id: str,
    *more: Any,
    readable: Callable[[Message], Message] = lambda message: message,
) -> Any:
    """The answer to a question about a batch, which `Batch` asks: its ``status``; or, with the number of a chunk, a
    page of its ``members``, of which ones, or what was done to ``cancel`` or to ``redrive`` those of the chunk, and the
    number of the next chunk, None if there is none. NotFound if there is no such batch."""
    reader = store.batches
    batch = reader.status(batch_id, home) if what == "status" else reader.batch(batch_id, home)
    if what == "status":
        instants = (None if each is None else epoch_ms(each) for each in batch[8:11])
        return [*batch[:8], *instants, batch.callbacks]
    if what == "members":
        found, following = reader.page(batch, *more)
        return [outcome_of(readable(each)) for each in found], following
    acting = store.batch_interventions
    return (acting.cancel_chunk if what == "cancel" else acting.redrive_chunk)(batch, *more)


def outcome_of(message: Message) -> tuple[Any, ...]:
    """How a member ended, as a `MemberOutcome` in values of JSON."""
    member = member_of(message.id)
    number = member[1] if member else None
    ended = message.id, number, message.handler, str(message.state), message.result, message.last_error
    return *ended, message.payload, dict(message.headers)
