"""Failures imposed on a handler: its timeout, or the death of its process."""

from __future__ import annotations

from pollconsumer.core.timespan import format_duration


class HandlerTimeout(TimeoutError):
    """The handler exceeded its ``timeout`` and was stopped. A failure like any other."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(f"no end after {format_duration(seconds)}")


class ProcessDied(Exception):
    """The process of an isolated handler died, or never started it; the text says how."""


class TimeIsUp(BaseException):
    """Raised inside a handler at its timeout. Not an Exception, so that ``except Exception`` does not catch it."""
