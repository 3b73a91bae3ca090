"""The table of the declared fields, by which commands read settings without pydantic: what ``fields.json`` holds."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from enum import StrEnum
from functools import cache
from inspect import unwrap
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import AfterValidator, BeforeValidator
from pydantic.fields import FieldInfo

from pollconsumer.interface.settings.declared import LaunchSettings, Section, Settings
from pollconsumer.interface.settings.model import DeclaredField, FieldTable


@cache
def described() -> FieldTable:
    """The declared fields as the model has them."""
    sections: dict[str, dict[str, DeclaredField]] = {"": {}}
    tables: dict[str, dict[str, DeclaredField]] = {}
    for name, field in Settings.model_fields.items():
        kind: Any = field.annotation
        if get_origin(kind) is dict:
            tables[name] = {key: _setting(key, each) for key, each in get_args(kind)[1].model_fields.items()}
        elif isinstance(kind, type) and issubclass(kind, Section):
            sections[name] = {
                key: _setting(key, each, _flag(key, each, name) if issubclass(kind, LaunchSettings) else None)
                for key, each in kind.model_fields.items()
            }
        else:
            sections[""][name] = _setting(name, field, _extra(field).get("flag"))
    return FieldTable(sections, tables)


def _flag(key: str, field: FieldInfo, section: str) -> str | None:
    extra = _extra(field)
    if extra.get("flag_only_in", section) != section:
        return None
    return str(extra.get("flag", f"--{key.replace('_', '-')}"))


def meaning(field: FieldInfo) -> str:
    """What the setting means, in one line."""
    return " ".join((field.description or "").split())


def _extra(field: FieldInfo) -> dict[str, Any]:
    return field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}


def _setting(key: str, field: FieldInfo, flag: str | None = None) -> DeclaredField:
    setting = _of_type(field.annotation, field.metadata)._replace(
        key=key, default=field.default, secret=not field.repr, flag=flag, former=str(_extra(field).get("former", ""))
    )
    return setting if flag is None else setting._replace(help=meaning(field))


def _of_type(annotation: Any, metadata: Iterable[Any] = ()) -> DeclaredField:
    """What a type with its ``metadata`` says of a value: pydantic's validators, and the ends of a range."""
    kind, optional = _without_none(annotation)
    if get_origin(kind) is Annotated:
        kind, *more = get_args(kind)
        metadata = [*more, *metadata]
    words, enum = _words(kind)
    plain = str if words else get_origin(kind) or kind
    return DeclaredField(
        key="",
        kind={str: "string"}.get(plain, plain.__name__),
        default=None,
        may_be_none=optional,
        reads="".join(_name(each.func) for each in metadata if isinstance(each, BeforeValidator)),
        checks=tuple(_name(each.func) for each in metadata if isinstance(each, AfterValidator)),
        items=_of_type(get_args(kind)[0]) if plain is tuple else None,
        words=words,
        enum=enum,
        over=_limit("gt", metadata),
        least=_limit("ge", metadata),
        most=_limit("le", metadata),
    )


def _without_none(annotation: Any) -> tuple[Any, bool]:
    """``X`` of ``X | None``, and whether it was that."""
    kinds = [each for each in get_args(annotation) if each is not type(None)]
    optional = get_origin(annotation) in (Union, UnionType) and len(kinds) == 1
    return (kinds[0] if optional else annotation), optional


def _words(kind: Any) -> tuple[tuple[str, ...], str]:
    """The words that an enum, or a Literal, allows, and the enum's name."""
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return tuple(map(str, kind)), kind.__name__
    return (tuple(map(str, get_args(kind))) if get_origin(kind) is Literal else ()), ""


def _limit(name: str, metadata: Iterable[Any]) -> float | None:
    return next((limit for each in metadata if (limit := getattr(each, name, None)) is not None), None)


def _name(function: Any) -> str:
    """The module of a function, and its name there."""
    function = unwrap(function)
    names = (name for name, each in vars(sys.modules[function.__module__]).items() if each is function)
    return f"{function.__module__}:{next(names)}"


def written_table() -> str:
    """The table as JSON, a field on a line, without what is as it is by default."""
    parts = []
    for part, sections in described()._asdict().items():
        found = []
        for name, fields in sections.items():
            lines = [f"{json.dumps(key)}: {json.dumps(_given(field))}" for key, field in fields.items()]
            found.append(f"{json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n}")
        parts.append(f"{json.dumps(part)}: {{\n" + ",\n".join(found) + "\n}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _given(field: DeclaredField) -> dict[str, Any]:
    usual = DeclaredField._field_defaults
    given = {name: value for name, value in field._asdict().items() if name not in usual or value != usual[name]}
    return given if field.items is None else given | {"items": _given(field.items)}
