"""The formats and targets of the log that the settings can choose."""

from __future__ import annotations

import errno
import json
import logging
import os
import stat
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pollconsumer.core.errors import CannotCreate, PermissionDenied
from pollconsumer.core.notation.instants import iso_of
from pollconsumer.interface.logs import logs
from pollconsumer.interface.named_files import open_regular
from pollconsumer.interface.settings.model import LogsSettings, Settings

PRIORITIES = {"critical": 2, "error": 3, "warning": 4, "info": 6, "debug": 7}
"""Level → syslog's priority, which systemd reads at the beginning of a line."""
SYSLOG = "/dev/log"
LOG_MODE = 0o644
"""The mode of a new log file. The umask may restrict it further."""
ABOUT_TARGET = logs.about("logs.target", kind=logs.PERSISTENT)


def direct_log(settings: Settings) -> None:
    """Set format and target of the log by the settings, in a launch or in a process of isolated handlers. CannotCreate
    or PermissionDenied for a target that cannot be opened."""
    form, target = settings.logs.format, settings.logs.target
    if target == "stderr":
        if form != "text" or "JOURNAL_STREAM" in os.environ:
            line = _line_of(form, journal=_is_journal())
            logs.direct(line, None, has_traceback=line is json_line)
        return
    handler = _opened(target, settings.directory)
    line = _line_of(form, journal=False) or (logs.text_line if target == "syslog" else timed_line)

    def copy(level: str, text: str, fields: Mapping[str, Any]) -> None:
        # Without a factory of records, which others may replace.
        record = logging.LogRecord(logs.log.name, logging.INFO, "", 0, line(level, text, fields), (), None)
        record.levelname = level.upper()
        handler.handle(record)

    logs.direct(None, copy)


def check(settings: LogsSettings, directory: Path) -> None:
    """Raise CannotCreate or PermissionDenied if a launch could not open the target. Creates nothing."""
    if settings.target != "stderr":
        _opened(settings.target, directory, creates=False).close()


def json_line(level: str, text: str, fields: Mapping[str, Any]) -> str:
    whole = {"time": _now(), "level": level, "message": text, **fields}
    try:
        return json.dumps(whole, default=str, allow_nan=False)
    except ValueError:  # JSON has neither infinity nor not-a-number
        return json.dumps({name: str(each) for name, each in whole.items()})


def journal_line(level: str, text: str, fields: Mapping[str, Any]) -> str:
    return f"<{PRIORITIES.get(level, 6)}>{logs.text_line(level, text, fields)}"


def timed_line(level: str, text: str, fields: Mapping[str, Any]) -> str:
    return f"{_now()} {logs.text_line(level, text, fields)}"


def _line_of(name: str, *, journal: bool) -> logs.Line | None:
    """The function that formats lines in the format ``name``. None for plain text."""
    if name == "json":
        return json_line
    return journal_line if journal or name == "journal" else None


def _now() -> str:
    return iso_of(datetime.now(UTC))


def _is_journal() -> bool:
    """Whether systemd's journal reads standard error."""
    try:
        found = os.fstat(2)
    except OSError:
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


def _opened(target: str, directory: Path, *, creates: bool = True) -> logging.Handler:
    """A handler of ``logging`` that writes to syslog, or appends to a file, which other programs may rotate."""
    from logging.handlers import SysLogHandler, WatchedFileHandler

    handler: logging.Handler
    path = Path(SYSLOG) if target == "syslog" else directory / Path(target).expanduser()
    try:
        if target == "syslog":
            handler = SysLogHandler(SYSLOG)
        else:
            if creates or path.exists():
                created = os.O_CREAT if creates else 0
                os.close(open_regular(path, os.O_WRONLY | os.O_APPEND | created, LOG_MODE))
            else:
                parent = Path(os.path.realpath(path)).parent
                if not stat.S_ISDIR(parent.stat().st_mode):
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
                if not os.access(parent, os.W_OK | os.X_OK):
                    raise PermissionError
            handler = WatchedFileHandler(path, encoding="utf-8", delay=not creates)
    except PermissionError:
        raise PermissionDenied("logs.target", path, "permission denied: let this user write it") from None
    except OSError as error:
        raise CannotCreate("logs.target", path, f"{error.strerror}: name another one") from None
    failed_before = False

    def report_failure(_: logging.LogRecord) -> None:
        nonlocal failed_before
        if not failed_before:
            failed_before = True
            error = sys.exc_info()[1]
            why = (isinstance(error, OSError) and error.strerror) or type(error).__name__
            logs.log.warning("logs.target: %s; %s: lines are lost", path, why, extra=ABOUT_TARGET)

    handler.handleError = report_failure  # type: ignore[method-assign, assignment]  # a full disk ends no launch
    return handler
