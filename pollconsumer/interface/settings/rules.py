"""Compares settings with one another, and validates recurrences, of a configuration or put at run time."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from typing import Any

from pollconsumer.core.choices import After
from pollconsumer.core.errors import BadData, ConfigurationError, PollConsumerError, UsageError, shown
from pollconsumer.core.messages.message import check_handler, check_priority
from pollconsumer.core.messages.payloads import encode_payload
from pollconsumer.core.notation.redaction import HIDDEN, redacted, site_of
from pollconsumer.core.notation.timespan import parse_duration
from pollconsumer.core.retry import Backoff
from pollconsumer.interface.settings.fields import InvalidValue, declared_fields
from pollconsumer.interface.settings.model import CommandSettings, RecurrenceSettings, Settings
from pollconsumer.interface.settings.names import variable
from pollconsumer.interface.settings.values import NAME, NAME_RULE, check_cron, check_zone
from pollconsumer.runtime.system.own_files import EMBEDDED

RETRY = ("first", "factor", "most", "jitter")


def check_given(settings: Settings, given: Collection[str], flags: Collection[str] = ()) -> None:
    """Check the values at the paths ``given``, such as ``consumer.timeout``, and all values together.

    ConfigurationError (78) names the key or the environment variable; UsageError (2), for a value that one of ``flags``
    has set, the flag. ``flags`` are paths, too. An invalid store is always a ConfigurationError.
    """
    for path in given:
        if (setting := declared_fields().find(path)) is not None:
            try:
                setting.accepted(_at(settings, path))
            except InvalidValue as error:
                raise refusal(path, error.value, str(error), flags) from None
    check_together(settings, flags, of_tables=False)


def check_together(settings: Settings, flags: Collection[str] = (), *, of_tables: bool = True) -> None:
    """Check values that depend on each other. ``of_tables``: those of queues, recurrences and programs, too. Errors as
    of `check_given`."""
    for section in ("consumer", "mover"):
        _check_margin(settings, section, flags)
    if not of_tables:
        return
    for table, check in (("queues", _check_queue), ("recurrences", _check_recurrence), ("commands", _check_command)):
        for name, entry in getattr(settings, table).items():
            check(name, entry)


def _check_margin(settings: Settings, section: str, flags: Collection[str]) -> None:
    margin, timeout = _at(settings, f"{section}.min_margin"), _at(settings, f"{section}.timeout")
    if margin is None or margin < timeout:
        return
    if f"{section}.timeout" in flags and f"{section}.min_margin" not in flags:
        fix = "give a longer timeout or a smaller min_margin"
        rule = f"no time left to work, as min_margin is {margin:.15g}s; {fix}"
        raise refusal(f"{section}.timeout", timeout, rule, flags)
    rule = f"no time left to work, as timeout is {timeout:.15g}s; give a smaller min_margin or a longer timeout"
    raise refusal(f"{section}.min_margin", margin, rule, flags)


def _check_queue(name: str, _limits: object) -> None:
    if not NAME.fullmatch(name):
        raise ConfigurationError(f"queues.{shown(name)}: its name; {NAME_RULE}")


def _check_recurrence(name: str, recurrence: Any) -> None:
    try:
        check_recurrence(name, recurrence)
    except ValueError as error:  # its text begins with the key
        problem, path = str(error), f"recurrences.{shown(name)}"
        key = problem.partition(";")[0].partition(":")[0]
        given = variable(f"{path}.{key}")
        raise ConfigurationError(
            given + problem[len(key) :] if os.environ.get(given) else f"{path}: {problem}"
        ) from None


def _check_command(name: str, command: CommandSettings) -> None:
    """Raise ConfigurationError for an invalid program. Its files are not looked at: a producer may not have them."""
    try:
        check_handler(name)
    except BadData as error:
        raise ConfigurationError(f"commands: {error}") from None
    if not command.command or not command.command[0]:
        rule = 'empty: name a program, as in ["/usr/local/bin/backup", "-v"]'
        raise refusal(f"commands.{name}.command", [*command.command], rule)
    try:
        backoff_of(command.retry)
    except ValueError as error:
        raise ConfigurationError(f"commands.{name}.retry: {error}") from None


def check_strict(settings: Settings) -> None:
    """Raise ConfigurationError for settings that the embedded server cannot follow. Not part of `check_together`, since
    a flag may name another store than the file."""
    strict, fix = settings.strict, "leave it unset, or name a store of yours"
    if settings.is_embedded and strict.replicas is not None:
        raise refusal("strict.replicas", strict.replicas, f"the embedded server has none: {fix}")
    if settings.is_embedded and strict.aof:
        raise refusal("strict.aof", strict.aof, f"the embedded server needs none, it writes to disk at once: {fix}")


def check_connection(settings: Settings) -> None:
    """Raise ConfigurationError for two stores, and for two logins. Not part of `check_together`, as `check_strict`."""
    if settings.client is not None and settings.store != EMBEDDED:
        raise refusal("client", settings.client, "store names another: keep one of them")
    if settings.credentials is None:
        return
    if settings.client is not None:
        rule = "the client has its own login: give it the provider, as its credential_provider"
        raise refusal("credentials", settings.credentials, rule)
    if settings.store == EMBEDDED:
        raise refusal("credentials", settings.credentials, "the embedded server has no users: name a store of yours")
    from pollconsumer.store.client.address import several_hosts  # few settings have credentials

    login, _, _, options = several_hosts(settings.store)
    if login or {"username", "password"} & options.keys():
        raise refusal("credentials", settings.credentials, "the store's URL has a login: keep one of them")


def refusal(path: str, value: object, rule: str, flags: Collection[str] = ()) -> PollConsumerError:
    """An error for the setting at ``path``, under the name by which the user set it."""
    text = f"{value:.15g}" if isinstance(value, float) else str(value)
    if path.endswith("token"):
        text = HIDDEN
    elif path.endswith(".environment"):
        text = text.partition("=")[0]
    elif path == "pings.url" or path.endswith(".ping"):
        text = site_of(text)
    elif path == "store" or "://" in text:
        text = redacted(text)
    if path in flags:
        error = ConfigurationError if path == "store" else UsageError
        return error("--" + path.rpartition(".")[2].replace("_", "-"), text, rule)
    name = variable(path)
    return ConfigurationError(name if os.environ.get(name) else path, text, rule)


def _at(settings: Settings, path: str) -> Any:
    value: Any = settings
    for name in path.split("."):
        value = getattr(value, name)
    return value


def backoff_of(retry: dict[str, Any]) -> Backoff:
    """The backoff of a program's table ``retry``. ValueError names the invalid key."""
    for key, value in retry.items():
        if key not in RETRY:
            raise ValueError(f"unknown key {shown(repr(key))}; known here: {', '.join(RETRY)}")
        if key in ("first", "most"):
            try:
                parse_duration(value)
            except (TypeError, ValueError):
                raise ValueError(f"{key}: {shown(value)}; write a duration, as in 500ms, 2s or 1m30s") from None
        elif not isinstance(value, int | float) or isinstance(value, bool):
            raise ValueError(f"{key}: {shown(value)}; expected a number")
    return Backoff(**retry)


