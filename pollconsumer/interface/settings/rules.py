"""Validation of settings, alone and together, and the errors for invalid ones."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from pollconsumer.core.errors import BadData, ConfigurationError, PollConsumerError, UsageError
from pollconsumer.core.message import check_handler
from pollconsumer.core.notation.redaction import HIDDEN, redacted, site_of
from pollconsumer.core.notation.timespan import YEAR, parse_duration
from pollconsumer.core.retry import Backoff
from pollconsumer.interface.settings.model import PREFIX, CommandSettings, QueueSettings, Settings
from pollconsumer.interface.settings.recurrence_rules import check_recurrence
from pollconsumer.interface.settings.values import (
    NAME,
    NAME_RULE,
    check_cron,
    check_store,
    parse_keep,
)

VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"
LEAST_TOKEN = 16
RETRY = ("first", "factor", "most", "jitter")


def validate(settings: Settings, flags: Collection[str] = ()) -> None:
    """Check every value, and the values together.

    ConfigurationError (78) names the key or the environment variable; UsageError (2) if one of ``flags`` set it, given
    as paths such as ``consumer.timeout``. An invalid store is always a ConfigurationError.
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
    """Path, value, whether it is valid, and the rule."""
    consumer = settings.consumer
    yield "namespace", settings.namespace, bool(NAME.fullmatch(settings.namespace)), NAME_RULE
    data = settings.data
    shared = data is None or bool(data.strip() and "\0" not in data and data[0] != "~")
    yield "data", data, shared, "name a directory that its users share, none of a home"
    yield "state", settings.state, _is_place(settings.state), "name a directory, or none to keep nothing"
    for queue in consumer.queues:
        yield "consumer.queues", queue, bool(NAME.fullmatch(queue)), NAME_RULE
    for section, names in (
        ("consumer", ("timeout", "idle_time", "estimated_duration", "min_margin", "grace")),
        ("mover", ("timeout", "idle_time", "min_margin", "grace")),
    ):
        for path in (f"{section}.{name}" for name in names):
            value = _at(settings, path)
            if value is None:
                continue
            if path.endswith("grace"):
                yield path, value, value >= 0.5, "must be 500ms or more"
            if path.endswith(("timeout", "idle_time")):
                yield path, value, value > 0, "must be > 0"
            yield path, value, 0 <= value <= YEAR, "must be between 0 and 365d"
    factor = consumer.tolerance_factor
    yield "consumer.tolerance_factor", factor, 0 < factor <= 1e6, "must be > 0, and at most 1000000"
    target = consumer.overrun_target
    yield "consumer.overrun_target", target, target is None or 0 < target <= 1, "must be > 0, and at most 1"
    for path, most in (("consumer.concurrency", 256), ("consumer.instances", 64), ("mover.batch_size", 500)):
        value = _at(settings, path)
        yield path, value, 1 <= value <= most, f"must be 1-{most}"
    replicas, within = settings.strict.replicas, settings.strict.within
    yield "strict.replicas", replicas, replicas is None or 1 <= replicas <= 99, "must be 1-99"
    yield "strict.within", within, 0.001 <= within <= 60, "must be between 1ms and 60s"
    yield "doctor.recent", settings.doctor.recent, 0 <= settings.doctor.recent <= YEAR, "must be between 0 and 365d"
    token, rule = settings.dashboard.token, f"must be {LEAST_TOKEN} or more printable ASCII characters without spaces"
    known = token is None or (
        len(token) >= LEAST_TOKEN and token.isascii() and token.isprintable() and " " not in token
    )
    yield "dashboard.static", settings.dashboard.static, _is_place(settings.dashboard.static), "name a directory"
    yield "dashboard.token", token and HIDDEN, known, rule
    log_target = settings.logs.target
    named = log_target != "" and "\0" not in log_target
    yield "logs.target", log_target, named, "write stderr, syslog, or a file's path"
    url = settings.pings.url
    if url is not None:
        from pollconsumer.core.notation.addresses import check_address  # as few settings have one

        try:
            check_address(url)
        except ValueError as error:
            yield "pings.url", url, False, str(error)
    for section in ("consumer", "mover"):
        margin, timeout = _at(settings, f"{section}.min_margin"), _at(settings, f"{section}.timeout")
        if margin is None:
            continue
        if f"{section}.timeout" in flags and f"{section}.min_margin" not in flags:
            fix = "give a longer timeout or a smaller min_margin"
            rule = f"no time left to work, as min_margin is {margin:.15g}s; {fix}"
            yield f"{section}.timeout", timeout, margin < timeout, rule
        rule = f"no time left to work, as timeout is {timeout:.15g}s; give a smaller min_margin or a longer timeout"
        yield f"{section}.min_margin", margin, margin < timeout, rule


