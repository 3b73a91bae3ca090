"""Handlers as their producers see them: called, or enqueued with arguments and options."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack, cast

from pollconsumer.core.messages.alike import Alike
from pollconsumer.core.messages.message import NO_OPTIONS, OPTIONS, NewMessage
from pollconsumer.core.messages.payloads import digest_of
from pollconsumer.interface.api import slips
from pollconsumer.interface.api.handle import Handle
from pollconsumer.interface.api.registry import RegisteredHandler
from pollconsumer.interface.api.store_calls import StoreCalls
from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.runtime.handling.validation.arguments import Arguments
from pollconsumer.runtime.new_messages import (
    SendOptions,
    copied,
    new_id,
    new_ids,
    new_message,
    shared_options,
    with_differing,
)

P = ParamSpec("P")
Q = ParamSpec("Q")
C = TypeVar("C", covariant=True)
R = TypeVar("R", covariant=True)

MOST_OTHERS = 256
"""Different options of messages enqueued together that are looked at once."""
ENCODED_AT_ONCE = 100
"""Messages that are encoded before other tasks of an event loop have their turn: a millisecond or less."""


class Args(Generic[P]):
    """Arguments of a handler whose parameters are P, as they were when they were given, already checked against them,
    and the options of one message. For `enqueue_many`, for callbacks, members of batches and links of chains."""

    __slots__ = ("encoded", "handler", "options")
    if not TYPE_CHECKING:
        __getattr__ = slips.hinting("what args(...) returns", slips.OF_ARGS)

    def __init__(
        self, handler: HandlerFunction[P, ..., Any, Any], encoded: bytes, options: SendOptions | None = None
    ) -> None:
        """``encoded``: their JSON, which a later change of a list does not reach."""
        self.handler, self.encoded, self.options = handler, encoded, options

    def __repr__(self) -> str:
        return f"Args({self.encoded.decode()})"

    def using(self, **options: Unpack[SendOptions]) -> Args[P]:
        """The same arguments with options for their message, in addition to those before."""
        both: SendOptions = {**(self.options or {}), **copied(options)}
        return Args(self.handler, self.encoded, both)

    def new_message(self) -> NewMessage:
        """A new message with these arguments. ValueError or TypeError if an option is invalid."""
        return self.handler.bound(self.options).message_of(self.encoded)


class HandlerFunction(RegisteredHandler, Generic[P, Q, C, R]):
    """A function that is a handler: still callable, with parameters Q, and returning C; its messages have parameters P
    and the result R."""

    function: Callable[Q, C]

    def __init__(self, app: StoreCalls, handler: Handler, function: Callable[Q, C], arguments: Arguments) -> None:
        self.app, self.definition, self.function, self.arguments = app, handler, function, arguments
        self.hooks = app.hooks
        self.__name__ = getattr(function, "__name__", handler.name)
        self.__doc__, self.__module__ = function.__doc__, function.__module__
        self.__wrapped__ = function
        self._plain: BoundHandler[P, R] | None = None

    def __reduce__(self) -> str:
        """Pickled by its name, as a function is: a process of a `multiprocessing.Pool` has its own."""
        return str(getattr(self.function, "__qualname__", self.__name__))

    if not TYPE_CHECKING:  # type checkers would accept any attribute
        __getattr__ = slips.hinting("a handler", slips.OF_HANDLERS)

    def __call__(self, *args: Q.args, **kwargs: Q.kwargs) -> C:
        return self.function(*args, **kwargs)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Enqueue a message that calls the function with these arguments. TypeError if they do not fit; other errors
        as of ``PollConsumer.enqueue``."""
        plain = self._plain
        if plain is None:
            plain = self._plain = self.using()
        return self.app.enqueue_one(plain.message(args, kwargs))

    async def enqueue_async(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """`enqueue` without blocking the event loop. Messages are enqueued in the order of the calls.

        If it is cancelled, the message is not enqueued, or may be if it was already being sent.
        """
        self._plain = self._plain or self.using()
        return await self._plain.enqueue_async(*args, **kwargs)

    def enqueue_many(self, payloads: Iterable[Args[P] | Mapping[str, Any]]) -> list[Handle[R]]:
        """Enqueue one message for each set of arguments, a few hundred in a round trip.

        Type checkers compare ``args(...)`` with the function's parameters; mappings of names to values are compared
        when they are enqueued. TypeError, before anything is enqueued, if any do not fit.
        """
        return self.using().enqueue_many(payloads)

    async def enqueue_many_async(self, payloads: Iterable[Args[P] | Mapping[str, Any]]) -> list[Handle[R]]:
        """`enqueue_many` without blocking the event loop; other calls may come in between.

        If it is cancelled, what was sent before may be enqueued, and the rest is not.
        """
        return await self.using().enqueue_many_async(payloads)

    def args(self, *args: P.args, **kwargs: P.kwargs) -> Args[P]:
        """Arguments of one message, for ``enqueue_many``, callbacks, batches and chains; their ``using(…)`` gives the
        message's own options. TypeError if they do not fit, or have no JSON form."""
        return Args(self, self.arguments.encode(self.arguments.of_call(args, kwargs)))

    def using(self, **options: Unpack[SendOptions]) -> BoundHandler[P, R]:
        """This handler with options for its messages."""
        return self.bound(options)

    def bound(self, options: SendOptions | None) -> BoundHandler[P, R]:
        """`using`, for options that are given together; None for none."""
        if options is None:
            plain = self._plain = self._plain or self.bound({})
            return plain
        options = copied(options)
        if options.get("queue") is None:
            options["queue"] = self.definition.queue
        return BoundHandler(self, options)


class BoundHandler(Generic[P, R]):
    """A handler with options for its messages."""

    if not TYPE_CHECKING:
        __getattr__ = slips.hinting("what using(...) returns", slips.OF_BOUND)

    def __init__(self, handler: HandlerFunction[P, ..., Any, R], options: SendOptions) -> None:
        self._handler, self._options = handler, options
        self._app, self._arguments = handler.app, handler.arguments  # a handler's attributes are found slowly
        self._first = new_message(handler.definition.name, {}, **options)
        self._defaults = handler.definition.defaults
        first = self._first
        self._rest = first[4:]
        self._is_plain = self._defaults[1:] == (None, None) and not (first.retry or first.digest or first.sequel)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Enqueue a message. TypeError if the arguments do not fit."""
        return self._app.enqueue_one(self.message(args, kwargs))

    def enqueue_many(self, payloads: Iterable[Args[P] | Mapping[str, Any]]) -> list[Handle[R]]:
        """Enqueue one message for each set of arguments, a few hundred in a round trip."""
        return self._app.enqueue_messages(self._messages(self._encoded(payloads)))

    async def enqueue_async(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """`enqueue` without blocking the event loop."""
        return await self._app.enqueue_one_async(self.message(args, kwargs))

    async def enqueue_many_async(self, payloads: Iterable[Args[P] | Mapping[str, Any]]) -> list[Handle[R]]:
        """`enqueue_many` without blocking the event loop."""
        from asyncio import sleep

        encoded, left = list[bytes | NewMessage](), iter(payloads)
        while part := self._encoded(islice(left, ENCODED_AT_ONCE)):
            encoded += part
            await sleep(0)
        return await self._app.enqueue_messages_async(self._messages(encoded))

    def _encoded(self, payloads: Iterable[Args[P] | Mapping[str, Any]]) -> list[bytes | NewMessage]:
        """The encoded arguments of each message; those with options of their own as messages."""
        arguments, encoded = self._arguments, list[bytes | NewMessage]()
        for given in payloads:
            if isinstance(given, dict):
                encoded.append(arguments.encode(arguments.of_call((), given)))
            elif isinstance(given, Args) and given.options:
                encoded.append(self._with_own(self._checked(given), given.options))
            else:
                encoded.append(self._checked(given))
        return encoded

    def _with_own(self, encoded: bytes, options: SendOptions) -> NewMessage:
        """A message with options of its own in addition to these."""
        both = cast("SendOptions", {**self._options, **options})
        try:
            return with_differing(self._others(**shared_options(both)).message_of(encoded), both)
        except (TypeError, ValueError):  # a value without a hash, or one that is refused as it is of a message alone
            return self._handler.bound(both).message_of(encoded)

    @cached_property
    def _others(self) -> Callable[..., BoundHandler[P, R]]:
        """Makes this handler with other options, or has made it before."""
        return lru_cache(MOST_OTHERS, typed=True)(self._handler.using)

    def _messages(self, given: list[bytes | NewMessage]) -> Sequence[NewMessage]:
        if NewMessage not in set(map(type, given)):
            return self._alike(cast("list[bytes]", given))
        alike = iter(self._alike([each for each in given if isinstance(each, bytes)]))
        return [next(alike) if isinstance(each, bytes) else each for each in given]

    def _alike(self, encoded: list[bytes]) -> Sequence[NewMessage]:
        """Messages that have these options alone."""
        if not self._is_plain:
            return [self._with_options(payload) for payload in encoded]
        (_, queue, handler, _, *options), ids = self._first, new_ids(len(encoded))
        if self._first[OPTIONS] == NO_OPTIONS:
            return Alike(queue, handler, ids, encoded)
        return list(map(NewMessage._make, zip(ids, repeat(queue), repeat(handler), encoded, *map(repeat, options))))

    def _checked(self, given: Args[P] | Mapping[str, Any]) -> bytes:
        arguments = self._arguments
        if isinstance(given, Args) and given.handler is self._handler:
            return given.encoded
        if isinstance(given, Mapping):
            return arguments.encode(arguments.of_call((), given))
        name, kind = self._first.handler, "args of another handler" if isinstance(given, Args) else type(given).__name__
        raise TypeError(f"a message of {name} needs its arguments as a mapping or from its args(), not {kind}")

    def message(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NewMessage:
        """A new message with these arguments. TypeError if they do not fit."""
        return self.message_of(self._arguments.encode(self._arguments.of_call(args, kwargs)))

    def message_of(self, encoded: bytes) -> NewMessage:
        """A new message with arguments that fit."""
        first = self._first
        if not self._is_plain:
            return self._with_options(encoded)
        # Does what _make does, without a call, and takes a third of the time of _replace.
        return tuple.__new__(NewMessage, (new_id(), first.queue, first.handler, encoded, *self._rest))

    def _with_options(self, encoded: bytes) -> NewMessage:
        """A new message, with an id of the user, a rate, a policy or callbacks."""
        first = self._first
        if first.retry is not None:
            from pollconsumer.interface.api.known import check_retry

            check_retry(self._handler, first.retry)
        first = self._defaults.rated(first._replace(payload=encoded))
        if first.digest:
            return first._replace(digest=digest_of(first.handler, encoded))
        if not first.sequel:
            return first._replace(id=new_id())
        from pollconsumer.core.messages.sequel import identified

        return identified(first, new_id())
