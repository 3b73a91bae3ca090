"""The parameters of a bulk handler's function: a list of messages, and perhaps a context."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, get_args, get_origin

from pollconsumer.core.errors import ConfigurationError
from pollconsumer.core.messages.codec import decoded_object
from pollconsumer.core.messages.message import Codec
from pollconsumer.core.messages.payloads import encode_named
from pollconsumer.runtime.handling.bulk.item import BulkContext, Item
from pollconsumer.runtime.handling.context import Context
from pollconsumer.runtime.handling.delivery import Delivery
from pollconsumer.runtime.handling.validation.annotations import Annotations, accepted_types
from pollconsumer.runtime.handling.validation.argument_errors import (
    BadArguments,
    Mismatch,
    NotOfJson,
    bad_arguments,
    reason_of,
    refuse_thrown,
)
from pollconsumer.runtime.handling.validation.arguments import Arguments, Convert
from pollconsumer.runtime.handling.validation.upgraded_arguments import Upgrade, upgraded

FORMS = "annotate it: list[Item], list[dict], list[Item[Model]] or list[Model]"


class _Form(NamedTuple):
    """How a message becomes what the function is given: an `Item` or, if not ``of_items``, its payload alone.
    ``convert``: to the annotated type ``hint``; None if every payload fits."""

    of_items: bool
    hint: Any
    convert: Convert | None


class BulkArguments(Arguments):
    """The parameters of a bulk handler's function. A message's payload may have arguments of any names.

    ``converter`` and ``dumper``: as in `Arguments`; ``upgrade``: as in `UpgradedArguments`. ``codec``: the
    application's. ConfigurationError for a function that cannot be called with a list of messages.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        converter: Callable[[Any], Convert],
        dumper: Callable[[Any], Convert] | None = None,
        upgrade: Upgrade | None = None,
        codec: Codec | None = None,
    ) -> None:
        def any_payload(**payload: Any) -> None: ...

        self._bulk_function = any_payload.__qualname__ = getattr(function, "__qualname__", type(function).__name__)
        super().__init__(any_payload, converter, dumper)
        self._converting, self._annotated, self._upgrade = converter, Annotations(function), upgrade
        self._codec = codec
        parameters = dict(inspect.signature(function).parameters)
        context = parameters.get("context")
        self.takes_bulk_context = context is not None and self._annotated.denotes(context.annotation, BulkContext)
        if self.takes_bulk_context:
            del parameters["context"]
        self._messages = self._parameter_of_messages([*parameters.values()])
        self._form: _Form | None = None
        self._hint()

    def given(self, delivery: Delivery, payload: dict[str, Any]) -> Any:
        """What the function is given for a message. BadArguments if ``payload`` does not fit."""
        converted = self._converted(decoded_object(payload, self._codec))
        if not (self._form or self._get_form()).of_items:
            return converted
        headers: Mapping[str, str] = MappingProxyType(delivery.headers or {})
        return Item(converted, delivery.id, headers, delivery.attempt)

    def of_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The payload for these arguments. TypeError if it does not fit the annotation of the messages."""
        payload = super().of_call(args, kwargs)
        try:
            self._converted(payload)
        except BadArguments as error:
            problem = str(error).removeprefix("bad_arguments: ")
            raise TypeError(f"arguments of {self._bulk_function}(): {problem}") from None
        except Exception as error:  # a type of the user's that raises will do so again where the message is handled
            refuse_thrown(error, self._converted, payload)
        return payload

    def dumped(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """``payload``; where a value has no JSON form, as the annotation of the messages says."""
        given = dict(payload)
        form = self._form or self._get_form()
        try:
            encode_named(given)
        except TypeError:
            if form.convert is None or self._dumper is None:
                raise
            written: dict[str, Any] = self._dumper(form.hint)(form.convert(given))
            return written
        return given

    def bind(self, payload: dict[str, Any]) -> dict[str, Any]:
        """``payload``. BadArguments if it does not fit."""
        self._converted(payload)
        return payload

    def _converted(self, payload: dict[str, Any]) -> Any:
        form = self._form or self._get_form()
        if form.convert is None:
            return payload
        try:
            try:
                return form.convert(payload)
            except Mismatch:
                if self._upgrade is None:
                    raise
                return form.convert(upgraded(payload, self._upgrade))
        except Mismatch as mismatch:
            raise bad_arguments([f"payload{problem}" for problem in mismatch.problems]) from None

    def problems(self) -> tuple[dict[str, str], dict[str, str]]:
        name, element = self._messages.name, self._element()
        try:
            self._annotated.resolve(self._messages.annotation)
            self._conversion(get_args(element)[0] if get_origin(element) is Item else element)
        except NotOfJson as error:
            return {name: str(error)}, {}
        except Exception as error:
            return {}, {name: reason_of(error)}
        return {}, {}

    def _parameter_of_messages(self, parameters: list[inspect.Parameter]) -> inspect.Parameter:
        for each in parameters:
            if self._annotated.denotes(each.annotation, Context, by_text=False):
                fix = "a bulk call has no context of one message: take context: BulkContext, and list[Item]"
                raise ConfigurationError(self._named_parameter(each), None, fix)
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        if len(parameters) != 1 or parameters[0].kind not in kinds:
            rule = "a bulk handler takes the list of its messages, and context: BulkContext if it wants that"
            raise ConfigurationError("bulk handler", self._bulk_function, rule)
        if parameters[0].annotation is inspect.Parameter.empty:
            raise ConfigurationError(self._named_parameter(parameters[0]), None, FORMS)
        return parameters[0]

    def _named_parameter(self, parameter: inspect.Parameter) -> str:
        return f"parameter {parameter.name} of {self._bulk_function}"

    def _hint(self) -> Any:
        """The annotation of the messages; Any if it cannot be resolved yet."""
        annotation = self._messages.annotation
        try:
            hint = self._annotated.resolve(annotation)
        except Exception as error:  # it names a later definition, or one under TYPE_CHECKING
            refuse_thrown(error, self._annotated.resolve, annotation)
            return list[Item] if re.search(r"\bItem\b", str(annotation)) else list[Any]
        element = get_args(hint)[0] if get_args(hint) else Any
        kinds = accepted_types(get_args(element)[0] if get_origin(element) is Item else element)
        if (get_origin(hint) or hint) is not list or (element is not Item and kinds and dict not in kinds):
            raise ConfigurationError(self._named_parameter(self._messages), str(hint), FORMS)
        return hint

    def _element(self) -> Any:
        return next(iter(get_args(self._hint())), Any)

    def _get_form(self) -> _Form:
        element = self._element()
        of_items = element is Item or get_origin(element) is Item
        wanted = element
        if of_items:
            wanted = next(iter(get_args(element)), Any)
        convert: Convert | None = None
        try:
            convert = self._conversion(wanted)
        except NotOfJson as error:
            raise bad_arguments([f"payload: {error}"]) from None
        except Exception as error:  # reported by `check`
            refuse_thrown(error, self._conversion, wanted)
        self._form = _Form(of_items, wanted, convert)
        return self._form

    def _conversion(self, hint: Any) -> Convert | None:
        """What converts a payload to ``hint``; None if every payload fits. Raises as the converter."""
        return None if hint is Item or accepted_types(hint) != () else self._converting(hint)
