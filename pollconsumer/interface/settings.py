"""Settings: what they are, what they may be, and how a start gets them without reading them anew.

A launch starts 1,440 times a day and its settings hardly ever change. Reading and checking them takes pydantic, which
costs more to import than the rest of the start; so valid ones are remembered in the user's cache directory, and
``reading.py`` is imported only when the file, the environment or pollconsumer itself has changed.
"""

from __future__ import annotations

import hashlib
import os
import sys
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pollconsumer.core.errors import ConfigurationError, PermissionDenied, PollConsumerError, UsageError
from pollconsumer.core.redaction import redacted
from pollconsumer.core.timespan import parse_duration
from pollconsumer.interface.checks import (
    NAME,
    NAME_RULE,
    YEAR,
    check_argv,
    check_cron,
    check_exit_codes,
    check_limits,
    check_recurrence,
    check_store,
    parse_memory,
)
from pollconsumer.interface.logs import log
from pollconsumer.interface.writable import refuse_writable_file

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from pollconsumer.runtime.own_files import OwnFiles

VERSION = "0.1.0"
PREFIX = "POLLCONSUMER_"
CONFIG_VARIABLE = f"{PREFIX}CONFIG"
ABOUT_MESSAGE = frozenset(
    PREFIX + name
    for name in ("HANDLER", "QUEUE", "ATTEMPT", "GENERATION", "FENCE", "IDEMPOTENCY_KEY", "DEADLINE", "SECONDS_LEFT")
)
NO_STATE = "none"
TRUST_VARIABLE, TRUSTED = f"{PREFIX}TRUST_WRITABLE", "true"
"""Of the environment alone: a file that others may write cannot vouch for itself."""
MESSAGE_VARIABLE = f"{PREFIX}MESSAGE_ID"
"""What a program that runs for a message finds in its environment: no settings, should it call us in its turn."""

Duration = Annotated[float, parse_duration]
"""Seconds, read by the function that it is annotated with."""
NoDuration = Annotated[float | None, parse_duration]
"""Seconds, or None for no end."""
Argv = Annotated[tuple[str, ...], check_argv]
ExitCodes = Annotated[tuple[int, ...], check_exit_codes]
Memory = Annotated[int | None, parse_memory]
"""Bytes, or None for no limit."""


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """What bounds and paces a launch of the consumer. Without ``queues`` it serves those of its handlers."""

    queues: tuple[str, ...] = ()
    timeout: Duration = 60.0
    schedule: str | None = None
    idle_time: Duration = 5.0
    estimated_duration: Duration = 2.0
    tolerance_factor: float = 5.0
    min_margin: Duration = 2.0
    concurrency: int = 1
    grace: Duration = 10.0
    handoff: Literal["deadline", "baton"] = "deadline"
    instances: int = 1
    memory_limit: Memory = None


@dataclass(frozen=True, slots=True)
class MoverSettings:
    """What bounds and paces a launch of the mover."""

    timeout: Duration = 60.0
    schedule: str | None = None
    idle_time: Duration = 1.0
    batch_size: int = 100
    grace: Duration = 10.0
    handoff: Literal["deadline", "baton"] = "deadline"


@dataclass(frozen=True, slots=True)
class StrictSettings:
    """What ``durability = "strict"`` asks of a server's replicas. ``replicas`` unset: of one, where it has any."""

    replicas: int | None = None
    within: Duration = 0.5


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """What a queue hands out at most, in a period and at one time; and its weight among other queues."""

    quota: str | None = None
    max_in_flight: int | None = None
    weight: int | None = None


@dataclass(frozen=True, slots=True)
class RecurrenceSettings:
    """What recurs: a handler's message, by ``cron`` in ``timezone`` or every so often; in the handler's own queue
    unless ``queue`` is another."""

    handler: str = ""
    cron: str | None = None
    every: str | None = None
    timezone: str = "UTC"
    queue: str | None = None
    payload: dict[str, Any] = field(default_factory=dict)
    priority: int = 0
    missed: Literal["skip", "once", "all"] = "once"
    overlap: Literal["skip", "allow"] = "allow"
    enabled: bool = True


