"""The outbox: messages accepted with the completion of another, not yet sent to their queues.

A queue's keys share one slot of a cluster, and no script touches two: so the script that completes a message writes
what its handler enqueued through its context to the outbox of the same queue. The script numbers entries, they are sent
in order, and each queue knows the last one that it received: so sending is idempotent, however late. If a launch dies
in between, the mover sends them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pollconsumer.core.errors import Conflict
from pollconsumer.core.message import EXTENSION, NO_EXTENSION, NewMessage, checked
from pollconsumer.store.queues.producer import Origin
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.records import rows

PAGE_ENTRIES = 20
PAGE_MESSAGES = 300
"""Messages after which those of several entries are sent."""
_Entry = tuple[Origin | None, list[NewMessage]]
"""Where an entry comes from, None if it must not count as received, and its messages."""
_NUMBERED = rb"(\d{1,16})\n"


_REQUIRED = ("id", "queue", "handler", "payload")
FIRST = {
    *_REQUIRED, "priority", "due", "delay", "key", "key_lifetime", "concurrency_key", "concurrency_limit", "digest",
    "headers", "timeout", "max_attempts", "retry", "lifetime", "ping", "rate_key", "rate",
}  # fmt: skip
"""Fields of the first versions. These leave an entry with any other field to a newer version if it has all of these
fields, too, and drop it if it lacks one."""


def pack(messages: Sequence[NewMessage], now_ms: int) -> bytes:
    """``messages`` as one entry of the outbox; delays count from ``now_ms``, the server's.

    Fields at their defaults are left out, so that a version that does not know them can send the others on.
    """
    entries = []
    for message in messages:
        due = message.due if message.delay is None else now_ms + message.delay
        given = message._asdict() | {"payload": message.payload.decode(), "due": due, "delay": None}
        defaults = message._field_defaults
        wanted = {name for name, value in given.items() if name not in defaults or value != defaults[name]}
        if not wanted <= FIRST:
            wanted |= FIRST
        entries.append({name: value for name, value in given.items() if name in wanted})
    return json.dumps(entries).encode()


def send(
    store: RedisStore,
    queue: str,
    conflicting: Callable[[str, str], object],
    leaving: Callable[[], object] = lambda: None,
) -> int:
    """Send the entries in the outbox of ``queue``, a page at a time. Returns the number of messages. Errors as in
    enqueueing.

    A message whose id belongs to another handler or payload is dropped; ``conflicting`` is called with id and queue.
    Entries of a newer version stay: they have fields that this one would drop. ``leaving`` is called if there are any.
    """
    outbox, sent, left = store.keys.queue(queue, "outbox"), 0, 0
    entries = store.wire.command("LRANGE", outbox, 0, PAGE_ENTRIES - 1)
    while entries:
        page, gone = list[_Entry](), list[bytes]()
        for entry in entries:
            number, packed = _numbered(entry)
            if _is_newer(packed):  # GUARD entries of a newer version
                left += 1
                continue
            # A numbered entry after one that stays would make that one a duplicate: send it by its ids instead.
            # GUARD what is left is not overtaken
            page.append((Origin(queue, number, 0) if number and not left else None, _unpack(packed)))
            gone.append(entry)
        sent += _send(store, page, conflicting)  # GUARD sent before it is forgotten
        *_, entries = store.wire.all(
            [
                *(("LREM", outbox, 1, entry) for entry in gone),
                ("LRANGE", outbox, left, left + PAGE_ENTRIES - 1),
            ]
        )
    if left:
        leaving()
    return sent


def _send(store: RedisStore, page: Iterable[_Entry], conflicting: Callable[[str, str], object]) -> int:
    """Send entries in their order. What may conflict is sent alone, since the rest of its entry would come too late
    after another; so is what has no number, of which a repetition is refused after a time."""
    together, sent = list[tuple[Origin, list[NewMessage]]](), 0
    for origin, messages in page:
        sent += len(messages)
        if origin is not None and not any(message.digest for message in messages):
            together.append((origin, messages))
            if sum(len(each) for _, each in together) >= PAGE_MESSAGES:
                store.producer.enqueue_sent_on(together)
                together = []
        else:
            store.producer.enqueue_sent_on(together)
            together = []
            _send_alone(store, origin, messages, conflicting)
    store.producer.enqueue_sent_on(together)
    return sent


def _send_alone(
    store: RedisStore, origin: Origin | None, messages: list[NewMessage], conflicting: Callable[[str, str], object]
) -> None:
    place, end, told = 0, len(messages), -1
    while place < len(messages):
        try:
            store.enqueue(messages[place:end], origin and origin._replace(place=place))
        except Conflict as error:
            refused = place + error.at
            if refused != told:
                conflicting(error.id, messages[refused].queue)
            told = refused
            if error.at:  # send what is before it; then, as the first of a call, it counts as received
                end = refused
            else:
                place, end = place + 1, len(messages)
        else:
            place, end = end, len(messages)


def _numbered(entry: bytes) -> tuple[int, bytes]:
    """The number of an entry, or 0, and its content."""
    found = re.match(_NUMBERED, entry)
    return (int(found[1]), entry[found.end() :]) if found else (0, entry)


def _is_newer(packed: bytes) -> bool:
    """Whether a message in an entry has fields that this version does not know."""
    try:
        messages = json.loads(packed)
        return all(given.keys() >= set(_REQUIRED) for given in messages) and any(
            given.keys() - set(NewMessage._fields) for given in messages
        )
    except (ValueError, TypeError, AttributeError):
        return False


def _unpack(entry: bytes) -> list[NewMessage]:
    """The messages in an entry; none if it is corrupt."""
    try:
        return [_read(given) for given in json.loads(entry)]
    except (ValueError, TypeError, KeyError, AttributeError):
        return []


def _read(given: dict[str, Any]) -> NewMessage:
    """A message that `enqueue` accepts."""
    message = checked(NewMessage(**given | {"payload": given["payload"].encode()}))
    if message[EXTENSION] != NO_EXTENSION:
        from pollconsumer.core.message_options import options_of

        options_of(message)
    if len(bytes.fromhex(message.digest)) not in (0, rows.DIGEST_BYTES):
        raise ValueError(message)
    due, lifetimes = message.due or 0, (message.key_lifetime, message.lifetime)
    if type(due) not in (int, float) or message.delay is not None or not 0 <= due < 1 << 48:
        raise ValueError(message)
    if not all(type(lifetime) is int and 0 <= lifetime < 1 << 46 for lifetime in lifetimes):
        raise ValueError(message)
    return message
