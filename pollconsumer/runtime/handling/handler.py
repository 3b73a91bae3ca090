"""Handlers: the function under a name, and its options."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import CoroutineType, MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from pollconsumer.core.messages.codec import decoded_object
from pollconsumer.core.messages.message import Codec
from pollconsumer.core.notation.timespan import DAY
from pollconsumer.core.retry import Backoff, ErrorPolicy, NotBegun, RetryPolicy
from pollconsumer.runtime.handling.context import LaunchContext
from pollconsumer.runtime.handling.hooks import Hooks, Run, hooked, hooked_coroutine
from pollconsumer.runtime.handling.outcome import DONE, Outcome, failed, returned
from pollconsumer.runtime.handling.own_context import own_context
from pollconsumer.runtime.handling.validation.arguments import Arguments
from pollconsumer.runtime.new_messages import Defaults

if TYPE_CHECKING:
    from pollconsumer.runtime.drafts import BeforeEnqueue

MAX_ATTEMPTS = 5
RESULT_TTL = DAY


class Bulk(NamedTuple):
    """How many messages a bulk handler is given at a time, at most, and for how many seconds a call waits for more."""

    most: int
    wait: float


class Handler(NamedTuple):
    """What a name stands for: ``run`` takes the payload, and the context where ``takes_context`` says so; it returns a
    result, or raises.

    ``result_ttl``: the seconds for which a result is kept, 0 for not at all. ``at_most_once``: its messages are settled
    before they are handled, and never tried again. ``timeout`` in seconds, None for none. ``run`` keeps it by itself,
    except where it is ``asynchronous`` and returns a coroutine, and where it is ``isolated``, to be called in a process
    that can be killed. ``timed`` makes it again, with another timeout. ``policies``: retry policies that a message may
    name. ``rate`` and ``rate_key``: see `Defaults`. ``bulk``: that of a bulk handler, whose ``run`` takes a
    call's payload and context, and returns the outcomes of its messages: see `bulk_call.py`. ``codec``: its
    application's; ``run`` decodes payloads. ``limited``: its timeout is a launch's window, since it resisted before.
    """

    name: str
    run: Run
    max_attempts: int = MAX_ATTEMPTS
    retry: RetryPolicy | ErrorPolicy = Backoff()
    fatal: tuple[type[BaseException], ...] = ()
    queue: str = "default"
    takes_context: bool = False
    takes_occurrence: bool = False
    timeout: float | None = None
    result_ttl: float = RESULT_TTL
    at_most_once: bool = False
    hooks: Hooks | None = None
    asynchronous: bool = False
    isolated: bool = False
    timed: "Callable[[float | None], Handler] | None" = None
    policies: Mapping[str, RetryPolicy | ErrorPolicy] = MappingProxyType({})
    rate: str | None = None
    rate_key: str | None = None
    bulk: Bulk | None = None
    codec: Codec | None = None
    limited: bool = False

    @property
    def result_ms(self) -> int:
        """``result_ttl`` in milliseconds."""
        return int(self.result_ttl * 1000)

    @property
    def defaults(self) -> Defaults:
        """What messages of the handler have by default."""
        return Defaults(self.queue, self.rate, self.rate_key)

    def with_timeout(self, seconds: float | None) -> "Handler":
        """The same handler with another timeout."""
        return self._replace(timeout=seconds) if self.timed is None else self.timed(seconds)

    def wrapped(self, wrap: "Callable[[Handler], Handler]") -> "Handler":
        """``wrap(self)``; with another timeout, it is wrapped as well."""
        return wrap(self)._replace(timed=lambda seconds: self.with_timeout(seconds).wrapped(wrap))

    def handle(self, payload: dict[str, Any], context: LaunchContext | None = None) -> Outcome:
        """`handle_here` in a copy of the caller's context: no other message sees the variables that this one sets."""
        try:
            return own_context().run(self.handle_here, payload, context)
        except BaseException as error:  # a stop that comes as it returns
            return failed(error)

    def handle_here(self, payload: dict[str, Any], context: LaunchContext | None) -> Outcome:
        """Handle a message in the caller's context. The outcome holds any exception, so that no handler ends a launch
        by raising."""
        try:
            result = self.run(payload, context) if self.timeout is None else self.begin(payload, context)
            if result is None:
                return DONE
            if self.asynchronous and isinstance(result, CoroutineType):
                return _on_loop(self, result)
            return returned(result)
        except BaseException as error:
            return failed(error)

    def begin(self, payload: dict[str, Any], context: LaunchContext | None) -> Any:
        """The return value of ``run``, a coroutine if it is asynchronous. Starts its timeout."""
        if self.timeout is not None and context is not None:
            context.limit(self.timeout)
        return self.run(payload, context)


def _on_loop(handler: Handler, coroutine: Coroutine[Any, Any, Any]) -> Outcome:
    """Run ``coroutine`` on a loop made for this message; a caller with a loop calls ``run`` instead."""
    from pollconsumer.runtime.handling.coroutines.event_loop import EventLoop
    from pollconsumer.runtime.system.system_limits import start_refused

    try:
        loop = EventLoop(thread=False)
    except BaseException as error:
        coroutine.close()
        if isinstance(error, OSError | MemoryError):
            raise NotBegun(start_refused(error)) from None
        raise
    try:
        return loop.handle(coroutine, handler)
    finally:
        loop.close()


def calling(function: Callable[..., Any], arguments: Arguments) -> Run:
    """The ``run`` of a handler that is a function."""
    if arguments.takes_context:
        return lambda payload, context: function(**arguments.bind(payload), context=context)
    return lambda payload, _: function(**arguments.bind(payload))


def decoding(run: Run, codec: Codec) -> Run:
    """``run``, given what the codec makes of an encoded payload."""
    return lambda payload, context: run(decoded_object(payload, codec), context)


def hooks_before_enqueue(handler: Handler | None) -> "Sequence[BeforeEnqueue]":
    """The hooks of the handler's application for messages that it enqueues."""
    return () if handler is None or handler.hooks is None else handler.hooks.before_enqueue


def aliases_among(handlers: Mapping[str, Handler]) -> dict[str, str]:
    """The handler's own name of each alias under which it is there, too."""
    return {name: handler.name for name, handler in handlers.items() if name != handler.name}


def with_hooks(handler: Handler, hooks: Hooks) -> Handler:
    """``handler`` with an application's hooks around it."""
    return handler.wrapped(lambda each: _with_hooks(each, hooks)) if hooks else handler


def _with_hooks(handler: Handler, hooks: Hooks) -> Handler:
    changes: dict[str, Any] = {"hooks": hooks}
    if hooks.before or hooks.after:
        around = hooked_coroutine if handler.asynchronous else hooked
        if handler.bulk is not None:
            from pollconsumer.runtime.handling.bulk.bulk_call import hooked_bulk, hooked_bulk_coroutine

            around = hooked_bulk_coroutine if handler.asynchronous else hooked_bulk
        changes |= {"takes_context": True, "run": around(handler.run, hooks, handler.timeout)}
    return handler._replace(**changes)
