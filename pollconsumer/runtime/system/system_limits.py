"""Limits that the system sets to a process or its user, told by their names where one is met."""

from __future__ import annotations

import errno

from pollconsumer.core.errors import ConfigurationError
from pollconsumer.runtime.system.own_threads import NO_THREAD

_NO_THREADS = (NO_THREAD, "unable to start watchdog thread")
"""What Python, and faulthandler, say when no thread can be started."""


def met_by(error: BaseException) -> ConfigurationError | None:
    """The error for a limit that ``error`` has met; None if that is of another kind."""
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return _met("out of memory", "lower consumer.concurrency, or have handlers need less")
    if isinstance(error, RuntimeError) and str(error) in _NO_THREADS:
        return _met(NO_THREAD, "lower consumer.concurrency")
    if isinstance(error, BlockingIOError) and error.filename is None:  # of fork: no socket of ours raises it
        return _met("cannot start a process", "stop others of this user")
    return None


def start_refused(error: BaseException) -> str:
    """Why a process or a thread could not be started, as ``error`` tells."""
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return f"{error.strerror} (ulimit -n)"
    return str(met_by(error) or error)


def limits() -> str:
    """The limits of memory and of processes that are set for this process."""
    import resource  # not needed otherwise

    of = {"-v": (resource.RLIMIT_AS, 1024), "-u": (resource.RLIMIT_NPROC, 1)}
    soft = {option: (resource.getrlimit(which)[0], unit) for option, (which, unit) in of.items()}
    held = [f"ulimit {name} {limit // unit}" for name, (limit, unit) in soft.items() if limit != resource.RLIM_INFINITY]
    return ", ".join(held) or "no limit of this process"


def _met(what: str, fix: str) -> ConfigurationError:
    return ConfigurationError(what, limits(), f"raise the limit, {fix}")
