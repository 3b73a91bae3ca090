"""What a launch does about what a handler in another process tells it, and answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pollconsumer.core.errors import PollConsumerError
from pollconsumer.core.messages.message_steps import StepEntry
from pollconsumer.runtime.handling.context import LaunchContext
from pollconsumer.runtime.handling.in_hand import InHand
from pollconsumer.runtime.handling.waits import slot_waits
from pollconsumer.runtime.isolation.protocol import encode_refusal


def answer_to(frame: dict[str, Any], message: InHand, context: LaunchContext) -> dict[str, Any] | None:
    """Do what the handler of ``message`` asks for in ``frame``. Returns what its process is to be answered, if it waits
    for an answer."""
    if "checkpoint" in frame:
        return _kept(context.checkpoint, frame["checkpoint"])
    if "step" in frame:
        return _kept(context.record, StepEntry(*frame["step"]))
    if "waits" in frame:
        return _wait_known(message, *frame["waits"])
    if "batch" in frame:
        return _ask_batch(context, frame["batch"])
    if "progress" in frame:
        report(context, frame)
    return None


def report(context: LaunchContext, frame: dict[str, Any]) -> None:
    """Report the progress that ``frame`` tells, if any."""
    if frame:
        context.progress(*frame["progress"])


def _kept(keep: Callable[[Any], None], what: Any) -> dict[str, Any]:
    """Keep a checkpoint or a step. Returns the answer to the handler's process: kept, or why it was refused."""
    try:
        keep(what)
    except PollConsumerError as error:
        return {"refused": encode_refusal(error)}
    return {"kept": True}


def _ask_batch(context: LaunchContext, question: list[Any]) -> dict[str, Any]:
    """Ask the store about a batch. Returns the answer to the handler's process, or why there is none."""
    try:
        return {"answer": context.ask_batch(*question)}
    except PollConsumerError as error:
        return {"refused": encode_refusal(error)}


def _wait_known(message: InHand, what: str, *awaited: str) -> dict[str, bool]:
    """Count a handler's wait among those of its launch, and answer the handler's process. ``what``: the wait begins
    (``begin``), ends (``end``), asks whether it is stuck (``may_be_stuck``), or ends if it is (``give_up``)."""
    waits, stuck = slot_waits(), False
    if waits is not None and what == "begin":
        waits.begin()
    elif waits is not None and what == "end":
        waits.end(message)
    elif waits is not None:
        stuck = (waits.give_up if what == "give_up" else waits.may_be_stuck)(message, *awaited)
    return {"stuck": stuck}


def forget_waits(message: InHand) -> None:
    """Forget the waits of a handler that has ended."""
    if (waits := slot_waits()) is not None:
        waits.forget(message)