@dataclass(frozen=True, slots=True)
class CommandSettings:
    """A handler that is a program."""

    command: Argv = ()
    timeout: NoDuration = None
    kill_after: Duration = 5.0
    queue: str = "default"
    max_attempts: int = 5
    retry: dict[str, Any] = field(default_factory=dict)
    fatal: ExitCodes = ()
    environment: tuple[str, ...] = ()
    directory: str | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings. ``directory`` is that of the configuration file ``config``, else the current one."""

    namespace: str = "pollconsumer"
    store: str = field(default="embedded", repr=False)
    handlers: tuple[str, ...] = ()
    durability: Literal["everysec", "strict"] = "everysec"
    state: str | None = None
    trust_writable: bool = False
    consumer: ConsumerSettings = field(default_factory=ConsumerSettings)
    mover: MoverSettings = field(default_factory=MoverSettings)
    strict: StrictSettings = field(default_factory=StrictSettings)
    queues: dict[str, QueueSettings] = field(default_factory=dict)
    recurrences: dict[str, RecurrenceSettings] = field(default_factory=dict)
    commands: dict[str, CommandSettings] = field(default_factory=dict)
    directory: Path = field(default_factory=Path.cwd)
    config: Path | None = None

    def queue_of(self, handler: str) -> str:
        """Where messages go whose producer names no queue, and has not the handler's code either."""
        return self.commands[handler].queue if handler in self.commands else "default"

    def state_files(self) -> OwnFiles:
        """Where what outlives a launch is kept: below ``state``, unless that is none, or in the user's directories."""
        from pollconsumer.runtime.own_files import OwnFiles, state_directories

        if self.state is None:
            return OwnFiles(state_directories())
        return OwnFiles([] if self.state == NO_STATE else [self.directory / Path(self.state).expanduser()])


SECTIONS = {"consumer": ConsumerSettings, "mover": MoverSettings, "strict": StrictSettings}
TABLES = {"queues": QueueSettings, "recurrences": RecurrenceSettings, "commands": CommandSettings}
"""Sections whose keys are names of the user's choice."""
READERS = ("settings.py", "reading.py", "environment.py", "checks.py", "commands.py")
"""Modules that say what settings there are and which values are valid: those remembered are as old as the modules."""
PLACE = ("directory", "config")
"""Fields of Settings that say where the others were found: no keys of the file."""


def load_settings(config: Path | None = None, *, store: str | None = None, namespace: str | None = None) -> Settings:
    """Settings from flags (the arguments), environment, file and defaults, the earlier before the later.

    ConfigurationError (78) for a file, variable, key or value that cannot be meant, and for a ``store`` that cannot be
    one; UsageError (2) for a ``namespace`` that cannot be one; PermissionDenied (77) for a file that may not be read.
    """
    variables = {name: value for name, value in os.environ.items() if name.startswith(PREFIX)}
    if variables.pop(MESSAGE_VARIABLE, None) is not None:
        variables = {name: value for name, value in variables.items() if name not in ABOUT_MESSAGE}
    for name in (name for name, value in variables.items() if not value):
        log.debug("%s is empty: taken as unset", name)
    path, content = _find(config, variables)
    key = _key(path, content, variables)
    settings = _recalled(key, path) if key else None
    if settings is None:
        from pollconsumer.interface.reading import read

        settings = _assemble(read(path if content else None, variables), path)
        validate(settings)
        # The file is read twice on the way here; what changed in between must not be remembered for what it was.
        if key and redacted(settings.store) == settings.store and key == _key(*_find(config, variables), variables):
            from pollconsumer.interface.remembering import remember

            remember(key, as_values(settings))
    flags = {name: value for name, value in (("store", store), ("namespace", namespace)) if value is not None}
    if flags:
        settings = replace(settings, **flags)  # type: ignore[arg-type]  # both are str
        validate(settings, flags)
    return settings


def read_settings(config: Path) -> Settings:
    """Settings of that file and defaults alone: the environment plays no part, and nothing is remembered.

    ConfigurationError as with `load_settings`.
    """
    from pollconsumer.interface.reading import read

    path, content = _find(config, {})
    settings = _assemble(read(path if content else None, {}), path)
    validate(settings)
    return settings


