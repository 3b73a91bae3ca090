"""The outcome of a launch, which the launch reports over a pipe to the request that started it.

The ledger would not do: it needs the store, and has no entry for a launch that found the lease held. Printed output
would not do, since handlers print in between.
"""

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
    """``emit``, which also reports the launch's end to the request that started it. Called in the launch."""
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
    """Whether the launch at the other end of the pipe has reported its end, or has closed the pipe. By then its lease
    is released."""
    asked = select.poll()
    asked.register(descriptor, select.POLLIN)
    return bool(asked.poll(0))


def read_outcome(descriptor: int) -> dict[str, Any] | None:
    """The outcome that the launch at the other end of the pipe has reported. None if there is none. Called after its
    end."""
    os.set_blocking(descriptor, False)  # a process of a handler may hold the other end
    try:
        outcome = os.read(descriptor, MOST_BYTES)
    except BlockingIOError:
        return None
    return json.loads(outcome) if outcome else None
