"""Messages that were accepted with the completion of another, on their way to their own queues.

A queue's keys share one slot of a cluster, and no script touches two: so what a handler enqueues through its context is
written beside its own message, in the script that completes that, and sent on from there. Entries are
numbered by that script and sent in that order, and each queue knows the last one that it received from here: so sending
repeats itself harmlessly, by whomever and however late. Whoever dies between the two is followed by the mover.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from pollconsumer.core.errors import Conflict
from pollconsumer.core.message import (
    NewMessage,
    check_concurrency,
    check_handler,
    check_id,
    check_key,
    check_priority,
    check_queue,
)
from pollconsumer.store.redis_store import Origin

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pollconsumer.store.redis_store import RedisStore

BATCH = 20
_NUMBERED = re.compile(rb"(\d{1,16})\n")


def pack(messages: Sequence[NewMessage], now_ms: int) -> bytes:
    """``messages`` as one entry of the outbox; delays count from ``now_ms``, the server's."""
    entries = []
    for message in messages:
        due = message.due if message.delay is None else now_ms + message.delay
        entries.append(message._asdict() | {"payload": message.payload.decode(), "due": due, "delay": None})
    return json.dumps(entries).encode()


def send(store: RedisStore, queue: str, conflicting: Callable[[str, str], object]) -> int:
    """Send on what the outbox of ``queue`` holds. Returns how many messages. Errors as those of enqueueing.

    What has the id of a message with another handler or payload is dropped; ``conflicting`` is told id and queue. What
    a newer version wrote stays there for one: sent without what is unknown here, it would be another message.
    """
    outbox, sent, left = store.keys.queue(queue, "outbox"), 0, 0
    while entries := store.wire.command("LRANGE", outbox, left, left + BATCH - 1):
        for entry in entries:
            number, packed = _numbered(entry)
            if _is_newer(packed):
                left += 1
                continue
            # One that is left must not be overtaken by numbers: what comes after it is known by its ids.
            sent += _send(store, Origin(queue, number, 0) if number and not left else None, packed, conflicting)
            store.wire.command("LREM", outbox, 1, entry)
    return sent


def send_entry(store: RedisStore, queue: str, entry: bytes, conflicting: Callable[[str, str], object]) -> int:
    """Send on the messages of one entry, which stays where it is. Returns how many."""
    number, packed = _numbered(entry)
    return _send(store, Origin(queue, number, 0) if number else None, packed, conflicting)


def _send(store: RedisStore, origin: Origin | None, packed: bytes, conflicting: Callable[[str, str], object]) -> int:
    messages = _unpack(packed)
    place, end = 0, len(messages)
    while place < len(messages):
        try:
            store.enqueue(messages[place:end], origin and origin._replace(place=place))
        except Conflict as error:
            end = place + error.at
            conflicting(error.id, messages[end].queue)
        else:
            place, end = end + (end < len(messages)), len(messages)
    return len(messages)


def _numbered(entry: bytes) -> tuple[int, bytes]:
    """The number of an entry, 0 where it has none, and what it numbers."""
    found = _NUMBERED.match(entry)
    return (int(found[1]), entry[found.end() :]) if found else (0, entry)


def _is_newer(packed: bytes) -> bool:
    """Whether all that a message has is there, and more."""
    try:
        return any(given.keys() > set(NewMessage._fields) for given in json.loads(packed))
    except (ValueError, TypeError, AttributeError):
        return False


def _unpack(entry: bytes) -> list[NewMessage]:
    """Empty for corrupt entries."""
    try:
        return [_checked(NewMessage(**given | {"payload": given["payload"].encode()})) for given in json.loads(entry)]
    except (ValueError, TypeError, KeyError, AttributeError):
        return []


def _checked(message: NewMessage) -> NewMessage:
    """``message``, where it is one that `enqueue` can take. ValueError otherwise."""
    check_id(message.id)
    bytes.fromhex(message.digest)
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
