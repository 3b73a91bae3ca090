"""Messages selected by what they have in common."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pollconsumer.core.lifecycle import State
from pollconsumer.core.messages.message import DIGESTED_BYTES, SCOPED_BY, digested_key, scoped_key
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.reading.inspector import Inspector
from pollconsumer.store.reading.messages import Message
from pollconsumer.store.server import now_ms, readable_queues

EVERY = 10**9
"""A number of messages that no store has."""
SCANNED = 1000
Chosen = Sequence[tuple[str, str]]
"""Queue and id of messages."""


class Selection(NamedTuple):
    """A selection of messages, to which each field that is given applies. ``key``: a unique key that they hold, of
    their handler or of their queue. ``recurrence``: the one whose occurrences they are. ``older_than``: the least
    seconds since they entered their state, by the server's clock. ``headers``: they have each of these."""

    state: State | None = None
    queue: str | None = None
    handler: str | None = None
    recurrence: str | None = None
    key: str | None = None
    older_than: float | None = None
    headers: Mapping[str, str] | None = None


class MessageSelector:
    def __init__(self, wire: Wire, namespace: str) -> None:
        self._wire, self._keys, self._inspector = wire, Keys(namespace), Inspector(wire, namespace)

    def messages(self, selection: Selection) -> Iterator[Message]:
        """The messages selected, queue by queue and state by state, the oldest of a state first, read a page at a time.

        A message that enters another state meanwhile may be missed, or be repeated. NotFound if there is no such queue.
        """
        entered_by = None
        if selection.older_than is not None:
            entered_by = now_ms(self._wire) - selection.older_than * 1000
        if selection.key is None:
            found = self._inspector.messages(selection.state, selection.queue, EVERY)
        else:
            found = self._holders(selection.key, selection.handler, selection.queue)
        for message in found:
            if (
                selection.state in (None, message.state)
                and selection.handler in (None, message.handler)
                and selection.recurrence in (None, recurrence_of(message.id))
                and (entered_by is None or (entered_at(message) or 0) <= entered_by)
                and (not selection.headers or selection.headers.items() <= message.headers.items())
            ):
                yield message

    def _holders(self, key: str, handler: str | None, queue: str | None) -> Iterator[Message]:
        """The messages that hold a unique key: at most one of each handler in a queue, and one that shares it with
        all."""
        queues = readable_queues(self._wire, self._keys) if queue is None else [queue]
        for name in queues:
            unique_keys = self._keys.queue(name, "unique_keys")
            fields = [key.encode()]
            if handler is None:
                patterns = {f"*{SCOPED_BY}{_literal(each)}" for each in (key, digested_key(key, DIGESTED_BYTES))}
                for pattern in patterns:
                    fields += _fields_like(self._wire, unique_keys, pattern)
            else:
                fields.append(scoped_key(handler, key).encode())
            holders = self._wire.command("HMGET", unique_keys, *fields)
            ids = [holder.partition(b"\n")[0] for holder in holders if holder is not None]
            found = self._inspector.those(name, list(dict.fromkeys(ids)))
            yield from (message for message in found if not message.state.has_ended)


def _fields_like(wire: Wire, key: str, pattern: str) -> Iterator[bytes]:
    cursor = b"0"
    while True:
        cursor, found = wire.command("HSCAN", key, cursor, "MATCH", pattern, "COUNT", SCANNED)
        yield from found[::2]
        if int(cursor) == 0:
            return


def _literal(text: str) -> str:
    """``text`` as the server's patterns write it."""
    return re.sub(r"([*?\[\]^\\-])", r"\\\1", text)


def unreserved(selecting: MessageSelector, selection: Selection) -> Chosen:
    """The messages selected that are scheduled or ready: scheduled ones first, since these become ready."""
    return _chosen(selecting, selection, (State.SCHEDULED, State.READY))


def dead_letters(selecting: MessageSelector, selection: Selection) -> Chosen:
    return _chosen(selecting, selection, (State.DEAD,))


def _chosen(selecting: MessageSelector, selection: Selection, states: Sequence[State]) -> Chosen:
    """The messages selected, each once: all are read before any is changed, since that would move others from page to
    page."""
    states = [state for state in states if selection.state in (None, state)]
    found = (each for state in states for each in selecting.messages(selection._replace(state=state)))
    return list(dict.fromkeys((message.queue, message.id) for message in found))


def by_queue(chosen: Chosen) -> dict[str, list[str]]:
    """The ids of messages, by queue."""
    ids: dict[str, list[str]] = {}
    for queue, message_id in chosen:
        ids.setdefault(queue, []).append(message_id)
    return ids


def recurrence_of(message_id: str) -> str | None:
    """The name of the recurrence of which a message is an occurrence: the part of its id before the instant."""
    name, _, instant = message_id.rpartition("@")
    return name if name and instant.endswith("Z") else None


def entered_at(message: Message) -> int | None:
    """The instant at which a message entered its state, in epoch ms; None if its row does not say."""
    times = message.row.timestamps
    return times.ended_at or times.reserved_at or times.enqueued_at or times.failed_at or times.scheduled_at
