"""Bulk handlers, which are called with several messages: their parameters, their arguments, and a call's outcomes."""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, get_args, get_origin

from pollconsumer.core.errors import ConfigurationError
from pollconsumer.core.messages.codec import decoded_object
from pollconsumer.core.messages.message import Codec
from pollconsumer.core.messages.payloads import encode_named
from pollconsumer.core.retry import Partial
from pollconsumer.core.users_code import called, lazy
from pollconsumer.runtime.handling.arguments import (
    Annotations,
    Arguments,
    BadArguments,
    Convert,
    Mismatch,
    NoJsonForm,
    Upgrade,
    accepted_types,
    bad_arguments,
    reason_of,
    refuse_thrown,
    upgraded,
)
from pollconsumer.runtime.handling.context import Context, LaunchContext
from pollconsumer.runtime.handling.delivery import Delivery
from pollconsumer.runtime.handling.handler import DONE, CallOutcomes, Hooks, Outcome, Run, done_result, failed, returned

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=dict[str, Any])
else:
    from typing import TypeVar

    T = TypeVar("T")

FORMS = "annotate it: list[Item], list[dict], list[Item[Model]] or list[Model]"
MESSAGES = "messages"
"""The key of the messages in a call's payload. Each is a pair: a `Delivery`, or its fields, and the payload."""


class Item(NamedTuple, Generic[T]):
    """A message in a call of a bulk handler.

    ``payload``: a dict, or an object of the model if the annotation is ``list[Item[Model]]``. ``headers``: names and
    texts that the producer sent beside the payload. ``attempt``: the number of the attempt, from 1."""

    payload: T
    id: str = ""
    headers: Mapping[str, str] = MappingProxyType({})
    attempt: int = 1


class BulkContext:
    """The ``context`` that a bulk handler may take: facts about its call."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def time_left(self) -> float:
        """Seconds until the handler's limit, or until a platform ends the launch, whichever is first; at least 0."""
        return self._context.time_left()

    @property
    def cancelled(self) -> bool:
        """Whether to stop: the launch got a signal, its lease is lost, the time is over, or somebody asked to stop
        every message of the call."""
        return self._context.cancelled


class _Form(NamedTuple):
    """How the function gets each message: as an `Item` or, unless ``takes_items``, as its payload alone. ``convert``
    converts the payload to the annotated type ``hint``; None if any payload fits."""

    takes_items: bool
    hint: Any
    convert: Convert | None


