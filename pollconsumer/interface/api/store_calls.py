"""The calls of an application to its store, their connections, and the thread that makes the calls of asyncio programs.

A call may be interrupted between any two instructions: by a signal handler that raises, by an exception that another
thread sets, or by a handler or a finaliser that makes a call itself. So no lock is held, and a call shares nothing with
other calls. One operation of the interpreter takes a connection out of a list, another one puts it back. A connection
is put back only if no reply on it is pending, so not after an interruption."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import copy_context
from functools import partial
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from threading import current_thread
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from pollconsumer.core.errors import (
    CannotCreate,
    ConfigurationError,
    Conflict,
    NotFound,
    NotReplicated,
    PollConsumerError,
    QueueFull,
    StoreUnreachable,
)
from pollconsumer.core.messages.codec import coded, readable_value
from pollconsumer.core.messages.message import Codec, NewMessage
from pollconsumer.interface.api import slips
from pollconsumer.interface.api.handle import Handle
from pollconsumer.interface.api.registry import Application, RegisteredHandler, registry
from pollconsumer.interface.configured_store import opener_of, producer_of, spool_instead, strict_of
from pollconsumer.interface.logs.logs import log, logged_once, warn_of_store, warn_of_users_code
from pollconsumer.interface.settings.load import Beside, beside_module, find_config, load_settings
from pollconsumer.interface.settings.model import Settings, changed
from pollconsumer.interface.settings.names import PREFIX
from pollconsumer.interface.settings.owners import user_named, warn_of_another_store
from pollconsumer.runtime.handling.handler import Hooks
from pollconsumer.runtime.handling.shield import Shield
from pollconsumer.runtime.new_messages import Defaults, SendOptions, drafted, new_message, refuse_unknown
from pollconsumer.runtime.store_opener import StoreOpener
from pollconsumer.runtime.system.own_files import EMBEDDED
from pollconsumer.runtime.system.own_threads import start_thread
from pollconsumer.store.client.patience import COMMAND_TIMEOUT, SYSTEM_CLOCKS, Clocks, Patience, answer_within
from pollconsumer.store.client.wire import ByPeople
from pollconsumer.store.queues.producer import ENQUEUE_PAGE, ENQUEUE_PAGES, Producer

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future

    from pollconsumer.store.client.wire import Strict
    from pollconsumer.store.reading.messages import Message
    from pollconsumer.store.store import Store
    from pollconsumer.store.user_client import SuppliedClient, UserClient

MOST_IDLE = 64
"""Number of unused connections that are kept. Concurrent calls may use more."""
T = TypeVar("T")
PACKAGE = __name__.partition(".")[0]


class CallPatience(Patience):
    """Patience of ``seconds``, on the monotonic clock, that `begin` starts anew for each call."""

    def __init__(self, seconds: float, clocks: Clocks) -> None:
        self._seconds, self._now, self._sleep = seconds, clocks.monotonic, clocks.sleep
        self._until = 0.0

    def begin(self, instant: float | None = None) -> None:
        """Count the patience from now on, or from ``instant`` of the monotonic clock."""
        self._until = (self._now() if instant is None else instant) + self._seconds

    def left(self) -> float:
        return max(0.0, self._until - self._now())

    def pause(self, seconds: float) -> None:
        self._sleep(min(seconds, self.left()))

    def for_one_answer(self, blocking: float = 0.0) -> float:
        left = self._until - self._now()
        return blocking + (COMMAND_TIMEOUT if left >= COMMAND_TIMEOUT else answer_within(max(0.0, left)))


class PooledStore:
    """A context manager for one call. It holds the call's connection, then puts it back into the pool or closes it."""

    __slots__ = ("_idle", "_store", "patience")

    def __init__(self, store: Producer, patience: CallPatience, idle: list[PooledStore]) -> None:
        self._store, self.patience, self._idle = store, patience, idle

    def __enter__(self) -> Producer:
        self.patience.begin()
        self._store.wire.last_answer = None
        return self._store

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Put the connection back, unless a reply on it may be pending. An ``error`` that is not ours may have
        interrupted anything. So may an error of pollconsumer that comes from a call of a signal handler."""
        wire = self._store.wire
        may_stay = wire.at_rest() and (error is None or isinstance(error, PollConsumerError | GeneratorExit))
        if may_stay and len(self._idle) < MOST_IDLE:
            self._idle.append(self)
        else:
            with suppress(OSError):
                wire.close()
            if error is not None and (refusal := wire.misread(error)):
                raise refusal from error


class StorePool:
    """The connections that no call uses. The last one used is taken first. ``open_store`` opens one if none is left."""

    def __init__(
        self, open_store: Callable[[Patience], Producer], seconds: float, clocks: Clocks = SYSTEM_CLOCKS
    ) -> None:
        """``seconds``: the patience of each call."""
        self.seconds, self.clocks, self._open_store = seconds, clocks, open_store
        self._idle: list[PooledStore] = []

    def take(self) -> PooledStore:
        idle = self._idle if registry.stand_in is None else []  # a test's store ends with its test
        try:
            return idle.pop()
        except IndexError:
            pass
        patience = CallPatience(self.seconds, self.clocks)
        return PooledStore(self._open_store(patience), patience, idle)


class CallThread:
    """Makes calls in one thread, in their order. The thread does not keep the process alive.

    A call's patience begins when the call is requested, if earlier calls kept it waiting because the store did not
    answer. Waiting for calls that the store answers, such as a long bulk enqueue, has no limit."""

    def __init__(self, pool: StorePool) -> None:
        self._pool = pool
        self._waiting: SimpleQueue[tuple[Callable[[Producer], Any], float, AbstractEventLoop, Future[Any]]] = (
            SimpleQueue()
        )
        """Calls that wait for their turn: the call, since when it waits, and the loop and the future for its result."""
        self._runs = False
        self._unanswered = False
        """Whether the store did not answer the last call."""

    async def make(self, call: Callable[[Producer], T]) -> T:
        """Make ``call`` in the thread, and return its result. If the task is cancelled before the call's turn, the call
        is not made; if later, the call still goes on to its end."""
        loop, future = _future()
        self._waiting.put((call, self._pool.clocks.monotonic(), loop, future))
        self._start()
        made: T = await future
        return made

    def _start(self) -> None:
        if not self._runs:
            self._runs = True
            try:
                start_thread("calls", self._serve)
            except BaseException:
                self._runs = False
                raise

    def _serve(self) -> None:
        try:
            current_thread().name = "pollconsumer calls"
            while True:
                self._make(*self._waiting.get())
        finally:
            self._runs = False
            if not self._waiting.empty():  # an exception has ended the loop early
                self._start()

    def _make(
        self, call: Callable[[Producer], Any], began: float, loop: AbstractEventLoop, future: Future[Any]
    ) -> None:
        if not future.cancelled():
            _answer_loop(loop, future, partial(self._answer, call, began))

    def _answer(self, call: Callable[[Producer], T], began: float) -> T:
        pool = self._pool
        if self._unanswered and pool.clocks.monotonic() >= began + pool.seconds:
            fix = "earlier calls are still waiting for the store; this one was not sent"
            raise StoreUnreachable("store unreachable", f"for {pool.seconds:g}s", fix)
        pooled = pool.take()
        try:
            with pooled as store:
                if self._unanswered:
                    pooled.patience.begin(began)
                result = call(store)
        except StoreUnreachable as error:  # the store itself may have answered so, as with NotReplicated
            self._unanswered = not isinstance(error, NotReplicated) and not pooled.patience.left()
            raise
        self._unanswered = False
        return result


def _future() -> tuple[AbstractEventLoop, Future[Any]]:
    """The running event loop, and a new future of that loop."""
    from asyncio import get_running_loop  # few launches import asyncio

    loop = get_running_loop()
    return loop, loop.create_future()


def in_thread(name: str, call: Callable[[], T]) -> Future[T]:
    """A future of the running event loop, for what ``call`` returns or raises in a thread of its own. RuntimeError if
    the system refuses another thread."""
    loop, future = _future()
    start_thread(name, _answer_loop, loop, future, call)
    return future


def _answer_loop(loop: AbstractEventLoop, future: Future[Any], call: Callable[[], Any]) -> None:
    """Make the call, and end the future with its result, or with its exception."""

    def settle(result: object, error: BaseException | None = None) -> None:
        with suppress(RuntimeError):  # the loop was closed in between
            loop.call_soon_threadsafe(_end, future, result, error)

    try:
        result = call()
    except BaseException as error:
        settle(None, error)
    else:
        settle(result)


def _end(future: Future[Any], result: object, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


class AppCalls(Application):
    """The methods of a `PollConsumer` that only our own modules call: `calls_of` returns this object. Each call has a
    connection of its own, opened when it is needed. No ``…_async`` call blocks the event loop. A child process opens
    its own connections."""

    def __init__(
        self,
        config: str | os.PathLike[str] | None,
        store: str | UserClient | None,
        namespace: str | None,
        patience: float,
        codec: Codec | None = None,
    ) -> None:
        """``patience``: in seconds. ConfigurationError for a ``store`` that is neither an address nor a client, and for
        an invalid ``codec``."""
        if codec is not None and not all(callable(getattr(codec, name, None)) for name in ("encode", "decode")):
            raise ConfigurationError("codec", repr(codec), "an object with encode(bytes) and decode(bytes)")
        super().__init__()
        self.hooks, self.codec = Hooks(warn_of_users_code), codec
        self.location: tuple[object, str | None] = store, namespace
        self._client: SuppliedClient | None = None
        if store is not None and not isinstance(store, str):
            from pollconsumer.store.user_client import supplied_client  # imports redis-py

            self._client, store = supplied_client(store), EMBEDDED
        self._store_url, self._namespace = store, namespace
        self._config = None if config is None else Path(config)
        self.beside: Callable[[], Beside | None] = partial(beside_module, _module_of_caller())
        """Returns where the search for an unnamed configuration begins: beside the module; None: current directory."""
        self._opener: StoreOpener | None = None
        self._own_settings: Settings | None = None
        self._pid, self._pool = os.getpid(), StorePool(self._open, patience)
        self._threads: list[CallThread] = []
        """The first thread makes the calls of asyncio programs. If two calls begin together, a second thread may be
        created, and is never used."""
        self._warned_of: set[str] = set()
        os.register_at_fork(after_in_child=self._begin_anew)  # connections and the thread belong to the parent

    def _begin_anew(self) -> None:
        self._pid, self._pool, self._threads = os.getpid(), StorePool(self._open, self._pool.seconds), []

    def enqueue_one(self, message: NewMessage) -> Handle[Any]:
        """Enqueue a message that is ready to be sent, except for hooks and codec."""
        if self.hooks.before_enqueue or self.codec is not None:
            message = self._prepared(message)
        try:
            with Shield(), self._pool.take() as store:
                entry = store.enqueue_one(message)
        except (StoreUnreachable, CannotCreate) as error:
            return self._spooled([message], error)[0]
        return Handle(entry.id, message.queue, self, duplicate=entry.duplicate)

    async def enqueue_one_async(self, message: NewMessage) -> Handle[Any]:
        if self.hooks.before_enqueue or self.codec is not None:
            message = self._prepared(message)
        try:
            entry = await self._make_async(lambda store: store.enqueue_one(message))
        except (StoreUnreachable, CannotCreate) as error:
            return (await self._spooled_async([message], error))[0]
        return Handle(entry.id, message.queue, self, duplicate=entry.duplicate)

    def enqueue_messages(self, messages: Sequence[NewMessage], *, spools: bool = True) -> list[Handle[Any]]:
        """Enqueue messages, a few hundred per round trip. Calls of other threads may be made between the round trips.
        ``spools``: messages that cannot be enqueued may be spooled instead."""
        if self.hooks.before_enqueue or self.codec is not None:
            messages = [self._prepared(message) for message in messages]
        handles: list[Handle[Any]] = []
        try:
            with Shield():
                for part in _round_trips(messages):
                    with _after(handles), self._pool.take() as store:
                        handles += self._enqueue_part(part, store)
        except (StoreUnreachable, CannotCreate) as error:
            if not spools:
                raise
            handles += self._spooled(messages[len(handles) :], error, len(handles))
        return handles

    async def enqueue_messages_async(self, messages: Sequence[NewMessage], *, spools: bool = True) -> list[Handle[Any]]:
        if self.hooks.before_enqueue or self.codec is not None:
            messages = [self._prepared(message) for message in messages]
        handles: list[Handle[Any]] = []
        try:
            for part in _round_trips(messages):
                with _after(handles):
                    handles += await self._make_async(partial(self._enqueue_part, part))
        except (StoreUnreachable, CannotCreate) as error:
            if not spools:
                raise
            handles += await self._spooled_async(messages[len(handles) :], error, len(handles))
        return handles

    def _spooled(
        self, messages: Sequence[NewMessage], error: StoreUnreachable | CannotCreate, before: int = 0
    ) -> list[Handle[Any]]:
        """Spool those ``messages`` that were not enqueued. ``error``: why not; it is raised if they cannot be spooled.
        ``before``: how many messages the same call has enqueued before ``messages``."""
        if registry.stand_in is not None or self.settings().spool is None:
            raise error
        accepted = error.accepted[before:]
        spool_instead(self.settings(), messages[len(accepted) :], error)
        ids = [*accepted, *(message.id for message in messages[len(accepted) :])]
        pairs = zip(ids, messages, strict=True)
        return [Handle(message_id, message.queue, self, duplicate=None) for message_id, message in pairs]

    async def _spooled_async(
        self, messages: Sequence[NewMessage], error: StoreUnreachable | CannotCreate, before: int = 0
    ) -> list[Handle[Any]]:
        """`_spooled` in a thread of its own, without blocking the event loop."""
        return await in_thread("spooling", partial(self._spooled, messages, error, before))

    def _prepared(self, message: NewMessage) -> NewMessage:
        """``message``, changed by the hooks and encoded by the codec."""
        return self._coded(drafted(message, self.hooks.before_enqueue) if self.hooks.before_enqueue else message)

    def _coded(self, message: NewMessage) -> NewMessage:
        return message if self.codec is None else coded(message, self.codec)

    def _enqueue_part(self, part: Sequence[NewMessage], store: Producer) -> list[Handle[Any]]:
        store.refuse_followed(part)
        return [
            Handle(message_id, message.queue, self, duplicate=duplicate)
            for (message_id, duplicate), message in zip(store.enqueue(part), part, strict=True)
        ]

    def new_message(self, handler: str, payload: Mapping[str, Any], **options: Unpack[SendOptions]) -> NewMessage:
        """The message that `PollConsumer.enqueue` sends, before hooks and codec change it. Raises the same errors."""
        return self.placed(self.checked_message(handler, payload, options), options)

    async def enqueue_by_name_async(
        self, handler: str, payload: Mapping[str, Any], options: SendOptions
    ) -> Handle[Any]:
        """Enqueue as `PollConsumer.enqueue_async` does."""
        message = self.checked_message(handler, payload, options)
        if self.hooks.before_enqueue:
            message = drafted(message, self.hooks.before_enqueue)  # in the caller's task, for a hook's trace

        def call(store: Producer) -> Handle[Any]:
            given = self._coded(self.placed(message, options))
            entry = store.enqueue_one(given)
            return Handle(entry.id, given.queue, self, duplicate=entry.duplicate)

        try:
            return await self._make_async(call)
        except (StoreUnreachable, CannotCreate) as error:
            return (await self._spooled_async([self._coded(self.placed(message, options))], error))[0]

    def placed(self, message: NewMessage, options: SendOptions) -> NewMessage:
        """``message`` with the queue and the rate of its handler, unless ``options`` give them."""
        defaults = self.defaults_of(message.handler)
        if options.get("queue") is None:
            message = message._replace(queue=defaults.queue)
        return defaults.rated(message)

    def checked_message(self, handler: str, payload: Mapping[str, Any], options: SendOptions) -> NewMessage:
        """A new message. Its payload and policy are checked if this process knows the handler."""
        if not isinstance(handler, str):
            slips.refuse_handler_object(handler)
        known = self.known(handler, anywhere=options.get("queue") is not None)
        if known is None or not isinstance(payload, dict):
            return new_message(handler, payload, **options)
        refuse_unknown(options)
        slips.check_retry(known, options.get("retry"))
        return new_message(handler, known.arguments.json_of(payload), **options)

    def defaults_of(self, handler: str) -> Defaults:
        """The default options of a handler's messages. The handler is one that this process has registered for the same
        store, or else a program of the settings."""
        known = self.known(handler)
        return self.settings().defaults_of(handler) if known is None else known.definition.defaults

    def known(self, handler: str, anywhere: bool = True) -> RegisteredHandler | None:
        """The handler of that name that this process has registered for the same store; None if there is none. Unless
        the handler may be ``anywhere`` else: BadData if the configuration is imported and lacks it; if none is
        imported, a warning if the application has other handlers."""
        known = self.handlers.get(handler) or registry.known(handler, self.location)
        if known is not None:
            return known
        imported = registry.imported
        if not anywhere and imported is not None and not any(self.location) and handler not in imported:
            slips.refuse_handler(handler, imported)
        if not anywhere and self.handlers and handler not in self._warned_of:
            self._warned_of.add(handler)
            if registry.imported is None and handler not in self.settings().commands:
                slips.warn_of_handler(handler, self.handlers)
        return None

    def look(self, queue: str | None, message_id: str) -> Message:
        """The message as it is now, from ``queue``; None: from whichever queue has it. Raises the errors of
        ``PollConsumer.message``."""
        return self.decoded(self.ask(_looking(queue, message_id)))

    async def look_async(self, queue: str | None, message_id: str) -> Message:
        """`look` without blocking the event loop."""
        return self.decoded(await self.ask_async(_looking(queue, message_id)))

    def decoded(self, message: Message) -> Message:
        """``message``, with its payload, result and log decoded if the codec can decode them."""
        payload, result = (readable_value(each, self.codec) for each in (message.payload, message.result))
        log = [each._replace(text=readable_value(each.text, self.codec)) for each in message.log]
        return message._replace(payload=payload, result=result, log=log)

    def handle_of(self, message: Message) -> Handle[Any]:
        message = self.decoded(message)
        handle: Handle[Any] = Handle(message.id, message.queue, self, duplicate=False)
        handle.listed = message
        return handle

    def ask(self, question: Callable[[Store], T]) -> T:
        """What ``question`` returns, given the store, on a connection of its own. If the settings ask for replicas, a
        change waits for them, and raises StoreUnreachable if they do not have it in time."""
        with Shield(), self._pool.take() as store:
            return self._answered(question, store)

    async def ask_async(self, question: Callable[[Store], T]) -> T:
        """`ask` without blocking the event loop."""
        here = copy_context()  # it has the name of the person who acts
        return await self._make_async(lambda store: here.run(self._answered, question, store))

    def _answered(self, question: Callable[[Store], T], producer: Producer) -> T:
        from pollconsumer.store.store import Store  # imports all readers and writers, which most producers do not need

        strict, store = self.strict(), Store(producer.wire, producer.keys.namespace, producer)
        if strict is None:
            return question(store)
        store.wire.strict = ByPeople(*strict)
        try:
            return question(store)
        finally:
            store.wire.strict = None  # enqueueing itself names the messages that are in doubt

    def ask_for_each(self, question: Callable[[Store], Iterator[T]]) -> Iterator[T]:
        """Everything that ``question`` yields, read on a connection of its own. Patience begins anew for each item."""
        pooled = self._pool.take()
        with pooled as store:
            found = self._answered(question, store)
            while True:
                with Shield():
                    pooled.patience.begin()
                    several = self._answered(lambda *_: [*islice(found, 1)], store)
                if not several:
                    return
                yield several[0]

    def losses(self) -> int:
        """How often this process has noticed that the store has lost acknowledged writes."""
        return 0 if self._opener is None else self._opener.rollback.losses

    def pause(self, seconds: float) -> None:
        """Wait between two reads of what a caller waits for."""
        (time.sleep if registry.stand_in is None else registry.stand_in.pause)(seconds)

    async def pause_async(self, seconds: float) -> None:
        if registry.stand_in is not None:
            registry.stand_in.pause(seconds)
        else:
            from asyncio import sleep

            await sleep(seconds)

    async def _make_async(self, call: Callable[[Producer], T]) -> T:
        if registry.stand_in is not None:  # its store is in memory, and belongs to this thread
            with self._pool.take() as store:
                return call(store)
        if self._pid != os.getpid():
            self._begin_anew()  # uWSGI forks in C, which does not call registered functions
        if not self._threads:
            self._threads.append(CallThread(self._pool))
        return await self._threads[0].make(call)

    def strict(self) -> Strict | None:
        """How many replicas calls wait for, and how long. None if the settings do not ask for any."""
        return None if registry.stand_in is not None else strict_of(self.settings())

    def _open(self, patience: Patience) -> Producer:
        if registry.stand_in is not None:
            return registry.stand_in.store_of(self)
        settings = self.settings()
        if self._opener is None:
            client = self._client
            given = None if client is None else lambda: client
            self._opener = opener_of(settings, warn=logged_once(warn_of_store), client=given)
            if settings is not registry.settings:  # otherwise the command has already warned
                warn_of_another_store(settings)
                if settings.nowhere is not None:
                    what = "%s: this application has the namespace %s of %s's own store; give it config= or %sCONFIG"
                    log.warning(what, settings.nowhere, settings.namespace, user_named(os.geteuid()), PREFIX)
        return producer_of(settings, self._opener.wire(lambda: patience))

    def settings(self) -> Settings:
        """The settings of the application. Raises the errors of ``load_settings``."""
        if registry.settings is not None and (registry.stand_in is not None or not any(self.location)):
            return registry.settings
        if self._own_settings is None:
            settings = load_settings(
                self._config, store=self._store_url, namespace=self._namespace, beside=self.beside()
            )
            if self._client is not None:
                settings = changed(settings, client=self._client.address)
            self._own_settings = settings
        return self._own_settings

    def own_config(self) -> Path | None:
        """The configuration that this application reads outside of commands. None if there is none."""
        return find_config(self._config, self.beside())


def _module_of_caller() -> str | None:
    """The file of the module that creates the application: the first module up the call stack that is not ours. None if
    the module has no file, as in a notebook."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # as quick as inspect is slow to import
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == PACKAGE:
        frame = frame.f_back
    file = None if frame is None else frame.f_globals.get("__file__")
    try:
        return os.path.abspath(file) if isinstance(file, str) else None  # noqa: PTH100  # as written, links included
    except OSError:  # the current directory is gone
        return None


def _looking(queue: str | None, message_id: str) -> Callable[[Store], Message]:
    if not isinstance(message_id, str):
        raise NotFound("no such message", repr(message_id), "an id is text")
    return lambda store: store.inspector.message(message_id, queue)


def _round_trips(messages: Sequence[NewMessage]) -> Iterator[Sequence[NewMessage]]:
    """``messages`` in parts, one for each round trip. There is at least one part, even if it is empty, since its round
    trip opens the store."""
    most = ENQUEUE_PAGE * ENQUEUE_PAGES
    for at in range(0, max(1, len(messages)), most):
        yield messages[at : at + most]


@contextmanager
def _after(handles: Sequence[Handle[Any]]) -> Iterator[None]:
    """Wrap a call that enqueues further messages. In its errors, ``accepted`` begins with the ids of ``handles``."""
    try:
        yield
    except (StoreUnreachable, CannotCreate, Conflict, QueueFull) as error:
        error.accepted = [*(handle.id for handle in handles), *error.accepted]
        if isinstance(error, Conflict):
            error.at += len(handles)
        raise
