"""A batch while its producer adds members."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from threading import RLock
from types import TracebackType
from typing import Any, Self

from pollconsumer.core.errors import UsageError, WentBack
from pollconsumer.core.messages.message import NewMessage
from pollconsumer.interface.api.batches.app_batch import AppBatch
from pollconsumer.interface.api.handle import Handle
from pollconsumer.interface.api.store_calls import StoreCalls
from pollconsumer.runtime.new_batches import MOST_MEMBERS, member_of
from pollconsumer.runtime.new_messages import Sendable
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.queues.batches import MOST_BATCHES, Batches, NewBatch
from pollconsumer.store.queues.producer import ENQUEUE_PAGE, ENQUEUE_PAGES
from pollconsumer.store.queues.taken_ids import refuse_taken
from pollconsumer.store.reading.batch_reader import PER_CHUNK
from pollconsumer.store.server import TIME
from pollconsumer.store.store import Store

PAGE = ENQUEUE_PAGE * ENQUEUE_PAGES
"""Members that are sent at once."""
HEARD_EVERY = 60.0
"""Seconds after which the store is told that the producer lives."""


class OpenBatch(AppBatch):
    """A batch that takes members until its ``with`` block ends: then it is closed. If the block raises, it stays open,
    and is abandoned an hour later; until then the same batch, with the same members in the same order, can be enqueued
    again: those that are there already count once.

    Of a batch that is closed already, nothing is enqueued: ``duplicate`` is true.
    """

    duplicate: bool

    def __init__(self, app: StoreCalls, batch: NewBatch) -> None:
        super().__init__(app, batch.home, batch.id)
        self._batch = batch
        self.duplicate = False
        self._is_within = False
        """Whether the ``with`` block runs. What is added before or after would not be sent."""
        self._resumes = False
        self._adding = RLock()
        """Held while a member gets its number and its place in the page: threads may add."""
        self._members = 0
        self._page: list[NewMessage] = []
        self._heard = 0.0
        self._losses = 0
        """How often this process had noticed a loss of the store when the batch was opened."""
        self._ended = -1, frozenset[int]()
        """The chunk of members that was last looked at, of a batch that is resumed, and the numbers that have ended."""

    def __enter__(self) -> Self:
        self._hear(self._app.ask(self._open))
        self._is_within = True
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._is_within = False
        if kind is None and not self.duplicate:  # GUARD a batch whose producer fails stays open
            self._flush()
            self._app.ask(self._close)

    async def __aenter__(self) -> Self:
        self._hear(await self._app.ask_async(self._open))
        self._is_within = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._is_within = False
        if kind is None and not self.duplicate:
            await self._flush_async()
            await self._app.ask_async(self._close)

    def add(self, member: Sendable) -> str:
        """Add a member: ``handler.args(…)``, of any handler and queue, or a chain. Returns its id. It is sent with
        others, a few hundred in a round trip, or a minute after those before: errors of enqueueing may come with a
        later one, or with the end of the block. If one is caught, the members that it is about are sent again with the
        next one, or at the end: do not add them again. UsageError for one that has an id or a key of its own, if the
        batch was abandoned meanwhile, or outside of its ``with`` block."""
        message = self._new(member)
        if len(self._page) >= PAGE or self._is_unheard():
            self._flush()
        return message.id

    async def add_async(self, member: Sendable) -> str:
        """`add` without blocking the event loop."""
        message = self._new(member)
        if len(self._page) >= PAGE or self._is_unheard():
            await self._flush_async()
        return message.id

    def _new(self, member: Sendable) -> NewMessage:
        if not self._is_within:
            raise UsageError("batch", self.id, "add members within its with block: none is enqueued after it")
        with self._adding:
            if self._members == MOST_MEMBERS:
                raise UsageError("batch", self.id, f"it has {MOST_MEMBERS} members, the maximum: begin another batch")
            message = member_of(member, self._batch.home, self.id, self._members)
            # GUARD a batch that is closed; what has ended
            if not self.duplicate and not (self._resumes and self._has_ended(self._members)):
                self._page.append(message)
            self._members += 1
        return message

    def _flush(self) -> None:
        if self._is_unheard():
            self._hear(self._app.ask(self._open))
        with self._unsent() as page:
            if known := _duplicates(self._app.enqueue_messages(page, spools=False)):
                self._app.ask(partial(self._refuse_others, known))
            page.clear()

    async def _flush_async(self) -> None:
        if self._is_unheard():
            self._hear(await self._app.ask_async(self._open))
        with self._unsent() as page:
            if known := _duplicates(await self._app.enqueue_messages_async(page, spools=False)):
                await self._app.ask_async(partial(self._refuse_others, known))
            page.clear()

    @contextmanager
    def _unsent(self) -> Iterator[list[NewMessage]]:
        """The page. What is left of it, after an error, is sent again with the next members, or at the end."""
        with self._adding:
            page, self._page = self._page, []
        try:
            yield page
        finally:
            with self._adding:
                self._page[:0] = page  # GUARD what the store has not acknowledged

    def _is_unheard(self) -> bool:
        return time.monotonic() - self._heard > HEARD_EVERY

    def _hear(self, shut: str) -> None:
        """Take in how the batch was as it was opened, or as its producer was heard of."""
        if shut == "full":
            most = f"queue {self._batch.home} has {MOST_BATCHES} batches that have not ended, the maximum"
            raise UsageError("batch", self.id, f"{most}: let some end, or cancel them")
        if self._heard and shut != "open":
            raise UsageError("batch", self.id, f"it is {shut}: enqueue the rest as another batch")
        if shut in ("abandoned", "expired"):
            raise UsageError("batch", self.id, f"it is {shut}: choose another id")
        self.duplicate = shut in ("closed", "ended")
        if not self._heard:
            self._resumes, self._losses = shut == "open", self._app.losses()
        self._heard = time.monotonic()

    def _open(self, store: Store) -> str:
        store.producer.register(self._batch.home)
        if not self._heard:
            called = [(each["queue"], each["id"]) for each in self._batch.callbacks.values()]
            refuse_taken(store.wire, store.keys, "batch", (self._batch.home, self.id), called)
        return Batches(store.producer).open(self._batch)

    def _close(self, store: Store) -> None:
        if self._resumes:
            there = store.batches.at_least(self._batch.home, self.id, self._members)
            if there > self._members:  # GUARD fewer members than before
                counts = f"this run has added {self._members} members, one before it at least {there}"
                raise UsageError("batch", self.id, f"{counts}: add the same ones in the same order")
        check = partial(self._refuse_loss, store.wire)
        check()
        shut = Batches(store.producer).close(self._batch.home, self.id, self._members, check)
        if shut not in ("", "closed", "ended"):
            raise UsageError("batch", self.id, f"it is {shut}: enqueue it again under another id")

    def _refuse_loss(self, wire: Wire) -> None:
        """Raise WentBack if the store has lost what it had acknowledged since the batch was opened. A new connection
        notices that."""
        wire.all([TIME])
        if self._app.losses() > self._losses:  # GUARD members that the store has lost
            what = f"store rolled back: batch {self.id} is not closed, and may lack members"
            raise WentBack(what, None, "run the same code again within the hour: it adds what is missing")

    def _refuse_others(self, known: Sequence[tuple[str, str]], store: Store) -> None:
        """Raise UsageError if any of ``known``, queues and ids of what the queues had already, is no member of this
        batch."""
        others = store.batches.others(self._batch.home, self.id, known)
        if others:  # GUARD a message that is no member
            fix = "give the batch another id; or purge that message, and 20 minutes later run this again"
            raise UsageError(
                "batch", self.id, f"there was a message {others[0]} before, which is no member of it: {fix}"
            )

    def _has_ended(self, number: int) -> bool:
        """Whether a member of a batch that is resumed has ended: forgotten by now, it would be enqueued again."""
        chunk = number // PER_CHUNK
        if self._ended[0] != chunk:
            batch = self._batch
            self._ended = chunk, self._app.ask(lambda store: store.batches.ended(batch.home, batch.id, chunk))
        return number in self._ended[1]


def _duplicates(handles: Iterable[Handle[Any]]) -> list[tuple[str, str]]:
    """The queues and ids of those messages that their queues had already."""
    return [(handle.queue, handle.id) for handle in handles if handle.duplicate]