def check_strict(settings: Settings) -> None:
    """ConfigurationError for what is asked of the embedded server in vain. Apart from `validate`, since a flag may name
    another store than the file."""
    strict, fix = settings.strict, "leave it unset, or name a store of yours"
    if settings.store == "embedded" and strict.replicas is not None:
        raise refusal("strict.replicas", strict.replicas, f"the embedded server has none: {fix}")
    if settings.store == "embedded" and strict.aof:
        raise refusal("strict.aof", strict.aof, f"the embedded server writes through anyway: {fix}")


def _is_place(state: str | None) -> bool:
    try:
        return state is None or bool(state and "\0" not in state and Path(state).expanduser())
    except RuntimeError:  # no home to expand ~ with
        return False


def refusal(path: str, value: object, rule: str, flags: Collection[str] = ()) -> PollConsumerError:
    """An error for the setting at ``path``, under the name by which the user set it."""
    shown = f"{value:.15g}" if isinstance(value, float) else str(value)
    if path == "pings.url":
        shown = site_of(shown)
    elif path == "store" or "://" in shown:
        shown = redacted(shown)
    if path in flags:
        error = ConfigurationError if path == "store" else UsageError
        return error("--" + path.rpartition(".")[2].replace("_", "-"), shown, rule)
    name = variable(path)
    return ConfigurationError(name if os.environ.get(name) else path, shown, rule)


def _entry_refusal(table: str, name: str, problem: str) -> ConfigurationError:
    """``problem`` begins with its key."""
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


def check_limits(queue: str, limits: QueueSettings) -> None:
    """ValueError for invalid limits of a queue."""
    if not NAME.fullmatch(queue):
        raise ValueError(f"its name; {NAME_RULE}")
    if limits.quota is not None:
        from pollconsumer.core.notation.quota import parse_quota

        try:
            parse_quota(limits.quota)
        except ValueError as error:
            raise ValueError(f"quota: {limits.quota}; {error}") from None
    if limits.rate is not None and (problem := _problem_of(limits.rate)):
        raise ValueError(f"rate: {limits.rate}; {problem}")
    for name, keep in (("keep_completed", limits.keep_completed), ("keep_dead", limits.keep_dead)):
        if keep is not None:
            try:
                parse_keep(keep)
            except ValueError as error:
                raise ValueError(f"{name}: {keep}; {error}") from None
    for name, value, most in (("max_in_flight", limits.max_in_flight, 1_000_000), ("weight", limits.weight, 1000)):
        if value is not None and not 1 <= value <= most:
            raise ValueError(f"{name}: {value}; must be 1-{most}")


def _problem_of(rate: str) -> str:
    """Why it is no rate; empty if it is one."""
    from pollconsumer.core.rates import parse_rate

    try:
        parse_rate(rate)
    except ValueError as error:
        return str(error)
    return ""


def check_command(name: str, command: CommandSettings) -> None:
    """ConfigurationError for an invalid section of a command. Files are not checked: a producer may not have them."""
    try:
        check_handler(name)
    except BadData as error:
        raise ConfigurationError(f"commands: {error}") from None
    for key, value, holds, rule in _rules_of(command):
        if not holds:
            raise refusal(f"commands.{name}.{key}", value, rule)
    try:
        backoff_of(command.retry)
    except ValueError as error:
        raise ConfigurationError(f"commands.{name}.retry: {error}") from None


def _rules_of(command: CommandSettings) -> Iterator[tuple[str, object, bool, str]]:
    argv, timeout, attempts = command.command, command.timeout, command.max_attempts
    yield "command", list(argv), bool(argv and argv[0]), 'empty: name a program, as in ["/usr/local/bin/backup", "-v"]'
    yield "command", list(argv), not any("\0" in word for word in argv), "no argument can hold a NUL character"
    yield "timeout", timeout, timeout is None or 0 < timeout <= YEAR, "must be > 0, and at most 365d"
    yield "kill_after", command.kill_after, command.kill_after <= YEAR, "must be between 0 and 365d"
    yield "queue", command.queue, bool(NAME.fullmatch(command.queue)), NAME_RULE
    if command.rate is not None:
        problem = _problem_of(command.rate)
        yield "rate", command.rate, not problem, problem
    yield "rate_key", command.rate_key, command.rate_key != "", "name a member of the payload"
    yield "max_attempts", attempts, 1 <= attempts <= 10_000, "must be 1-10000"
    for variable in command.environment:
        rule = "name variables to pass on, without values"
        yield "environment", variable.partition("=")[0], bool(re.fullmatch(VARIABLE, variable)), rule


def backoff_of(retry: dict[str, Any]) -> Backoff:
    """ValueError, naming the invalid key."""
    for key, value in retry.items():
        if key not in RETRY:
            raise ValueError(f"unknown key {key!r}; known here: {', '.join(RETRY)}")
        if key in ("first", "most"):
            try:
                parse_duration(value)
            except (TypeError, ValueError):
                raise ValueError(f"{key}: {value}; write a duration, as in 500ms, 2s or 1m30s") from None
        elif not isinstance(value, int | float) or isinstance(value, bool):
            raise ValueError(f"{key}: {value}; expected a number")
    return Backoff(**retry)
