"""The Python API: handlers, and enqueueing from any process."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, Unpack, cast, overload

from pollconsumer.core.errors import CannotCreate, ConfigurationError, StoreUnreachable
from pollconsumer.core.lifecycle import State, StateName
from pollconsumer.core.messages.message import Codec, NewMessage, check_handler
from pollconsumer.core.notation.timespan import Span
from pollconsumer.core.retry import ErrorPolicy, RetryPolicy
from pollconsumer.interface.api import slips
from pollconsumer.interface.api.batches.batch_calls import BatchCalls
from pollconsumer.interface.api.handle import Handle
from pollconsumer.interface.api.handler_function import HandlerFunction
from pollconsumer.interface.api.handler_options import (
    BulkOptions,
    HandlerOptions,
    Retrying,
    aliases_of,
    arguments_of,
    check_codec,
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
from pollconsumer.interface.api.registry import Application, RegisteredHandler, registry
from pollconsumer.interface.logs.logs import warn_of_users_code
from pollconsumer.interface.settings.model import RecurrenceSettings
from pollconsumer.interface.settings.values import parse_timeout, parse_word, read_period
from pollconsumer.runtime.handling.context import Context
from pollconsumer.runtime.handling.hooks import Hooks
from pollconsumer.runtime.new_messages import Defaults, SendOptions, milliseconds, new_message, refuse_unknown
from pollconsumer.store.queues.producer import Producer

if TYPE_CHECKING:
    from pollconsumer.interface.api.message_set import Messages
    from pollconsumer.interface.api.recurrences.app_recurrences import AppRecurrences
    from pollconsumer.store.brought_client import UserClient

P = ParamSpec("P")
R = TypeVar("R")

PATIENCE = 5.0
"""Seconds for which a call is repeated while the store does not answer."""


class PollConsumer(BatchCalls, HookRegistration, Application):
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
        super().__init__(config, store, namespace, seconds_of("patience", patience, parse_timeout))
        self.codec = check_codec(codec)
        self.queues: set[str] = set()
        """Queues that launches serve in addition to those of its handlers."""
        self.handlers: dict[str, HandlerFunction[..., ..., Any, Any]] = {}
        """Handlers by name, and by each alias."""
        self.recurring: dict[str, RecurrenceSettings] = {}
        """The recurrences of `every`, by name."""
        self.retry_policies: dict[str, RetryPolicy | ErrorPolicy] = {}
        """Retry policies, by the name that a message gives as ``retry``."""
        self.hooks = Hooks(warn_of_users_code)
        self._warned_of: set[str] = set()
        registry.add(self)

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
        checked = check_options(cast("HandlerOptions", options))
        aliases, upgrade = aliases_of(options.get("aliases", ())), upgrade_of(options.get("upgrade"))

        def register(function: Any) -> HandlerFunction[..., ..., Any, Any]:
            if isinstance(function, HandlerFunction):
                function = function.function  # it gets a second name
            elif not callable(function):
                fix = "give a function; a method of a class once that is defined, as in app.handler(Mail.send)"
                raise ConfigurationError("handler", f"a {type(function).__name__}", fix)
            chosen = check_handler(name or getattr(function, "__name__", None))
            for each in (chosen, *aliases):
                if each in self.handlers:
                    refuse_second(each, self.handlers[each].function, function)
            arguments = arguments_of(function, upgrade, self.codec, is_bulk=checked["bulk"] is not None)
            own = {"policies": self.retry_policies, "codec": self.codec}
            handler = handler_of(chosen, function, arguments, checked | own)
            registered: HandlerFunction[..., ..., Any, Any] = HandlerFunction(self, handler, function, arguments)
            self.handlers |= dict.fromkeys((chosen, *aliases), registered)
            return registered

        return register

    def retry_policy(self, name: str, policy: Retrying) -> None:
        """Give a policy a name, for messages that name it as their ``retry``. ConfigurationError for an invalid policy,
        or for a second one of that name; BadData for an invalid name."""
        from pollconsumer.core.messages.message_options import check_policy_name

        checked = policy_of(policy)
        if check_policy_name(name) in self.retry_policies:
            raise ConfigurationError("retry policy registered twice", name, "give one of them another name")
        self.retry_policies[name] = checked

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
            raise ConfigurationError("every, bulk", None, "leave it out: an occurrence is one message")
        is_cron = isinstance(when, str) and (len(when.split()) > 1 or when.startswith("@"))
        rule = {"cron" if is_cron else "every": read_period(when)}

        def register(function: Any) -> Any:
            registered: HandlerFunction[..., ..., Any, Any] = self.handler(name, **options)(function)
            chosen = registered.definition.name
            given = {"occurrence"} if registered.definition.takes_occurrence else set()
            if missing := registered.arguments.required - given:
                what = f"every, parameter {min(missing)} of {chosen}"
                raise ConfigurationError(what, None, "an occurrence has no arguments: give it a default")
            self.recurring[chosen] = recurrence_of(
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
            return registered

        return register

    def enqueue(
        self, handler: str, payload: Mapping[str, Any] | None = None, **options: Unpack[SendOptions]
    ) -> Handle[Any]:
        """Enqueue a message by its handler's name, without the handler's code.

        ValueError or TypeError for an invalid message, OutcomeUnknown if the reply was lost, StoreUnreachable;
        Conflict, a ValueError, if ``id`` belongs to a message with another handler or payload.
        """
        return self.enqueue_one(self.new_message(handler, {} if payload is None else payload, **options))

    def new_message(self, handler: str, payload: Mapping[str, Any], **options: Unpack[SendOptions]) -> NewMessage:
        """The message that `enqueue` sends, before the hooks and the codec. Raises as `enqueue` for an invalid one."""
        message = self._message(handler, payload, options)
        defaults = self.defaults_of(handler)
        if options.get("queue") is None:
            message = message._replace(queue=defaults.queue)
        return defaults.rated(message)

    async def enqueue_async(
        self, handler: str, payload: Mapping[str, Any] | None = None, **options: Unpack[SendOptions]
    ) -> Handle[Any]:
        """`enqueue` without blocking the event loop. Messages are enqueued in the order of the calls.

        If it is cancelled, the message is not enqueued, or may be if it was already being sent.
        """
        message = self._message(handler, {} if payload is None else payload, options)
        if self.hooks.before_enqueue:
            message = self._drafted(message)  # in the caller's task: a hook may look for its trace

        def placed() -> NewMessage:
            defaults = self.defaults_of(handler)
            rated = self._coded(defaults.rated(message))
            return rated._replace(queue=defaults.queue) if options.get("queue") is None else rated

        def call(store: Producer) -> Handle[Any]:
            given = placed()
            entry = store.enqueue_one(given)
            return Handle(entry.id, given.queue, self, duplicate=entry.duplicate)

        try:
            return await self._make_async(call)
        except (StoreUnreachable, CannotCreate) as error:
            return (await self._spooled_async([placed()], error))[0]

    def _message(self, handler: str, payload: Mapping[str, Any], options: SendOptions) -> NewMessage:
        """A message, checked by what is known of its handler in this process."""
        if not isinstance(handler, str):
            slips.refuse_handler_object(handler)
        known = self.known(handler, anywhere=options.get("queue") is not None)
        if known is None or not isinstance(payload, dict):
            return new_message(handler, payload, **options)
        from pollconsumer.interface.api.known import check_retry

        refuse_unknown(options)
        check_retry(known, options.get("retry"))
        return new_message(handler, known.arguments.json_of(payload), **options)

    def defaults_of(self, handler: str) -> Defaults:
        """The defaults of a handler that is registered in this process for the same store, or of a program."""
        known = self.known(handler)
        return self.settings().defaults_of(handler) if known is None else known.definition.defaults

    def known(self, handler: str, anywhere: bool = True) -> RegisteredHandler | None:
        """The handler of that name in this process for the same store.

        BadData for one that is none of the configuration's, if that was imported whole, unless it may be ``anywhere``.
        """
        known = self.handlers.get(handler) or registry.known(handler, self.place)
        if known is not None:
            return known
        if not anywhere and registry.imported is not None and not any(self.place):
            from pollconsumer.interface.api.known import refuse_handler

            if handler not in registry.imported:
                refuse_handler(handler, registry.imported)
        if not anywhere and self.handlers and handler not in self._warned_of:
            from pollconsumer.interface.api.known import warn_of_handler

            self._warned_of.add(handler)
            if registry.imported is None and handler not in self.settings().commands:
                warn_of_handler(handler, self.handlers)
        return None

    @property
    def recurrences(self) -> AppRecurrences:
        """Recurring messages that are put, changed and removed at run time."""
        from pollconsumer.interface.api.recurrences.app_recurrences import AppRecurrences

        return AppRecurrences(self, self.known, self.defaults_of)

    def message(self, id: str, *, queue: str | None = None) -> Handle[Any]:  # noqa: A002  as in messages
        """A handle to a message that anybody has enqueued.

        NotFound if there is none, UsageError if two queues have one and ``queue`` is not given, StoreUnreachable.
        """
        return self.handle_of(self.look(queue, id))

    async def message_async(self, id: str, *, queue: str | None = None) -> Handle[Any]:  # noqa: A002  as in messages
        """`message` without blocking the event loop."""
        return self.handle_of(await self.look_async(queue, id))

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
        from pollconsumer.core.messages.message_options import check_headers
        from pollconsumer.interface.api.message_set import Messages
        from pollconsumer.store.reading.message_selector import Selection

        chosen = None if state is None else parse_word(State, "state", state)
        age = None if older_than is None else milliseconds("older_than", older_than) / 1000
        headers = None if header is None else check_headers(header)
        return Messages(self, Selection(chosen, queue, handler, recurrence, key, age, headers))
