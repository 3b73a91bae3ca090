"""Batching and encoding of messages for `enqueue.lua`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pollconsumer.core.errors import Conflict
from pollconsumer.store import rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pollconsumer.core.message import NewMessage

    Trip = list[tuple[str, list[NewMessage]]]
    """Batches, each for one queue, sent in one write."""

ENQUEUE_BATCH = 100
"""Messages per script: two hundred scheduled ones may block the server for more than 5 ms."""
ENQUEUE_BATCHES = 3
"""Scripts per round trip."""
ENQUEUE_BYTES = 1 << 20


def ids_of(trip: Trip) -> list[str]:
    return [message.id for _, batch in trip for message in batch]


def conflict(message_id: str, at: int) -> Conflict:
    error = Conflict("message id", message_id, "it has another handler or payload: choose another id")
    error.id, error.at = message_id, at
    return error


def as_arguments(batch: Sequence[NewMessage], origin: str) -> list[Any]:
    """As `enqueue.lua` takes them."""
    arguments: list[Any] = [len(batch), origin]
    digests: list[Any] = []
    for message in batch:
        when = f"+{message.delay}" if message.delay is not None else f"={message.due}" if message.due else ""
        key = f"{message.key_lifetime}:{message.key}" if message.key else ""
        arguments += (message.id, when, key, message.priority, rows.new_record(message))
        if message.digest:
            digests += (len(arguments) // 5, bytes.fromhex(message.digest))
    return arguments + digests if digests else arguments


def round_trips(messages: Sequence[NewMessage]) -> Iterator[Trip]:
    """A batch that may be refused ends its round trip, so that no later one is accepted."""
    trip: Trip = []
    for queue, batch in _batches(messages):
        trip.append((queue, batch))
        if len(trip) == ENQUEUE_BATCHES or any(message.digest for message in batch):
            yield trip
            trip = []
    if trip:
        yield trip


def _batches(messages: Sequence[NewMessage]) -> Iterator[tuple[str, list[NewMessage]]]:
    """Runs for one queue, of bounded number and size."""
    batch: list[NewMessage] = []
    size = 0
    for message in messages:
        if batch and (
            message.queue != batch[0].queue
            or len(batch) == ENQUEUE_BATCH
            or size + len(message.payload) > ENQUEUE_BYTES
        ):
            yield batch[0].queue, batch
            batch, size = [], 0
        batch.append(message)
        size += len(message.payload)
    if batch:
        yield batch[0].queue, batch
