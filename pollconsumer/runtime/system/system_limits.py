"""Limits of memory, processes and open files that the system sets, for error messages that name them. Also descriptors
that are held back, so that a launch can still end cleanly after its handlers have used up all others."""

from __future__ import annotations

import errno
import os
import resource
from contextlib import suppress

from pollconsumer.core.errors import CannotCreate, ConfigurationError, PollConsumerError
from pollconsumer.runtime.system.own_threads import NO_THREAD
from pollconsumer.store.client.own_descriptors import LOWEST, Opened, above_standard

_NO_THREADS = (NO_THREAD, "unable to start watchdog thread")
"""The error texts of Python and of faulthandler if the system refuses another thread."""
USED_UP = (errno.EMFILE, errno.ENFILE)
"""The error numbers if this process, or the whole system, may open no more files."""
RESERVED = 8
"""Number of descriptors that the end of a launch needs."""


def met_by(error: BaseException) -> ConfigurationError | None:
    """An error for the user that names the limit that was reached, and the fix. None if ``error`` has another cause."""
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return _met("out of memory", "lower consumer.concurrency, or have handlers need less")
    if isinstance(error, RuntimeError) and str(error) in _NO_THREADS:
        return _met(NO_THREAD, "lower consumer.concurrency")
    if isinstance(error, BlockingIOError) and error.filename is None:  # raised by fork: none of our sockets raises it
        return _met("cannot start a process", "stop others of this user")
    return None


def exit_code_of(error: BaseException) -> int:
    """The exit code of a command that ends with ``error``."""
    if isinstance(error, PollConsumerError):
        return error.exit_code
    if getattr(error, "errno", None) in USED_UP:
        return CannotCreate.exit_code
    met = met_by(error)
    return 1 if met is None else met.exit_code


def start_refused(error: BaseException) -> str:
    """The reason, for the log, why a process or a thread could not be started; ``error`` is what the system raised."""
    if isinstance(error, OSError) and error.errno in USED_UP:
        return f"{error.strerror} (ulimit -n)"
    return str(met_by(error) or error)


def limits() -> str:
    """The memory and process limits (ulimit) of this process, as a text for errors."""
    of = {"-v": (resource.RLIMIT_AS, 1024), "-u": (resource.RLIMIT_NPROC, 1)}
    soft = {option: (resource.getrlimit(which)[0], unit) for option, (which, unit) in of.items()}
    held = [f"ulimit {name} {limit // unit}" for name, (limit, unit) in soft.items() if limit != resource.RLIM_INFINITY]
    return ", ".join(held) or "no limit of this process"


class SpareDescriptors:
    """Within a ``with`` block, holds descriptors back for the launch's end, which opens modules and scripts. Handlers
    may have leaked all others by then."""

    def __init__(self) -> None:
        self._held: list[Opened] = []

    def __enter__(self) -> None:
        self._held = self._open()

    def __exit__(self, *_: object) -> None:
        self._free()

    @staticmethod
    def _open() -> list[Opened]:
        """Duplicates of one end of a new pipe. Only these descriptors lead to that pipe, so before one is closed, it
        can be verified that no handler has closed it and reused its number."""
        held: list[Opened] = []
        if 0 <= os.sysconf("SC_OPEN_MAX") <= LOWEST:
            return held
        with above_standard(), suppress(OSError):
            end, other = os.pipe()
            os.close(other)
            held.append(Opened.now(end))
            while len(held) < RESERVED:
                held.append(Opened.now(os.dup(end)))
        return held

    def freed(self) -> bool:
        """Free the reserved descriptors if the process has no other descriptor left. Returns whether it did."""
        try:
            if self._held:
                os.close(os.dup(self._held[-1].number))
        except OSError as error:
            self._free()
            if error.errno in USED_UP:
                return True
            self._held = self._open()  # a handler closed them
        return False

    def _free(self) -> None:
        held, self._held = self._held, []
        for each in held:
            each.close()


def _met(what: str, fix: str) -> ConfigurationError:
    return ConfigurationError(what, limits(), f"raise the limit, {fix}")
