"""Sends signals to messages: what a producer, or a person, tells one that waits or will wait for it."""

from __future__ import annotations

from typing import Any

from pollconsumer.core.errors import BadData
from pollconsumer.core.messages.message_steps import MOST_BYTES, signal_line
from pollconsumer.core.messages.sequel import not_there
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.records.id_text import id_bytes
from pollconsumer.store.rights import PRODUCER, demand


class SignalSender:
    def __init__(self, wire: Wire, namespace: str) -> None:
        self._wire, self._keys = wire, Keys(namespace)

    def send(self, queue: str, message_id: str, name: str, value: Any) -> bool:
        """Send ``value``, of at most 64 KiB of JSON, to a message. False if another value was sent before by that
        name: the first one holds. NotFound if there is no such message, BadData if it has ended, has signals of 1 MiB,
        or for an invalid name or value."""
        begins, encoded = signal_line(name, value)
        demand(self._wire, PRODUCER, self._keys.queue(queue, "rows"))  # GUARD rights
        said: bytes | None = self._wire.run(
            "signal", self._keys, queue, [id_bytes(message_id), begins, encoded, MOST_BYTES]
        )
        if said is None:
            raise not_there(message_id)
        if said == b"newer":
            raise BadData("cannot signal", message_id, "a newer pollconsumer wrote it: use that one")
        if said == b"full":
            raise BadData("cannot signal", message_id, f"its signals have {MOST_BYTES} bytes; store values elsewhere")
        if said not in (b"", b"sent"):
            raise BadData("cannot signal", message_id, f"it is {said.decode()} already")
        return said == b""
