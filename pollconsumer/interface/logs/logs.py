"""Writes the log to standard error, a line ``pollconsumer: LEVEL: TEXT`` for each record. By default it writes only
warnings and errors, since cron mails all output.

With ``log.streaks``, repeated warnings are damped: see ``core/repeats.py``. Two warnings are the same if their texts
differ only in numbers. ``extra=about(...)`` names a warning independently of its text. A warning with
``extra=UNDAMPED`` is printed each time."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from traceback import format_exception
from types import MappingProxyType
from typing import Any, TextIO

from pollconsumer.core.errors import ConfigurationError, LeaseLost, PollConsumerError, StoreUnreachable, UsageError
from pollconsumer.core.notation.digests import sha256
from pollconsumer.core.notation.instants import iso_of
from pollconsumer.core.notation.text import printable, printable_lines, redacted
from pollconsumer.core.repeats import Streaks
from pollconsumer.core.users_code import MOST_CHARACTERS, called, described, text_of
from pollconsumer.core.window import StopReason
from pollconsumer.interface.command_line import values_of
from pollconsumer.runtime.handling import kept_lines
from pollconsumer.runtime.handling.kept_lines import ROOT, KeptLines
from pollconsumer.runtime.handling.slot_waits import IN_SLOT, InFlight
from pollconsumer.runtime.system import own_threads, standard_error
from pollconsumer.runtime.system.own_files import OwnFiles, spare_directory

OURS = "pollconsumer"
"""The name of our logger. If one of its records is about a message, the record's text names the message."""
PREFIX = "pollconsumer_"
"""Prefix of the attributes that we add to records. An attribute without it could have a name that is also in a record's
own ``extra``, and logging refuses to replace an attribute."""
ABOUT = ("launch_id", "run_id", "message_id", "handler", "attempt")
DIRECTORY = "streaks"
WITHOUT_WORK = (
    StopReason.LEASE_HELD,
    StopReason.LEASE_LOST,
    StopReason.STORE_UNREACHABLE,
    StopReason.FAILED,
    StopReason.WATCHDOG,
    StopReason.DIED,
)
"""Stop reasons of launches that did not work. Such a launch cannot know whether the problem of a warning is over."""
_VARIABLES = {"--config": "CONFIG", "--store": "STORE", "--namespace": "NAMESPACE", "--queue": "CONSUMER__QUEUES"}
UNDAMPED: dict[str, Any] = {"streak": None}
"""The ``extra`` of a record that is printed each time."""
FAILURE, PERSISTENT, LASTING, MET = "failure", "standing", "lasting", "met"
"""Kinds of streaks: see ``core/repeats.py``."""
OUR_LOGGERS = ("django.tasks", "django_tasks")
"""Loggers of Django's tasks framework. Their records are dropped, since the launch itself reports dead letters."""
_NUMBER = r"\b0x[0-9a-f]+\b|(?<![\w-])\d+(?:\.\d+)*(?:ms|[smhd%])?(?![\w-])"
"""A count, a duration, or an address, but not a number in a name such as ``mail2``."""
Line = Callable[[str, str, Mapping[str, Any]], str]
"""Formats a line from a level, a text, and fields of the record."""
Copy = Callable[[str, str, Mapping[str, Any]], None]


def identify(launch_id: str, run_id: str | None, the_one: Callable[[], InFlight | None] = lambda: None) -> None:
    """Give each later record the attributes of `ABOUT`, as ``pollconsumer_launch_id``; one that does not apply is None.
    ``the_one`` returns the message in flight if there is only one."""
    log.identity = launch_id, run_id
    make = logging.getLogRecordFactory()

    def made(*args: Any, **named: Any) -> logging.LogRecord:
        record = make(*args, **named)
        message = None if record.name == OURS else IN_SLOT.get() or the_one()
        message_fields = (None, None, None) if message is None else (message.name, message.handler, message.attempt)
        for name, value in zip(ABOUT, (launch_id, run_id, *message_fields), strict=True):
            setattr(record, PREFIX + name, value)
        return record

    logging.setLogRecordFactory(made)


