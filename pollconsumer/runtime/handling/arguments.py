"""Binds a payload, a JSON object, to the parameters of a handler's function. If the payload does not fit, the function
``upgrade`` converts it, since it may have the form of an earlier version.

Annotations say which types fit; errors say which argument does not fit. If an annotation cannot be resolved, such as a
name under TYPE_CHECKING, only its own parameter is not checked."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from copy import deepcopy
from datetime import datetime
from functools import partial
from inspect import Parameter
from itertools import filterfalse, takewhile
from types import FunctionType, MethodType, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from pollconsumer.core.errors import ConfigurationError, shown, suggestion
from pollconsumer.core.json_values import to_json
from pollconsumer.core.messages.payloads import encode_named, encode_payload
from pollconsumer.core.retry import Fatal
from pollconsumer.core.users_code import called, lazy
from pollconsumer.runtime.handling.context import Context

MOST_NAMED = 5
MOST_CHARACTERS = 300
JSON_KINDS = (str, bool, int, float, dict, list, type(None))
"""The types of JSON values."""
_SYNONYMS: dict[Any, type] = {dict[str, Any]: dict, dict[str, object]: dict, list[Any]: list, list[object]: list}
_MOST_WRAPPERS = 100


class BadArguments(Fatal):
    """The payload does not fit the handler's parameters. It is not retried, because a retry would fail, too."""


class Mismatch(ValueError):
    """A value does not fit. ``problems``: texts, each a path within the value and the error at that path. Errors do not
    show values, which may be secret."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


class NoJsonForm(Exception):
    """A parameter's type has no JSON form."""


def refuse_thrown(error: Exception, call: Callable[..., object], *args: Any) -> None:
    """Call ``call(*args)`` again, which raised ``error``. Return if it raises the same type of error again. Else raise
    ``error``: a signal handler, or another thread, had raised it within the first call."""
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
        """The type that ``annotation`` names. Raises what evaluating its text raises."""
        if annotation is Parameter.empty:
            return Any

        def bearer() -> None: ...

        bearer.__annotations__ = {"it": annotation}
        return get_type_hints(bearer, self._globals, self._locals, include_extras=True)["it"]

    def denotes(self, annotation: Any, wanted: type, *, by_text: bool = True) -> bool:
        """Whether ``annotation`` is the type ``wanted``, or its union with None. If it cannot be resolved: with
        ``by_text``, whether its text ends with the type's name, else False."""
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
    """The types of which ``hint`` is a union; if it is none, ``hint`` alone."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def accepted_types(hint: Any) -> tuple[type, ...] | None:
    """The types whose values fit ``hint``. An empty tuple if types alone do not decide; None if anything fits."""
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
    """The function behind decorators and partials, whose globals the annotations of ``function`` use."""
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


SENT_WITH = {
    *("queue", "in_", "at", "priority", "key", "id", "expires", "headers", "timeout", "max_attempts", "retry", "then"),
    *("failed", "countdown", "eta", "delay"),
}
"""Names of options, of pollconsumer and of other job queues. If an unknown argument has such a name, the error says
where the option goes."""
Convert = Callable[[Any], Any]
"""Converts a JSON value to a parameter's type. Raises Mismatch if the value does not fit."""
Kinds = tuple[type, ...] | None
"""Types whose values are accepted. None: any type."""
Upgrade = Callable[[dict[str, Any]], dict[str, Any]]
"""Converts a payload of an earlier version's form to the current form."""


class FormField(NamedTuple):
    """A parameter, for a web form that asks for its argument. ``annotation``: its text; empty without one. ``kinds``:
    the JSON types that fit. ``default``: None if the argument is required."""

    name: str
    annotation: str
    kinds: Kinds
    required: bool
    default: Any


class _Plan(NamedTuple):
    """The types that fit each parameter. ``others``: the types that fit ``**kwargs``."""

    kinds: dict[str, Kinds]
    others: Kinds
    hints: dict[str, Any]
    """Annotations that require a conversion."""
    unchecked: dict[str, str]
    """Parameters with annotations that cannot be checked, each with the reason."""


class _Ready(NamedTuple):
    """What `bind` needs, prepared once. ``every``: a payload with so many known arguments is complete."""

    kinds: dict[str, Kinds]
    others: Kinds
    converts: dict[str, Convert]
    every: int


