"""Errors of the system's kind that a signal handler raised in the midst of a call, as TimeoutError."""

from __future__ import annotations

_OF_SOCKETS = ("pollconsumer", "socket", "ssl", "contextlib", "gevent", "eventlet")
"""Packages in which errors of a connection are raised."""


class Interruption(Exception):
    """Stands for such an ``error``, which says nothing about the connection."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error)
        self.error = error


def raise_if_thrown(error: OSError) -> None:
    """Raise Interruption for an error without a number, which errors of the system have, that was raised elsewhere."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if error.errno is None and trace is not None:
        package = str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0]
        if package not in _OF_SOCKETS:
            raise Interruption(error)
