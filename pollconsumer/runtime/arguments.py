"""A payload as the arguments of a handler's function, held against its signature."""

from __future__ import annotations

import inspect
import types
from datetime import datetime
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

from pollconsumer.core.retry import Fatal

if TYPE_CHECKING:
    from collections.abc import Callable

    Convert = Callable[[dict[str, Any]], dict[str, Any]]
    """Payload to arguments. ValueError for one that does not fit."""

GIVEN = ("context", "occurrence")
"""Parameters that are not only the payload's to give."""
_PLAIN = (str, bool, int, float, dict, list, type(None))


class BadArguments(Fatal):
    """The payload does not fit the handler's parameters; it will not fit next time either."""


class Arguments:
    """How a function takes its payload.

    What JSON has, is compared here; for any other annotation ``converter`` makes a conversion when the first message
    comes, for what it needs is slow to import. Annotations that cannot be resolved are not looked at.
    """

    def __init__(self, function: Callable[..., Any], converter: Callable[[Callable[..., Any]], Convert]) -> None:
        self._function, self._converter = function, converter
        parameters = inspect.signature(function).parameters.values()
        annotations = getattr(function, "__annotations__", {})
        self.takes_context = "context" in annotations
        self.takes_occurrence = "occurrence" in annotations
        self._open = any(p.kind is p.VAR_KEYWORD for p in parameters)
        named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        self._known = frozenset(p.name for p in named) - ({"context"} if self.takes_context else set())
        self._required = frozenset(p.name for p in named if p.default is p.empty) & self._known
        self._kinds: dict[str, tuple[type, ...]] | None = None
        self._convert: Convert | None = None

    def bind(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Arguments by name, less the context. BadArguments where ``payload`` does not fit."""
        names = payload.keys()
        if not names >= self._required:
            raise BadArguments(f"bad_arguments: missing {_listed(self._required - names)}")
        if not self._open and not names <= self._known:
            raise BadArguments(f"bad_arguments: unexpected {_listed(names - self._known)}")
        if self._kinds is None:
            self._learn()
        assert self._kinds is not None
        if self._convert is not None:
            try:
                payload = self._convert(payload)
            except ValueError as error:
                raise BadArguments(f"bad_arguments: {error}") from None
        for name, kinds in self._kinds.items():
            if name in payload and type(payload[name]) not in kinds:
                wanted = " or ".join(_shown(kind) for kind in kinds)
                raise BadArguments(f"bad_arguments: {name} is {_shown(type(payload[name]))}, not {wanted}")
        if self.takes_occurrence and isinstance(payload.get("occurrence"), str):
            try:
                payload["occurrence"] = datetime.fromisoformat(payload["occurrence"])
            except ValueError as error:
                raise BadArguments(f"bad_arguments: occurrence: {error}") from None
        return payload

    def _learn(self) -> None:
        """What each parameter may be. At the first message: the annotations may name what is defined later."""
        try:
            hints = get_type_hints(self._function, include_extras=True)
        except Exception:  # what only a type checker can see
            hints = {}
        hints = {name: hint for name, hint in hints.items() if name in self._known and name not in GIVEN}
        kinds = {name: _plain(hint) for name, hint in hints.items() if hint is not Any}
        self._kinds = {name: kind for name, kind in kinds.items() if kind}
        if len(self._kinds) < len(kinds):
            self._kinds, self._convert = {}, self._converter(self._function)


def _plain(hint: Any) -> tuple[type, ...]:
    """The types whose values fit ``hint``; none where that takes more than a comparison."""
    members = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    if not all(member in _PLAIN for member in members):
        return ()
    return tuple(dict.fromkeys([*members, int] if float in members else members))


def _shown(kind: type) -> str:
    return "null" if kind is type(None) else kind.__name__


def _listed(names: frozenset[str] | set[str]) -> str:
    return ", ".join(sorted(names))
