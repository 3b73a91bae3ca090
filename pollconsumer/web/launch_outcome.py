"""The outcome of a launch, which the launch writes to a pipe for the request that started it.

The ledger cannot serve for this: it needs the store, and has no entry for a launch that found the lease held. Nor can
printed output, since handlers print, too."""

from __future__ import annotations

import json
import os
import select
import stat
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pollconsumer.core.events import Event, LaunchEnded
from pollconsumer.interface.settings.names import OUTCOME_VARIABLE
from pollconsumer.store.client.own_descriptors import STANDARD, Opened

MOST_BYTES = 1024


def telling_outcome(emit: Callable[[Event], None]) -> Callable[[Event], None]:
    """``emit``, which also writes the launch's end to the pipe of the request that started it. Used in the launch."""
    try:
        descriptor = int(os.environ.pop(OUTCOME_VARIABLE))
        if descriptor in STANDARD or not stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            return emit
        os.set_inheritable(descriptor, False)
        opened = Opened.now(descriptor)
    except (ValueError, OverflowError, OSError):  # a variable left behind: nobody waits for the outcome
        return emit

    def write_outcome(event: Event) -> None:
        emit(event)
        if isinstance(event, LaunchEnded) and opened.is_open():
            outcome = {"stop_reason": event.stop_reason, "handled": event.handled, "failed": event.failed}
            with suppress(OSError):  # the request has ended
                os.write(descriptor, json.dumps(outcome).encode())

    return write_outcome


def has_outcome(descriptor: int) -> bool:
    """Whether the launch at the other end of the pipe has written its outcome, or has closed the pipe. Its lease is
    released by then."""
    asked = select.poll()
    asked.register(descriptor, select.POLLIN)
    return bool(asked.poll(0))


def read_outcome(descriptor: int) -> dict[str, Any] | None:
    """The outcome that the launch at the other end of the pipe has written. None if it wrote none. To be called after
    the launch's end."""
    os.set_blocking(descriptor, False)  # a process of a handler may hold the other end
    try:
        outcome = os.read(descriptor, MOST_BYTES)
    except BlockingIOError:
        return None
    return json.loads(outcome) if outcome else None
