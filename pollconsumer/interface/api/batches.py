"""Several messages at once, as producers see them: batches, chains, and selected messages."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from itertools import islice
from threading import RLock
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from pollconsumer.core.errors import BadData, NotFound, UsageError, WentBack
from pollconsumer.core.lifecycle import State, StateName
from pollconsumer.core.messages.continuation import Continuation, decoded, encoded, identified, packed
from pollconsumer.core.messages.message import NewMessage
from pollconsumer.core.spans import Span
from pollconsumer.interface.api.handle import Handle, Looks
from pollconsumer.interface.api.store_calls import AppCalls
from pollconsumer.interface.settings.values import parse_word
from pollconsumer.runtime.handling import slot_waits
from pollconsumer.runtime.handling.handler_batches import (
    MOST_MEMBERS,
    Batch,
    BatchOptions,
    answer_about,
    in_a_handler,
    inner_id,
    member_of,
    new_batch,
    sum_cancelled,
)
from pollconsumer.runtime.new_messages import Sendable, callback_of, message_of, refuse_own_identity
from pollconsumer.store.actions import CancelledMembers, MessageActions
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.queues.batches import MOST_BATCHES, Batches, NewBatch
from pollconsumer.store.queues.producer import ENQUEUE_PAGE, ENQUEUE_PAGES, refuse_taken
from pollconsumer.store.reading.batch_reader import PER_CHUNK, UNFINISHED, BatchStatus
from pollconsumer.store.reading.inspector import Chosen, Selection, dead_letters, unreserved
from pollconsumer.store.reading.messages import Message, by_queue
from pollconsumer.store.server import TIME
from pollconsumer.store.store import Store

T = TypeVar("T")
_WHICH: dict[State | None, str] = {State.COMPLETED: "completed", State.DEAD: "dead"}
"""State → the kind of members to ask a reader for. For any other state it is asked for all members."""
LONGEST_PAUSE = 0.5
PAGE = ENQUEUE_PAGE * ENQUEUE_PAGES
"""Number of members that are sent together."""
HEARD_EVERY = 60.0
"""Interval, in seconds, at which the producer of an open batch reports to the store that it is alive."""
MOST_LINKS = 100
AT_ONCE = 100
"""Number of messages that a thread reads before it hands them to an event loop."""


class AppBatch(Batch):
    """A `Batch` that a program has opened, or looked up by its id."""

    def __init__(self, app: AppCalls, batch_queue: str, batch_id: str, listed: BatchStatus | None = None) -> None:
        super().__init__(batch_queue, batch_id, lambda *question: app.ask(self._question(*question)))
        self._app, self._seen = app, listed

    @property
    def listed(self) -> BatchStatus:
        """The batch as it was last read from the store; it is read now if it was not read before."""
        return self._seen or self.status()

    def members(self, state: State | StateName | None = None) -> Iterator[Handle[Any]]:
        """Handles to the members that the store still has, all or those in ``state``, sorted by number, read a page at
        a time. A chain gives a handle to its latest link. Each handle's ``listed`` is the message as it was read."""
        wanted, batch = None if state is None else parse_word(State, "state", state), self.status()
        for message in self._app.ask_for_each(lambda store: store.batches.members(batch, _WHICH.get(wanted))):
            if wanted is None or message.state is wanted:
                yield self._app.handle_of(message)

    async def status_async(self) -> BatchStatus:
        """`status` without blocking the event loop."""
        return self._read(await self._app.ask_async(self._question("status", self._batch_queue, self.id)))

    def wait(self, timeout: Span | None = None) -> BatchStatus:
        looks = self._looks(timeout)
        while (status := self.status()).state in UNFINISHED:
            self._app.pause(looks.pause(f"batch {self.id}", f"{status.outstanding} outstanding"))
        return status

    async def wait_async(self, timeout: Span | None = None) -> BatchStatus:
        """`wait` without blocking the event loop."""
        looks = self._looks(timeout)
        while (status := await self.status_async()).state in UNFINISHED:
            await self._app.pause_async(looks.pause(f"batch {self.id}", f"{status.outstanding} outstanding"))
        return status

    def _looks(self, timeout: Span | None) -> Looks:
        if slot_waits.of_process is not None:
            raise in_a_handler()
        return Looks(timeout, LONGEST_PAUSE)

    async def cancel_async(self) -> CancelledMembers:
        """`cancel` without blocking the event loop."""
        return sum_cancelled([page async for page in self._pages_async("cancel")])

    async def redrive_async(self) -> int:
        """`redrive` without blocking the event loop."""
        return sum([page[0] async for page in self._pages_async("redrive")])

    def _question(self, *question: Any) -> Callable[[Store], Any]:
        return lambda store: answer_about(store, *question, readable=self._app.decoded)

    async def _pages_async(self, what: str) -> AsyncIterator[Any]:
        """Ask ``what`` chunk by chunk, and yield the answers. Other calls may come in between."""
        at: int | None = 0
        while at is not None:
            page, at = await self._app.ask_async(self._question(what, self._batch_queue, self.id, at))
            yield page


