"""Reads the values of settings in the file and in environment variables. Every key has a variable, also in tables whose
entries have names."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pollconsumer.core.errors import ConfigurationError, suggestion
from pollconsumer.interface.settings.fields import (
    EXPECTED,
    DeclaredField,
    FieldTable,
    InvalidValue,
    declared_fields,
)
from pollconsumer.interface.settings.names import CONFIG_VARIABLE, PREFIX, variable
from pollconsumer.interface.settings.rules import refusal

SERVICE_LINK = PREFIX + r"(.+_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
"""Variables that are no settings: Kubernetes sets them in every container if there is a Service named pollconsumer."""

ELSEWHERE = "no setting has it; docs/reference/settings.md lists each one's variable"


def read(path: Path | None, content: bytes, variables: Mapping[str, str]) -> dict[str, Any]:
    """The given values by name, sections as dicts, each value checked alone.

    ``content`` is that of the file at ``path``; ``variables`` are the environment's that begin with POLLCONSUMER_.
    ConfigurationError names the first invalid key or variable.
    """
    table = declared_fields()
    given = _parsed(path, content)
    for name, section in table.sections.items():
        _rename(_at(given, name) if name else given, section.values())
    for place, setting, value in _overrides(given, variables, table):
        _put(given, place, _as_json(value) if setting is None else setting.decoded(value))
    names = [name for name in table.sections if name]
    top = {name: value for name, value in given.items() if name not in names and name not in table.tables}
    values, unknown = _accepted("", top, table.section(""))
    for name in (each for each in names if each in given):
        values[name] = _section(name, given[name], table.section(name))
    for name in (each for each in table.tables if each in given):
        if not isinstance(given[name], dict):
            raise refusal(name, given[name], EXPECTED["dict"])
        entries = given[name].items()
        values[name] = {entry: _section(f"{name}.{entry}", keys, table.tables[name]) for entry, keys in entries}
    if unknown:
        raise _unknown(unknown[0], [*table.section(""), *names, *table.tables])
    return values


def _section(path: str, given: object, known: Mapping[str, DeclaredField]) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise refusal(path, given, "expected a section of keys")
    values, unknown = _accepted(f"{path}.", given, known)
    if unknown:
        raise _unknown(path + "." + unknown[0], known)
    return values


def _accepted(
    place: str, given: Mapping[str, Any], known: Mapping[str, DeclaredField]
) -> tuple[dict[str, Any], list[str]]:
    """The values of the known keys, in the order of their declaration, and the unknown keys."""
    values = {}
    for key, setting in known.items():
        if key in given:
            try:
                values[key] = setting.accepted(given[key])
            except InvalidValue as error:
                raise refusal(place + key, error.value, str(error)) from None
    return values, [key for key in given if key not in known]


def _unknown(path: str, known: Collection[str]) -> ConfigurationError:
    there = declared_fields().path_of(path.rpartition(".")[2])
    place = "" if not there else f"did you mean {there}{'' if '.' in there else ', above the first [table]'}?"
    return ConfigurationError("unknown key", path, suggestion(path.rpartition(".")[2], known, place))


def _parsed(path: Path | None, content: bytes) -> dict[str, Any]:
    """The values of a file, which may begin with a byte order mark, as some editors write it."""
    if not content:
        return {}
    try:
        return tomllib.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as failure:
        raise _not_toml(path, content, failure) from None


def _not_toml(path: Path | None, content: bytes, failure: Exception) -> ConfigurationError:
    """Our error line for a file that is not TOML: it names the key of the line, never its value, which may be a
    secret."""
    if isinstance(failure, UnicodeDecodeError):
        return ConfigurationError("configuration file is not UTF-8", path, f"see byte {failure.start}")
    if isinstance(failure, RecursionError):
        return ConfigurationError("configuration file is not valid TOML", path, "nested too deeply")
    reason, _, place = str(failure).removesuffix(")").partition(" (at ")
    reason = reason.partition(":")[0]  # beyond it, advice for programmers
    lines = content.decode("utf-8-sig").splitlines()
    if place == "end of document" and lines:
        place = f"line {len(lines)}, column {len(lines[-1]) + 1}"
    line = re.match(r"line (\d+)", place)
    key = re.match(r"\s*([\w.-]+)\s*=", lines[int(line[1]) - 1]) if line and int(line[1]) <= len(lines) else None
    if key:
        place += f", key {key[1]}"
    return ConfigurationError("configuration file is not valid TOML", path, f"{place}: {reason}" if place else reason)


def _overrides(
    file: Mapping[str, Any], variables: Mapping[str, str], table: FieldTable
) -> Iterator[tuple[tuple[str, ...], DeclaredField | None, str]]:
    """Yield for each variable its path in ``file``, its setting (None for a key within a setting that is a table), and
    its text. The caller puts each value into ``file`` before it takes the next. An empty
    variable counts as unset. ConfigurationError for an unknown variable."""
    paths = dict(_paths(table))
    order = {name: place for place, name in enumerate(paths)}
    # Lists and whole tables come before what is in them, and former names before the present ones.
    for name in sorted(variables, key=lambda name: (name.count("__"), order.get(name, 0))):
        found = paths.get(name) or _path_in_table(name, file, table)
        if found is not None and variables[name]:
            path, setting = found
            yield path, setting, variables[name]
        elif found is None and name != CONFIG_VARIABLE and not re.fullmatch(SERVICE_LINK, name):
            beside = _known_beside(name, paths, table)
            there = table.path_of(name.removeprefix(PREFIX).rpartition("__")[2].lower())
            otherwise = f"did you mean {variable(there)}?" if there else ELSEWHERE
            raise ConfigurationError("unknown variable", name, suggestion(name, beside, otherwise, beginning=PREFIX))


def _rename(section: Any, settings: Iterable[DeclaredField]) -> None:
    """Give keys their present names. Where a section has both names, the former one stays, and is refused."""
    for setting in settings:
        if setting.former and setting.former in section and setting.key not in section:
            section[setting.key] = section.pop(setting.former)


def _put(values: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    """Set the value at ``path``."""
    for step in path[:-1]:
        values = values.setdefault(step, {})
        if not isinstance(values, dict):
            return  # the file has something else than a table there, which is refused later
    values[path[-1]] = value


def _paths(table: FieldTable) -> Iterator[tuple[str, tuple[tuple[str, ...], DeclaredField]]]:
    """Variable → path, such as ``consumer``, ``timeout``, and setting; of all but the tables."""
    for name, section in table.sections.items():
        for key, setting in section.items():
            path = (name, key) if name else (key,)
            for spelled in filter(None, (setting.former, key)):
                yield variable(".".join((*path[:-1], spelled))), (path, setting)


def _path_in_table(
    name: str, file: Mapping[str, Any], table: FieldTable
) -> tuple[tuple[str, ...], DeclaredField | None] | None:
    """Path and setting of the variable ``TABLE__NAME__KEY``. If that key is a table, and the variable goes on with
    ``__KEY``, the path within it and None. None for any other variable."""
    begin, *rest = name.removeprefix(PREFIX).split("__")
    place = {name.upper(): name for name in table.tables}.get(begin)
    if place is None or len(rest) not in (2, 3) or not all(rest):
        return None
    setting = {key.upper(): setting for key, setting in table.tables[place].items()}.get(rest[1])
    if setting is None:
        return None
    path = (place, _spelled(name, rest[0], _names(file, place)), setting.key)
    if len(rest) == 2:
        return path, setting
    return ((*path, _spelled(name, rest[2], _at(file, *path))), None) if setting.kind == "dict" else None


def _names(file: Mapping[str, Any], table: str) -> list[str]:
    """The names in a table of the file; for queues, also those in ``consumer.queues``."""
    names = list(_at(file, table))
    served = _at(file, "consumer").get("queues") if table == "queues" else None
    if isinstance(served, list | tuple):
        names += [queue for queue in served if isinstance(queue, str) and queue not in names]
    return names


def _at(values: Any, *path: str) -> Mapping[str, Any]:
    """The table at ``path``, or an empty one."""
    for step in path:
        values = values.get(step) if isinstance(values, dict) else None
    return values if isinstance(values, dict) else {}


def _spelled(name: str, written: str, known: Iterable[str]) -> str:
    """The name of ``known`` that equals ``written`` in any case; else ``written`` in lower case."""
    alike = [each for each in known if each.lower() == written.lower()]
    if len(alike) > 1 and written not in alike:
        raise ConfigurationError("ambiguous variable", name, f"{' and '.join(alike)} differ in case only: use the file")
    return written if written in alike else alike[0] if alike else written.lower()


def _known_beside(name: str, paths: Iterable[str], table: FieldTable) -> list[str]:
    """Variables of which ``name`` may be a misspelling."""
    parts = name.split("__")
    entry = parts[1] if len(parts) > 2 else "NAME"
    return [*paths, *(variable(f"{place}.{entry}.{key}") for place, keys in table.tables.items() for key in keys)]


def _as_json(text: str) -> Any:
    """The value of ``text`` if it is JSON, else ``text``."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