class LaunchStreaks:
    """The streaks of warnings and failures that launches of one crontab line meet or end: see ``core/repeats.py``.

    They are stored in a small file of the user's. There is one file for each configuration file, store, namespace, role
    and set of queues. Arguments and environment give these, since the configuration may be invalid. Two concurrent
    launches may overwrite each other's counts, and then print a line more or less. If no file can be written, nothing
    is damped. If the user's disk is full, a file in ``/tmp`` is used."""

    def __init__(
        self, name: str, files: OwnFiles, now: Callable[[], float] = time.time, launch: str | None = None
    ) -> None:
        """``launch``: an id of the launch to which this process belongs. None: this process is the launch."""
        self.files, self.name, self.launch = files, name, launch or os.urandom(8).hex()
        self._file, self._now = f"{DIRECTORY}/{name}", now
        self.stopped: str | None = None
        """Why the launch ended, if it reached the lease; else None."""

    def meet(self, kind: str, name: str, text: str) -> str | None:
        """Record the problem ``name``. Returns the line to print for ``text``; None if it is damped."""
        streaks, now = self._read(), self._now()
        before = streaks.encode(now)
        shown = streaks.meet(name, kind, text, self.launch, now)
        changed = streaks.encode(now) != before
        return text if changed and not self._write(streaks, now) else shown

    def close(self, code: int) -> list[str]:
        """End the launch with the exit code ``code``. Returns a line for each streak that is over."""
        if code or self.stopped is None or self._own_files().read(self._file) is None:
            return []
        streaks, now = self._read(), self._now()
        lines = streaks.end(self.launch, now, worked=self.stopped not in WITHOUT_WORK)
        return lines if self._write(streaks, now) else []

    def _read(self) -> Streaks:
        return Streaks.decode(self._own_files().read(self._file))

    def _write(self, streaks: Streaks, now: float) -> bool:
        content = streaks.encode(now)
        if content:
            return self._own_files().write(self._file, content)
        self._own_files().remove(self._file)
        return True

    def _own_files(self) -> OwnFiles:
        """``files`` and a spare directory; no directory if the settings say that nothing is stored."""
        directories = self.files.directories
        spare = spare_directory() if directories else None
        return OwnFiles([*directories, *([spare] if spare else [])])


def name_of(role: str, arguments: Sequence[str], variables: Mapping[str, str], prefix: str) -> str:
    """A name that launches of this role share if ``arguments`` and environment choose the same configuration."""
    given = {
        option: sorted(values_of(option, arguments)) or [variables.get(prefix + variable, "")]
        for option, variable in _VARIABLES.items()
    }
    with suppress(OSError):  # the current directory is gone: the launch ends with that error
        given["--config"] = [os.path.abspath(path or "config.toml") for path in given["--config"]]  # noqa: PTH100  # as written, links included
    given["--store"] = [redacted(url) for url in given["--store"]]
    return sha256(json.dumps([role, given]).encode("utf-8", "surrogateescape"))[:32]


def about(*subject: str, kind: str = MET) -> dict[str, Any]:
    """The ``extra`` of a warning: kind and name of its streak. ``subject``: that name, the same in each launch."""
    return {"streak": (kind, ": ".join(subject))}


def text_line(level: str, text: str, fields: Mapping[str, Any]) -> str:
    """A line of plain text. It names the message that was being handled."""
    if "message_id" in fields:
        text += " (message {message_id}, {handler}, attempt {attempt})".format_map(fields)
    return f"pollconsumer: {level}: {printable(text)}"


