"""An application's store, and the calls that reach it."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pollconsumer.core.errors import Conflict, NotFound, StoreUnreachable
from pollconsumer.core.message import Alike
from pollconsumer.interface.api.calls import Calls
from pollconsumer.interface.api.handle import Handle
from pollconsumer.interface.api.registry import registry
from pollconsumer.interface.settings.load import load_settings
from pollconsumer.runtime.handling.shield import Shield

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pollconsumer.core.message import NewMessage
    from pollconsumer.interface.settings.model import Settings
    from pollconsumer.runtime.handling.hooks import Hooks
    from pollconsumer.store.connecting.strict import Strict
    from pollconsumer.store.connecting.wire import Wire
    from pollconsumer.store.producer import Producer
    from pollconsumer.store.reading.messages import Message

T = TypeVar("T")


class Producing:
    """One connection, opened lazily, whose calls are made one at a time; each ``…_async`` without blocking an event
    loop. A child process opens its own."""

    hooks: Hooks

    def __init__(
        self, config: str | os.PathLike[str] | None, store: str | None, namespace: str | None, patience: float
    ) -> None:
        """``patience`` in seconds."""
        self.place = self._store_url, self._namespace = store, namespace
        self._config = None if config is None else Path(config)
        self._store: Producer | None = None
        self._own_settings: Settings | None = None
        self._calls = Calls(patience)
        os.register_at_fork(after_in_child=self._begin_anew)  # another thread may hold the lock at that moment

    def _begin_anew(self) -> None:
        self._calls, self._store = Calls(self._calls.seconds), None

    def enqueue_one(self, message: NewMessage) -> Handle[Any]:
        """Enqueue a prepared message."""
        if self.hooks.before_enqueue:
            message = self._drafted(message)
        with Shield(), self._calls:
            entry = self._opened().enqueue_one(message)
        return Handle(entry.id, message.queue, self, duplicate=entry.duplicate)

    async def enqueue_one_async(self, message: NewMessage) -> Handle[Any]:
        if self.hooks.before_enqueue:
            message = self._drafted(message)
        entry = await self._make_async(lambda: self._opened().enqueue_one(message))
        return Handle(entry.id, message.queue, self, duplicate=entry.duplicate)

    def enqueue_messages(self, messages: Sequence[NewMessage]) -> list[Handle[Any]]:
        """Enqueue prepared messages, a few hundred per round trip. Calls of other threads may come in between."""
        if self.hooks.before_enqueue:
            messages = [self._drafted(message) for message in messages]
        handles: list[Handle[Any]] = []
        with Shield():
            for part in _round_trips(messages):
                with _after(handles), self._calls:
                    handles += self._enqueue_part(part)
        return handles

    async def enqueue_messages_async(self, messages: Sequence[NewMessage]) -> list[Handle[Any]]:
        if self.hooks.before_enqueue:
            messages = [self._drafted(message) for message in messages]
        handles: list[Handle[Any]] = []
        for part in _round_trips(messages):
            with _after(handles):
                handles += await self._make_async(partial(self._enqueue_part, part))
        return handles

    def _drafted(self, message: NewMessage) -> NewMessage:
        from pollconsumer.runtime.drafts import drafted

        return drafted(message, self.hooks.before_enqueue)

    def _enqueue_part(self, part: Sequence[NewMessage]) -> list[Handle[Any]]:
        store = self._opened()
        if isinstance(part, Alike):
            queue = part.queue
            return [
                Handle(message_id, queue, self, duplicate=duplicate)
                for message_id, duplicate in store.enqueue_alike(part)
            ]
        return [
            Handle(entry.id, message.queue, self, duplicate=entry.duplicate)
            for entry, message in zip(store.enqueue(part), part, strict=True)
        ]

    def look(self, queue: str | None, message_id: str) -> Message:
        """A message as it is now, of this queue or of the one that has it. Raises as ``PollConsumer.message``."""
        return self.ask(_looking(queue, message_id))

    async def look_async(self, queue: str | None, message_id: str) -> Message:
        """`look` without blocking the event loop."""
        return await self.ask_async(_looking(queue, message_id))

    def handle_of(self, message: Message) -> Handle[Any]:
        handle: Handle[Any] = Handle(message.id, message.queue, self, duplicate=False)
        handle.listed = message
        return handle

    def ask(self, question: Callable[[Wire, str], T]) -> T:
        """The answer to a question to the store, which is given the connection and the namespace."""
        with Shield(), self._calls:
            return self._answer(question)

    async def ask_async(self, question: Callable[[Wire, str], T]) -> T:
        """`ask` without blocking the event loop."""
        return await self._make_async(lambda: self._answer(question))

    def _answer(self, question: Callable[[Wire, str], T]) -> T:
        store = self._opened()
        return question(store.wire, store.keys.namespace)

    def pause(self, seconds: float) -> None:
        """Between two looks at an awaited message."""
        (time.sleep if registry.stand_in is None else registry.stand_in.pause)(seconds)

    async def pause_async(self, seconds: float) -> None:
        if registry.stand_in is not None:
            registry.stand_in.pause(seconds)
        else:
            from asyncio import sleep

            await sleep(seconds)

    async def _make_async(self, call: Callable[[], T]) -> T:
        if registry.stand_in is not None:  # its store is in memory, and belongs to this thread
            with self._calls:
                return call()
        return await self._calls.make_async(call)

    def strict(self) -> Strict | None:
        """The replication that calls wait for."""
        from pollconsumer.interface.store_opener import strict_of

        return None if registry.stand_in is not None else strict_of(self._settings())

    def _opened(self) -> Producer:
        if registry.stand_in is not None:
            return registry.stand_in.store_of(self)
        if self._store is None:
            from pollconsumer.interface.store_opener import opener_of, producer_of

            settings = self._settings()
            wire = opener_of(settings).wire(lambda: self._calls)
            self._store = producer_of(settings, wire)
            self._calls.begin_anew()  # imports and settings are no part of it
        return self._store

    def _settings(self) -> Settings:
        if registry.settings is not None and (registry.stand_in is not None or not any(self.place)):
            return registry.settings
        if self._own_settings is None:
            self._own_settings = load_settings(self._config, store=self._store_url, namespace=self._namespace)
        return self._own_settings


def _looking(queue: str | None, message_id: str) -> Callable[[Wire, str], Message]:
    from pollconsumer.store.reading.inspector import Inspector

    if not isinstance(message_id, str):
        raise NotFound("no such message", repr(message_id), "an id is text")
    return lambda *store: Inspector(*store).message(message_id, queue)


def _round_trips(messages: Sequence[NewMessage]) -> Iterator[Sequence[NewMessage]]:
    """At least one, which opens the store."""
    from pollconsumer.store.producer import ENQUEUE_BATCH, ENQUEUE_BATCHES

    most = ENQUEUE_BATCH * ENQUEUE_BATCHES
    for at in range(0, max(1, len(messages)), most):
        yield messages[at : at + most]


@contextmanager
def _after(handles: Sequence[Handle[Any]]) -> Iterator[None]:
    """Enqueue messages that come after those of ``handles``: errors count from the first of all."""
    try:
        yield
    except (StoreUnreachable, Conflict) as error:
        error.accepted = [*(handle.id for handle in handles), *error.accepted]
        if isinstance(error, Conflict):
            error.at += len(handles)
        raise
