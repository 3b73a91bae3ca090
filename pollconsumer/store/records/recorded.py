"""What is stored of a message between its attempts."""

from __future__ import annotations

from pollconsumer.core.messages.message_steps import Recorded, head_field, signals_field, step_fields
from pollconsumer.store.client.wire import Wire


def read_recorded(wire: Wire, key: str, message_id: bytes) -> tuple[bytes | None, Recorded | None]:
    """The last checkpoint of a message, of which ``key`` has the checkpoints; its steps and signals, None if it has
    none."""
    first = ("HMGET", key, message_id, head_field(message_id), signals_field(message_id))
    state, head, signals = wire.all([first], parting=False)[0]
    fields, entries = step_fields(message_id, head), list[bytes | None]()
    if fields:
        (entries,) = wire.all([("HMGET", key, *fields)], parting=False)
    return state, None if head is None else Recorded.read(head, entries, signals or b"")
