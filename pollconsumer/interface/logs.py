"""What people get to read on standard error: ``pollconsumer: LEVEL: TEXT``, one line each, and by default only from
warnings up, since cron mails whatever a command prints."""

from __future__ import annotations

import logging
import sys

from pollconsumer.core.text import printable, printable_lines

log = logging.getLogger("pollconsumer")


class _Lines(logging.Handler):
    """Records as single lines on whatever standard error is at that moment. Never raises."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
        except Exception:  # a record whose arguments do not fit its text comes from code that is not ours
            text = str(record.msg)
        if record.exc_info and record.exc_info[1] is not None:
            failure = record.exc_info[1]
            text = f"{text}: {type(failure).__name__}: {failure}"
        write_line(record.levelname.lower(), text)


def configure(verbosity: int = 0, *, quiet: bool = False) -> None:
    """Print warnings and errors; also INFO for a ``verbosity`` of 1 and DEBUG from 2; errors only when ``quiet``.

    Handlers' modules log in the same form, from warnings up. Calling it again replaces what was set up before.
    """
    level = logging.ERROR if quiet else (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbosity, 2)]
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler, _Lines)]:
        root.removeHandler(handler)
    root.addHandler(_Lines(level))
    log.setLevel(level)


def write_traceback(error: BaseException) -> None:
    """A bug of ours: its traceback, in which no text from outside can act on a terminal or pass for a line of ours."""
    from traceback import format_exception

    write_line("error", f"unexpected {type(error).__name__}; please report it, with what follows")
    _write("\n".join(printable_lines("".join(format_exception(error)))))


def write_line(level: str, text: str) -> None:
    """One line on standard error."""
    _write(f"pollconsumer: {level}: {printable(text)}")


def _write(text: str) -> None:
    """Nothing where standard error is closed, full or has lost its reader."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        return
