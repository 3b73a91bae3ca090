"""Converts payload values to annotated types. It imports pydantic, so it is imported only when needed."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from typing import Any, get_args, get_origin

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError
from pydantic_core import ErrorDetails, PydanticSerializationError, SchemaValidator, core_schema, to_json

from pollconsumer.core.errors import shown
from pollconsumer.core.json_values import in_order
from pollconsumer.runtime.handling.arguments import MOST_NAMED, Mismatch, NoJsonForm

_QUOTING = {"assertion_error", "json_invalid", "union_tag_invalid", "uuid_parsing", "value_error"}
"""Kinds of pydantic's errors whose text may quote part of the value."""
_KNOWN = set(get_args(core_schema.ErrorType)) - _QUOTING
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?", re.ASCII)
_NO_SCHEMAS = {"config", "default", "metadata", "serialization"}
"""Keys of a pydantic schema whose values hold no further schemas."""


def converting(hint: Any) -> Callable[[Any], Any]:
    """A function that converts JSON values to the type ``hint``, and raises Mismatch if a value does not fit. It is
    strict: text may stand for an instant, but not for a number. NoJsonForm for a ``hint`` without a JSON form,
    pydantic's exception for an unsupported ``hint``."""
    validator = SchemaValidator(_exact(_adapter(hint).core_schema))

    def convert(value: Any) -> Any:
        try:
            return validator.validate_json(to_json(value), strict=True)
        except ValidationError as failure:
            errors = failure.errors(include_url=False, include_context=False, include_input=False)
            problems = [_problem_text(error) for error in errors[:MOST_NAMED]]
            raise Mismatch(problems + [": and more"] * (len(errors) > MOST_NAMED)) from None
        except PydanticSerializationError:
            raise Mismatch([": nested too deeply, or no text"]) from None

    return convert


def dumping(hint: Any) -> Callable[[Any], Any]:
    """A function that turns a value of the type ``hint`` into JSON values, which `converting` turns into an equal
    value. The errors are those of `converting`."""
    adapter = _adapter(hint)

    def dump(value: Any) -> Any:
        try:
            written = adapter.dump_python(value, mode="json", by_alias=True, round_trip=True, warnings="error")
            return in_order(value, written)
        except (PydanticSerializationError, ValueError):
            kind = getattr(hint, "__name__", hint)
            raise Mismatch([f" is {type(value).__name__}, which cannot be written as {kind}"]) from None

    return dump


def _adapter(hint: Any) -> TypeAdapter[Any]:
    try:
        adapter = TypeAdapter[Any](hint)
    except PydanticSchemaGenerationError:
        if isinstance(hint, type) or get_origin(hint) is not None:
            raise NoJsonForm(f"no payload can give a {getattr(hint, '__name__', hint)}") from None
        raise
    if not adapter.pydantic_complete:
        adapter.rebuild(raise_errors=True)
    return adapter


def _exact(schema: Any) -> Any:
    """``schema``, with stricter types wherever pydantic's strict mode would accept another JSON type: ``true`` for a
    literal 1 or an enum's 1, or the text "1" for an instant. Models are validated by validators of their own."""
    if isinstance(schema, list | tuple):
        return type(schema)(map(_exact, schema))
    if not isinstance(schema, dict):
        return schema
    kind = schema.get("type")
    if kind in ("datetime", "date"):
        return _guarded(schema, lambda value: isinstance(value, str) and not _NUMBER.fullmatch(value))
    if kind == "literal" or (kind == "enum" and "missing" not in schema):
        values = schema["expected" if kind == "literal" else "members"]
        kinds = {type(value.value if isinstance(value, Enum) else value) for value in values}
        return schema if kinds == {str} else _guarded(schema, lambda value: type(value) in kinds)
    return {key: part if key in _NO_SCHEMAS else _exact(part) for key, part in schema.items()}


def _guarded(schema: Any, fits: Callable[[Any], bool]) -> Any:
    validator = SchemaValidator({key: part for key, part in schema.items() if key != "ref"})

    def validate(value: Any) -> Any:
        return validator.validate_json(to_json(value) if fits(value) else b"[]", strict=True)  # [] fits none

    return core_schema.no_info_plain_validator_function(validate, ref=schema.get("ref"))


def _problem_text(error: ErrorDetails) -> str:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{shown(part)}" for part in error["loc"])
    return f"{path}: {error['msg'] if error['type'] in _KNOWN else error['type']}"
