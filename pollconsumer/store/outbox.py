"""Messages that were accepted with the completion of another, on their way to their own queues.

A queue's keys share one slot of a cluster, and no script touches two: so what a handler enqueues through its context is
written beside its own message, in the script that completes that, and sent on from there. Sending repeats itself
harmlessly, for an id makes one message however often it is enqueued; whoever dies between the two is followed by the
mover.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pollconsumer.core.message import (
    NewMessage,
    check_concurrency,
    check_handler,
    check_id,
    check_key,
    check_priority,
    check_queue,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pollconsumer.store.redis_store import RedisStore

BATCH = 20


def pack(messages: Sequence[NewMessage], now_ms: int) -> bytes:
    """``messages`` as one entry of the outbox; delays count from ``now_ms``, the server's."""
    entries = []
    for message in messages:
        due = message.due if message.delay is None else now_ms + message.delay
        entries.append(message._asdict() | {"payload": message.payload.decode(), "due": due, "delay": None})
    return json.dumps(entries).encode()


def send(store: RedisStore, queue: str) -> int:
    """Send on what the outbox of ``queue`` holds. Returns how many messages. Errors as those of enqueueing.

    What a newer version wrote stays there for one: sent without what is unknown here, it would be another message.
    """
    outbox, sent, left = store.keys.queue(queue, "o"), 0, 0
    while entries := store.wire.command("LRANGE", outbox, left, left + BATCH - 1):
        for entry in entries:
            if _is_newer(entry):
                left += 1
                continue
            messages = _unpack(entry)
            store.enqueue(messages)
            store.wire.command("LREM", outbox, 1, entry)
            sent += len(messages)
    return sent


def _is_newer(entry: bytes) -> bool:
    """Whether all that a message has is there, and more."""
    try:
        return any(given.keys() > set(NewMessage._fields) for given in json.loads(entry))
    except (ValueError, TypeError, AttributeError):
        return False


def _unpack(entry: bytes) -> list[NewMessage]:
    """Nothing for what somebody else wrote there."""
    try:
        return [_checked(NewMessage(**given | {"payload": given["payload"].encode()})) for given in json.loads(entry)]
    except (ValueError, TypeError, KeyError, AttributeError):
        return []


def _checked(message: NewMessage) -> NewMessage:
    """``message``, where it is one that `enqueue` can take. ValueError otherwise."""
    check_id(message.id)
    check_queue(message.queue)
    check_handler(message.handler)
    check_priority(message.priority)
    check_key(message.key)
    if message.concurrency_key:
        check_concurrency(message.concurrency_key, message.concurrency_limit)
    due, lifetime = message.due or 0, message.key_lifetime
    if type(due) is not int or type(lifetime) is not int or max(due, lifetime) >= 1 << 48 or message.delay is not None:
        raise ValueError(message)
    return message