class _Lines(logging.Handler):
    """Writes each record of the level ``threshold`` or above on one line of standard error. Never raises."""

    def __init__(self, threshold: int) -> None:
        super().__init__(threshold)
        self.threshold = threshold

    def emit(self, record: logging.LogRecord) -> None:
        if record.name not in (*OUR_LOGGERS, log.name):
            self.print_record(record)

    def print_record(self, record: logging.LogRecord) -> None:
        text = _text_of(record)
        if record.exc_info and record.exc_info[1] is not None:
            failure = record.exc_info[1]
            text = f"{text}: {described(failure, most=len(text_of(failure)) + MOST_CHARACTERS)}"
        level, identified = record.levelname.lower(), ((name, getattr(record, PREFIX + name, None)) for name in ABOUT)
        fields = {name: value for name, value in identified if value is not None}
        fields.update(getattr(record, "fields", {}))
        origin = _origin(record)
        if log.copy is not None:
            log.copy(level, text, fields | origin)
        ours = record.name == log.name and record.levelno >= logging.WARNING
        if record.levelno < self.threshold or (log.copy is not None and not ours):
            return
        streak = getattr(record, "streak", (MET, _without_numbers(text))) if ours else None
        if (damped := _damped(streak, text)) is not None:
            fields |= origin
            is_verbose = self.threshold < min(record.levelno, logging.WARNING)
            write_line(level, damped, fields, fields.get("traceback", "") if is_verbose else "")


class _Keeper(logging.Handler):
    """Stores with each message what its handler logs. Never raises."""

    def __init__(self, lines: KeptLines) -> None:
        super().__init__()
        self._lines = lines

    def handle(self, record: logging.LogRecord) -> Any:
        """Keep ``record``, or the record that a filter puts in its place, if the filters let it pass. Return what they
        return. Takes no lock: each thread adds to its own message."""
        if passed := self.filter(record):
            self.emit(passed if isinstance(passed, logging.LogRecord) else record)
        return passed

    def emit(self, record: logging.LogRecord) -> None:
        if IN_SLOT.get() is None or record.name in (*OUR_LOGGERS, log.name):
            return
        at, level = iso_of(datetime.fromtimestamp(record.created, UTC)), record.levelname.lower()
        line = f"{at} {level} {record.name}: {_text_of(record)}\n"
        self._lines.add(line + _origin(record).get("traceback", ""), is_line=True)


class _OwnLogger(logging.Logger):
    """Our logger. It prints even if other code disables loggers, replaces their handlers, or adds handlers that raise.
    Then it passes each record to the standard library's logger ``pollconsumer``, for other handlers."""

    def __init__(self) -> None:
        super().__init__("pollconsumer", logging.CRITICAL + 1)
        self.lines: _Lines | None = None
        """Our handler of records. None until `configure` is called: in a producer only its own handlers print."""
        self.others = logging.getLogger(self.name)
        self.identity: tuple[str | None, str | None] = (None, None)
        """The id of this process's launch, and the platform's id of the run."""
        self.streaks: LaunchStreaks | None = None
        """The streaks by which warnings are damped. None: no warning is damped."""
        self.output: Callable[[str], object] | None = None
        """Called with each line for standard error, with its line feed. None until `configure` is called."""
        self.line: Line = text_line
        """Formats the lines on standard error."""
        self.line_has_traceback = False
        """Whether ``line`` shows the field ``traceback``."""
        self.copy: Copy | None = None
        """Called with each record, if the settings name a target of the log. Else None."""
        self._raised = False

    @property
    def threshold(self) -> int:
        """The least level that a person wants to see. A target of the log gets more, which lowers ``level``."""
        return self.level if self.lines is None else self.lines.threshold

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802  of its base
        return level >= self.level or self.others.isEnabledFor(level)

    def makeRecord(self, *args: Any, **named: Any) -> logging.LogRecord:  # noqa: N802  of its base
        try:
            return called(super().makeRecord, *args, **named)
        except Exception:  # raised by a foreign factory of records
            name, level, path, line, text, values, failure, function, extra = (*args, *[None] * 9)[:9]
            record = logging.LogRecord(name, level, path, line, text, values, failure, function)
            vars(record).update(extra or {})
            return record

    def handle(self, record: logging.LogRecord) -> None:
        if self.lines is not None and record.levelno >= self.level:
            self.lines.print_record(record)
        try:
            if self.others.isEnabledFor(record.levelno):
                called(self.others.handle, record)
        except Exception as error:  # raised by a foreign filter or handler, perhaps during a settlement
            if not self._raised:
                self._raised = True
                self.warning(
                    "logging: a filter or handler of 'pollconsumer' raised %s", described(error).partition(":")[0]
                )


log = _OwnLogger()


def shows_completed() -> bool:
    """Whether the log shows a line for each completed message: with -v, or if a person watches."""
    return log.threshold <= logging.INFO