def with_flags(settings: Settings, section: Literal["consumer", "mover"], flags: Mapping[str, object]) -> Settings:
    """``settings`` with those of ``flags`` (setting → value) that were given, None and () being those that were not.

    Errors as those of ``validate``.
    """
    given: dict[str, Any] = {name: value for name, value in flags.items() if value not in (None, ())}
    if not given:
        return settings
    changed: Any = replace(getattr(settings, section), **given)
    settings = replace(settings, **{section: changed})
    validate(settings, [f"{section}.{name}" for name in given])
    return settings


def validate(settings: Settings, flags: Collection[str] = ()) -> None:
    """Check every value and what they must be to each other.

    ConfigurationError (78), named after the key or the environment variable; UsageError (2) for what one of ``flags``
    set, given as paths such as ``consumer.timeout``. A store is always a ConfigurationError.
    """
    for path, value, holds, rule in _rules(settings, flags):
        if not holds:
            raise refusal(path, value, rule, flags)
    tables: dict[str, Callable[[str, Any], None]] = {"queues": check_limits, "recurrences": check_recurrence}
    for table, check_entry in tables.items():
        for name, entry in getattr(settings, table).items():
            try:
                check_entry(name, entry)
            except ValueError as error:
                raise _entry_refusal(table, name, str(error)) from None
    if settings.commands:
        from pollconsumer.interface.commands import check_command

        for name, command in settings.commands.items():
            check_command(name, command)
    checks = {"store": check_store, "consumer.schedule": check_cron, "mover.schedule": check_cron}
    for path, check in checks.items():
        value = _at(settings, path)
        if value is not None:
            try:
                check(value)
            except ValueError as error:
                raise refusal(path, value, str(error), flags) from None


def _rules(settings: Settings, flags: Collection[str]) -> Iterator[tuple[str, object, bool, str]]:
    """Path, value, whether it holds, and what it must be."""
    consumer = settings.consumer
    yield "namespace", settings.namespace, bool(NAME.fullmatch(settings.namespace)), NAME_RULE
    yield "state", settings.state, _is_place(settings.state), "name a directory, or none to keep nothing"
    for queue in consumer.queues:
        yield "consumer.queues", queue, bool(NAME.fullmatch(queue)), NAME_RULE
    for section, names in (
        ("consumer", ("timeout", "idle_time", "estimated_duration", "min_margin", "grace")),
        ("mover", ("timeout", "idle_time", "grace")),
    ):
        for path in (f"{section}.{name}" for name in names):
            value = _at(settings, path)
            if path.endswith("grace"):
                yield path, value, value >= 0.5, "must be 500ms or more"
            if path.endswith(("timeout", "idle_time")):
                yield path, value, value > 0, "must be > 0"
            yield path, value, 0 <= value <= YEAR, "must be between 0 and 365d"
    factor = consumer.tolerance_factor
    yield "consumer.tolerance_factor", factor, 0 < factor <= 1e6, "must be > 0, and at most 1000000"
    for path, most in (("consumer.concurrency", 256), ("consumer.instances", 64), ("mover.batch_size", 500)):
        value = _at(settings, path)
        yield path, value, 1 <= value <= most, f"must be 1-{most}"
    replicas, within = settings.strict.replicas, settings.strict.within
    yield "strict.replicas", replicas, replicas is None or 1 <= replicas <= 99, "must be 1-99"
    rule = "the embedded server has none: leave it unset, or name a store of yours"
    yield "strict.replicas", replicas, replicas is None or settings.store != "embedded", rule
    yield "strict.within", within, 0.001 <= within <= 60, "must be between 1ms and 60s"
    margin, timeout = consumer.min_margin, consumer.timeout
    if "consumer.timeout" in flags and "consumer.min_margin" not in flags:
        rule = f"no time left to work, as min_margin is {margin:.15g}s; give a longer timeout or a smaller min_margin"
        yield "consumer.timeout", timeout, margin < timeout, rule
    rule = f"no time left to work, as timeout is {timeout:.15g}s; give a smaller min_margin or a longer timeout"
    yield "consumer.min_margin", margin, margin < timeout, rule


def _is_place(state: str | None) -> bool:
    try:
        return state is None or bool(state and "\0" not in state and Path(state).expanduser())
    except RuntimeError:  # no home to expand ~ with
        return False


