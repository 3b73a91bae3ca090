"""Checks single values, and computes what follows from all settings together: where the store is, and where files are
that outlive a launch.

Each check raises a ValueError with the rule that the value breaks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

from pollconsumer.core.errors import ConfigurationError, retelling, shown, similar, suggestion
from pollconsumer.core.messages.message import check_handler
from pollconsumer.core.notation.text import check_address, redacted
from pollconsumer.core.spans import YEAR, Span, parse_duration
from pollconsumer.interface.named_files import other_than_directory
from pollconsumer.interface.settings.names import NO_STATE
from pollconsumer.runtime.new_messages import Defaults
from pollconsumer.runtime.system.own_files import EMBEDDED, OwnFiles, data_directory, state_directories
from pollconsumer.store.client.address import server_urls, service_of

R = TypeVar("R")
W = TypeVar("W", bound="StrEnum")

NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
NAME_RULE = "use 1 to 64 of the characters A-Z a-z 0-9 _ . -"
VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"
KIBIBYTE, MEBIBYTE = 1024, 1024**2
STORE_RULE = "use embedded, redis://, rediss://, unix://, redis+sentinel:// or redis+cluster://"
CRON_FIELDS = (
    ("minute", "0-59"),
    ("hour", "0-23"),
    ("day of month", "1-31"),
    ("month", "1-12"),
    ("day of week", "0-7"),
)
QUOTING = ", and write / ? # @ in a password as %2F %3F %23 %40"
LONGEST_LABEL = 63
PROCESS = "process"
"""The value of ``on_demand`` that starts a process, without a URL."""
BUDGET = "budget"
"""The value of ``linger`` with which a launch uses all of its request's time."""
BESIDE_WINDOW = 4.0
"""Seconds of a request's time that are left beside the launch's window, for its end and the answer."""
DURATION_ALARMS = ("slower_than", "faster_than")
COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven")
_MEMORY = r"(?i)(\d+(?:\.\d+)?)\s*(?:([KMG])(i?)B?|B?)"


