"""Adds to each log record of a launch the ids of the launch, and of the message that is being handled."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from pollconsumer.runtime.handling.in_hand import IN_SLOT, InHand

OURS = "pollconsumer"
"""The name of our logger. Its records name a message in their text, if they are about one."""
PREFIX = "pollconsumer_"
"""What the names of the attributes that records get begin with. Without it an attribute might have the name of one in a
record's own ``extra``, and logging refuses to replace an attribute."""
ABOUT = ("launch_id", "run_id", "message_id", "handler", "attempt")
_identity: tuple[str | None, str | None] = (None, None)


def identify(launch_id: str, run_id: str | None, the_one: Callable[[], InHand | None] = lambda: None) -> None:
    """Give each record from now on the attributes ``pollconsumer_launch_id``, …; None for what does not apply.
    ``the_one``: the only message in hand, if it is one only."""
    global _identity  # one for the process
    _identity = launch_id, run_id
    make = logging.getLogRecordFactory()

    def made(*args: Any, **named: Any) -> logging.LogRecord:
        record = make(*args, **named)
        message = None if record.name == OURS else IN_SLOT.get() or the_one()
        of_message = (None, None, None) if message is None else (message.name, message.handler, message.attempt)
        for name, value in zip(ABOUT, (launch_id, run_id, *of_message), strict=True):
            setattr(record, PREFIX + name, value)
        return record

    logging.setLogRecordFactory(made)


def identity() -> tuple[str | None, str | None]:
    """The id of this process's launch, and the platform's name of the run."""
    return _identity


def about_message(record: logging.LogRecord) -> dict[str, Any]:
    """The values that `identify` gave the record, without those that are None."""
    known = ((name, getattr(record, PREFIX + name, None)) for name in ABOUT)
    return {name: value for name, value in known if value is not None}