class AppBatches:
    """All batches of a namespace: iterate to get them. ``get`` raises NotFound. All methods raise StoreUnreachable."""

    def __init__(self, app: AppCalls) -> None:
        self._app = app

    def get(self, id: str) -> AppBatch:  # noqa: A002  as in PollConsumer.batch
        """The batch ``id``, whoever has enqueued it. The store keeps a batch until two days after its end."""
        found = self._app.ask(lambda store: store.batches.status(id))
        return AppBatch(self._app, found.queue, found.id, found)

    async def get_async(self, id: str) -> AppBatch:  # noqa: A002  as in PollConsumer.batch
        """`get` without blocking the event loop."""
        found = await self._app.ask_async(lambda store: store.batches.status(id))
        return AppBatch(self._app, found.queue, found.id, found)

    def __iter__(self) -> Iterator[AppBatch]:
        for found in self._app.ask_for_each(lambda store: store.batches.batches()):
            yield AppBatch(self._app, found.queue, found.id, found)


class OpenBatch(AppBatch):
    """A batch that takes members until its ``with`` block ends, and is then closed. If the block raises, the batch
    stays open, and is abandoned an hour later. Until then a program can enqueue it again, with the same members in the
    same order: members that the store already has count once.

    If the batch was closed before, nothing is enqueued, and ``duplicate`` is true."""

    duplicate: bool

    def __init__(
        self,
        app: AppCalls,
        batch: NewBatch,
        before_open: Callable[[Store], None] = lambda _: None,
        *,
        duplicate: bool = False,
    ) -> None:
        """``before_open`` is called whenever the batch is opened, or its producer reports that it is alive. With
        ``duplicate`` nothing is enqueued: the batch is an inner one that has ended, or whose outer batch is closed."""
        super().__init__(app, batch.queue, batch.id)
        self._batch, self._before_open, self._unopened = batch, before_open, set[str]()
        self.duplicate = duplicate
        self._is_within = False
        """Whether the ``with`` block is running. Outside of it ``add`` raises, since the member would not be sent."""
        self._resumes = False
        self._adding = RLock()
        """Held while a member gets its number and its position in the page, since several threads may add."""
        self._members = 0
        self._page: list[NewMessage] = []
        self._heard = 0.0
        self._losses = 0
        """How often this process had noticed a loss of the store's writes by the time that the batch was opened."""
        self._ended = -1, frozenset[int]()
        """The chunk of members of a resumed batch that was read last, and the numbers of its ended members."""

    def __enter__(self) -> Self:
        if not self.duplicate:
            self._hear(self._app.ask(self._open))
        self._is_within = True
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._is_within = False
        if kind is None and not self.duplicate:  # GUARD a batch whose producer fails stays open
            self._flush()
            self._app.ask(self._close)

    async def __aenter__(self) -> Self:
        if not self.duplicate:
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
        """Add a member: ``handler.args(…)``, of any handler and queue, or a chain. Returns its id. Members are sent a
        few hundred in a round trip, or fewer once a minute. So an error of enqueueing may come with a later member, or
        at the end of the block. If you catch it, the same members are sent again with the next ones, or at the end: do
        not add them again. UsageError for a member with an id or a key of its own, if the batch was abandoned, or
        outside of the ``with`` block."""
        message = self._new(member)
        if len(self._page) >= PAGE or self._is_unheard():
            self._flush()
        return message.id

    async def add_async(self, member: Sendable) -> str:
        """`add` without blocking the event loop."""
        if self._resumes and self._ended[0] != self._members // PER_CHUNK:
            await self._app.ask_async(self._learn_ended)
        message = self._new(member)
        if len(self._page) >= PAGE or self._is_unheard():
            await self._flush_async()
        return message.id

    def add_batch(self, **options: Unpack[BatchOptions]) -> OpenBatch:
        def inner(number: int, *, is_known: bool) -> OpenBatch:
            batch_queue, codec = self._batch.queue, self._app.codec
            batch = new_batch(inner_id(self.id, number), codec=codec, within=batch_queue, **options)

            def before_open(store: Store) -> None:
                self._hear(self._open(store))  # GUARD a producer that is heard of within an inner batch
                self._unopened.discard(batch.id)

            if not is_known:
                self._unopened.add(batch.id)
            return OpenBatch(self._app, batch, before_open, duplicate=is_known)

        return self._numbered(inner)

    def _new(self, member: Sendable) -> NewMessage:
        def message(number: int, *, is_known: bool) -> NewMessage:
            made = member_of(member, self._batch.queue, self.id, number)
            if not is_known:
                self._page.append(made)
            return made

        return self._numbered(message)

    def _numbered(self, make: Callable[..., T]) -> T:
        """Number the next member. Return what ``make`` creates, given its number and whether it must not be sent."""
        if not self._is_within:
            raise UsageError("batch", self.id, "add members within its with block: none is enqueued after it")
        with self._adding:
            if self._members == MOST_MEMBERS:
                raise UsageError("batch", self.id, f"it has {MOST_MEMBERS} members, the maximum: begin another batch")
            number = self._members
            # GUARD a batch that is closed; what has ended
            made = make(number, is_known=self.duplicate or (self._resumes and self._has_ended(number)))
            self._members += 1
        return made

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
        """Yield the page of members to send. If the block raises, members left in the page are sent later."""
        with self._adding:
            page, self._page = self._page, []
        try:
            yield page
        finally:
            with self._adding:
                self._page[:0] = page  # GUARD what the store has not acknowledged

    def _is_unheard(self) -> bool:
        return not self.duplicate and time.monotonic() - self._heard > HEARD_EVERY

    def _hear(self, shut: str) -> None:
        """Act on ``shut``: the batch's state when it was opened, or when its producer reported that it is alive."""
        if shut == "full":
            most = f"queue {self._batch.queue} has {MOST_BATCHES} batches that have not ended, the maximum"
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
        store.producer.register(self._batch.queue)
        self._before_open(store)
        if not self._heard:
            called = [(each["queue"], each["id"]) for each in self._batch.callbacks.values()]
            refuse_taken(store.wire, store.keys, "batch", (self._batch.queue, self.id), called)
        return Batches(store.producer).open(self._batch)

    def _close(self, store: Store) -> None:
        if self._unopened:
            raise UsageError("batch", min(self._unopened), "it was added, and not opened: use it in a with statement")
        if self._resumes:
            there = store.batches.at_least(self._batch.queue, self.id, self._members)
            if there > self._members:  # GUARD fewer members than before
                counts = f"this run has added {self._members} members, one before it at least {there}"
                raise UsageError("batch", self.id, f"{counts}: add the same ones in the same order")
        check = partial(self._refuse_loss, store.wire)
        check()
        shut = Batches(store.producer).close(self._batch.queue, self.id, self._members, check)
        if shut not in ("", "closed", "ended"):
            raise UsageError("batch", self.id, f"it is {shut}: enqueue it again under another id")

    def _refuse_loss(self, wire: Wire) -> None:
        """Raise WentBack if the store has lost acknowledged writes since the batch was opened. A command is sent first,
        since a new connection, if one is needed, looks for such a loss."""
        wire.all([TIME])
        if self._app.losses() > self._losses:  # GUARD members that the store has lost
            what = f"store rolled back: batch {self.id} is not closed, and may lack members"
            raise WentBack(what, None, "run the same code again within the hour: it adds what is missing")

    def _refuse_others(self, known: Sequence[tuple[str, str]], store: Store) -> None:
        """Raise UsageError if a message in ``known`` is no member of this batch. ``known``: queue and id of each
        message that was not added, because its queue already had a message with that id."""
        others = store.batches.others(self._batch.queue, self.id, known)
        if others:  # GUARD a message that is no member
            fix = "give the batch another id; or purge that message, and 20 minutes later run this again"
            raise UsageError(
                "batch", self.id, f"there was a message {others[0]} before, which is no member of it: {fix}"
            )

    def _has_ended(self, number: int) -> bool:
        """Whether the member ``number`` of a resumed batch has ended. Then it must not be sent: if the store no longer
        keeps it, it would be enqueued again."""
        if self._ended[0] != number // PER_CHUNK:
            self._app.ask(self._learn_ended)
        return number in self._ended[1]

    def _learn_ended(self, store: Store) -> None:
        """Read which members of a resumed batch have ended, of those in the chunk of the next one."""
        chunk = self._members // PER_CHUNK
        self._ended = chunk, store.batches.ended(self._batch.queue, self._batch.id, chunk)


