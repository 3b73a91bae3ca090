"""What a launch does about what a handler in another process tells it, and answers."""

from __future__ import annotations

from typing import Any

from pollconsumer.core.errors import PollConsumerError
from pollconsumer.runtime.handling.context import Context
from pollconsumer.runtime.handling.in_hand import InHand
from pollconsumer.runtime.handling.waits import slot_waits
from pollconsumer.runtime.isolation.protocol import encode_refusal


def report(context: Context | None, frame: dict[str, Any]) -> None:
    """Report the progress that ``frame`` tells, if any."""
    if context is not None and frame:
        context.progress(*frame["progress"])


def keep(context: Context | None, state: dict[str, Any]) -> dict[str, Any]:
    """Keep a checkpoint. Returns the answer to the handler's process: kept, or why it was refused."""
    try:
        if context is not None:
            context.checkpoint(state)
    except PollConsumerError as error:
        return {"refused": encode_refusal(error)}
    return {"kept": True}


def wait_known(message: InHand | None, what: str, *awaited: str) -> dict[str, bool]:
    """Count a handler's wait among those of its launch, and answer the handler's process. ``what``: the wait begins
    (``begin``) or ends (``end``), or asks whether it is ``stuck``, and with ``give_up`` ends if it is."""
    waits, stuck = slot_waits(), False
    if waits is not None and what == "begin":
        waits.begin()
    elif waits is not None and what == "end":
        waits.end(message)
    elif waits is not None:
        stuck = (waits.give_up if what == "give_up" else waits.may_be_stuck)(message, *awaited)
    return {"stuck": stuck}


def forget_waits(message: InHand | None) -> None:
    """Forget the waits of a handler that has ended."""
    if message is not None and (waits := slot_waits()) is not None:
        waits.forget(message)