class BulkArguments(Arguments):
    """The parameters of a bulk handler's function: a list of messages, and perhaps a context. A message's payload may
    have arguments of any names.

    ``converter``, ``dumper`` and ``upgrade``: as in `Arguments`. ``codec``: the application's.
    ConfigurationError for a function that cannot be called with a list of messages."""

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
        self._converting, self._annotated, self._upgrading = converter, Annotations(function), upgrade
        self._codec = codec
        parameters = dict(inspect.signature(function).parameters)
        context = parameters.get("context")
        self.takes_bulk_context = context is not None and self._annotated.denotes(context.annotation, BulkContext)
        if self.takes_bulk_context:
            del parameters["context"]
        for each in parameters.values():
            if self._annotated.denotes(each.annotation, Context, by_text=False):
                fix = "a bulk call has no context of one message: take context: BulkContext, and list[Item]"
                raise ConfigurationError(self._named_parameter(each), None, fix)
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        if len(parameters) != 1 or (messages := next(iter(parameters.values()))).kind not in kinds:
            rule = "a bulk handler takes the list of its messages, and context: BulkContext if it wants that"
            raise ConfigurationError("bulk handler", self._bulk_function, rule)
        if messages.annotation is inspect.Parameter.empty:
            raise ConfigurationError(self._named_parameter(messages), None, FORMS)
        self._messages = messages
        self._hint()

    def given(self, delivery: Delivery, payload: dict[str, Any]) -> Any:
        """The element of the list for this message. BadArguments if ``payload`` does not fit."""
        converted = self._converted(decoded_object(payload, self._codec))
        if not self._form.takes_items:
            return converted
        headers: Mapping[str, str] = MappingProxyType(delivery.headers or {})
        return Item(converted, delivery.id, headers, delivery.attempt)

    def for_call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The payload of one message with these arguments. TypeError if it does not fit the list's element type."""
        payload = super().for_call(args, kwargs)
        try:
            self._converted(payload)
        except BadArguments as error:
            problem = str(error).removeprefix("bad_arguments: ")
            raise TypeError(f"arguments of {self._bulk_function}(): {problem}") from None
        except Exception as error:  # the user's type raises, and will again when the message is handled
            refuse_thrown(error, self._converted, payload)
        return payload

    def dumped(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """``payload`` with values that have no JSON form written according to the list's element type."""
        given = dict(payload)
        form = self._form
        try:
            encode_named(given)
        except TypeError:
            if form.convert is None or self._dumper is None:
                raise
            written: dict[str, Any] = self._dumper(form.hint)(form.convert(given))
            return written
        return given

    def bind(self, payload: dict[str, Any]) -> dict[str, Any]:
        """``payload`` itself. BadArguments if it does not fit the list's element type."""
        self._converted(payload)
        return payload

    def _converted(self, payload: dict[str, Any]) -> Any:
        convert = self._form.convert
        if convert is None:
            return payload
        try:
            try:
                return convert(payload)
            except Mismatch:
                if self._upgrading is None:
                    raise
                return convert(upgraded(payload, self._upgrading))
        except Mismatch as mismatch:
            raise bad_arguments([f"payload{problem}" for problem in mismatch.problems]) from None

    def problems(self) -> tuple[dict[str, str], dict[str, str]]:
        name, element = self._messages.name, next(iter(get_args(self._hint())), Any)
        try:
            self._annotated.resolve(self._messages.annotation)
            self._conversion(get_args(element)[0] if get_origin(element) is Item else element)
        except NoJsonForm as error:
            return {name: str(error)}, {}
        except Exception as error:
            return {}, {name: reason_of(error)}
        return {}, {}

    def _named_parameter(self, parameter: inspect.Parameter) -> str:
        return f"parameter {parameter.name} of {self._bulk_function}"

    def _hint(self) -> Any:
        """The type of the list of messages; ``list[Item]`` or ``list[Any]`` if it cannot be resolved yet."""
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

    @lazy
    def _form(self) -> _Form:
        element = next(iter(get_args(self._hint())), Any)
        takes_items = element is Item or get_origin(element) is Item
        wanted = next(iter(get_args(element)), Any) if takes_items else element
        convert: Convert | None = None
        try:
            convert = self._conversion(wanted)
        except NoJsonForm as error:
            raise bad_arguments([f"payload: {error}"]) from None
        except Exception as error:  # reported by `check`
            refuse_thrown(error, self._conversion, wanted)
        return _Form(takes_items, wanted, convert)

    def _conversion(self, hint: Any) -> Convert | None:
        """A function that converts a payload to ``hint``; None if every payload fits. Raises what the converter
        raises."""
        return None if hint is Item or accepted_types(hint) != () else self._converting(hint)


class _BulkCall:
    """A call of a bulk handler. ``items``: its messages that fit the parameters, as the function gets them."""

    def __init__(self, arguments: BulkArguments, payload: dict[str, Any], context: LaunchContext | None) -> None:
        self.items: list[Any] = []
        self._outcomes: list[Outcome] = []
        self._positions: list[int] = []
        for delivery, content in payload[MESSAGES]:
            try:
                item = called(arguments.given, Delivery(*delivery), content)
            except Exception as error:  # it does not fit, or a type of the user's raises
                self._outcomes.append(failed(error))
            else:
                self._positions.append(len(self._outcomes))
                self._outcomes.append(DONE)
                self.items.append(item)
        self.named = {}
        if arguments.takes_bulk_context:
            assert context is not None
            self.named["context"] = BulkContext(context)

    def returned(self, result: Any) -> CallOutcomes:
        """The outcomes of all messages after the function returned ``result``: None, or one result for each item."""
        try:
            results = done_result(result)
            if results is not None:
                self._check(results)  # GUARD a result for each message
                self._end([DONE if each is None else returned(each) for each in results])
        except Exception as error:
            return self.raised(error)
        return CallOutcomes(self._outcomes)

    def raised(self, error: Exception) -> CallOutcomes:
        """The outcomes of all messages after the function raised ``error``."""
        if isinstance(error, Partial):
            beyond = [position for position in error.errors if position >= len(self.items)]
            if not beyond:  # GUARD errors of the messages that there are
                self._end([Outcome(error.errors.get(position)) for position in range(len(self.items))])
                return CallOutcomes(self._outcomes)
            text = f"Partial names message {min(beyond)}, and the call had {len(self.items)}; the first one is 0"
            error = IndexError(text)
        self._end([failed(error)] * len(self.items))
        return CallOutcomes(self._outcomes)

    def _check(self, results: object) -> None:
        wanted = f"return None, or a list of {len(self.items)} results, one of each message"
        if not isinstance(results, list | tuple):
            raise TypeError(f"it returned a {type(results).__name__}; {wanted}")
        if len(results) != len(self.items):
            raise ValueError(f"it returned {len(results)} results; {wanted}")

    def _end(self, outcomes: Sequence[Outcome]) -> None:
        for position, outcome in zip(self._positions, outcomes, strict=True):
            self._outcomes[position] = outcome


def calling_bulk(function: Callable[..., Any], arguments: BulkArguments, *, asynchronous: bool) -> Run:
    """The ``run`` of a bulk handler: calls ``function`` with a list of messages, and returns `CallOutcomes`."""

    def run(payload: dict[str, Any], context: LaunchContext | None) -> CallOutcomes:
        call = _BulkCall(arguments, payload, context)
        try:
            return call.returned(called(function, [*call.items], **call.named) if call.items else None)
        except Exception as error:
            return call.raised(error)

    async def run_async(payload: dict[str, Any], context: LaunchContext | None) -> CallOutcomes:
        call = _BulkCall(arguments, payload, context)
        try:
            return call.returned(await function([*call.items], **call.named) if call.items else None)
        except Exception as error:
            return call.raised(error)

    return run_async if asynchronous else run


def around_bulk(
    hooks: Hooks, timeout: float | None, payload: dict[str, Any], context: LaunchContext
) -> tuple[dict[str, Any], Callable[[CallOutcomes], CallOutcomes]]:
    """`Around` for a bulk handler: hooks ``before`` for each message, and ``after`` for each completed one."""
    contexts = context.messages(Delivery(*each) for each, _ in payload[MESSAGES])
    skipped = [hooks.call("before", each) for each in contexts]
    if timeout is not None:
        context.limit(timeout)
    # GUARD what is skipped is not in the call
    kept = [each for each, skips in zip(payload[MESSAGES], skipped, strict=True) if not skips]
    return {**payload, MESSAGES: kept}, partial(_after, hooks, contexts, skipped)


def _after(
    hooks: Hooks, contexts: Sequence[LaunchContext], skipped: Sequence[bool], called: CallOutcomes
) -> CallOutcomes:
    """Call the hooks ``after``. Returns the outcomes of all messages. ``called``: those that were not skipped."""
    rest = iter(called)
    outcomes = CallOutcomes(DONE if skips else next(rest) for skips in skipped)
    for context, outcome in zip(contexts, outcomes, strict=True):
        if outcome.error is None:
            hooks.call("after", context, outcome.result)
    return outcomes