def _duplicates(handles: Iterable[Handle[Any]]) -> list[tuple[str, str]]:
    """Queue and id of each message that was not enqueued, because its queue already had it."""
    return [(handle.queue, handle.id) for handle in handles if handle.duplicate]


class LinkState(StrEnum):
    """The state of a link that is not enqueued yet. Messages have no such state."""

    WAITING = "waiting"

    @property
    def has_ended(self) -> bool:
        return False


class Chain:
    """A chain of messages, created by ``PollConsumer.chain``. A chain can be a member of a batch, and counts as one."""

    def __init__(self, app: AppCalls, links: Sequence[Sendable], failed: Sendable | None) -> None:
        """Raise UsageError for no links, too many links, a link with a key or callbacks, or a later link with an id."""
        if not 0 < len(links) <= MOST_LINKS:
            raise UsageError("chain", f"{len(links)} links", f"give 1 to {MOST_LINKS}")
        self._app, self._links, self._failed = app, links, failed
        self.__message__()

    def __message__(self) -> NewMessage:
        """A new message for the first link. The other links are in its continuation."""
        first, *others = [message_of(link, "a link of a chain") for link in self._links]
        for message in (first, *others):
            if message.continuation:
                raise UsageError(
                    "a link of a chain has callbacks, or is a chain", None, "give failed= to the whole chain"
                )
        refuse_own_identity(first._replace(digest=""), "a link of a chain")
        for message in others:
            refuse_own_identity(message, "a link of a chain")
        failed = None if self._failed is None else callback_of(self._failed, first.id, "failed")
        continuation = Continuation(failed=failed, links=[packed(message) for message in others])
        return identified(first._replace(continuation=encoded(continuation)), first.id)

    def enqueue(self) -> LinkHandle:
        """Enqueue the first link. Returns a handle to the last link, whose state is ``waiting`` until it is enqueued.
        The errors are those of ``PollConsumer.enqueue``."""
        first = self.__message__()
        return self._handle(first, self._app.enqueue_one(first).duplicate)

    async def enqueue_async(self) -> LinkHandle:
        """`enqueue` without blocking the event loop."""
        first = self.__message__()
        return self._handle(first, (await self._app.enqueue_one_async(first)).duplicate)

    def _handle(self, first: NewMessage, duplicate: bool | None) -> LinkHandle:
        links = [(first.queue, first.id)]
        if first.continuation:
            links += [(link["queue"], link["id"]) for link in decoded(first.continuation.encode())[0].links]
        return LinkHandle(self._app, links, duplicate=duplicate)


