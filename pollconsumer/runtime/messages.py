"""Messages as producers give them, checked before anything is sent."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pollconsumer.core.errors import BadData
from pollconsumer.core.message import (
    NewMessage,
    check_handler,
    check_id,
    check_key,
    check_priority,
    check_queue,
    encode_payload,
)
from pollconsumer.core.timespan import parse_duration

if TYPE_CHECKING:
    from collections.abc import Mapping

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LONGEST_DELAY = 1000 * 365 * 86400.0


class _Identifiers:
    """Ids that sort by the time of their making: 48 bits of milliseconds, 64 of chance, counted up within one."""

    def __init__(self) -> None:
        self._millisecond = self._number = 0
        self._pid = 0

    def next(self) -> str:
        millisecond = time.time_ns() // 1_000_000
        if millisecond == self._millisecond and self._pid == os.getpid():
            self._number += 1
        else:
            self._millisecond, self._pid = millisecond, os.getpid()
            self._number = int.from_bytes(os.urandom(8), "big") >> 1
        return f"{millisecond:012x}{self._number:016x}"


new_id = _Identifiers().next


def new_message(
    handler: str,
    payload: Mapping[str, Any],
    *,
    queue: str = "default",
    in_: str | float | None = None,
    at: datetime | None = None,
    priority: int = 0,
    key: str | None = None,
    id: str | None = None,  # noqa: A002  the name that the API gives it
) -> NewMessage:
    """A message ready to be enqueued.

    ``in_`` is a delay in seconds or text such as ``5m``, ``at`` an instant with a zone; a due time in the past is due
    now. TypeError for a naive ``at``, BadData (a ValueError) for any other value that cannot be meant.
    """
    if in_ is not None and at is not None:
        raise BadData("due time", None, "give in_ or at, not both")
    return NewMessage(
        id=new_id() if id is None else check_id(id),
        queue=check_queue(queue),
        handler=check_handler(handler),
        payload=encode_payload(payload),
        priority=check_priority(priority),
        due=None if at is None else epoch_ms(at),
        delay=None if in_ is None else delay_ms(in_),
        key="" if key is None else check_key(key),
    )


def epoch_ms(at: datetime) -> int:
    """``at`` in epoch milliseconds, rounded up: nothing is ever early."""
    if not isinstance(at, datetime):
        raise TypeError(f"at must be a datetime with a zone, not {type(at).__name__}")
    if at.utcoffset() is None:
        raise TypeError("at needs a zone: a naive time means another instant on every host")
    return max(1, -((EPOCH - at) // timedelta(milliseconds=1)))


def delay_ms(in_: str | float) -> int:
    """``in_`` in milliseconds, rounded up."""
    if isinstance(in_, bool) or not isinstance(in_, str | int | float):
        raise TypeError(f"in_ must be seconds or text such as 5m, not {type(in_).__name__}")
    try:
        seconds = parse_duration(in_)
    except ValueError as error:
        raise BadData("in_", in_, str(error)) from None
    if seconds > LONGEST_DELAY:
        raise BadData("in_", in_, "at most 1000 years")
    return -int(-seconds * 1000 // 1)