def read_period(value: object) -> object:
    """Seconds or a timedelta as the text of a period. Any other ``value`` is returned as it is."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return str(value) if abs(value) < YEAR * 1000 else "inf"


def parse_memory(value: str | int) -> int:
    """`parse_size` for the memory of a process. ValueError, too, for less than 1 MiB: the unit was probably
    forgotten."""
    size = parse_size(value)
    if size < MEBIBYTE:
        raise ValueError("too little for any process; was a unit meant, as in 256MB?")
    return size


def parse_size(value: str | int) -> int:
    """The bytes that ``value`` stands for: a number, or text such as ``256MB`` (millions) or ``256MiB`` (1024²).
    ValueError if invalid."""
    found = None if isinstance(value, bool) else re.fullmatch(_MEMORY, str(value).strip())
    if found is None:
        raise ValueError("write bytes or a unit, as in 256MB or 1GiB")
    power = " KMG".index((found[2] or " ").upper())
    return int(float(found[1]) * (1024 if found[3] else 1000) ** power)


def _reading(parse: Callable[[Any], R]) -> Callable[[object], R]:
    """``parse``, with a ValueError also for a wrong type."""

    def read(value: object) -> R:
        try:
            return parse(value)
        except (TypeError, OverflowError):
            raise ValueError("expected a number, or text with a unit") from None

    return read


read_duration, read_memory, _read_size = _reading(parse_duration), _reading(parse_memory), _reading(parse_size)
"""The seconds, and the bytes, that a value stands for."""


def read_kept_size(value: object) -> int:
    """The bytes that ``value`` stands for, as in `parse_size`. ValueError unless they are 0, or 1 KiB to 64 KiB."""
    size = _read_size(value)
    if size and not KIBIBYTE <= size <= 64 * KIBIBYTE:
        raise ValueError("0, or 1KiB to 64KiB; was a unit meant, as in 8KiB?")
    return size


def parse_timeout(value: Span) -> float:
    """The seconds that ``value`` stands for. ValueError if it is invalid, 0 or too large."""
    seconds = parse_duration(value)
    if not 0 < seconds <= YEAR:
        raise ValueError("must be > 0, and at most 365d")
    return seconds


def parse_word(kind: type[W], key: str, value: str) -> W:
    """The member of the enum ``kind`` with the value ``value``. ValueError, which names ``key``, if there is none."""
    try:
        return kind(value)
    except ValueError:
        fix = suggestion(str(value), list(kind), f"one of {', '.join(kind)}")
        raise ValueError(f"{key}: {shown(repr(value))}; {fix}") from None


def read_argv(value: object) -> object:
    """``value``, if it is a list. ValueError for a command line, which would need a shell."""
    if not isinstance(value, list | tuple):
        raise ValueError('expected a list, as in ["/usr/local/bin/backup", "--incremental"]; there is no shell')
    return value


def read_exit_codes(value: object) -> object:
    """``value``, if it is a list of exit codes from 1 to 255. ValueError otherwise."""
    if not isinstance(value, list | tuple) or not all(type(code) is int and 1 <= code <= 255 for code in value):
        raise ValueError("expected a list of exit codes from 1 to 255, as in [64, 65]")
    return value


def _matching(pattern: str | re.Pattern[str], rule: str) -> Callable[[str], None]:
    """A check that raises ValueError with ``rule`` for text that does not match ``pattern``."""

    def check(text: str) -> None:
        if not re.fullmatch(pattern, text):
            raise ValueError(rule)

    return check


check_name = _matching(NAME, NAME_RULE)
check_argument = _matching(r"[^\0]*", "no argument can hold a NUL character")
check_mail = _matching(r"[A-Za-z0-9][A-Za-z0-9._+@-]*", "write one address, as in ops@example.org")
"""One address, as it can stand in a header of a mail. An address without a host belongs to a local user."""
check_member = _matching(r"(?s).+", "name a member of the payload")
check_named = _matching(rf"{VARIABLE}(\.{VARIABLE})*:{VARIABLE}", "write module:function, as in myapp.redis:client")
check_token = _matching(r"[!-~]{16,}", "must be 16 or more printable ASCII characters without spaces")
"""A token that an HTTP header can carry, and that is not short."""
check_variable = _matching(VARIABLE, "name variables to pass on, without values")


def check_shared_directory(data: str) -> None:
    if not data.strip() or "\0" in data or data[0] == "~":
        raise ValueError("name a directory that its users share, none of a home")


def _naming(rule: str) -> Callable[[str], None]:
    """A check of a path. ValueError with ``rule`` if it is invalid, such as ``~user`` where no such user exists."""

    def check(path: str) -> None:
        try:
            if path and "\0" not in path and Path(path).expanduser():
                return
        except RuntimeError:  # there is no home that ~ could stand for
            pass
        raise ValueError(rule)

    return check


check_directory = _naming("name a directory")
check_log_target = _naming("write stderr, syslog, or a file's path")
check_program = _naming("name a valkey-server or a redis-server by its path")
check_state = _naming("name a directory, or none to keep nothing")


def check_on_demand(launch_by: str) -> None:
    if launch_by != PROCESS:
        with retelling(ValueError, ValueError, f"{PROCESS}, or the URL of an endpoint: "):
            check_address(launch_by)


def check_linger(linger: str) -> None:
    if linger != BUDGET:
        try:
            parse_duration(linger)
        except ValueError:
            raise ValueError(f"write a duration, as in 2s, or {BUDGET}") from None


def duration_alarms(handlers: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """The table ``alarms.handlers`` in seconds: handler → key → limit. A ValueError names the invalid key."""
    found = dict[str, dict[str, float]]()
    for name, given in handlers.items():
        check_handler(name)
        if not isinstance(given, dict):
            raise ValueError(f'{name}: {shown(repr(given))}; write a table, as in {{ slower_than = "10m" }}')
        found[name] = {}
        for key, value in given.items():
            if key not in DURATION_ALARMS:
                raise ValueError(f"{name}.{shown(key)}: unknown key; {suggestion(key, DURATION_ALARMS)}")
            try:
                found[name][key] = parse_timeout(value)
            except (TypeError, ValueError):
                raise ValueError(f"{name}.{key}: {shown(repr(value))}; write a duration, as in 500ms or 10m") from None
    return found


def check_store(url: str) -> None:
    """Raise ValueError for an invalid store. The error's text has no part of ``url``, which may be secret."""
    if url == "embedded":
        return
    scheme, separator, _ = url.partition("://")
    if separator and scheme == "redis+sentinel":
        service_of(url)
    elif separator and scheme == "redis+cluster":
        for each in server_urls(url):
            check_store(each)
    elif separator and scheme in ("redis", "rediss"):
        _check_host(url)
    elif separator and scheme == "unix":
        _check_socket(url)
    else:
        raise ValueError(STORE_RULE if scheme == scheme.lower() else f"write {scheme.lower()}:// in small letters")