def configure(verbosity: int = 0, *, quiet: bool = False) -> None:
    """Print warnings and errors; with a ``verbosity`` of 1 also INFO, from 2 on also DEBUG; if ``quiet``, errors only.
    Records of handlers' modules have the same form and level. A later call replaces an earlier one."""
    log.output = _output_of(sys.stderr)
    level = logging.ERROR if quiet else (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbosity, 2)]
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler, _Lines | _Keeper)]:
        root.removeHandler(handler)
    own_threads.report[1:] = [partial(log.error, "%s")]
    log.others.propagate = True
    log.lines = _Lines(level)
    root.addHandler(log.lines)
    for logger in (root, log, log.others):
        logger.setLevel(level)


def keep_lines(most: int) -> None:
    """Store with each attempt up to ``most`` bytes of what it logs and prints; 0 stores nothing. Records count from
    INFO up, unless users' code sets another level. Printed text counts if it is written to the streams that
    `standard_error.outlast_readers` has installed."""
    lines = KeptLines(most) if most else None
    kept_lines.of_process = lines
    standard_error.HandlersStream.printed = None if lines is None else lines.add_printed
    if lines is not None:
        lines.keeper = _Keeper(lines)
        ROOT.addHandler(lines.keeper)
        ROOT.setLevel(min(ROOT.level, logging.INFO))


def speak() -> None:
    """Print our INFO records, too, and every warning undamped: a person watches. Other modules log as configured."""
    log.streaks = None
    log.setLevel(min(log.level, logging.INFO))
    if log.lines is not None:
        log.lines.threshold = min(log.lines.threshold, logging.INFO)


def direct(line: Line | None, copy: Copy | None, *, has_traceback: bool = False) -> None:
    """Print lines in the format ``line``; ``has_traceback``: it includes the traceback. If there is a ``copy``, call it
    with all records from INFO up, and print only our warnings and errors."""
    log.line, log.line_has_traceback, log.copy = line or text_line, has_traceback, copy
    if copy is None:
        return
    root = logging.getLogger()
    printing = [handler for handler in root.handlers if isinstance(handler, _Lines)]
    leveled: list[logging.Logger | logging.Handler] = [root, log, log.others, *printing]
    for each in leveled:
        each.setLevel(min(each.level, logging.INFO))


def _text_of(record: logging.LogRecord) -> str:
    try:
        return called(record.getMessage)
    except Exception:  # a record of the user's code whose arguments do not fit its text
        return str(record.msg)


def _origin(record: logging.LogRecord) -> dict[str, Any]:
    """The fields of a record that only machine-readable formats show."""
    origin = {"logger": record.name}
    if record.exc_info and record.exc_info[1] is not None:
        with suppress(Exception):  # raised by the user's exception class
            origin["traceback"] = "".join(called(format_exception, record.exc_info[1]))
    return origin


@contextmanager
def kept() -> Iterator[None]:
    """Wrap code that may configure logging, such as Django's setup. Our lines are still printed, once, even if that
    code replaces the root logger's handlers."""
    root = logging.getLogger()
    ours = [handler for handler in root.handlers if isinstance(handler, _Lines)]
    yield
    if not all(handler in root.handlers for handler in ours):
        log.others.propagate = False


def warn_of_store(text: str) -> None:
    """Log a warning about the store that every connection would repeat."""
    log.warning("%s", text, extra=about(_without_numbers(text), kind=PERSISTENT))


def warn_of_users_code(text: str, traced: str) -> None:
    """Log a warning about user code that raised. ``traced``: its traceback; empty if there is none."""
    log.warning("%s", text, extra={"fields": {"traceback": traced} if traced else {}})


def warn_of_lost_output(problems: Iterable[tuple[str, str]]) -> None:
    """Log a warning for each stream that lost output of handlers. ``problems``: each stream with the first reason.

    Call it when no handler runs, since a handler may have printed from within a handler of ``logging``."""
    for stream, problem in problems:
        text = "%s: %s; what handlers print there is lost: redirect it to a file, or into a program that reads it"
        log.warning(text, stream, problem, extra=about(stream, kind=PERSISTENT))