class LinkHandle(Handle[Any]):
    """A handle to the last link of a chain. ``state``, `wait` and `signal` concern that link: ``state`` is ``waiting``
    until it is enqueued, `wait` raises NotCompleted for the link that ended the chain. All other methods concern the
    latest link, which was enqueued last. Cancelling the latest link ends the chain."""

    __slots__ = ("_links",)

    def __init__(self, app: AppCalls, links: Sequence[tuple[str, str]], *, duplicate: bool | None) -> None:
        queue, message_id = links[-1]
        super().__init__(message_id, queue, app, duplicate=duplicate)
        self._links = links

    @property
    def state(self) -> State | LinkState:  # type: ignore[override]  # it may not be enqueued yet
        """The state of the last link, read from the store; ``waiting`` until that link is enqueued."""
        return self._seen(self.status())

    async def state_async(self) -> State | LinkState:  # type: ignore[override]  # as above
        return self._seen(await self.status_async())

    def _seen(self, latest: Message) -> State | LinkState:
        return latest.state if latest.id == self.id else LinkState.WAITING

    def status(self) -> Message:
        """All that the store knows of the latest link. NotFound if it does not keep that link any more."""
        return self._app.decoded(self._app.ask(self._latest))

    async def status_async(self) -> Message:
        return self._app.decoded(await self._app.ask_async(self._latest))

    def _latest(self, store: Store) -> Message:
        """The latest link, as the store has it."""
        following = None
        for queue, message_id in reversed(self._links):
            try:
                found = store.inspector.message(message_id, queue)
            except NotFound:
                following = message_id, queue
                continue
            outbox = store.keys.queue(queue, "outbox")
            if following and self._goes_on(found) and not store.wire.command("EXISTS", outbox):
                return store.inspector.message(*following)  # it was sent: it is there by now, or was deleted
            return found
        raise NotFound("no such message", self.id, "its chain is no longer kept")

    def _act(self, act: Callable[[str, str], Callable[[Store], T]]) -> T:
        return self._app.ask(partial(self._acted, act))

    async def _act_async(self, act: Callable[[str, str], Callable[[Store], T]]) -> T:
        return await self._app.ask_async(partial(self._acted, act))

    def _acted(self, act: Callable[[str, str], Callable[[Store], T]], store: Store) -> T:
        latest = self._latest(store)
        while True:
            try:
                return act(latest.queue, latest.id)(store)
            except BadData as refusal:
                latest = self._after(latest.id, self._latest(store), refusal)

    def _after(self, link: str, latest: Message, refusal: BadData) -> Message:
        """The link that was enqueued since ``link`` was completed. If there is none, raise ``refusal``; if it is about
        to be enqueued, raise BadData that says so."""
        if latest.id != link:
            return latest
        if self._goes_on(latest):
            raise BadData("chain", self.id, f"{link} is completed, and the next link on its way: try again")
        raise refusal

    def _goes_on(self, message: Message) -> bool:
        return message.state is State.COMPLETED and message.id != self.id


