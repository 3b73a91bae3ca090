"""The Python API: handlers, and enqueueing from any process."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, Unpack, cast, overload

from pollconsumer.core.errors import ConfigurationError, unknown_options
from pollconsumer.core.lifecycle import State, StateName
from pollconsumer.core.messages.message import Codec, check_handler
from pollconsumer.core.notation.timespan import Span
from pollconsumer.interface.api import slips
from pollconsumer.interface.api.app_calls import AppCalls
from pollconsumer.interface.api.batches.batch_calls import BatchCalls
from pollconsumer.interface.api.handle import Handle
from pollconsumer.interface.api.handler_function import HandlerFunction
from pollconsumer.interface.api.handler_options import (
    BulkOptions,
    HandlerOptions,
    Retrying,
    aliases_of,
    arguments_of,
    check_options,
    handler_of,
    policy_of,
    recurrence_of,
    refuse_second,
    seconds_of,
    upgrade_of,
)
from pollconsumer.interface.api.hook_registration import HookRegistration
from pollconsumer.interface.api.register import BulkRegister, Register
from pollconsumer.interface.api.registry import RegisteredHandler, registry
from pollconsumer.interface.settings.values import parse_timeout, parse_word, read_period
from pollconsumer.runtime.handling.context import Context
from pollconsumer.runtime.new_messages import SendOptions, milliseconds

if TYPE_CHECKING:
    from pollconsumer.interface.api.message_set import Messages
    from pollconsumer.interface.api.recurrences.app_recurrences import AppRecurrences
    from pollconsumer.store.brought_client import UserClient

P = ParamSpec("P")
R = TypeVar("R")

PATIENCE = 5.0
"""Seconds for which a call is repeated while the store does not answer."""


class PollConsumer(BatchCalls, HookRegistration):
    """Handlers, and the store of their messages.

    Settings are those of the command that imports the module, else read from the environment, a file and defaults. The
    file is ``config``, else what POLLCONSUMER_CONFIG names, else ``config.toml`` beside the module that makes the
    application, or above it. ``store``, a URL or a redis-py client, and ``namespace`` take precedence. The store is
    opened lazily; an instance is thread-safe, and may be used on both sides of a fork.

    ``patience``, seconds, text such as ``1s`` or a timedelta, more than 0: after that time without an answer from the
    store a call raises StoreUnreachable, or OutcomeUnknown if it was sent. It may last a few tenths of a second longer,
    and with ``durability = "strict"`` by ``strict.within``; a bulk enqueue has it for each round trip.
    ConfigurationError for an invalid value.

    ``codec``: an object whose ``encode(bytes)`` makes what the store has in place of the JSON of payloads, results,
    checkpoints, steps and signals, and whose ``decode(bytes)`` is the inverse.
    """

    if not TYPE_CHECKING:  # type checkers would accept any attribute
        __getattr__ = slips.hinting("an application", slips.OF_APPLICATIONS)

    def __init__(
        self,
        *,
        config: str | os.PathLike[str] | None = None,
        store: str | UserClient | None = None,
        namespace: str | None = None,
        patience: Span = PATIENCE,
        codec: Codec | None = None,
    ) -> None:
        self._calls = AppCalls(config, store, namespace, seconds_of("patience", patience, parse_timeout), codec)
        self._hooks = self._calls.hooks
        registry.add(self._calls)

    @overload
    def handler(
        self, name: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> HandlerFunction[P, Concatenate[Context, P], Coroutine[Any, Any, R], R]: ...

    @overload
    def handler(
        self, name: Callable[Concatenate[Context, P], R], /
    ) -> HandlerFunction[P, Concatenate[Context, P], R, R]: ...

    @overload
    def handler(
        self, name: Callable[P, Coroutine[Any, Any, R]], /
    ) -> HandlerFunction[P, P, Coroutine[Any, Any, R], R]: ...

    @overload
    def handler(self, name: Callable[P, R], /) -> HandlerFunction[P, P, R, R]: ...

    @overload
    def handler(self, name: str | None = None, /, **options: Unpack[HandlerOptions]) -> Register: ...

    @overload
    def handler(self, name: str | None = None, /, **options: Unpack[BulkOptions]) -> BulkRegister: ...

    def handler(self, name: Any = None, /, **options: Any) -> Any:
        """Register a function as the handler ``name``, by default the function's name.

        When it returns, the message is completed with its return value as result. When it raises, the message is
        retried until ``max_attempts``; then, or after Fatal and the exceptions in ``fatal``, it becomes a dead letter.
        With ``bulk`` it is given a list of messages.
        """
        if name is not None and not isinstance(name, str):
            return self.handler()(name)
        calls, checked = self._calls, check_options(cast("HandlerOptions", options))
        aliases, upgrade = aliases_of(options.get("aliases", ())), upgrade_of(options.get("upgrade"))

        def register(function: Any) -> HandlerFunction[..., ..., Any, Any]:
            if isinstance(function, HandlerFunction):
                function = function.__wrapped__  # it gets a second name
            elif not callable(function):
                fix = "give a function; a method of a class once that is defined, as in app.handler(Mail.send)"
                raise ConfigurationError("handler", f"a {type(function).__name__}", fix)
            chosen = check_handler(name or getattr(function, "__name__", None))
            for each in (chosen, *aliases):
                if each in calls.handlers:
                    refuse_second(each, calls.handlers[each].function, function)
            arguments = arguments_of(function, upgrade, calls.codec, is_bulk=checked["bulk"] is not None)
            own = {"policies": calls.retry_policies, "codec": calls.codec}
            definition = handler_of(chosen, function, arguments, checked | own)
            registered = RegisteredHandler(definition, function, arguments, calls.hooks)
            calls.handlers |= dict.fromkeys((chosen, *aliases), registered)
            return HandlerFunction(calls, registered)

        return register

    def retry_policy(self, name: str, policy: Retrying) -> None:
        """Give a policy a name, for messages that name it as their ``retry``. ConfigurationError for an invalid policy,
        or for a second one of that name; BadData for an invalid name."""
        from pollconsumer.core.messages.message import check_policy_name

        checked = policy_of(policy)
        if check_policy_name(name) in self._calls.retry_policies:
            raise ConfigurationError("retry policy registered twice", name, "give one of them another name")
        self._calls.retry_policies[name] = checked

    def every(
        self,
        when: Span,
        /,
        *,
        name: str | None = None,
        timezone: str = "UTC",
        missed: Literal["skip", "once", "all"] = "once",
        overlap: Literal["skip", "allow"] = "allow",
        after: Literal["due", "end"] = "due",
        enabled: bool = True,
        priority: int = 0,
        ping: str | None = None,
        **options: Unpack[HandlerOptions],
    ) -> Register:
        """Register a function as a recurring handler: by a cron expression in ``timezone``, or by a period: text
        such as ``90s``, a number of seconds, or a timedelta.

        A parameter ``occurrence: datetime`` receives its due instant. ``missed`` is the policy for missed occurrences;
        with ``overlap="skip"`` none is enqueued while the last one is unfinished. With ``after="end"`` a period counts
        from the last one's end: completed, dead, cancelled or expired. With ``enabled=False`` it is listed and does not
        recur. ``ping``: the URL of a monitor that is told how each occurrence begins and ends.
        """
        if callable(when):
            raise ConfigurationError("every", getattr(when, "__name__", when), 'say how often, as in @app.every("5m")')
        if "bulk" in options:
            raise ConfigurationError("bulk= of @app.every", None, "leave it out: an occurrence is one message")
        if unknown := options.keys() - BulkOptions.__annotations__.keys():
            own = set(type(self).every.__kwdefaults__ or ())
            raise unknown_options(unknown, HandlerOptions.__annotations__.keys() | own)
        is_cron = isinstance(when, str) and (len(when.split()) > 1 or when.startswith("@"))
        rule = {"cron" if is_cron else "every": read_period(when)}

        def register(function: Any) -> Any:
            handler = self.handler(name, **options)(function)
            chosen = name or handler.__name__
            registered = self._calls.handlers[chosen]
            given = {"occurrence"} if registered.definition.takes_occurrence else set()
            if missing := registered.arguments.required - given:
                what = f"every, parameter {min(missing)} of {chosen}"
                raise ConfigurationError(what, None, "an occurrence has no arguments: give it a default")
            self._calls.recurring[chosen] = recurrence_of(
                registered.definition,
                missed=missed,
                overlap=overlap,
                after=after,
                **rule,
                timezone=timezone,
                priority=priority,
                enabled=enabled,
                ping=ping,
            )
            return handler

        return register

    def enqueue(
        self, handler: str, payload: Mapping[str, Any] | None = None, **options: Unpack[SendOptions]
    ) -> Handle[Any]:
        """Enqueue a message by its handler's name, without the handler's code.

        ValueError or TypeError for an invalid message, OutcomeUnknown if the reply was lost, StoreUnreachable;
        Conflict, a ValueError, if ``id`` belongs to a message with another handler or payload.
        """
        calls = self._calls
        return calls.enqueue_one(calls.new_message(handler, {} if payload is None else payload, **options))

    async def enqueue_async(
        self, handler: str, payload: Mapping[str, Any] | None = None, **options: Unpack[SendOptions]
    ) -> Handle[Any]:
        """`enqueue` without blocking the event loop. Messages are enqueued in the order of the calls.

        If it is cancelled, the message is not enqueued, or may be if it was already being sent.
        """
        return await self._calls.enqueue_by_name_async(handler, {} if payload is None else payload, options)

    @property
    def recurrences(self) -> AppRecurrences:
        """Recurring messages that are put, changed and removed at run time."""
        from pollconsumer.interface.api.recurrences.app_recurrences import AppRecurrences

        return AppRecurrences(self._calls)

    def message(self, id: str, *, queue: str | None = None) -> Handle[Any]:  # noqa: A002  as in messages
        """A handle to a message that anybody has enqueued.

        NotFound if there is none, UsageError if two queues have one and ``queue`` is not given, StoreUnreachable.
        """
        return self._calls.handle_of(self._calls.look(queue, id))

    async def message_async(self, id: str, *, queue: str | None = None) -> Handle[Any]:  # noqa: A002  as in messages
        """`message` without blocking the event loop."""
        return self._calls.handle_of(await self._calls.look_async(queue, id))

    def messages(
        self,
        *,
        state: State | StateName | None = None,
        queue: str | None = None,
        handler: str | None = None,
        recurrence: str | None = None,
        key: str | None = None,
        older_than: Span | None = None,
        header: Mapping[str, str] | None = None,
    ) -> Messages:
        """All messages of which everything holds that is given.

        ``recurrence``: they are its occurrences. ``key``: they hold this unique key. ``older_than``: how long ago they
        entered their state at least, in seconds, as text such as ``5m`` or as a timedelta. ``header``: they have each
        of these headers. ValueError for an invalid value.
        """
        from pollconsumer.core.messages.message import check_headers
        from pollconsumer.interface.api.message_set import Messages
        from pollconsumer.store.reading.message_selector import Selection

        chosen = None if state is None else parse_word(State, "state", state)
        age = None if older_than is None else milliseconds("older_than", older_than) / 1000
        headers = None if header is None else check_headers(header)
        return Messages(self._calls, Selection(chosen, queue, handler, recurrence, key, age, headers))


def calls_of(app: PollConsumer) -> AppCalls:
    """The inner side of an application."""
    return app._calls  # noqa: SLF001  for our own modules, so that completion shows users what they call
