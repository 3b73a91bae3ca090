"""Calls of the store by which a handle acts on its message; made in this thread, or in the one for asyncio programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pollconsumer.core.errors import BadData
from pollconsumer.core.lifecycle import State
from pollconsumer.core.messages.codec import encoded_json
from pollconsumer.core.messages.message import ENCODED, Codec, check_priority
from pollconsumer.core.notation.timespan import Span
from pollconsumer.runtime.new_messages import due_ms, milliseconds

if TYPE_CHECKING:
    from pollconsumer.store.store import Store

Act = Callable[["Store"], None]


def cancelling(queue: str, message_id: str) -> Act:
    return lambda store: store.interventions.cancel(queue, message_id)


def stopping(queue: str, message_id: str) -> Act:
    return lambda store: store.interventions.stop(queue, message_id)


def rescheduling(queue: str, message_id: str, in_: Span | None, at: datetime | None) -> Act:
    """The act that gives a message another due time. BadData for an invalid time; TypeError for a naive one, for both,
    or for none."""
    if (in_ is None) == (at is None):
        raise TypeError("reschedule needs in_ or at")
    delay, due = None if in_ is None else milliseconds("in_", in_), None if at is None else due_ms(at)
    return lambda store: store.interventions.change(queue, message_id, due=due, delay=delay)


def changing(queue: str, message_id: str, priority: int | None, payload: bytes) -> Act:
    """The act that gives a message another priority, or an encoded payload if that is not empty. BadData for an invalid
    priority; TypeError for neither."""
    if priority is None and not payload:
        raise TypeError("change needs priority or payload")
    if priority is not None:
        check_priority(priority)
    return lambda store: store.interventions.change(queue, message_id, priority=priority, payload=payload)


def readable_result(message_id: str, result: Any) -> Any:
    """The ``result`` of a message as a handle read it. BadData if that could not be decoded."""
    if type(result) is dict and ENCODED in result:
        raise BadData("result", message_id, "it is encoded: give PollConsumer(codec=…) the codec and its keys")
    return result


def signalling(queue: str, message_id: str, name: str, value: Any, codec: Codec | None) -> Callable[[Store], bool]:
    """The act that sends a signal. BadData for an invalid name or value; TypeError for one without a JSON form."""
    from pollconsumer.core.messages.message_steps import as_json, signal_line  # imported lazily: few send signals

    signal_line(name, value)  # a TypeError within the act would be taken for an answer that cannot be read
    if codec is not None:
        value = json.loads(encoded_json(as_json(value, f"signal {name}").encode(), codec))

    return lambda store: store.interventions.signal(queue, message_id, name, value)


def redriving(queue: str, message_id: str, *, from_start: bool) -> Act:
    def redrive(store: Store) -> None:
        if not store.interventions.redrive(queue, [message_id], from_start=from_start):
            state = store.inspector.message(message_id, queue).state
            reason = "another message has its unique key" if state is State.DEAD else f"it is {state}, no dead letter"
            raise BadData("cannot redrive", message_id, reason)

    return redrive


def serve_others(store: Store, *, queue: str, launch: str) -> bool:
    """Whether another launch than this one serves that queue now."""
    return any(
        lease["role"] == "consumer" and lease["holder"] != launch and queue in lease["queues"]
        for lease in store.inspector.leases()
    )
