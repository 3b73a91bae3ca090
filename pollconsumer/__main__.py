"""The ``pollconsumer`` command, also as ``python -m pollconsumer``."""

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command that ``sys.argv`` names and end with its code."""
    try:
        from pollconsumer.interface.command_line import LAUNCHES, command_in

        if command_in(sys.argv[1:]) in LAUNCHES:
            # Before the slow imports: as PID 1 a SIGTERM without a handler is discarded by the kernel.
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, _leave)
        _open_standard_descriptors()
        from pollconsumer.interface.cli import main as run_command

        code = run_command(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    except Exception as error:
        from pollconsumer.interface.logs import write_traceback

        write_traceback(error)
        code = 1
    from pollconsumer.runtime.leaving import leave

    leave(code)


def _open_standard_descriptors() -> None:
    """Where 0, 1 or 2 is closed, put /dev/null: else the store's socket would get that number, and stray output."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def _leave(number: int, _frame: object) -> NoReturn:
    os._exit(130 if number == signal.SIGINT else 0)  # nothing is in hand yet


if __name__ == "__main__":
    main()