class Messages:
    """The messages that `PollConsumer.messages` selects. Each iteration reads the store again, 500 messages at a time,
    and keeps none of them.

    A message that enters another state meanwhile may be missed, or come twice. All methods raise NotFound for an
    unknown queue, and StoreUnreachable."""

    def __init__(self, app: AppCalls, selection: Selection) -> None:
        self._app, self._selection = app, selection

    def __iter__(self) -> Iterator[Handle[Any]]:
        """Yield a handle to each message. Its ``listed`` is the message as it was read."""
        for message in self._found():
            yield self._app.handle_of(message)

    async def __aiter__(self) -> AsyncIterator[Handle[Any]]:
        """Yield the same handles without blocking the event loop."""
        found = self._found()
        while several := await self._app.ask_async(lambda *_: [*islice(found, AT_ONCE)]):
            for message in several:
                yield self._app.handle_of(message)

    def _found(self) -> Iterator[Message]:
        return self._app.ask_for_each(lambda store: store.selector.messages(self._selection))

    def count(self) -> int:
        """The number of messages at present. It reads all of them."""
        return sum(1 for _ in self)

    def cancel_all(self) -> int:
        """Cancel the selected messages that are scheduled or ready. Returns how many this call cancelled."""
        chosen = self._app.ask(lambda store: unreserved(store.selector, self._selection))
        return self._act(chosen, lambda each, queue, ids: each.cancel_all(queue, ids))

    def redrive_all(self, *, from_start: bool = False) -> int:
        """Return the selected dead letters to their queues, with attempts reset to zero. ``from_start``: without their
        checkpoints, steps and signals. Returns how many were returned. A dead letter stays if another message has its
        unique key by now."""
        chosen = self._app.ask(lambda store: dead_letters(store.selector, self._selection))
        return self._act(chosen, lambda each, queue, ids: each.redrive(queue, ids, from_start=from_start))

    def _act(self, chosen: Chosen, act: Callable[[MessageActions, str, list[str]], list[str]]) -> int:
        return sum(
            len(self._app.ask(lambda store: act(store.actions, queue, ids)))  # noqa: B023  called at once
            for queue, ids in by_queue(chosen).items()
        )
