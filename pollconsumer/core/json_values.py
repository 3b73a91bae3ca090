"""JSON forms of Python values, and errors that locate a value without one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NoReturn

from pollconsumer.core.errors import BadData, shown


def to_json(value: Any) -> Any:
    """The JSON form of ``value``, from which a handler annotated with its type gets an equal value.

    TypeError for a type without JSON form, ValueError for an invalid value.
    """
    from dataclasses import fields, is_dataclass
    from datetime import date, datetime, time
    from decimal import Decimal
    from enum import Enum
    from uuid import UUID

    if not isinstance(value, type):
        if callable(dump := getattr(value, "model_dump", None)):  # a pydantic model
            return dump(mode="json", by_alias=True, round_trip=True)
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


def explain(whole: object, what: str, remedy: str) -> NoReturn:
    """Raise the TypeError or BadData that locates the value for which ``whole`` could not be encoded. ``remedy``: what
    to do about a type without JSON form."""
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
        for place, part in _parts(value, path):
            _look_through(part, place, around)
        around.remove(id(value))


def _parts(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, part in value.items():
            if not isinstance(name, str):
                raise TypeError(f"{path}: names must be text, not {type(name).__name__}")
            yield path, name
            yield f"{path}{_step(name)}", part
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


def _step(name: object) -> str:
    return f".{shown(name)}" if isinstance(name, str) and name.isidentifier() else f"[{shown(repr(name))}]"
