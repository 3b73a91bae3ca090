"""Resolves the annotations of a function's parameters, and says what is wrong with arguments.

Each annotation is resolved separately: a name under TYPE_CHECKING disables the checks of its own parameter only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from inspect import Parameter
from types import FunctionType, MethodType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from pollconsumer.core.errors import shown
from pollconsumer.core.retry import Fatal

MOST_NAMED = 5
MOST_CHARACTERS = 300
JSON_KINDS = (str, bool, int, float, dict, list, type(None))
"""The types of JSON values."""
_SYNONYMS: dict[Any, type] = {dict[str, Any]: dict, dict[str, object]: dict, list[Any]: list, list[object]: list}
_MOST_WRAPPERS = 100


class BadArguments(Fatal):
    """The payload does not fit the handler's parameters. No retry can help."""


class Mismatch(ValueError):
    """A value does not fit. ``problems``: pairs of a path within the argument, and the error there, which does not show
    values."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


class NoJsonForm(Exception):
    """A parameter's type has no JSON form."""


def refuse_thrown(error: Exception, call: Callable[..., object], *args: Any) -> None:
    """Raise ``error``, unless ``call`` raises its like again. Otherwise a signal handler, or another thread, had thrown
    it into the call."""
    try:
        call(*args)
    except Exception as again:
        if type(again) is type(error):
            return
    raise error


def bad_arguments(problems: list[str]) -> BadArguments:
    if len(problems) > MOST_NAMED:
        problems = [*problems[:MOST_NAMED], f"and {len(problems) - MOST_NAMED} more"]
    text = f"bad_arguments: {'; '.join(problems)}"
    return BadArguments(text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…")


def listed(names: Iterable[str]) -> str:
    texts = [shown(name) for name in names]
    more = len(texts) - MOST_NAMED
    return ", ".join([*texts[:MOST_NAMED], f"and {more} more"] if more > 0 else texts)


def any_of(kinds: tuple[type, ...]) -> str:
    return " or ".join(name_of(kind) for kind in kinds) or "anything"


def name_of(kind: type) -> str:
    return "None" if kind is type(None) else kind.__name__


def reason_of(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0]


class Annotations:
    """The namespace in which a function's annotations are resolved."""

    def __init__(self, function: Callable[..., Any]) -> None:
        wrapped = _wrapped_function(function)
        self._globals: dict[str, Any] = getattr(wrapped, "__globals__", {})
        self._locals = {kind.__name__: kind for kind in getattr(wrapped, "__type_params__", ())}

    def resolve(self, annotation: Any) -> Any:
        """The type that ``annotation`` names. Raises whatever its evaluation raises."""
        if annotation is Parameter.empty:
            return Any

        def bearer() -> None: ...

        bearer.__annotations__ = {"it": annotation}
        return get_type_hints(bearer, self._globals, self._locals, include_extras=True)["it"]

    def denotes(self, annotation: Any, wanted: type, *, by_text: bool = True) -> bool:
        """Whether ``annotation`` is ``wanted``, or a union of it and None. If it cannot be resolved, its text decides,
        but only if ``by_text``."""
        if isinstance(annotation, str) and wanted.__name__ not in annotation:
            return False
        try:
            return any(member is wanted for member in members(self.resolve(annotation)))
        except Exception:
            return by_text and isinstance(annotation, str) and _names(annotation, wanted.__name__)


def _names(annotation: str, kind: str) -> bool:
    dotted = rf"(?:\w+\.)*{kind}"
    return bool(re.fullmatch(rf"\s*(?:{dotted}(?:\s*\|\s*None)?|(?:\w+\.)*Optional\[{dotted}\])\s*", annotation))


def members(hint: Any) -> tuple[Any, ...]:
    """The members of a union. For another hint, the hint itself."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def accepted_types(hint: Any) -> tuple[type, ...] | None:
    """The types whose values fit ``hint``. () if a comparison of types is not enough, None if anything fits."""
    kinds: list[type] = []
    for member in members(hint):
        if member is Any or member is object:
            return None
        kind = next((kind for kind in JSON_KINDS if member is kind), None) or _synonym(member)
        if kind is None:
            return ()
        kinds += [float, int] if kind is float else [kind]
    return tuple(dict.fromkeys(kinds))


def _synonym(hint: Any) -> type | None:
    try:
        return _SYNONYMS.get(hint)
    except Exception:  # not hashable or not comparable
        return None


def _wrapped_function(function: Any) -> Any:
    """The unwrapped function that defines the parameters of ``function``."""
    for _ in range(_MOST_WRAPPERS):
        if hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif isinstance(function, partial):
            function = function.func
        elif isinstance(function, MethodType):
            function = function.__func__
        elif isinstance(function, FunctionType):
            break
        elif isinstance(function, type):
            function = vars(function).get("__init__", function.__new__)
        elif isinstance(call := vars(type(function)).get("__call__"), FunctionType):
            function = call
        else:
            break
    return function
