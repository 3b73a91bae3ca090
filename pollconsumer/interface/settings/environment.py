"""Settings from environment variables: every key has one, including those in tables with names."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pollconsumer.core.errors import ConfigurationError, suggestion
from pollconsumer.interface.settings.model import CONFIG_VARIABLE, PLACE, PREFIX, SECTIONS, TABLES, Argv, Settings
from pollconsumer.interface.settings.rules import variable

SERVICE_LINK = re.compile(
    PREFIX + r"(.+_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)
"""Variables that Kubernetes sets in every container if there is a Service named pollconsumer: not ours."""


def keys_of(kind: type) -> Iterator[tuple[str, Any, Any]]:
    """Name, type and default of each key of a section that may be set."""
    hints = get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        if field.name not in PLACE or kind is not Settings:
            default = field.default_factory() if callable(field.default_factory) else field.default
            yield field.name, hints[field.name], default


def optional(hint: Any) -> tuple[Any, bool]:
    """The type in ``hint`` without None; and whether it may be None."""
    kinds = [kind for kind in get_args(hint) if kind is not type(None)]
    if get_origin(hint) in (Union, UnionType) and len(kinds) == 1:
        return kinds[0], True
    return hint, False


def with_environment(file: dict[str, Any], variables: Mapping[str, str]) -> dict[str, Any]:
    """The values of ``file`` overridden by ``variables``; an empty variable counts as unset. ConfigurationError for an
    unknown variable."""
    paths = dict(_paths())
    for name in sorted(variables, key=lambda name: name.count("__")):  # lists and whole tables before what is in them
        found = paths.get(name) or _path_in_table(name, file)
        if found is not None and variables[name]:
            _put(file, found[0], _decoded(variables[name], found[1]))
        elif found is None and name != CONFIG_VARIABLE and not SERVICE_LINK.fullmatch(name):
            raise ConfigurationError("unknown variable", name, suggestion(name, _known_beside(name, paths)))
    return file


def _put(values: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for step in path[:-1]:
        values = values.setdefault(step, {})
        if not isinstance(values, dict):
            return  # the file has no table there, which is refused
    values[path[-1]] = value


def _paths() -> Iterator[tuple[str, tuple[tuple[str, ...], Any]]]:
    """The settings outside tables: variable → path, such as ``consumer``, ``timeout``, and type."""
    for name, hint, _ in keys_of(Settings):
        if name in SECTIONS:
            for key, kind, _ in keys_of(SECTIONS[name]):
                yield variable(f"{name}.{key}"), ((name, key), kind)
        elif name not in TABLES:
            yield variable(name), ((name,), hint)


def _path_in_table(name: str, file: Mapping[str, Any]) -> tuple[tuple[str, ...], Any] | None:
    """Path and type of the setting of variable ``TABLE__NAME__KEY``, or, if that key is a table,
    ``TABLE__NAME__KEY__KEY``."""
    table, *rest = name.removeprefix(PREFIX).split("__")
    kinds = {table.upper(): table for table in TABLES}
    if table not in kinds or len(rest) not in (2, 3) or not all(rest):
        return None
    hints = {key.upper(): (key, hint) for key, hint, _ in keys_of(TABLES[kinds[table]])}
    if rest[1] not in hints:
        return None
    key, hint = hints[rest[1]]
    entry = _spelled(name, rest[0], _names(file, kinds[table]))
    if len(rest) == 2:
        return (kinds[table], entry, key), hint
    if get_origin(hint) is not dict:
        return None
    within = _at(file, kinds[table], entry, key)
    return (kinds[table], entry, key, _spelled(name, rest[2], within)), Any


def _names(file: Mapping[str, Any], table: str) -> list[str]:
    """The names in a table of the file; for queues, also those in ``consumer.queues``."""
    names = list(_at(file, table))
    served = _at(file, "consumer").get("queues") if table == "queues" else None
    if isinstance(served, list):
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


def _known_beside(name: str, paths: Iterable[str]) -> list[str]:
    """Variables of which ``name`` may be a misspelling."""
    parts = name.split("__")
    entry = parts[1] if len(parts) > 2 else "NAME"
    return [*paths, *(variable(f"{table}.{entry}.{key}") for table in TABLES for key, _, _ in keys_of(TABLES[table]))]


def _decoded(text: str, hint: Any) -> Any:
    """``text`` as the corresponding TOML value, or unchanged, to be refused, if it is invalid.

    A list is written ``a,b`` or ``["a", "b"]``, a command in the second form only; a table as a JSON object, and a key
    of one as JSON if it is valid JSON.
    """
    kind = optional(hint)[0]
    if get_origin(kind) is Annotated and get_origin(get_args(kind)[0]) is tuple:
        kind = get_args(kind)[0]
    try:
        if get_origin(kind) is tuple and hint != Argv and not text.startswith("["):
            return [get_args(kind)[0](part.strip()) for part in text.split(",")]
        if kind is Any or get_origin(kind) in (tuple, dict):
            return json.loads(text)
        if kind is bool:
            return {"true": True, "false": False}.get(text.lower(), text)
        return kind(text) if kind in (int, float) else text
    except (ValueError, RecursionError):
        return text
