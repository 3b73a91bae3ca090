"""Failures imposed on a handler: its timeout, or the death of its process."""

from __future__ import annotations

from pollconsumer.core.timespan import format_duration


class HandlerTimeout(TimeoutError):
    """The handler had not ended when its ``timeout`` had passed, and was stopped. A failure like any other."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(f"no end after {format_duration(seconds)}")


class ProcessDied(Exception):
    """The process in which an isolated handler ran is gone, or never came to run it; the text says how."""


class TimeIsUp(BaseException):
    """Raised inside a handler whose timeout has passed. No Exception: what catches those must not keep it running."""