class Arguments:
    """The parameters of a handler's function.

    JSON types are compared here. For any other annotation ``converter`` makes a conversion, at the first message since
    its import is slow. It raises NoJsonForm for a type without JSON form; after any other exception the parameter is
    not checked. ``dumper`` makes a function that writes a value of such a type as JSON. ``upgrade`` gets each payload
    that does not fit. ConfigurationError for a function that no payload can call."""

    def __init__(
        self,
        function: Callable[..., Any],
        converter: Callable[[Any], Convert],
        dumper: Callable[[Any], Convert] | None = None,
        upgrade: Upgrade | None = None,
    ) -> None:
        self._converter, self._dumper, self._upgrade = converter, dumper, upgrade
        self._dumps: dict[str, Convert] = {}
        self._function = getattr(function, "__qualname__", type(function).__name__)
        self._annotations = annotations = Annotations(function)
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError, NameError) as error:
            raise ConfigurationError(f"parameters of {self._function}", str(error), "wrap it in a function") from None
        parameters = signature.parameters
        self.takes_context = "context" in parameters and annotations.denotes(parameters["context"].annotation, Context)
        self.takes_occurrence = "occurrence" in parameters and annotations.denotes(
            parameters["occurrence"].annotation, datetime
        )
        for position, parameter in enumerate(parameters.values()):
            self._check(parameter, is_first=position == 0)
        payable = [p for p in parameters.values() if not (self.takes_context and p.name == "context")]
        self._signature = signature.replace(parameters=payable)
        self._named = {p.name: p for p in payable if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        self._positional = [p.name for p in takewhile(lambda p: p.kind is p.POSITIONAL_OR_KEYWORD, payable)]
        self.required = frozenset(p.name for p in self._named.values() if p.default is p.empty)
        """The names of the required parameters."""
        self._rest = next((p for p in payable if p.kind is p.VAR_KEYWORD), None)

    def bind(self, payload: dict[str, Any]) -> dict[str, Any]:
        """The arguments by name, apart from ``context``, of ``payload`` or, if it does not fit, of its upgrade.
        BadArguments if neither fits. Raises what the upgrade raises."""
        try:
            return self._bound(payload)
        except BadArguments:
            if self._upgrade is None:
                raise
            return self._bound(upgraded(payload, self._upgrade))

    def _bound(self, payload: dict[str, Any]) -> dict[str, Any]:
        kinds_of, others, converts, every = self._ready
        for name, value in payload.items():
            kinds = kinds_of.get(name, others)
            if kinds is not None and type(value) not in kinds:
                raise self._refusal(payload, kinds_of, others)
        if len(payload) < every and not payload.keys() >= self.required:
            raise self._refusal(payload, kinds_of, others)
        return _converted(payload, kinds_of, converts) if converts else payload

    def hint(self, given: Iterable[object]) -> str:
        """``did you mean …?`` for the first name in ``given`` that is no parameter; empty if none resembles it."""
        unknown = next((name for name in given if not self.takes(name)), None)
        takes = f"it takes {', '.join(self._named) or 'no arguments'}"
        return "" if unknown is None else suggestion(str(unknown), self._named, takes)

    def takes(self, name: object) -> bool:
        """Whether a message may have an argument of this name."""
        if not isinstance(name, str):
            return False
        return name in self._named or (self._rest is not None and (name != "context" or not self.takes_context))

    @property
    def takes_others(self) -> bool:
        """Whether a message may have arguments of any names, for ``**kwargs``."""
        return self._rest is not None

    def form_fields(self) -> list[FormField]:
        """The parameters that a message can set, for a web form."""
        return [
            FormField(
                name,
                _text_of(parameter.annotation),
                self._plan.kinds[name],
                name in self.required,
                None if name in self.required else parameter.default,
            )
            for name, parameter in self._named.items()
        ]

    def for_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The payload for a call with these arguments. It may be ``kwargs`` itself. TypeError if they do not fit."""
        kinds_of = self._plan.kinds
        payload = kwargs if type(kwargs) is dict and not args else dict(kwargs or zip(self._positional, args))  # noqa: B905
        complete = len(payload) == len(self._named) or payload.keys() >= self.required
        if complete and len(payload) == len(args) + len(kwargs):  # mostly, each value has its parameter's type
            for name, value in payload.items():
                kinds = kinds_of.get(name, ())
                if kinds is not None and type(value) not in kinds:
                    break
            else:
                return payload
        return self._compared(args, dict(kwargs))

    def _compared(self, args: tuple[Any, ...], payload: dict[str, Any]) -> dict[str, Any]:
        """What `for_call` returns if the quick comparison of names and exact types does not suffice."""
        kinds_of, others, _, _ = self._plan
        names = payload.keys()
        if args or not names <= self._named.keys() or not names >= self.required:
            payload = self._by_name(args, payload)
        for name, value in payload.items():
            kinds = kinds_of.get(name, others)
            if kinds is not None and type(value) not in kinds and _kind(value) not in (*kinds, None):
                raise TypeError(f"{name} of {self._function}() is {type(value).__name__}, not {any_of(kinds)}")
        return payload

    def encoded(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
        """The payload of these arguments as JSON. ``dumper`` writes values that have no JSON form of their own, such as
        a timedelta. TypeError if the arguments do not fit, or an error of ``encode_payload``."""
        payload = self.for_call(args, kwargs)
        try:
            return encode_named(payload)
        except TypeError:
            return encode_named(self.dumped(payload))

    def json_of(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """``payload`` with only JSON values, ready for ``encode_payload``. A payload that fits only after its upgrade
        is returned unchanged. TypeError if neither it nor its upgrade fits."""
        try:
            return self.dumped(self.for_call((), payload))
        except TypeError:
            if self._upgrade is not None:
                with suppress(Exception):
                    self._bound(upgraded(payload, self._upgrade))
                    return dict(payload)
            raise

    def dumped(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """``payload`` with each value that has no JSON form written according to its parameter's annotation. TypeError
        if the value is not of the annotated type."""
        return {name: self._written(name, value, self._plan.hints) for name, value in payload.items()}

    def _written(self, name: str, value: Any, hints: dict[str, Any]) -> Any:
        location = name if name in self._named or self._rest is None else f"**{self._rest.name}"
        if location not in hints or self._dumper is None or _is_json(value):
            return value
        try:
            dump = self._dumps.get(location) or self._dumps.setdefault(location, self._dumper(hints[location]))
        except Exception as error:  # an annotation that `check` reports
            refuse_thrown(error, self._dumper, hints[location])
            return value
        try:
            return dump(value)
        except Mismatch as mismatch:
            raise TypeError(f"{name} of {self._function}(){mismatch}") from None

    def problems(self) -> tuple[dict[str, str], dict[str, str]]:
        """Required parameters without a JSON form, and parameters that are not checked, each with the reason."""
        plan = self._plan
        impossible, unchecked = {}, dict(plan.unchecked)
        for name, hint in plan.hints.items():
            try:
                self._converter(hint)
            except NoJsonForm as error:
                if name in self.required:
                    impossible[name] = str(error)
            except Exception as error:
                unchecked[name] = reason_of(error)
        return impossible, unchecked

    def _check(self, parameter: inspect.Parameter, *, is_first: bool) -> None:
        what = f"parameter {parameter.name} of {self._function}"
        if parameter.annotation is parameter.empty and is_first and parameter.name in ("self", "cls"):
            fix = "register a bound method, as of Mail().send; who wants its context takes context: Context"
            raise ConfigurationError(what, None, fix)
        if parameter.annotation is parameter.empty and parameter.name in ("context", "ctx")[: 1 + is_first]:
            fix = "annotate it: context: Context for the handler's context, its own type for an argument of the payload"
            raise ConfigurationError(what, None, fix)
        is_context = parameter.name == "context" and self.takes_context
        if parameter.kind is parameter.POSITIONAL_ONLY and (parameter.default is parameter.empty or is_context):
            raise ConfigurationError(what, None, "arguments come by name: leave out the /")
        if not is_context and self._annotations.denotes(parameter.annotation, Context, by_text=False):
            raise ConfigurationError(what, None, "name it context, for that is how a Context is given")

    def _by_name(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        if self.takes_context and "context" in kwargs:
            raise TypeError(f"context of {self._function}() is given to it when it handles the message")
        try:
            arguments = self._signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            wrong = self._misnamed(kwargs)
            problem = f"arguments of {self._function}(): {'; '.join(wrong)}" if wrong and not args else str(error)
            hint = self.hint(kwargs)
            if kwargs.keys() & SENT_WITH - self._named.keys():
                hint = (
                    f"options go into using(), as in {self._function.rpartition('.')[2]}.using(in_='5m').enqueue(...)"
                )
            raise TypeError(f"{problem}; {hint}" if hint else problem) from None
        for name, parameter in self._signature.parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                arguments |= arguments.pop(name, {})
            elif name in arguments and parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
                raise TypeError(f"{name} of {self._function}() must be passed by name")
        return arguments

    @lazy
    def _plan(self) -> _Plan:
        """Computed at the first use, since annotations may name types that are defined later."""
        plan = _Plan({}, (), {}, {})
        for name, parameter in self._named.items():
            plan.kinds[name] = self._kinds_of(name, parameter.annotation, plan)
        if self._rest is not None:
            plan = plan._replace(others=self._kinds_of(f"**{self._rest.name}", self._rest.annotation, plan))
            if self.takes_context:
                plan.kinds["context"] = ()
        return plan

    def _kinds_of(self, name: str, annotation: Any, plan: _Plan) -> Kinds:
        if name == "occurrence" and self.takes_occurrence:
            return None
        try:
            hint = self._annotations.resolve(annotation)
        except Exception as error:  # a name under TYPE_CHECKING, or no type at all
            refuse_thrown(error, self._annotations.resolve, annotation)
            plan.unchecked[name] = reason_of(error)
            return None
        kinds = accepted_types(hint)
        if kinds == ():
            plan.hints[name] = hint
            return None
        return kinds

    @lazy
    def _ready(self) -> _Ready:
        plan = self._plan
        converts: dict[str, Convert] = {"occurrence": _instant} if self.takes_occurrence else {}
        for name, hint in plan.hints.items():
            try:
                convert = self._converter(hint)
            except NoJsonForm as error:
                convert = _refusing(str(error))
            except Exception as error:  # reported by `check`
                refuse_thrown(error, self._converter, hint)
                continue
            converts[name if name in self._named else ""] = convert
        every = sys.maxsize if self._rest else len(plan.kinds)
        return _Ready(plan.kinds, plan.others, converts, every)

    def _refusal(self, payload: dict[str, Any], kinds_of: dict[str, Kinds], others: Kinds) -> BadArguments:
        wrong = [
            f"{shown(name)} is {name_of(type(value))}, not {any_of(kinds)}"
            for name, value in payload.items()
            if (kinds := kinds_of.get(name, others)) and type(value) not in kinds
        ]
        return bad_arguments([*self._misnamed(payload), *wrong])

    def _misnamed(self, payload: Mapping[str, Any]) -> list[str]:
        """The required names that ``payload`` lacks, and its names that are no parameters."""
        found = {"missing": sorted(self.required - payload.keys()), "unexpected": [*filterfalse(self.takes, payload)]}
        return [f"{what} {listed(names)}" for what, names in found.items() if names]


def _converted(payload: dict[str, Any], kinds_of: dict[str, Kinds], converts: dict[str, Convert]) -> dict[str, Any]:
    arguments, problems = dict(payload), []
    rest = converts.get("")
    for name, value in payload.items():
        convert = converts.get(name) if name in kinds_of else rest
        if convert is not None:
            try:
                arguments[name] = convert(value)
            except Mismatch as mismatch:
                problems += [f"{shown(name)}{problem}" for problem in mismatch.problems]
    if problems:
        raise bad_arguments(problems)
    return arguments


def _text_of(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _instant(value: Any) -> datetime | None:
    """The occurrence's instant, parsed from the mover's text without importing pydantic, which is slow."""
    if value is None:
        return None
    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise Mismatch([": not an instant of ISO 8601"]) from None


def _refusing(reason: str) -> Convert:
    def refuse(_: Any) -> Any:
        raise Mismatch([f": {reason}"])

    return refuse


def _kind(value: Any) -> type | None:
    """The JSON type of ``value``; None if it has none, so that encoding it fails."""
    for _ in range(2):
        if isinstance(value, bool):
            return bool
        for kind in JSON_KINDS:
            if isinstance(value, kind):
                return kind
        if isinstance(value, tuple):
            return list
        try:
            value = to_json(value)
        except (TypeError, ValueError):
            return None
    return None


def _is_json(value: Any) -> bool:
    try:
        encode_payload({"": value})
    except TypeError:
        return False
    except ValueError:  # the payload is refused for it, too
        pass
    return True


def upgraded(payload: Mapping[str, Any], upgrade: Upgrade) -> dict[str, Any]:
    """What ``upgrade`` returns for a copy of ``payload``. BadArguments if that is no dict."""
    given = called(upgrade, deepcopy(dict(payload)))
    if type(given) is not dict:
        raise bad_arguments([f"upgrade returned {type(given).__name__}, not a dict"])
    return given
