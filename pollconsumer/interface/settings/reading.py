"""Reads the values of settings from the file and from environment variables, and checks that they fit together.

Every key has a variable, also a key of a table whose entries the user names."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pollconsumer.core.choices import After
from pollconsumer.core.errors import (
    BadData,
    ConfigurationError,
    PollConsumerError,
    UsageError,
    retelling,
    shown,
    suggestion,
)
from pollconsumer.core.messages.message import NewMessage, check_handler
from pollconsumer.core.messages.payloads import encode_payload
from pollconsumer.core.notation.text import HIDDEN, check_address, redacted, site_of
from pollconsumer.core.retry import Backoff
from pollconsumer.core.spans import format_duration, parse_duration
from pollconsumer.interface.settings.model import (
    EXPECTED,
    CommandSettings,
    DeclaredField,
    FieldTable,
    InvalidValue,
    RecurrenceSettings,
    Settings,
    declared_fields,
)
from pollconsumer.interface.settings.names import CONFIG_VARIABLE, PREFIX, variable
from pollconsumer.interface.settings.values import NAME, NAME_RULE, check_cron, check_zone, duration_alarms
from pollconsumer.runtime.new_messages import Defaults, OccurrenceOptions, new_message
from pollconsumer.runtime.system.own_files import EMBEDDED
from pollconsumer.store.client.address import several_hosts

if TYPE_CHECKING:
    from pollconsumer.core.recurrence import Recurrence

RETRY = ("first", "factor", "most", "jitter")
SERVICE_LINK = PREFIX + r"(.+_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
"""Variables that Kubernetes sets in every container if a Service is named pollconsumer. They are no settings."""
ELSEWHERE = "no setting has it; docs/reference/settings.md lists each one's variable"
OF_HANDLERS = frozenset({"delivery", "fatal", "isolation", "max_attempts", "result_ttl", "retry", "timeout"})
"""Options of handlers that people also expect among the settings."""
_OF_MESSAGES = OccurrenceOptions.__annotations__.keys()
RULES = {"crontab": "cron", "interval": "every", "schedule": "cron"}
"""Words of other job queues → the key of a recurrence."""


def check_given(settings: Settings, given: Collection[str], flags: Collection[str] = ()) -> None:
    """Check the values at the paths ``given``, such as ``consumer.timeout``, and whether all values fit together.

    ConfigurationError (78) names the key or the environment variable. If a flag has set the value, which is so for the
    paths in ``flags``, UsageError (2) names the flag. An invalid store is always a ConfigurationError."""
    for path in given:
        if (setting := declared_fields().find(path)) is not None:
            try:
                setting.accepted(attrgetter(path)(settings))
            except InvalidValue as error:
                raise refusal(path, error.value, str(error), flags) from None
    check_together(settings, flags, with_tables=False)


def check_together(settings: Settings, flags: Collection[str] = (), *, with_tables: bool = True) -> None:
    """Check values that depend on each other. ``with_tables``: also those of queues, recurrences and programs. Raises
    the errors of `check_given`."""
    for section in ("consumer", "mover"):
        _check_margin(settings, section, flags)
    with retelling(ValueError, ConfigurationError, "alarms.handlers."):
        duration_alarms(settings.alarms.handlers)
    if not with_tables:
        return
    for table, check in (("queues", _check_queue), ("recurrences", _check_recurrence), ("commands", _check_command)):
        for name, entry in getattr(settings, table).items():
            check(name, entry)


def _check_margin(settings: Settings, section: str, flags: Collection[str]) -> None:
    margin, timeout = attrgetter("min_margin", "timeout")(getattr(settings, section))
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
    """Raise ConfigurationError for an invalid program, but not for missing files: a producer may not have them."""
    with retelling(BadData, ConfigurationError, "commands: "):
        check_handler(name)
    if not command.command or not command.command[0]:
        rule = 'empty: name a program, as in ["/usr/local/bin/backup", "-v"]'
        raise refusal(f"commands.{name}.command", [*command.command], rule)
    with retelling(ValueError, ConfigurationError, f"commands.{name}.retry: "):
        backoff_of(command.retry)


def check_strict(settings: Settings) -> None:
    """Raise ConfigurationError for settings that the embedded server cannot follow. Not part of `check_together`, since
    a flag may name another store than the file."""
    strict, fix = settings.strict, "leave it unset, or name a store of yours"
    if settings.is_embedded and strict.replicas is not None:
        raise refusal("strict.replicas", strict.replicas, f"the embedded server has none: {fix}")
    if settings.is_embedded and strict.aof:
        raise refusal("strict.aof", strict.aof, f"the embedded server needs none, it writes to disk at once: {fix}")


def check_connection(settings: Settings) -> None:
    """Raise ConfigurationError for two stores, two logins, or a login to the embedded server. Like `check_strict` it is
    not part of `check_together`."""
    if settings.client is not None and settings.store != EMBEDDED:
        raise refusal("client", settings.client, "store names another: keep one of them")
    if settings.credentials is None:
        return
    if settings.client is not None:
        rule = "the client has its own login: give it the provider, as its credential_provider"
        raise refusal("credentials", settings.credentials, rule)
    if settings.store == EMBEDDED:
        raise refusal("credentials", settings.credentials, "the embedded server has no users: name a store of yours")
    login, _, _, options = several_hosts(settings.store)
    if login or {"username", "password"} & options.keys():
        raise refusal("credentials", settings.credentials, "the store's URL has a login: keep one of them")


def refusal(path: str, value: object, rule: str, flags: Collection[str] = ()) -> PollConsumerError:
    """The error for the setting at ``path``. It names the key, variable or flag by which the user has set it."""
    text = f"{value:.15g}" if isinstance(value, float) else str(value)
    if path.endswith("token"):
        text = HIDDEN
    elif path.endswith(".environment"):
        text = text.partition("=")[0]
    elif path in ("pings.url", "doctor.url") or path.endswith(".ping"):
        text = site_of(text)
    elif path == "store" or "://" in text:
        text = redacted(text)
    if path in flags:
        error = ConfigurationError if path == "store" else UsageError
        return error("--" + path.rpartition(".")[2].replace("_", "-"), text, rule)
    name = variable(path)
    return ConfigurationError(name if os.environ.get(name) else path, text, rule)


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
    """Raise ValueError for an invalid field of a recurrence. The recurrence's name is not checked."""
    if not recurrence.handler:
        raise ValueError("handler: missing; name the handler of its messages")
    with retelling(ValueError, ValueError, "handler; "):
        check_handler(recurrence.handler)
    if recurrence.queue is not None and not (isinstance(recurrence.queue, str) and NAME.fullmatch(recurrence.queue)):
        raise ValueError(f"queue; {NAME_RULE}")
    if not isinstance(recurrence.enabled, bool):
        raise ValueError(f"enabled: {shown(repr(recurrence.enabled))}; true or false")
    _check_when(recurrence)
    check_zone(recurrence.timezone)
    if recurrence.ping is not None:
        with retelling(ValueError, ValueError, f"ping: {shown(site_of(str(recurrence.ping)))}; "):
            check_address(recurrence.ping)
    _check_payload(recurrence.payload)
    _message_of(recurrence, "")