def check_recurrence(name: str, recurrence: RecurrenceSettings) -> None:
    """Raise ValueError for an invalid recurrence."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValueError(f"its name; {NAME_RULE}")
    check_rule(recurrence)


def check_rule(recurrence: RecurrenceSettings) -> None:
    """Raise ValueError for an invalid field of a recurrence. The name is not checked."""
    try:
        check_handler(recurrence.handler)
    except ValueError as error:
        raise ValueError(f"handler; name the one that its messages are for: {error}") from None
    if recurrence.queue is not None and not (isinstance(recurrence.queue, str) and NAME.fullmatch(recurrence.queue)):
        raise ValueError(f"queue; {NAME_RULE}")
    check_priority(recurrence.priority)
    if not isinstance(recurrence.enabled, bool):
        raise ValueError(f"enabled: {shown(repr(recurrence.enabled))}; true or false")
    _check_when(recurrence)
    check_zone(recurrence.timezone)
    if recurrence.ping is not None:
        from pollconsumer.core.notation.addresses import check_address

        try:
            check_address(recurrence.ping)
        except ValueError as error:
            raise ValueError(f"ping: {shown(site_of(str(recurrence.ping)))}; {error}") from None
    _check_payload(recurrence.payload)


def _check_when(recurrence: RecurrenceSettings) -> None:
    if (recurrence.cron is None) == (recurrence.every is None):
        raise ValueError("no schedule; give cron or every")
    if recurrence.after is After.END and recurrence.every is None:
        raise ValueError("after: end; it needs every, a period, in place of cron")
    rules: tuple[tuple[str, str | None, Callable[[str], object]], ...] = (
        ("cron", recurrence.cron, check_cron),
        ("every", recurrence.every, _check_period),
    )
    for key, text, check in rules:
        if text is not None:
            try:
                if not isinstance(text, str):
                    raise ValueError("must be text")
                check(text)
            except ValueError as error:
                raise ValueError(f"{key}: {shown(text)}; {error}") from None


def _check_period(text: str) -> None:
    from pollconsumer.core.recurrence import LEAST_PERIOD, MOST_PERIOD

    seconds = parse_duration(text)
    if seconds < LEAST_PERIOD:
        raise ValueError("must be 1s or more")
    if seconds > MOST_PERIOD:
        raise ValueError("must be 1825d or less")


def _check_payload(payload: object) -> None:
    """Raise ValueError, with its place, for a value that is not JSON, such as a TOML date."""
    if not isinstance(payload, dict):
        raise ValueError(f"payload: {shown(repr(payload))}; must be a table")
    for path, value in _leaves(payload, "payload"):
        if value is not None and not isinstance(value, str | int | float):
            raise ValueError(f"{shown(path)}: {shown(value)}; JSON has no such value, write it as text")
    encode_payload(payload)


def _leaves(value: object, path: str) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _leaves(part, f"{path}.{name}")
    elif isinstance(value, list | tuple):
        for at, part in enumerate(value):
            yield from _leaves(part, f"{path}[{at}]")
    else:
        yield path, value
