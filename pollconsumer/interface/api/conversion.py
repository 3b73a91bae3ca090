"""Conversion of payload values to annotated types. Imports pydantic, so it is imported lazily."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args, get_origin

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError
from pydantic_core import ErrorDetails, PydanticSerializationError, core_schema, to_json

from pollconsumer.core.errors import shown
from pollconsumer.runtime.handling.arguments import MOST_NAMED, Mismatch, NotOfJson

_QUOTING = {"assertion_error", "json_invalid", "union_tag_invalid", "uuid_parsing", "value_error"}
"""Errors whose text may contain part of the value."""
_KNOWN = set(get_args(core_schema.ErrorType)) - _QUOTING


def converting(hint: Any) -> Callable[[Any], Any]:
    """A conversion of JSON values to ``hint`` in strict mode: text for an instant, no text for a number. It raises
    Mismatch. NotOfJson for a hint without a JSON form; pydantic's exception for an unsupported one."""
    try:
        adapter = TypeAdapter(hint)
    except PydanticSchemaGenerationError:
        if isinstance(hint, type) or get_origin(hint) is not None:
            raise NotOfJson(f"no payload can give a {getattr(hint, '__name__', hint)}") from None
        raise
    if not adapter.pydantic_complete:
        adapter.rebuild(raise_errors=True)

    def convert(value: Any) -> Any:
        try:
            return adapter.validate_json(to_json(value), strict=True)
        except ValidationError as failure:
            errors = failure.errors(include_url=False, include_context=False, include_input=False)
            problems = [_told(error) for error in errors[:MOST_NAMED]]
            raise Mismatch(problems + [": and more"] * (len(errors) > MOST_NAMED)) from None
        except PydanticSerializationError:
            raise Mismatch([": nested too deeply, or no text"]) from None

    return convert


def _told(error: ErrorDetails) -> str:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{shown(part)}" for part in error["loc"])
    return f"{path}: {error['msg'] if error['type'] in _KNOWN else error['type']}"