def _message_of(rule: RecurrenceSettings, recurrence: str) -> NewMessage:
    """A message with the options of the recurrence. ValueError for an invalid option."""
    given: Any = {name: value for name in _OF_MESSAGES if (value := getattr(rule, name)) is not None}
    if rule.overlap.in_order:
        given.setdefault("order_key", f"recurrence:{recurrence}")
    return new_message(rule.handler, {}, priority=rule.priority, **given)


def recurrence_by(rule: RecurrenceSettings, name: str, namespace: str, defaults: Defaults, **fields: Any) -> Recurrence:
    """The recurrence that valid settings describe. ``defaults``: the default options of its messages. ``fields``:
    more fields, which take precedence."""
    from pollconsumer.core.notation.cron_expression import five_fields, spread
    from pollconsumer.core.recurrence import OF_MESSAGES, Recurrence, offset_of

    message, given = _message_of(rule, name), dict(vars(rule))
    given["order_key"] = message.order_key or None
    read = {**message._asdict(), "expires": message.lifetime / 1000, "headers": dict(message.headers or {})}
    given |= {"headers": read["headers"], "rate_key": message.rate_key, "rate": message.rate}
    given["options"] = {each: read[each] for each in OF_MESSAGES if given.pop(each) is not None}
    if (jitter := given.pop("jitter")) is not None:
        given["offset"] = offset_of(parse_duration(jitter), namespace, name)
    if rule.cron is not None:
        given["cron"] = spread(five_fields(rule.cron), f"{namespace}\n{name}")
    if rule.every is not None:
        given["every"] = parse_duration(rule.every)
    given["queue"] = rule.queue or defaults.queue
    return defaults.rated_recurrence(Recurrence(name=name, **given | fields))


