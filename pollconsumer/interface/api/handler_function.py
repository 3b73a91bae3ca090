"""A handler as its producers see it: a function that can be called, or whose messages can be enqueued with options."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, Unpack, overload

from pollconsumer.core.messages.continuation import identified
from pollconsumer.core.messages.message import NewMessage
from pollconsumer.core.messages.payloads import digest_of
from pollconsumer.interface.api import slips
from pollconsumer.interface.api.handle import Handle
from pollconsumer.interface.api.registry import RegisteredHandler
from pollconsumer.interface.api.store_calls import AppCalls
from pollconsumer.runtime.handling.context import Context
from pollconsumer.runtime.new_messages import SendOptions, copied, new_message
from pollconsumer.store.queues.producer import new_id

P = ParamSpec("P")
Q = ParamSpec("Q")
C = TypeVar("C", covariant=True)
R = TypeVar("R", covariant=True)

MADE_AT_ONCE = 100
"""Number of messages created before other tasks of an event loop get a turn. To create so many takes up to 1 ms."""


class MessageMaker:
    """Creates messages of one handler. Each of them gets ``options``."""

    def __init__(self, calls: AppCalls, registered: RegisteredHandler, options: SendOptions | None = None) -> None:
        self.calls, self.registered, self._arguments = calls, registered, registered.arguments
        self._options: SendOptions = {} if options is None else copied(options)
        definition = registered.definition
        if self._options.get("queue") is None:
            self._options["queue"] = definition.queue
        self._first = first = new_message(definition.name, {}, **self._options)
        _, self._queue, self._name, _, *rest = first
        self._rest = tuple(rest)
        self._defaults = definition.defaults
        is_rated = definition.rate is not None or definition.rate_key is not None
        self._has_no_options = not (is_rated or first.retry or first.digest or first.continuation)

    def messages(self, payloads: Iterable[Args[...] | Mapping[str, Any]]) -> list[NewMessage]:
        """A new message for each set of arguments. Options of an `Args` are added to the maker's options. TypeError if
        any set does not fit the handler."""
        encoded, made = self._arguments.encoded, self.message_of
        return [made(encoded((), each)) if type(each) is dict else self._given(each) for each in payloads]

    def _given(self, given: Args[...] | Mapping[str, Any]) -> NewMessage:
        if isinstance(given, Mapping):
            return self.message((), given)
        if isinstance(given, Args) and given._maker.registered is self.registered:  # noqa: SLF001  of this module
            return self.message_of(given._encoded, given._options)  # noqa: SLF001
        name, kind = self._first.handler, "args of another handler" if isinstance(given, Args) else type(given).__name__
        raise TypeError(f"a message of {name} needs its arguments as a mapping or from its args(), not {kind}")

    def message(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NewMessage:
        """A new message with these arguments. TypeError if they do not fit."""
        return self.message_of(self._arguments.encoded(args, kwargs))

    def message_of(self, encoded: bytes, own: SendOptions | None = None) -> NewMessage:
        """A new message. ``encoded``: the JSON of arguments that fit. ``own``: options to add to those of the maker."""
        if own:
            return MessageMaker(self.calls, self.registered, {**self._options, **own}).message_of(encoded)
        if not self._has_no_options:
            return self._with_options(encoded)
        # This does what _make does, without a call, and takes a third of the time of _replace.
        return tuple.__new__(NewMessage, (new_id(), self._queue, self._name, encoded) + self._rest)  # noqa: RUF005  sooner

    def _with_options(self, encoded: bytes) -> NewMessage:
        """A new message with options that need more work: an id that the user chose, a rate, a policy or callbacks."""
        first = self._first
        if first.retry is not None:
            slips.check_retry(self.registered, first.retry)
        first = self._defaults.rated(first._replace(payload=encoded))
        if first.digest:
            return first._replace(digest=digest_of(first.handler, encoded))
        if not first.continuation:
            return first._replace(id=new_id())
        return identified(first, new_id())


class Args(Generic[P]):
    """Arguments for a handler with the parameters P, and the options of one message. The arguments are checked when
    they are given, and later changes to a list or dict in them have no effect. For `enqueue_many`, callbacks, members
    of batches and links of chains."""

    __slots__ = ("_encoded", "_maker", "_options")
    if not TYPE_CHECKING:
        __getattr__ = slips.hinting("what args(...) returns", slips.OF_ARGS)

    def __init__(self, maker: MessageMaker, encoded: bytes, options: SendOptions | None = None) -> None:
        """``maker``: the handler's maker without options. ``encoded``: the arguments' JSON at the time of the call."""
        self._maker, self._encoded, self._options = maker, encoded, options

    def __repr__(self) -> str:
        return f"Args({self._encoded.decode()})"

    def using(self, **options: Unpack[SendOptions]) -> Args[P]:
        """The same arguments. These options are added to the earlier options of their message."""
        return Args(self._maker, self._encoded, {**(self._options or {}), **copied(options)})

    def __message__(self) -> NewMessage:
        """A new message with these arguments. ValueError or TypeError if an option is invalid."""
        return self._maker.message_of(self._encoded, self._options)


class HandlerFunction(Generic[P, Q, C, R]):
    """A function that is a handler. It can still be called: Q are its parameters, C is what it returns. P are the
    parameters of its messages, R is their result."""

    def __init__(self, calls: AppCalls, registered: RegisteredHandler) -> None:
        self._calls, self._registered = calls, registered
        function: Callable[Q, C] = registered.function
        self.__name__ = getattr(function, "__name__", registered.definition.name)
        self.__doc__, self.__module__ = function.__doc__, function.__module__
        self.__wrapped__ = function
        self._maker: MessageMaker | None = None

    def __repr__(self) -> str:
        return f"<handler {self._registered.definition.name}>"

    def __reduce__(self) -> str:
        """Pickle the handler by name, like any function: each process of a `multiprocessing.Pool` imports it."""
        return str(getattr(self.__wrapped__, "__qualname__", self.__name__))

    if not TYPE_CHECKING:  # type checkers would accept any attribute
        __getattr__ = slips.hinting("a handler", slips.OF_HANDLERS)

    def __call__(self, *args: Q.args, **kwargs: Q.kwargs) -> C:
        return self.__wrapped__(*args, **kwargs)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Enqueue a message that calls the function with these arguments. TypeError if they do not fit. Other errors
        are those of ``PollConsumer.enqueue``."""
        return self._calls.enqueue_one((self._maker or self._made()).message(args, kwargs))

    async def enqueue_async(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """`enqueue` without blocking the event loop. Messages are enqueued in the order of the calls.

        If the call is cancelled before the message is sent, the message is not enqueued; if later, it may be."""
        return await self._calls.enqueue_one_async((self._maker or self._made()).message(args, kwargs))

    def enqueue_many(self, payloads: Iterable[Args[P] | Mapping[str, Any]]) -> list[Handle[R]]:
        """Enqueue one message for each set of arguments, a few hundred in a round trip.

        A set is ``args(...)``, which type checkers compare with the function's parameters, or a mapping of names to
        values. TypeError if any set does not fit; then nothing is enqueued."""
        return self.using().enqueue_many(payloads)

    async def enqueue_many_async(self, payloads: Iterable[Args[P] | Mapping[str, Any]]) -> list[Handle[R]]:
        """`enqueue_many` without blocking the event loop. Other calls may be made between its round trips.

        If the call is cancelled, the messages sent before that may be enqueued; the others are not."""
        return await self.using().enqueue_many_async(payloads)

    def args(self, *args: P.args, **kwargs: P.kwargs) -> Args[P]:
        """The arguments of one message, for ``enqueue_many``, callbacks, batches and chains. ``args(…).using(…)`` adds
        the message's own options. TypeError if the arguments do not fit, or have no JSON form."""
        return Args(self._maker or self._made(), self._registered.arguments.encoded(args, kwargs))

    def using(self, **options: Unpack[SendOptions]) -> BoundHandler[P, R]:
        """This handler with options for its messages."""
        return BoundHandler(MessageMaker(self._calls, self._registered, options))

    def _made(self) -> MessageMaker:
        """The maker of messages without options. It is created when it is first needed."""
        self._maker = MessageMaker(self._calls, self._registered)
        return self._maker


class BoundHandler(Generic[P, R]):
    """A handler with options for its messages."""

    if not TYPE_CHECKING:
        __getattr__ = slips.hinting("what using(...) returns", slips.OF_BOUND)

    def __init__(self, maker: MessageMaker) -> None:
        self._maker, self._calls = maker, maker.calls

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Enqueue a message with these arguments. TypeError if they do not fit."""
        return self._calls.enqueue_one(self._maker.message(args, kwargs))

    def enqueue_many(self, payloads: Iterable[Args[P] | Mapping[str, Any]]) -> list[Handle[R]]:
        """Enqueue one message for each set of arguments, a few hundred in a round trip."""
        return self._calls.enqueue_messages(self._maker.messages(payloads))

    async def enqueue_async(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """`enqueue` without blocking the event loop."""
        return await self._calls.enqueue_one_async(self._maker.message(args, kwargs))

    async def enqueue_many_async(self, payloads: Iterable[Args[P] | Mapping[str, Any]]) -> list[Handle[R]]:
        """`enqueue_many` without blocking the event loop."""
        from asyncio import sleep

        messages, left = list[NewMessage](), iter(payloads)
        while part := self._maker.messages(islice(left, MADE_AT_ONCE)):
            messages += part
            await sleep(0)
        return await self._calls.enqueue_messages_async(messages)


class Register(Protocol):
    """Turns a function into a handler. Its messages have the function's parameters, without a leading context."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> HandlerFunction[P, Concatenate[Context, P], Coroutine[Any, Any, R], R]: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], R], /
    ) -> HandlerFunction[P, Concatenate[Context, P], R, R]: ...

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> HandlerFunction[P, P, Coroutine[Any, Any, R], R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> HandlerFunction[P, P, R, R]: ...


class BulkRegister(Protocol):
    """Turns a function into a bulk handler. Its messages may have arguments of any names."""

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> HandlerFunction[..., P, Coroutine[Any, Any, R], Any]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> HandlerFunction[..., P, R, Any]: ...
