"""Common queries to the server: its clock, and the known queues."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from pollconsumer.core.errors import BadData
from pollconsumer.core.message import check_queue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pollconsumer.store.keys import Keys
    from pollconsumer.store.wire import Wire

TIME = ("TIME",)


def now_ms(wire: Wire) -> int:
    """The server's clock, in epoch milliseconds."""
    return to_ms(wire.command(*TIME))


def to_ms(answer: Sequence[bytes]) -> int:
    """A reply to TIME, in epoch milliseconds."""
    seconds, microseconds = answer
    return int(seconds) * 1000 + int(microseconds) // 1000


def known_queues(wire: Wire, keys: Keys) -> list[str]:
    """Every queue that ever had a message or a consumer, sorted, without corrupt names."""
    names = []
    for stored in wire.command("SMEMBERS", keys.control("queues")):
        with suppress(BadData, UnicodeDecodeError):
            names.append(check_queue(stored.decode()))
    return sorted(names)