def _check_when(recurrence: RecurrenceSettings) -> None:
    if (recurrence.cron is None) == (recurrence.every is None):
        raise ValueError("no schedule; give cron or every")
    if recurrence.after is After.END and recurrence.every is None:
        raise ValueError("after: end; it needs every, a period, in place of cron")
    if recurrence.after is After.END and recurrence.overlap.in_order:
        raise ValueError(f"overlap: {recurrence.overlap}; with after = end none overlaps: leave it out")
    if recurrence.after is After.END and recurrence.jitter is not None:
        raise ValueError("jitter: with after = end; leave it out, ends are spread already")
    rules: tuple[tuple[str, str | None, Callable[[str], object]], ...] = (
        ("cron", recurrence.cron, partial(check_cron, recurs=True)),
        ("every", recurrence.every, _check_period),
        ("jitter", recurrence.jitter, partial(_check_period, is_jitter=True)),
    )
    for key, text, check in rules:
        if text is not None:
            with retelling(ValueError, ValueError, f"{key}: {shown(text)}; "):
                if not isinstance(text, str):
                    raise ValueError("must be text")
                check(text)


def _check_period(text: str, *, is_jitter: bool = False) -> None:
    from pollconsumer.core.recurrence import LEAST_PERIOD, MOST_JITTER, MOST_PERIOD

    seconds, most = parse_duration(text), MOST_JITTER if is_jitter else MOST_PERIOD
    if seconds < LEAST_PERIOD:
        raise ValueError("must be 1s or more")
    if seconds > most:
        raise ValueError(f"must be {format_duration(most)} or less")


def _check_payload(payload: object) -> None:
    """Raise ValueError for a value that is not JSON, such as a TOML date. The error says where it is."""
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


def read(path: Path | None, content: bytes, variables: Mapping[str, str]) -> dict[str, Any]:
    """The values given, by name, with sections as dicts. Each value is checked by itself.

    ``content``: what the file at ``path`` holds. ``variables``: environment variables that begin with POLLCONSUMER_.
    ConfigurationError names the first invalid key or variable."""
    table = declared_fields()
    given = _parsed(path, content)
    for name, section in table.sections.items():
        _rename(_at(given, name) if name else given, section.values())
    for position, declared, value in _overrides(given, variables, table):
        _put(given, position, _as_json(value) if declared is None else declared.decoded(value))
    names = [name for name in table.sections if name]
    top = {name: value for name, value in given.items() if name not in names and name not in table.tables}
    values, unknown = _accepted("", top, table.section(""))
    for name in (each for each in names if each in given):
        values[name] = _section(name, given[name], table.section(name))
    for name in (each for each in table.tables if each in given):
        if not isinstance(given[name], dict):
            raise refusal(name, given[name], EXPECTED["dict"][0])
        entries = given[name].items()
        values[name] = {entry: _section(f"{name}.{entry}", keys, table.tables[name]) for entry, keys in entries}
    if unknown:
        raise _unknown(unknown[0], [*table.section(""), *names, *table.tables])
    return values


def _rename(given: Any, fields: Iterable[DeclaredField]) -> None:
    """Replace former names of keys. If ``given`` has both names of a field, both stay, and are refused later."""
    for each in fields:
        if each.former and each.former in given and each.key not in given:
            given[each.key] = given.pop(each.former)


def _section(path: str, given: object, known: Mapping[str, DeclaredField]) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise refusal(path, given, "expected a section of keys")
    values, unknown = _accepted(f"{path}.", given, known)
    if unknown:
        raise _unknown(path + "." + unknown[0], known)
    return values


def _accepted(
    position: str, given: Mapping[str, Any], known: Mapping[str, DeclaredField]
) -> tuple[dict[str, Any], list[str]]:
    """The values of known keys, in the order of their declaration; and the unknown keys."""
    values = {}
    for key, setting in known.items():
        if key in given:
            try:
                values[key] = setting.accepted(given[key])
            except InvalidValue as error:
                raise refusal(position + key, error.value, str(error)) from None
    return values, [key for key in given if key not in known]


def _unknown(path: str, known: Collection[str]) -> ConfigurationError:
    section, _, key = path.rpartition(".")
    there = declared_fields().path_of(key)
    position = "" if not there else f"did you mean {there}{'' if '.' in there else ', above the first [table]'}?"
    if section and key in OF_HANDLERS:
        position = f"a handler has it: @app.handler({key}=...)"
    elif section.startswith("recurrences.") and key in RULES:
        position = f"did you mean {RULES[key]}?"
    return ConfigurationError("unknown key", path, suggestion(key, known, position))


def _parsed(path: Path | None, content: bytes) -> dict[str, Any]:
    """The values in a file's ``content``. A byte order mark at its beginning is ignored."""
    try:
        return tomllib.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ConfigurationError("configuration file is not UTF-8", path, f"see byte {error.start}") from None
    except RecursionError:
        raise ConfigurationError("configuration file is not valid TOML", path, "nested too deeply") from None
    except ValueError as error:
        reason, _, position = str(error).removesuffix(")").partition(" (at ")
        reason = reason.partition(":")[0]  # beyond it, advice for programmers
        lines = content.decode("utf-8-sig").splitlines()
        if position == "end of document" and lines:
            position = f"line {len(lines)}, column {len(lines[-1]) + 1}"
        line = re.match(r"line (\d+)", position)
        key = re.match(r"\s*([\w.-]+)\s*=", lines[int(line[1]) - 1]) if line and int(line[1]) <= len(lines) else None
        if key:  # its value may be a secret
            position += f", key {key[1]}"
        fix = f"{position}: {reason}" if position else reason
        raise ConfigurationError("configuration file is not valid TOML", path, fix) from None


