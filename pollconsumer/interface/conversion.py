"""Payloads as the types that a handler's parameters are annotated with. Imports pydantic: only for who needs it."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, get_type_hints

from pydantic import ConfigDict, ValidationError, create_model
from pydantic_core import to_json

from pollconsumer.runtime.arguments import GIVEN

if TYPE_CHECKING:
    from collections.abc import Callable


def converting(function: Callable[..., Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A conversion of payloads to ``function``'s arguments, as strict as JSON allows: text for an instant, but no text
    for a number. It raises ValueError, naming each argument that does not fit.
    """
    hints = get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters
    names: dict[str, Any] = {
        # Under an alias: a name of the user's must not meet one of the model's own.
        f"p{n}": (hints.get(name, Any), _field(name))
        for n, name in enumerate(parameters)
        if name not in GIVEN and parameters[name].kind not in (inspect.Parameter.VAR_KEYWORD,)
    }
    model = create_model("Payload", __config__=ConfigDict(strict=True, arbitrary_types_allowed=True), **names)
    fields = {field.alias or name: name for name, field in model.model_fields.items()}

    def convert(payload: dict[str, Any]) -> dict[str, Any]:
        try:
            read = model.model_validate_json(to_json(payload))
        except ValidationError as failure:
            problems = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in failure.errors(include_url=False)]
            raise ValueError("; ".join(problems)) from None
        given = {name: getattr(read, fields[name]) for name in payload if name in fields}
        return payload | given

    return convert


def _field(name: str) -> Any:
    from pydantic import Field

    return Field(default=None, alias=name, validate_default=False)
