"""The Python API: handlers, and enqueueing from any process."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar, overload

from pollconsumer.core.errors import ConfigurationError
from pollconsumer.core.message import check_handler, check_queue
from pollconsumer.core.retry import Backoff
from pollconsumer.interface.settings import RecurrenceSettings, Settings, load_settings
from pollconsumer.runtime.arguments import Arguments
from pollconsumer.runtime.handlers import MAX_ATTEMPTS, Handler, calling
from pollconsumer.runtime.messages import new_message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime
    from inspect import Signature

    from pollconsumer.core.message import NewMessage
    from pollconsumer.store.redis_store import Enqueued, RedisStore

P = ParamSpec("P")
R = TypeVar("R")

ENQUEUE_BUDGET = 5.0
"""Seconds for which enqueueing bears with a store that does not answer."""


class PollConsumer:
    """Handlers, and the store that messages for them go to.

    Settings are those of the command that imports the module, else they are read as the command line reads them: from
    the environment, ``config.toml`` and defaults. ``store`` and ``namespace`` take precedence. Nothing is opened before
    the first message is enqueued; an instance may be shared by threads, and used on both sides of a fork.
    """

    instances: list[PollConsumer] = []  # noqa: RUF012  one registry for all, so that modules need not agree on one
    command_settings: Settings | None = None

    def __init__(self, *, store: str | None = None, namespace: str | None = None) -> None:
        self._store_url, self._namespace = store, namespace
        self.handlers: dict[str, HandlerFunction[Any, Any]] = {}
        self.recurrences: dict[str, RecurrenceSettings] = {}
        self._store: RedisStore | None = None
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._begin_anew)  # another thread may hold the lock at that moment
        PollConsumer.instances.append(self)

    def _begin_anew(self) -> None:
        self._lock, self._store = threading.Lock(), None

    @overload
    def handler(self, name: Callable[P, R], /) -> HandlerFunction[P, R]: ...

    @overload
    def handler(
        self,
        name: str | None = None,
        /,
        *,
        queue: str = "default",
        max_attempts: int = MAX_ATTEMPTS,
        retry: Backoff | None = None,
        fatal: tuple[type[BaseException], ...] = (),
    ) -> Callable[[Callable[P, R]], HandlerFunction[P, R]]: ...

    def handler(
        self,
        name: Any = None,
        /,
        *,
        queue: str = "default",
        max_attempts: int = MAX_ATTEMPTS,
        retry: Backoff | None = None,
        fatal: tuple[type[BaseException], ...] = (),
    ) -> Any:
        """Register a function as the handler of messages of that name; without one, its own.

        It returns: the message is completed. It raises: the message is tried again after ``retry``'s delay, until
        ``max_attempts``; then, or for Fatal and the exceptions in ``fatal``, it becomes a dead letter.
        """
        if callable(name):
            return self.handler()(name)
        if not isinstance(max_attempts, int) or isinstance(max_attempts, bool) or not 1 <= max_attempts <= 10_000:
            raise ConfigurationError("max_attempts", repr(max_attempts), "a whole number from 1 to 10000")
        if retry is not None and not isinstance(retry, Backoff):
            raise ConfigurationError("retry", repr(retry), "a Backoff, as in Backoff(first='1s', most='10m')")
        fatal = (fatal,) if isinstance(fatal, type) else tuple(fatal)
        if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in fatal):
            raise ConfigurationError("fatal", repr(fatal), "exception classes, as in (ValueError,)")
        check_queue(queue)

        def register(function: Callable[P, R]) -> HandlerFunction[P, R]:
            chosen = check_handler(name or function.__name__)
            if chosen in self.handlers:
                raise ConfigurationError("handler registered twice", chosen, "give one of them another name")
            arguments = Arguments(function, _converting)
            handler = Handler(
                chosen,
                calling(function, arguments),
                max_attempts,
                retry or Backoff(),
                fatal,
                queue=queue,
                takes_context=arguments.takes_context,
                takes_occurrence=arguments.takes_occurrence,
            )
            registered = self.handlers[chosen] = HandlerFunction(self, handler, function)
            return registered

        return register

    def every(
        self,
        when: str,
        /,
        *,
        name: str | None = None,
        timezone: str = "UTC",
        missed: Literal["skip", "once", "all"] = "once",
        overlap: Literal["skip", "allow"] = "allow",
        enabled: bool = True,
        queue: str = "default",
        priority: int = 0,
        max_attempts: int = MAX_ATTEMPTS,
        retry: Backoff | None = None,
        fatal: tuple[type[BaseException], ...] = (),
    ) -> Callable[[Callable[P, R]], HandlerFunction[P, R]]:
        """Register a function as a handler that recurs: by a cron expression in ``timezone``, or every ``90s``.

        A parameter ``occurrence: datetime`` receives the instant at which it was due. ``missed`` says what becomes of
        occurrences that nobody was there to enqueue; with ``overlap="skip"`` none is enqueued while the one before is
        unfinished. With ``enabled=False`` it is listed and does not recur.
        """
        cron, every = (when, None) if " " in when.strip() else (None, when)

        def register(function: Callable[P, R]) -> HandlerFunction[P, R]:
            registered = self.handler(name, queue=queue, max_attempts=max_attempts, retry=retry, fatal=fatal)(function)
            chosen = registered.definition.name
            self.recurrences[chosen] = RecurrenceSettings(
                handler=chosen,
                cron=cron,
                every=every,
                timezone=timezone,
                queue=queue,
                priority=priority,
                missed=missed,
                overlap=overlap,
                enabled=enabled,
            )
            return registered

        return register

    def enqueue(
        self,
        handler: str,
        payload: Mapping[str, Any] | None = None,
        *,
        queue: str | None = None,
        in_: str | float | None = None,
        at: datetime | None = None,
        priority: int = 0,
        key: str | None = None,
        id: str | None = None,  # noqa: A002  its name in messages and on the command line
    ) -> Enqueued:
        """Enqueue a message by its handler's name, whose code need not be at hand.

        ``in_``: seconds or text such as ``5m``. ``at``: a datetime with a zone. ``priority``: smaller is sooner.
        ``key``: while a message with the same key is not finished, its id is returned instead, marked ``duplicate``.
        ``id``: yours instead of a generated one; enqueueing an id twice makes one message.

        ValueError or TypeError for what cannot be a message, OutcomeUnknown when the reply was lost, StoreUnreachable.
        """
        if queue is None:
            queue = self.handlers[handler].definition.queue if handler in self.handlers else "default"
        message = new_message(handler, payload or {}, queue=queue, in_=in_, at=at, priority=priority, key=key, id=id)
        return self.enqueue_messages([message])[0]

    def enqueue_messages(self, messages: list[NewMessage]) -> list[Enqueued]:
        """Enqueue messages made before, a few hundred in a round trip."""
        with self._lock:
            if self._store is None:
                self._store = self._open()
            return self._store.enqueue(messages)

    def _open(self) -> RedisStore:
        from pollconsumer.interface.logs import log
        from pollconsumer.runtime.opening import StoreOpener
        from pollconsumer.store.redis_store import RedisStore
        from pollconsumer.store.wire import Budget

        settings = PollConsumer.command_settings
        if settings is None or self._store_url or self._namespace:
            settings = load_settings(store=self._store_url, namespace=self._namespace)
        opener = StoreOpener(settings.store, settings.namespace, settings.durability, log.warning)
        return RedisStore(opener.wire(lambda: Budget(ENQUEUE_BUDGET)), settings.namespace)


def _converting(function: Callable[..., Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    from pollconsumer.interface.conversion import converting

    return converting(function)


class HandlerFunction(Generic[P, R]):
    """A function that is a handler: still called as before, and enqueued by its own parameters."""

    def __init__(self, app: PollConsumer, handler: Handler, function: Callable[P, R]) -> None:
        self.app, self.definition, self.function = app, handler, function
        self.__name__, self.__doc__, self.__module__ = function.__name__, function.__doc__, function.__module__
        self.__wrapped__ = function
        self._signature: Signature | None = None

    def arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """A call's arguments by name. TypeError where they do not fit the function."""
        import inspect

        signature = self._signature = self._signature or inspect.signature(self.function)
        arguments = signature.bind(*args, **kwargs).arguments
        if not args and arguments.keys() == kwargs.keys():
            return arguments
        for name, parameter in signature.parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                arguments |= arguments.pop(name, {})
            elif name in arguments and parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
                raise TypeError(f"{name} of {self.__name__}() must be passed by name")
        return arguments

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """Enqueue a message that calls the function with these arguments. TypeError where they do not fit it."""
        return self.using().enqueue(*args, **kwargs)

    def enqueue_many(self, payloads: Iterable[Mapping[str, Any]]) -> list[Enqueued]:
        """Enqueue one message for each set of arguments, a few hundred in a round trip."""
        return self.using().enqueue_many(payloads)

    def using(
        self,
        *,
        queue: str | None = None,
        in_: str | float | None = None,
        at: datetime | None = None,
        priority: int = 0,
        key: str | None = None,
        id: str | None = None,  # noqa: A002  its name in messages and on the command line
    ) -> Sending[P]:
        """How to send what is enqueued next; the options are those of ``PollConsumer.enqueue``."""
        options = {
            "queue": queue or self.definition.queue,
            "in_": in_,
            "at": at,
            "priority": priority,
            "key": key,
            "id": id,
        }
        return Sending(self, options)


class Sending(Generic[P]):
    """A handler together with the options that its messages are sent with."""

    def __init__(self, handler: HandlerFunction[P, Any], options: dict[str, Any]) -> None:
        self._handler, self._options = handler, options

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """Enqueue a message. TypeError where the arguments do not fit the function."""
        return self._handler.app.enqueue_messages([self._message(args, kwargs)])[0]

    def enqueue_many(self, payloads: Iterable[Mapping[str, Any]]) -> list[Enqueued]:
        """Enqueue one message for each set of arguments."""
        return self._handler.app.enqueue_messages([self._message((), payload) for payload in payloads])

    def _message(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> NewMessage:
        payload = self._handler.arguments(args, kwargs)
        return new_message(self._handler.definition.name, payload, **self._options)