def close_streaks(code: int) -> None:
    """Log the streaks that are over, at the end of a launch with the exit code ``code``."""
    lines = [] if log.streaks is None else log.streaks.close(code)
    for line in lines if log.threshold <= logging.WARNING else ():
        write_line("info", line)
    log.streaks = None


def write_error(error: PollConsumerError) -> None:
    """Print the line of the error that ended a command, unless the error is damped."""
    fields = {"traceback": error.traced} if error.traced else {}
    shown = fields if error.shows_trace or log.threshold <= logging.INFO else {}
    if (text := _damped(_streak_of(error), str(error))) is not None:
        if shown and not log.line_has_traceback:
            _write("\n".join(printable_lines(error.traced)))
        write_line("error", text, shown)
    if log.copy is not None:
        log.copy("error", str(error), fields)


def prints_traceback_of(error: Exception) -> bool:
    """Whether to print the traceback of ``error``, a bug in pollconsumer. False if it is damped."""
    return _damped(_streak_of(error), f"unexpected {type(error).__name__}") is not None


def write_traceback(error: BaseException) -> None:
    """Print the traceback of ``error``, a bug in pollconsumer, escaped and indented."""
    text = f"unexpected {type(error).__name__}; please report it, with what follows"
    traced = "".join(format_exception(error))
    if log.copy is not None:
        log.copy("error", text, {"traceback": traced})
    write_line("error", text, {"traceback": traced}, traced)


def write_line(level: str, text: str, fields: Mapping[str, Any] = MappingProxyType({}), traced: str = "") -> None:
    """Print a record's line. The lines of the traceback ``traced`` follow, escaped and indented."""
    following = printable_lines(traced) if traced and not log.line_has_traceback else []
    _write("\n".join([log.line(level, text, fields), *following]))


def _damped(streak: tuple[str, str] | None, text: str) -> str | None:
    return text if streak is None or log.streaks is None else log.streaks.meet(*streak, text)


def _streak_of(error: Exception) -> tuple[str, str] | None:
    """Kind and name of an error's streak. All errors of the store share a streak; others have one for each text. None
    for wrong usage: it is never damped, since its author sees it."""
    if isinstance(error, UsageError):
        return None
    if isinstance(error, LeaseLost):
        return PERSISTENT, "lease lost"
    if isinstance(error, StoreUnreachable):
        return FAILURE, "store unreachable"
    # The numbers in a setting do not change by themselves.
    text = str(error) if isinstance(error, ConfigurationError) else _without_numbers(str(error))
    return FAILURE, f"{type(error).__name__}: {text}"


def _without_numbers(text: str) -> str:
    return re.sub(_NUMBER, "#", text)


def _write(text: str) -> None:
    """Write to standard error. If it is closed or full, or nobody reads it, do nothing."""
    with suppress(Exception):  # raised by the system, or by an object of the user's in place of standard error
        try:
            (log.output or _output_of(sys.stderr))(f"{text}\n")
        except ValueError:  # it was closed, as by the end of a test
            _output_of(sys.stderr)(f"{text}\n")


def _output_of(stream: TextIO | None) -> Callable[[str], object]:
    """The function that writes to standard error. ``stream``: what ``sys.stderr`` was when the command began, perhaps a
    replacement by a test or a calling program. If handlers replace ``sys.stderr`` later, that has no effect."""
    if stream is None:
        return lambda _: None
    if stream is sys.__stderr__:
        return lambda text: standard_error.write(text.encode(errors="backslashreplace"))

    def write(text: str) -> None:
        try:
            descriptor = stream.fileno()
        except (AttributeError, OSError):
            stream.write(text)
            stream.flush()
        else:
            standard_error.write(text.encode(errors="backslashreplace"), descriptor)

    return write


def logged_once(log_text: Callable[[str], None]) -> Callable[[str], None]:
    """``log_text``, but only for texts not logged before, since every connection repeats them."""
    logged = set[str]()

    def log_new(text: str) -> None:
        if text not in logged:
            logged.add(text)  # first, since a logging handler may enqueue
            log_text(text)

    return log_new
