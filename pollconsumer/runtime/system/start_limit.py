"""The limit of a process that no window bounds: a launch that has not read its settings, a short command.

SIGALRM ends it, with 124 and its stacks. Where Python cannot act, as in a call to a mount that does not answer,
faulthandler's thread ends it, half a second later and with 1.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from contextlib import suppress
from functools import partial

from pollconsumer.runtime.system import standard_error

START_WITHIN = 30.0
"""Seconds until a process has read its settings: a launch is then bounded by its window."""
WITHOUT_INTERPRETER_AFTER = 0.5
EXIT_CODE = 124
NOT_READ = "settings not read"
_ours = False
"""Whether the process is the command's, and not one that imports it."""


def limit_start() -> None:
    """Bound this process, the command's, from its first line on."""
    global _ours
    _ours = True
    limit()


def limit(seconds: float | None = None, what: str = NOT_READ) -> None:
    """End the command's process after ``seconds``, by default `START_WITHIN`, saying ``what``, unless the limit is
    lifted. It replaces an earlier limit."""
    if not _ours:
        return
    seconds = seconds or START_WITHIN
    with suppress(OSError, RuntimeError):  # no descriptor is left, or the system refuses another thread
        end_without_interpreter(seconds + WITHOUT_INTERPRETER_AFTER)
    signal.signal(signal.SIGALRM, partial(end_with_stacks, f"{what}: {seconds:g}s"))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    signal.setitimer(signal.ITIMER_REAL, seconds)


def raise_interrupts() -> None:
    """Have Ctrl-C raise KeyboardInterrupt in the command's process. While modules are imported it ends the process at
    once: an exception leaves them half done, and some swallow it."""
    if _ours and signal.getsignal(signal.SIGINT) not in (signal.SIG_IGN, signal.SIG_DFL):
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = _end_if_interrupted


def _end_if_interrupted(unraisable: sys.UnraisableHookArgs) -> None:
    """End the process where a finaliser or an import was interrupted: Python would print that, and go on."""
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        os._exit(130)
    sys.__unraisablehook__(unraisable)


def lift() -> None:
    """Lift the limit: nothing bounds the command's process any more."""
    if _ours:
        faulthandler.cancel_dump_traceback_later()
        leave_to_another()


def leave_to_another() -> None:
    """Clear SIGALRM: another limit takes over, and has set faulthandler's thread."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)


def end_without_interpreter(seconds: float) -> int:
    """Have faulthandler's thread end the process after ``seconds``, with 1, in place of an earlier limit that it kept.
    Returns the descriptor for its stacks. OSError, RuntimeError: no descriptor is left; no thread can be started."""
    output = standard_error.unblocked()
    faulthandler.dump_traceback_later(seconds, exit=True, file=output)
    return output


def end_with_stacks(what: str, *_: object) -> None:
    """End the process at its limit, telling ``what`` happened and every stack."""
    try:
        standard_error.write_stacks(f"pollconsumer: error: {what}; its stacks follow\n")
    finally:
        os._exit(EXIT_CODE)