def refusal(path: str, value: object, rule: str, flags: Collection[str] = ()) -> PollConsumerError:
    """What is wrong with the setting at ``path``, in the name under which the user gave it."""
    shown = f"{value:.15g}" if isinstance(value, float) else str(value)
    if path == "store" or "://" in shown:
        shown = redacted(shown)
    if path in flags:
        error = ConfigurationError if path == "store" else UsageError
        return error("--" + path.rpartition(".")[2].replace("_", "-"), shown, rule)
    name = variable(path)
    return ConfigurationError(name if os.environ.get(name) else path, shown, rule)


def _entry_refusal(table: str, name: str, problem: str) -> ConfigurationError:
    """``problem`` begins with the key that it is about."""
    key = problem.partition(";")[0].partition(":")[0]
    given = variable(f"{table}.{name}.{key}")
    return ConfigurationError(given + problem[len(key) :] if os.environ.get(given) else f"{table}.{name}: {problem}")


def variable(path: str) -> str:
    """The environment variable of the setting at ``path``."""
    return PREFIX + path.replace(".", "__").upper()


def _at(settings: Settings, path: str) -> Any:
    value: Any = settings
    for name in path.split("."):
        value = getattr(value, name)
    return value


def _find(config: Path | None, variables: Mapping[str, str]) -> tuple[Path | None, bytes]:
    """The configuration file, absolute, and its bytes; None and none when there is none."""
    named = config or variables.get(CONFIG_VARIABLE) or None
    try:
        path = Path(named or "config.toml").absolute()
    except OSError as error:
        raise ConfigurationError("current directory", error.strerror, "start in one that exists") from None
    try:
        content = path.read_bytes()
        if variables.get(TRUST_VARIABLE, "").lower() != TRUSTED:
            refuse_writable_file(path)
        return path, content
    except (FileNotFoundError, NotADirectoryError):
        if named is None:
            return None, b""
        raise ConfigurationError("configuration file not found", path, "create it, or name another one") from None
    except IsADirectoryError:
        raise ConfigurationError("configuration file is a directory", path, "name the file in it") from None
    except PermissionError:
        raise PermissionDenied("configuration file", path, "permission denied: let this user read it") from None
    except OSError as error:
        raise ConfigurationError("configuration file", path, str(error.strerror)) from None


def _assemble(values: dict[str, Any], path: Path | None) -> Settings:
    """Settings of plain ``values``, as they come from the reading or, with lists for tuples, from what was remembered.

    KeyError or TypeError when they do not fit.
    """
    sections: dict[str, Any] = {name: kind(**_tupled(values[name])) for name, kind in SECTIONS.items()}
    for name, kind in TABLES.items():
        sections[name] = {key: kind(**_tupled(entry)) for key, entry in values[name].items()}
    plain = {name: value for name, value in values.items() if name not in sections}
    place = {"directory": path.parent if path else Path.cwd(), "config": path}
    return Settings(**_tupled(plain), **sections, **place)  # type: ignore[arg-type]


def _tupled(values: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}


def _plain(settings: Any) -> dict[str, Any]:
    kept = [each.name for each in fields(settings) if each.name not in PLACE or not isinstance(settings, Settings)]
    return {name: getattr(settings, name) for name in kept}


def _key(path: Path | None, content: bytes, variables: Mapping[str, str]) -> str | None:
    """What the settings depend on, as a file name; None where that cannot be told, or nothing can be remembered."""
    try:
        ours = [Path(__file__).with_name(name).stat().st_mtime_ns for name in READERS]
    except OSError:
        return None
    depends = (VERSION, sys.version, ours, os.fspath(path or ""), content, sorted(variables.items()))
    return hashlib.sha256(repr(depends).encode()).hexdigest()


def _recalled(key: str, path: Path | None) -> Settings | None:
    from pollconsumer.interface.remembering import recall

    values = recall(key)
    try:
        return None if values is None else _assemble(values, path)
    except (KeyError, TypeError):
        return None


def as_values(settings: Settings) -> dict[str, Any]:
    """``settings`` as JSON can hold them, for ``from_values``: without the place where they were found."""
    values = _plain(settings) | {name: _plain(getattr(settings, name)) for name in SECTIONS}
    for name in TABLES:
        values[name] = {key: _plain(entry) for key, entry in getattr(settings, name).items()}
    return values


def from_values(values: dict[str, Any], directory: Path, config: Path | None) -> Settings:
    """Settings that were written with ``as_values``."""
    return replace(_assemble(values, directory / "config.toml"), config=config)