def _check_host(url: str) -> None:
    try:
        parts = urlsplit(url)
        port_fits = parts.port != 0
    except ValueError:
        port_fits = False
    if not port_fits:
        raise ValueError(f"the port must be 1-65535{QUOTING if '@' in url else ''}")
    if parts.hostname and not is_host(unquote(parts.hostname)):
        raise ValueError("the host is no name: its parts, between dots, have 1 to 63 characters each")
    quoting = QUOTING if "@" in parts.path else ""
    _check_databases([*parse_qs(parts.query).get("db", []), parts.path.removeprefix("/") or "0"], quoting)


def _check_socket(url: str) -> None:
    rule = "name the socket by its whole path, as in unix:///run/valkey.sock"
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError(rule) from None
    if not parts.path or parts.netloc.rpartition("@")[2]:
        raise ValueError(rule)
    _check_databases(parse_qs(parts.query).get("db", []))


def _check_databases(given: Iterable[str], quoting: str = "") -> None:
    if not all(database.isdecimal() and database.isascii() for database in given):
        raise ValueError(f"the database must be an integer, as in redis://host:6379/0{quoting}")


def is_host(name: str) -> bool:
    """Whether the codec of internationalised names accepts ``name``. For ASCII, the slow codec is not imported."""
    if name.isascii():
        *parts, last = name.split(".")  # nothing may follow a dot at the end
        return all(0 < len(part) <= LONGEST_LABEL for part in parts) and len(last) <= LONGEST_LABEL
    try:
        name.encode("idna")
    except UnicodeError:
        return False
    return True


def check_cron(expression: str, *, recurs: bool = False) -> None:
    """Raise ValueError unless ``expression`` has five fields of cron, or is a nickname such as ``@daily``. The error
    names the invalid field. ``recurs``: it is a recurrence's, whose fields may have an ``H``."""
    if recurs or expression.lstrip().startswith("@"):
        from pollconsumer.core.notation.cron_expression import five_fields, spread

        expression = spread(five_fields(expression), "") if recurs else five_fields(expression)
    parts = expression.split()
    if len(parts) != len(CRON_FIELDS):
        count = COUNTS[len(parts)] if len(parts) < len(COUNTS) else str(len(parts))
        period = "; a period is written without a space, as in 1d" if len(parts) == 2 and parts[0].isdecimal() else ""
        raise ValueError(f"{count} field{'' if len(parts) == 1 else 's'}, need five{period}")
    for index, (part, (name, values)) in enumerate(zip(parts, CRON_FIELDS, strict=True)):
        if not _is_field(part, index):
            raise ValueError(f"{_cron_reason(part, name, values, index)}, field {index + 1}")
    if not _is_cron(parts):
        raise ValueError("no such day ever comes")


def _is_field(part: str, index: int) -> bool:
    """Whether ``part`` is valid as the field number ``index`` when all other fields are ``*``."""
    parts = ["*"] * len(CRON_FIELDS)
    parts[index] = part
    return _is_cron(parts)


