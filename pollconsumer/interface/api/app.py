"""The Python API: handlers, and enqueueing from any process."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, Unpack, cast, overload

from pollconsumer.core.errors import ConfigurationError, unknown_options
from pollconsumer.core.lifecycle import State, StateName
from pollconsumer.core.messages.message import Codec, check_headers, check_policy_name, created_header
from pollconsumer.core.spans import Span
from pollconsumer.interface.api import slips
from pollconsumer.interface.api.handle import Handle
from pollconsumer.interface.api.handler_function import BulkRegister, HandlerFunction, Register
from pollconsumer.interface.api.registry import (
    BulkOptions,
    HandlerOptions,
    Retrying,
    is_asynchronous,
    parsed,
    policy_of,
    recurrence_of,
    registry,
)
from pollconsumer.interface.api.store_calls import AppCalls
from pollconsumer.interface.settings.values import parse_timeout, parse_word, read_period
from pollconsumer.runtime.handling.context import Context
from pollconsumer.runtime.handling.handler import Hooks
from pollconsumer.runtime.new_messages import Sendable, SendOptions, milliseconds
from pollconsumer.store.queues.producer import new_id

if TYPE_CHECKING:
    from pollconsumer.interface.api.batches import AppBatches, Chain, Messages, OpenBatch
    from pollconsumer.interface.api.recurrences import AppRecurrences
    from pollconsumer.runtime.new_messages import Draft
    from pollconsumer.store.user_client import UserClient

H = TypeVar("H", bound="Callable[..., object]")
Before = TypeVar("Before", bound="Callable[[Context], object]")
After = TypeVar("After", bound="Callable[[Context, Any], object]")
OnFailure = TypeVar("OnFailure", bound="Callable[[Context, BaseException, float], object]")
OnDead = TypeVar("OnDead", bound="Callable[[Context, BaseException], object]")
BeforeEnqueue = TypeVar("BeforeEnqueue", bound="Callable[[Draft], object]")
OnLaunch = TypeVar("OnLaunch", bound="Callable[[], object]")
P = ParamSpec("P")
R = TypeVar("R")
PATIENCE = 5.0
"""How many seconds, by default, a call is repeated while the store does not answer."""


class HookRegistration:
    """Registers hooks. They apply to the application and all of its handlers, including those registered earlier.

    An exception of a hook is logged in one line, and changes nothing, unless the hook's method says otherwise.
    ConfigurationError for a function that cannot be called as a hook."""

    _hooks: Hooks

    def before(self, hook: Before) -> Before:
        """Call ``hook(context)`` before each handler of this application runs, on the handler's thread. If the hook
        raises ``Skip``, the handler is not called, and the message is completed without a result."""
        return _hook(self._hooks.before, hook, 1)

    def after(self, hook: After) -> After:
        """Call ``hook(context, result)`` after a handler has returned, on the handler's thread."""
        return _hook(self._hooks.after, hook, 2)

    def on_failure(self, hook: OnFailure) -> OnFailure:
        """Call ``hook(context, error, delay)`` when an attempt has failed, and another follows in ``delay`` seconds."""
        return _hook(self._hooks.on_failure, hook, 3)

    def on_dead(self, hook: OnDead) -> OnDead:
        """Call ``hook(context, error)`` when a message has become a dead letter, even without an attempt."""
        return _hook(self._hooks.on_dead, hook, 2)

    def on_expired(self, hook: Before) -> Before:
        """Call ``hook(context)`` when a message has expired, so it will not be handled."""
        return _hook(self._hooks.on_expired, hook, 1)

    def before_enqueue(self, hook: BeforeEnqueue) -> BeforeEnqueue:
        """Call ``hook(draft)`` in the producer, before this application or one of its handlers enqueues a message. The
        hook may change ``draft.headers``. If it raises, such as ``Refused``, nothing is sent, and the caller gets the
        error."""
        return _hook(self._hooks.before_enqueue, hook, 1)

    def on_launch(self, hook: OnLaunch) -> OnLaunch:
        """Call ``hook()`` in each launch of the consumer that has its lease, before the launch handles a message. If
        the hook raises, the launch ends with exit code 78."""
        return _hook(self._hooks.on_launch, hook, 0)

    def on_launch_end(self, hook: OnLaunch) -> OnLaunch:
        """Call ``hook()`` when a launch of the consumer that had its lease exits, unless ``on_launch`` raised. The
        whole exit has five seconds."""
        return _hook(self._hooks.on_launch_end, hook, 0)