def _overrides(
    file: Mapping[str, Any], variables: Mapping[str, str], table: FieldTable
) -> Iterator[tuple[tuple[str, ...], DeclaredField | None, str]]:
    """Yield for each variable: its path in ``file``; its setting, None for a key within a setting that is a table; and
    its text. The caller puts each value into ``file`` before it takes the next one. An empty variable is ignored.
    ConfigurationError for an unknown variable."""
    paths = dict(_paths(table))
    order = {name: position for position, name in enumerate(paths)}
    # Lists and whole tables come before their items, and former names before present ones.
    for name in sorted(variables, key=lambda name: (name.count("__"), order.get(name, 0))):
        found = paths.get(name) or _path_in_table(name, file, table)
        if found is not None and variables[name]:
            path, setting = found
            yield path, setting, variables[name]
        elif found is None and name != CONFIG_VARIABLE and not re.fullmatch(SERVICE_LINK, name):
            parts = name.split("__")
            entry = parts[1] if len(parts) > 2 else "NAME"
            in_tables = (
                variable(f"{position}.{entry}.{key}") for position, keys in table.tables.items() for key in keys
            )
            there = table.path_of(name.removeprefix(PREFIX).rpartition("__")[2].lower())
            otherwise = f"did you mean {variable(there)}?" if there else ELSEWHERE
            raise ConfigurationError(
                "unknown variable", name, suggestion(name, [*paths, *in_tables], otherwise, beginning=PREFIX)
            )


def _put(values: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    """Set the value at ``path`` in the nested dicts ``values``."""
    for step in path[:-1]:
        values = values.setdefault(step, {})
        if not isinstance(values, dict):
            return  # the file has no table there, which is refused later
    values[path[-1]] = value


def _paths(table: FieldTable) -> Iterator[tuple[str, tuple[tuple[str, ...], DeclaredField]]]:
    """Yield for each setting outside of tables: its variable, its path such as ``consumer``, ``timeout``, its field."""
    for name, section in table.sections.items():
        for key, setting in section.items():
            path = (name, key) if name else (key,)
            for spelled in filter(None, (setting.former, key)):
                yield variable(".".join((*path[:-1], spelled))), (path, setting)


def _path_in_table(
    name: str, file: Mapping[str, Any], table: FieldTable
) -> tuple[tuple[str, ...], DeclaredField | None] | None:
    """The path that the variable ``name``, ``TABLE__NAME__KEY``, sets, and the field declared for it. None if there is
    no such setting. If a setting is a table, ``TABLE__NAME__KEY__INNER`` sets one entry of it; no field is declared for
    an entry, so its path comes with None."""
    begin, *rest = name.removeprefix(PREFIX).split("__")
    position = {name.upper(): name for name in table.tables}.get(begin)
    if position is None or len(rest) not in (2, 3) or not all(rest):
        return None
    setting = {key.upper(): setting for key, setting in table.tables[position].items()}.get(rest[1])
    if setting is None:
        return None
    path = (position, _spelled(name, rest[0], _names(file, position)), setting.key)
    if len(rest) == 2:
        return path, setting
    return ((*path, _spelled(name, rest[2], _at(file, *path))), None) if setting.kind == "dict" else None


def _names(file: Mapping[str, Any], table: str) -> list[str]:
    """The names of the entries of ``table`` in the file. For queues, also those in ``consumer.queues``."""
    names = list(_at(file, table))
    served = _at(file, "consumer").get("queues") if table == "queues" else None
    if isinstance(served, list | tuple):
        names += [queue for queue in served if isinstance(queue, str) and queue not in names]
    return names


def _at(values: Any, *path: str) -> Mapping[str, Any]:
    """The table at ``path``; an empty one if there is none."""
    for step in path:
        values = values.get(step) if isinstance(values, dict) else None
    return values if isinstance(values, dict) else {}


def _spelled(name: str, written: str, known: Iterable[str]) -> str:
    """The name in ``known`` that equals ``written`` but for case; else ``written`` in lower case."""
    alike = [each for each in known if each.lower() == written.lower()]
    if len(alike) > 1 and written not in alike:
        raise ConfigurationError("ambiguous variable", name, f"{' and '.join(alike)} differ in case only: use the file")
    return written if written in alike else alike[0] if alike else written.lower()


def _as_json(text: str) -> Any:
    """The value of ``text`` if that is JSON, else ``text`` itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
