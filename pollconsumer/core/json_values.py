"""Strict JSON, without the NaN and Infinity that Python's parser accepts; JSON forms of Python values; and errors that
say which part of a value has no JSON form."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping, Set
from datetime import date, datetime, time
from enum import Enum
from typing import Any, NoReturn
from uuid import UUID

from pollconsumer.core.errors import BadData, shown


def parse(text: str | bytes) -> Any:
    """The value that the JSON ``text`` stands for. ValueError for anything that is not JSON."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def object_in(text: bytes) -> dict[str, Any] | None:
    """The JSON object in ``text``; None if ``text`` is anything else."""
    try:
        found = parse(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a number of JSON")


def to_json(value: Any) -> Any:
    """The JSON form of ``value``, from which a handler's parameter of the same type gets an equal value.

    TypeError for a type without JSON form, ValueError for an invalid value."""
    from dataclasses import fields, is_dataclass  # most values are neither
    from decimal import Decimal

    if not isinstance(value, type):
        if callable(dump := getattr(value, "model_dump", None)):  # a pydantic model
            return in_order(value, dump(mode="json", by_alias=True, round_trip=True))
        if is_dataclass(value):
            return {field.name: getattr(value, field.name) for field in fields(value) if field.init}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise ValueError("NaN and Infinity are not JSON")
        return str(value)
    raise TypeError(f"a {type(value).__name__} has no JSON form")


def in_order(value: Any, written: Any) -> Any:
    """``written``, which is pydantic's JSON form of ``value``, with the items of each set sorted by their text. The
    order of a set differs from process to process, but the payloads of repeated calls must be equal."""
    if getattr(type(value), "__pydantic_root_model__", False):
        return in_order(value.root, written)
    if isinstance(written, list):
        parts = value if isinstance(value, Collection) and len(value) == len(written) else written
        items = list(map(in_order, parts, written))
        return sorted(items, key=_text) if isinstance(value, Set) else items
    if not isinstance(written, dict):
        return written
    own = dict(value) if isinstance(value, Mapping) else _fields_of(value)
    if not own.keys() >= written.keys() and len(own) == len(written):  # under other names, in the same order
        own = dict(zip(written, own.values(), strict=True))
    return {name: in_order(own.get(name), each) for name, each in written.items()}


def _fields_of(value: Any) -> dict[str, Any]:
    """The fields of a model or a dataclass, under the names that its JSON form has."""
    fields = getattr(value, "__pydantic_fields__", None) or getattr(value, "__dataclass_fields__", {})
    names = {name: getattr(field, "serialization_alias", None) or name for name, field in fields.items()}
    extra = getattr(value, "__pydantic_extra__", None) or {}
    return {written: getattr(value, name, None) for name, written in names.items()} | extra


_text = json.JSONEncoder(sort_keys=True).encode


def explain(whole: object, what: str, remedy: str) -> NoReturn:
    """Raise the TypeError or BadData that says which part of ``whole`` could not be encoded. ``what``: the name of
    ``whole`` in the error. ``remedy``: what a user can do about a type without JSON form."""
    try:
        _look_through(whole, what, set())
    except TypeError as error:
        raise TypeError(f"{error}; {remedy}") from None
    raise BadData(what, None, "it has no JSON form")


def _look_through(value: Any, path: str, around: set[int]) -> None:
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise BadData(path, None, "it holds a lone surrogate, which is no text") from None
    elif isinstance(value, int):
        try:
            int.__repr__(value)
        except ValueError:
            raise BadData(path, None, "the number has too many digits; send it as text of another base") from None
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise BadData(path, str(value), "NaN and Infinity are not JSON")
    elif id(value) in around:
        raise BadData(path, None, "it holds itself")
    else:
        around.add(id(value))
        for location, part in _parts(value, path):
            _look_through(part, location, around)
        around.remove(id(value))


def _parts(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, part in value.items():
            if not isinstance(name, str):
                raise TypeError(f"{path}: names must be text, not {type(name).__name__}")
            yield path, name
            yield path + (f".{shown(name)}" if name.isidentifier() else f"[{shown(repr(name))}]"), part
    elif isinstance(value, list | tuple):
        for number, part in enumerate(value):
            yield f"{path}[{number}]", part
    else:
        try:
            encodable = to_json(value)
        except TypeError as error:
            raise TypeError(f"{path}: {error}") from None
        except ValueError as error:
            raise BadData(path, None, str(error)) from None
        yield path, encodable
