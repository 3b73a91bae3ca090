"""The ``pollconsumer`` command, also as ``python -m pollconsumer``."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # loaded already, while importing signal is slow
import errno
import os
import sys


def _leave(number: int, _frame: object) -> NoReturn:
    os._exit(130 if number == _signal.SIGINT else 0)  # nothing is in hand yet


if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:  # else it is ignored, as in a background process
    _signal.signal(_signal.SIGINT, _leave)

import faulthandler  # noqa: E402  Ctrl-C prints no traceback from here on
import gc  # noqa: E402  as above
import signal  # noqa: E402  as above
from contextlib import suppress  # noqa: E402  as above

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


NEEDED = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM, signal.SIGCHLD}
"""Signals that stop a launch, time out its handlers, and report its children. The parent may have blocked them, and the
mask is inherited."""
START_WITHIN = 30.0
"""Seconds until a launch has read its configuration, and is bounded by its window."""
WITHOUT_INTERPRETER_AFTER = 0.5
"""Seconds later faulthandler's thread ends it, with 1, where Python cannot."""
NO_MEMORY = b"pollconsumer: error: out of memory; raise the limit (ulimit -v), or have handlers need less\n"
OTHERS_MAY_WRITE = 0o002
"""Everybody may write none of our files, whatever the umask: the next launch would refuse modules compiled so."""
FEWEST_DESCRIPTORS = 16
"""With fewer, imports or connections fail."""


def main() -> NoReturn:
    """Run the command that ``sys.argv`` names and end with its code."""
    _limit_start()
    os.umask(os.umask(OTHERS_MAY_WRITE) | OTHERS_MAY_WRITE)
    _refuse_few_descriptors()
    try:
        from pollconsumer.interface.command_line import LAUNCHES, command_in

        if command_in(sys.argv[1:]) in LAUNCHES:
            # Before the slow imports: as PID 1 a SIGTERM without a handler is discarded by the kernel.
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, _leave)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, NEEDED)
            gc.disable()  # until the heartbeat is forked: modules stay, so that there is nothing to collect
        else:
            _take_back_limit()
            if signal.getsignal(signal.SIGINT) is _leave:
                signal.signal(signal.SIGINT, signal.default_int_handler)
        _open_standard_descriptors()
        from pollconsumer.interface.cli import main as run_command

        code = run_command(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    except MemoryError:  # too little to say more
        os.write(2, NO_MEMORY)
        code = 78
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            _end_without_descriptors()
        from pollconsumer.interface.logs import write_traceback

        write_traceback(error)
        code = 1
    from pollconsumer.runtime.launch.leaving import leave

    leave(code)


def _limit_start() -> None:
    """Bound a launch from its first line on: a mount may not answer, a log may not be read. Nobody is there
    to interrupt it, and the next one would follow it."""
    with suppress(AttributeError, OSError, RuntimeError, ValueError):  # no standard error, or no other thread
        faulthandler.dump_traceback_later(START_WITHIN + WITHOUT_INTERPRETER_AFTER, exit=True)
    signal.signal(signal.SIGALRM, _end_start)
    signal.setitimer(signal.ITIMER_REAL, START_WITHIN)


def _end_start(_number: int, _frame: object) -> NoReturn:
    text = f"pollconsumer: error: launch not begun: {START_WITHIN:g}s after its start; its stacks follow\n"
    try:
        os.write(2, text.encode())
        faulthandler.dump_traceback()
    finally:
        os._exit(124)


def _take_back_limit() -> None:
    faulthandler.cancel_dump_traceback_later()
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)


def _refuse_few_descriptors() -> None:
    """Printed without our modules, whose import needs descriptors."""
    limit = os.sysconf("SC_OPEN_MAX")
    if 0 <= limit < FEWEST_DESCRIPTORS:
        fix = f"at least {FEWEST_DESCRIPTORS} are needed, raise the limit (ulimit -n)"
        sys.stderr.write(f"pollconsumer: error: most open files: {limit}; {fix}\n")
        sys.stderr.flush()
        os._exit(78)


def _end_without_descriptors() -> NoReturn:
    """What says more of it could not be imported."""
    fix = "have handlers and their modules close what they open, or raise the limit (ulimit -n)"
    sys.stderr.write(f"pollconsumer: error: too many open files: {os.sysconf('SC_OPEN_MAX')}; {fix}\n")
    sys.stderr.flush()
    os._exit(73)


def _open_standard_descriptors() -> None:
    """Open /dev/null for closed 0, 1 or 2: otherwise the store's socket would get that number, and receive output."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


if __name__ == "__main__":
    main()
