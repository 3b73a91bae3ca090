"""Values of a payload as what a handler's parameters are annotated with. Imports pydantic: only for who needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args, get_origin

from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError
from pydantic_core import PydanticSerializationError, core_schema, to_json

from pollconsumer.core.errors import shown
from pollconsumer.runtime.handling.arguments import MOST_NAMED, Mismatch, NotOfJson

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic_core import ErrorDetails

_QUOTING = {"assertion_error", "json_invalid", "union_tag_invalid", "uuid_parsing", "value_error"}
"""Errors whose text may hold something of the value."""
_KNOWN = set(get_args(core_schema.ErrorType)) - _QUOTING


def converting(hint: Any) -> Callable[[Any], Any]:
    """A conversion of values of JSON to ``hint``, as strict as JSON allows: text for an instant, no text for a number.

    It raises Mismatch. NotOfJson for a hint that nothing in JSON can become; whatever pydantic raises for one that it
    does not understand.
    """
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
