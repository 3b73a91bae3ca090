"""What people get to read on standard error: ``pollconsumer: LEVEL: TEXT``, one line each, and by default only from
warnings up, since cron mails whatever a command prints."""

from __future__ import annotations

import logging
import sys

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


def write_line(level: str, text: str) -> None:
    """One line on standard error; nothing where that is closed, full or has lost its reader."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(f"pollconsumer: {level}: {one_line(text)}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        return


def one_line(text: str) -> str:
    """``text`` with control, direction and unpaired characters escaped, so that it cannot break or fake a line."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
