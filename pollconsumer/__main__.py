"""The ``pollconsumer`` command, also as ``python -m pollconsumer``."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # loaded already, while importing signal is slow
import errno
import os
import sys


def _leave(number: int, _frame: object) -> NoReturn:
    os._exit(130 if number == _signal.SIGINT else 0)  # nothing is in flight yet


if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:  # else it is ignored, as in a background process
    _signal.signal(_signal.SIGINT, _leave)

import gc  # noqa: E402  Ctrl-C prints no traceback from here on
import signal  # noqa: E402  as above
from contextlib import suppress  # noqa: E402  as above

from pollconsumer.runtime.system import standard_error  # noqa: E402  as above
from pollconsumer.runtime.system.watchdog import leave, limit_start  # noqa: E402  as above

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


NEEDED = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM, signal.SIGCHLD}
"""Signals that stop a launch, time out its handlers, and report its children. A parent process may have blocked them,
and a child process inherits that."""
NO_MEMORY = b"pollconsumer: error: out of memory; raise the limit (ulimit -v), or have handlers need less\n"
BEYOND_REPORTING = (
    b"pollconsumer: error: a failure could not be reported; "
    b"see whether memory, open files or processes are limited (ulimit -a)\n"
)
OTHERS_MAY_WRITE = 0o002
"""The bit of the umask that forbids others to write our files. It is always set: without it, Python would compile
modules into files that the next launch refuses."""
SPARE = 1 << 20
"""Bytes freed before the line about a lack of memory is written: as many as Python takes from the system at once."""
FEWEST_DESCRIPTORS = 16
"""The fewest open files with which a process can work: with fewer, imports or connections fail."""


def main() -> NoReturn:
    """Run the command that ``sys.argv`` names, and end the process with its exit code."""
    with suppress(OSError):
        _open_standard_descriptors()
    standard_error.remember()
    limit_start()
    os.umask(os.umask(OTHERS_MAY_WRITE) | OTHERS_MAY_WRITE)
    limit = os.sysconf("SC_OPEN_MAX")
    if 0 <= limit < FEWEST_DESCRIPTORS:  # said without our modules, whose import needs descriptors
        fix = f"at least {FEWEST_DESCRIPTORS} are needed, raise the limit (ulimit -n)"
        _write(f"pollconsumer: error: most open files: {limit}; {fix}\n".encode())
        os._exit(78)
    code, spare = 1, bytearray()
    try:
        spare = bytearray(SPARE)
        code = _ran()
        leave(code)
    except KeyboardInterrupt:  # after the command has ended, or while what it raised was reported
        code = 130
    except BaseException as error:
        del spare  # before anything else: to examine the error needs memory, too
        lacks_memory = _lacks_memory(error)
        code = 78 if lacks_memory else code
        _write(NO_MEMORY if lacks_memory else BEYOND_REPORTING)
    finally:  # Python's own exit would wait for threads of handlers
        os._exit(code)


def _ran() -> int:
    """The exit code of the command, after it has run."""
    try:
        from pollconsumer.interface.command_line import LAUNCHES, command_in

        if command_in(sys.argv[1:]) in LAUNCHES:
            # Before the slow imports: as PID 1 a SIGTERM without a handler is discarded by the kernel.
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, _leave)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, NEEDED)
            gc.disable()  # until the heartbeat is forked: modules stay, so that there is nothing to collect
        from pollconsumer.interface.cli import main as run_command

        return run_command(sys.argv[1:])
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if _lacks_memory(error):  # too little to say more than `main` does
            raise
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            # A brief line: the modules that say more could not be imported.
            fix = "have handlers and their modules close what they open, or raise the limit (ulimit -n)"
            _write(f"pollconsumer: error: too many open files: {os.sysconf('SC_OPEN_MAX')}; {fix}\n".encode())
            os._exit(73)
        from pollconsumer.interface.logs.logs import write_traceback

        write_traceback(error)
        return 1


def _lacks_memory(error: BaseException | None) -> bool:
    """Whether ``error``, or an error in its context, reports a lack of memory: Python's own, or the dynamic linker's.
    Python may raise SystemError if it could not create a MemoryError."""
    while error is not None:
        refused = isinstance(error, ImportError) and ("map segment" in str(error) or "allocate memory" in str(error))
        if refused or isinstance(error, MemoryError | SystemError) or getattr(error, "errno", None) == errno.ENOMEM:
            return True
        error = error.__context__
    return False


def _write(line: bytes) -> None:
    with suppress(OSError):
        standard_error.write(line)


def _open_standard_descriptors() -> None:
    """Open /dev/null as 0, 1 and 2 if these are closed. Otherwise the store's socket could get such a number, and
    output would be written into the socket."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


if __name__ == "__main__":
    main()