def _is_cron(parts: list[str]) -> bool:
    """Whether these fields are a valid expression, and an instant in this century matches it."""
    from pollconsumer.core.notation.cron_expression import Cron

    try:
        ahead = Cron(" ".join(parts)).instants(0, UTC)
    except ValueError:
        return False
    return next(ahead, None) is not None


def _cron_reason(part: str, name: str, values: str, index: int) -> str:
    for term in part.split(","):
        spans, _, step = term.partition("/")
        if step.isdecimal() and int(step) == 0:
            return f"{name} step must be 1 or more"
        first, dash, last = spans.partition("-")
        if dash and _is_field(first, index) and _is_field(last, index) and not _is_field(spans, index):
            return f"{name} has a reversed range: write {first},{last} or two ranges"
    return f"{name} must be {values}"


def parse_keep(keep: str) -> tuple[int | None, int | None]:
    """The number of messages and the milliseconds in ``keep``, written ``10000``, ``1d`` or ``1d/10000``. None for a
    missing part. ValueError for any other text."""
    number = ms = None
    for part in map(str.strip, keep.split("/")):
        if re.fullmatch(r"[0-9]{1,9}", part) and number is None:
            number = int(part)
        elif not part.isdecimal() and ms is None:
            ms = int(parse_duration(part) * 1000)
        else:
            raise ValueError("write a time, a number of messages, or both, as in 1d/10000")
    return number, ms


def check_zone(name: str) -> None:
    from pollconsumer.core.recurrence import zone_of

    if not isinstance(name, str):
        raise ValueError(f"timezone: {shown(repr(name))}; use an IANA name such as Europe/Paris")
    try:
        zone_of(name)
    except ValueError:
        raise ValueError(f"timezone: {shown(name)}; {_zone_rule(name)}") from None


def _zone_rule(name: str) -> str:
    from zoneinfo import available_timezones

    known = {zone.lower(): zone for zone in available_timezones()}
    if not known:
        return "no time zones are known here: install tzdata"
    close = similar(name.lower(), known)
    return f"did you mean {known[close[0]]}?" if close else "use an IANA name such as Europe/Paris"


class Placed:
    """What follows from all settings together. ``directory``: where the file ``config`` is, else the current one."""

    def defaults_of(self: Any, handler: str) -> Defaults:
        """The default options of a handler's messages, for a producer that does not have the handler's code."""
        command = self.commands.get(handler)
        return Defaults() if command is None else Defaults(command.queue, command.rate, command.rate_key)

    @property
    def is_embedded(self: Any) -> bool:
        """Whether the store is the server that pollconsumer starts."""
        return self.store == EMBEDDED and self.client is None

    @property
    def reports_findings(self: Any) -> bool:
        """Whether `doctor` and launches report findings to people."""
        return self.doctor.url is not None or self.doctor.mail is not None

    @property
    def shown_store(self: Any) -> str:
        """The store as it is shown to people, without secrets."""
        return redacted(self.store) if self.client is None else f"client {self.client}"

    def data_directory(self: Any) -> Path:
        """The embedded server's directory: ``data``, which users may share, else one of this user's own. CannotCreate
        without a home."""
        return data_directory() if self.data is None else Path(self.directory) / self.data

    def spool_directory(self: Any) -> Path | None:
        """The directory that ``spool`` names; None if it names none."""
        return None if self.spool is None else Path(self.directory) / Path(self.spool).expanduser()

    def server_program(self: Any) -> Path | None:
        """The path that ``server`` names; None if it names none. Whether the program exists is not checked."""
        return None if self.server is None else Path(self.directory) / Path(self.server).expanduser()

    def state_files(self: Any) -> OwnFiles:
        """Files that outlive a launch, in the directory ``state``, by default one of the user's. There are none if
        ``state`` is ``none``. ConfigurationError if ``state`` is no directory."""
        if self.state is None or self.state == NO_STATE:
            return OwnFiles([] if self.state else state_directories())
        directory = self.directory / Path(self.state).expanduser()
        if (found := other_than_directory(directory)) is not None:
            raise ConfigurationError("state", directory, f"is {found}: name a directory, or {NO_STATE}")
        return OwnFiles([directory])