def _hook(hooks: list[Any], hook: H, parameters: int) -> H:
    name = getattr(hook, "__qualname__", type(hook).__name__)
    if is_asynchronous("hook", hook):
        raise ConfigurationError("hook", name, "make it a plain function, not an async one")
    try:
        inspect.signature(hook).bind(*[None] * parameters)
    except (TypeError, ValueError) as error:
        raise ConfigurationError("hook", name, f"it is given {parameters} arguments: {error}") from None
    hooks.append(hook)
    return hook


class PollConsumer(HookRegistration):
    """Handlers, and the store of their messages.

    In a command, the settings are the command's. In any other process they are read from the environment, a file and
    defaults. The file is ``config``, else the one that POLLCONSUMER_CONFIG names, else ``config.toml`` beside the
    module that creates the application, or in a directory above. ``store``, a URL or a redis-py client, and
    ``namespace`` take precedence over settings. The store is opened when it is needed. An instance is thread-safe, and
    may be used on both sides of a fork.

    ``patience``: how long a call waits for the store: seconds, text such as ``1s``, or a timedelta, more than 0. Then
    the call raises StoreUnreachable, or OutcomeUnknown if it was sent. It may last a few tenths of a second longer, and
    with ``durability = "strict"`` longer by ``strict.within``. In a bulk enqueue each round trip has this patience.
    ConfigurationError for an invalid value.

    ``codec``: an object whose ``encode(bytes)`` returns what the store gets in place of the JSON of payloads, results,
    checkpoints, steps and signals, and whose ``decode(bytes)`` is the inverse."""

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
        self._calls = AppCalls(config, store, namespace, parsed("patience", patience, parse_timeout), codec)
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

        When it returns, the message is completed, and the return value is its result. When it raises, the message is
        retried until ``max_attempts``; then, or at once after Fatal and the exceptions in ``fatal``, it becomes a dead
        letter. With ``bulk`` the function gets a list of messages. ``options``: see `HandlerOptions`."""
        if name is not None and not isinstance(name, str):
            return self.handler()(name)
        register = self._calls.registering(name, cast("HandlerOptions", options))

        def decorate(function: Any) -> HandlerFunction[..., ..., Any, Any]:
            if isinstance(function, HandlerFunction):
                function = function.__wrapped__  # it gets a second name
            return HandlerFunction(self._calls, register(function))

        return decorate

    def retry_policy(self, name: str, policy: Retrying) -> None:
        """Register ``policy`` under ``name``, which messages can give as their ``retry``. ConfigurationError for an
        invalid policy, or if another policy has that name. BadData for an invalid name."""
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
        jitter: Span | None = None,
        missed: Literal["skip", "once", "all"] = "once",
        overlap: Literal["skip", "allow", "queue", "replace"] = "allow",
        after: Literal["due", "end"] = "due",
        enabled: bool = True,
        priority: int = 0,
        ping: str | None = None,
        expires: Span | None = None,
        concurrency_key: str | None = None,
        concurrency_limit: int | None = None,
        order_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        **options: Unpack[HandlerOptions],
    ) -> Register:
        """Register a function as a handler that recurs by ``when``: a cron expression in ``timezone``, or a period
        (text such as ``90s``, seconds, a timedelta). If it has a parameter ``occurrence: datetime``, it gets the due
        instant.

        ``H`` in a field of the expression stands for a value that depends on namespace and name alone. ``jitter``: each
        instant is delayed by a part of this (default: no delay); the part depends on them, too. ``missed``: ``"skip"``
        skips occurrences that came due while no launch ran, ``"once"`` (default) enqueues the last one, ``"all"`` the
        last 100. ``overlap``: what happens while the last occurrence is unfinished. ``"allow"`` (default) enqueues the
        next one, ``"skip"`` does not; with ``"queue"`` it waits until the last one has ended; ``"replace"`` stops the
        last one. ``after``: a period counts from the last occurrence's due time (default), or from its end (``"end"``).
        With ``enabled=False`` the handler is listed and does not recur. ``ping``: the URL of a monitor that is
        told how each occurrence begins and ends. ``expires``: how long after its instant an occurrence may still begin.
        ``concurrency_key``, ``concurrency_limit``, ``order_key``, ``headers``: as in a message's ``using``."""
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
                jitter=read_period(jitter),
                priority=priority,
                enabled=enabled,
                ping=ping,
                expires=expires,
                concurrency_key=concurrency_key,
                concurrency_limit=concurrency_limit,
                order_key=order_key,
                headers=headers or {},
            )
            return handler

        return register

    def enqueue(
        self, handler: str, payload: Mapping[str, Any] | None = None, **options: Unpack[SendOptions]
    ) -> Handle[Any]:
        """Enqueue a message by its handler's name, without the handler's code.

        ValueError or TypeError for an invalid message. OutcomeUnknown if the reply was lost. StoreUnreachable if the
        store does not answer. QueueFull if the queue has ``max_ready`` messages. Conflict, a ValueError, if ``id``
        belongs to a message with another handler or payload."""
        calls = self._calls
        return calls.enqueue_one(calls.new_message(handler, {} if payload is None else payload, **options))

    async def enqueue_async(
        self, handler: str, payload: Mapping[str, Any] | None = None, **options: Unpack[SendOptions]
    ) -> Handle[Any]:
        """`enqueue` without blocking the event loop. Messages are enqueued in the order of the calls.

        If the call is cancelled before the message is sent, the message is not enqueued; if later, it may be."""
        return await self._calls.enqueue_by_name_async(handler, {} if payload is None else payload, options)

    def batch(
        self,
        id: str | None = None,  # noqa: A002  as in messages
        *,
        then: Sendable | None = None,
        failed: Sendable | None = None,
        ended: Sendable | None = None,
        expires: Span | None = None,
        cancelled_as: Literal["completed"] | None = None,
    ) -> OpenBatch:
        """A new batch, for ``with`` or ``async with``. Its ``add`` adds members within the block.

        Each callback, ``handler.args(…)``, is enqueued once: ``then`` when all members are completed, ``failed`` when
        the first member is dead, cancelled or expired, ``ended`` when all have ended. ``expires``: how long after its
        opening the batch expires; if members have not ended by then, ``failed`` and ``ended`` are enqueued all the
        same. With ``cancelled_as="completed"`` a cancelled or stopped member counts as completed. A batch with an
        ``id`` can be enqueued again after an error. BadData or UsageError for an invalid argument."""
        from pollconsumer.interface.api.batches import OpenBatch
        from pollconsumer.runtime.handling.handler_batches import new_batch

        batch_id = new_id() if id is None else id
        codec = self._calls.codec
        return OpenBatch(self._calls, new_batch(batch_id, then, failed, ended, expires, cancelled_as, codec))

    @property
    def batches(self) -> AppBatches:
        """All batches of the application's namespace, whoever has enqueued them."""
        from pollconsumer.interface.api.batches import AppBatches

        return AppBatches(self._calls)

    def chain(self, *links: Sendable, failed: Sendable | None = None) -> Chain:
        """A chain of messages, each given as ``handler.args(…)``. Each link is enqueued when the previous one is
        completed, and gets that one's result as ``context.previous.result``. The first link that is dead, cancelled or
        expired ends the chain, and the message ``failed`` is enqueued. UsageError for links that no chain can have."""
        from pollconsumer.interface.api.batches import Chain

        return Chain(self._calls, links, failed)

    @property
    def recurrences(self) -> AppRecurrences:
        """Recurring messages that are put, changed and removed at run time."""
        from pollconsumer.interface.api.recurrences import AppRecurrences

        return AppRecurrences(self._calls)

    def message(self, id: str, *, queue: str | None = None) -> Handle[Any]:  # noqa: A002  as in messages
        """A handle to the message ``id``, whoever has enqueued it.

        NotFound if there is none. UsageError if two queues have one, and ``queue`` is not given. StoreUnreachable."""
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
        created_by: str | None = None,
    ) -> Messages:
        """The messages that match all of the given conditions.

        ``recurrence``: they are its occurrences. ``key``: they hold this unique key. ``older_than``: they entered their
        state at least so long ago: seconds, text such as ``5m``, or a timedelta. ``header``: they have each of these
        headers. ``created_by``: who created them. ValueError for an invalid value."""
        from pollconsumer.interface.api.batches import Messages
        from pollconsumer.store.reading.inspector import Selection

        chosen = None if state is None else parse_word(State, "state", state)
        age = None if older_than is None else milliseconds("older_than", older_than) / 1000
        headers = check_headers(header or {}) | ({} if created_by is None else created_header(created_by))
        return Messages(self._calls, Selection(chosen, queue, handler, recurrence, key, age, headers))


def calls_of(app: PollConsumer) -> AppCalls:
    """The application's methods that only our own modules call."""
    return app._calls  # noqa: SLF001  for our own modules, so that completion shows users what they call
