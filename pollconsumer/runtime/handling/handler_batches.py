"""Batches as handlers and programs see them, and how they are built from a producer's arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Literal, TypedDict, Unpack

from pollconsumer.core.errors import BadData, NotFound, UsageError
from pollconsumer.core.lifecycle import State
from pollconsumer.core.messages import continuation as continuations
from pollconsumer.core.messages.codec import coded_packed
from pollconsumer.core.messages.continuation import INNER, identified
from pollconsumer.core.messages.message import Codec, NewMessage, check_stem
from pollconsumer.core.notation.instants import datetime_of, epoch_ms, moment_of
from pollconsumer.core.spans import Span
from pollconsumer.runtime.new_messages import Sendable, callback_of, lifetime_ms, message_of, refuse_own_identity
from pollconsumer.store.actions import CancelledMembers
from pollconsumer.store.queues.batches import Batches, NewBatch
from pollconsumer.store.queues.producer import Producer
from pollconsumer.store.reading.batch_reader import BatchCallback, BatchStatus
from pollconsumer.store.reading.messages import Message
from pollconsumer.store.store import Store

MOST_MEMBERS = 1_000_000
"""Maximum number of members that one producer may add to a batch."""
LONGEST_ID = 100
"""Maximum characters of a batch's id. The ids of its members and callbacks begin with it."""
FAILED = (State.DEAD, State.CANCELLED, State.EXPIRED)


class BatchOptions(TypedDict, total=False):
    """The options of a batch that a handler starts, except the id: see ``PollConsumer.batch``."""

    then: Sendable | None
    failed: Sendable | None
    ended: Sendable | None
    expires: Span | None
    cancelled_as: Literal["completed"] | None


def new_batch(
    batch_id: str,
    then: Sendable | None = None,
    failed: Sendable | None = None,
    ended: Sendable | None = None,
    expires: Span | None = None,
    cancelled_as: str | None = None,
    codec: Codec | None = None,
    within: str = "",
) -> NewBatch:
    """A batch with these callbacks, encoded by ``codec``. Its queue is ``within``, the outer batch's queue, if it is an
    inner batch; else that of the first callback. BadData for an invalid id, expiry, or ``cancelled_as``."""
    if batch_id.endswith(INNER) and not within:
        raise BadData("batch id", repr(batch_id), f"another ending than {INNER}, which those of inner batches have")
    if cancelled_as not in (None, "completed"):
        raise BadData("cancelled_as", repr(cancelled_as), "completed, or leave it out")
    check_stem(batch_id, "batch id", LONGEST_ID)
    given = {"then": then, "failed": failed, "ended": ended}
    called = {name: callback for name, callback in given.items() if callback is not None}
    batch_queue = within or next((callback_of(called[name], batch_id, name)["queue"] for name in called), "default")
    callbacks = {name: callback_of(callback, batch_id, name, batch_queue) for name, callback in called.items()}
    if codec is not None:
        callbacks = {name: coded_packed(callback, codec) for name, callback in callbacks.items()}
    lasts = 0 if expires is None else lifetime_ms("expires", expires)
    spares = cancelled_as is not None
    return NewBatch(batch_queue, batch_id, callbacks, lasts, spares_cancelled=spares, is_inner=bool(within))


def inner_id(batch: str, number: int) -> str:
    """The id of the inner batch that is member ``number`` of ``batch``."""
    return f"{batch}.{number}{INNER}"


def member_of(sendable: Sendable, batch_queue: str, batch: str, number: int) -> NewMessage:
    """``sendable`` as member ``number`` of ``batch``. UsageError if it has an id or a key of its own."""
    message = message_of(sendable, "a member of a batch")
    refuse_own_identity(message, "a member of a batch")
    return identified(message, f"{batch}.{number}", batch_queue)


@dataclass(frozen=True, slots=True)
class MemberOutcome:
    """How a member ended. ``error``: its last error; None if none is kept. ``result``: None unless it is completed.
    ``index``: its number in the batch, from 0. ``handler``: empty if only the result is kept. ``payload``: None if it
    is no longer kept, as for completed and cancelled members."""

    id: str
    index: int
    handler: str
    state: State
    result: Any
    error: str | None
    payload: dict[str, Any] | None
    headers: Mapping[str, str]


class Batch:
    """A batch. Attributes other than ``id`` and ``index``, and methods, ask the store. NotFound if the store does not
    have the batch, perhaps not yet. StoreUnreachable if the store does not answer."""

    id: str
    index: int | None = None
    """In a member's context, the member's number in the batch, from 0. None anywhere else."""

    def __init__(self, batch_queue: str, batch_id: str, ask: Callable[..., Any]) -> None:
        """``ask``: given a question, the batch's queue and id, and more, returns what `answer_about` does."""
        self.id, self._batch_queue, self._ask = batch_id, batch_queue, ask
        self._seen: BatchStatus | None = None

    def __repr__(self) -> str:
        """The id, and the state and counts that were read last."""
        seen = self._seen
        counts = "" if seen is None else f", {seen.state}: {seen.completed} of {seen.total} completed, {seen.dead} dead"
        return f"<Batch {self.id}{counts}>"

    def status(self) -> BatchStatus:
        """State, counts, times and callbacks of the batch."""
        return self._read(self._ask("status", self._batch_queue, self.id))

    @property
    def state(self) -> str:
        """``open``, ``closed``, ``ended``, ``abandoned`` or ``expired``."""
        return self.status().state

    @property
    def total(self) -> int:
        """The number of members. While the batch is open: only of those that members have added. If it was abandoned:
        how many have ended, at least."""
        return self.status().total

    @property
    def completed(self) -> int:
        """How many members are completed."""
        return self.status().completed

    @property
    def dead(self) -> int:
        """How many members are dead letters."""
        return self.status().dead

    @property
    def cancelled(self) -> int:
        """How many members were cancelled or stopped."""
        return self.status().cancelled

    @property
    def expired(self) -> int:
        """How many members have expired."""
        return self.status().expired

    def results(self) -> Iterator[MemberOutcome]:
        """The completed members with their results, sorted by number, read a page at a time. It includes members that
        were deleted, as long as their results are kept: for the handler's ``result_ttl``, and two days at least."""
        return self._outcomes("results")

    def failures(self) -> Iterator[MemberOutcome]:
        """The members that are dead, cancelled or expired now, sorted by number."""
        return (each for each in self._outcomes("failed") if each.state in FAILED)  # without members that were redriven

    def wait(self, timeout: Span | None = None) -> BatchStatus:  # noqa: ARG002  of a program's
        """Wait until the batch has ended, is abandoned or has expired. Returns its status. TimeoutError after
        ``timeout``: seconds, text such as ``5m``, or a timedelta; by default it waits without limit. UsageError in a
        handler, whose slot the members may need. It polls the store every half second or more often."""
        raise in_a_handler()

    def cancel(self) -> CancelledMembers:
        """Cancel all members that have not ended. Running ones are asked to stop, as by ``message.stop()``. Returns how
        many were cancelled at once, and how many were asked to stop. An open batch still accepts further members."""
        return sum_cancelled(self._pages("cancel"))

    def redrive(self) -> int:
        """Requeue the dead members, with attempts reset to zero. Returns their number."""
        return sum(redriven for redriven, _ in self._pages("redrive"))

    def add(self, member: Sendable) -> str:  # noqa: ARG002  of others
        """Add a member: ``handler.args(…)``, of any handler and queue, or a chain. Returns its id. What a handler adds,
        to its own batch or to one that it starts, is enqueued when its message is completed. UsageError outside the
        batch's ``with`` block, in a callback, and in a link of a chain before the last."""
        raise UsageError("batch", self.id, "add members within the with block of app.batch(...), or in a member")

    def add_batch(self, **options: Unpack[BatchOptions]) -> Batch:  # noqa: ARG002  of others
        """Add a batch as a member. It counts as completed if all of its own members are completed, else as dead, once
        it has ended. Options are those of ``PollConsumer.batch``, without the id. Errors are those of `add`. In a
        program use it with ``with`` or ``async with``, within the block of this batch."""
        raise UsageError("batch", self.id, "add batches within the with block of app.batch(...), or in a member")

    def _read(self, found: list[Any]) -> BatchStatus:
        """The status, made of the answer ``found``."""
        *numbers, created, ended, expires, callbacks = found
        instants = [datetime_of(created), moment_of(ended), moment_of(expires)]
        self._seen = BatchStatus._make([*numbers, *instants, tuple(BatchCallback(*each) for each in callbacks)])
        return self._seen

    def _pages(self, what: str, *more: Any) -> Iterator[Any]:
        """Ask the question ``what`` about the batch chunk by chunk. Yields the answers."""
        at: int | None = 0
        while at is not None:
            page, at = self._ask(what, self._batch_queue, self.id, *more, at)
            yield page

    def _outcomes(self, which: str) -> Iterator[MemberOutcome]:
        for page in self._pages("members", which):
            for message_id, index, handler, state, *rest in page:
                yield MemberOutcome(message_id, index, handler, State(state), *rest)


def in_a_handler() -> UsageError:
    return UsageError("batch.wait", "in a handler", "give the batch a callback: then=, failed=, ended=")


def sum_cancelled(pages: Iterable[Sequence[int]]) -> CancelledMembers:
    return CancelledMembers(*map(sum, zip(*pages, strict=True)))


class MemberBatch(Batch):
    """The batch of which the message in flight is a member or a callback."""

    def __init__(
        self,
        batch_queue: str,
        batch_id: str,
        index: int | None,
        ask: Callable[..., Any],
        add: Callable[[NewMessage, int], None],
        start: Callable[[str, BatchOptions, str, int], StartedBatch],
    ) -> None:
        super().__init__(batch_queue, batch_id, ask)
        self.index, self._add, self._start = index, add, start
        self._numbers = iter(range(0))
        self._next_size = 1

    def add(self, member: Sendable) -> str:
        message = member_of(member, self._batch_queue, self.id, self._number())
        self._add(message, 1)  # GUARD the batch grows
        return message.id

    def add_batch(self, **options: Unpack[BatchOptions]) -> Batch:
        # GUARD the batch grows by an inner one
        return self._start(inner_id(self.id, self._number()), options, self._batch_queue, 1)

    def _number(self) -> int:
        """The number of a further member. The store gives several at a time."""
        if self.index is None:
            raise UsageError("batch.add", f"in a callback of {self.id}", "start another batch: context.start_batch")
        number = next(self._numbers, None)
        if number is None:
            size = self._next_size  # another thread of the handler may ask in between
            number = self._ask("number", self._batch_queue, self.id, size)
            if number is None:
                raise NotFound("no such batch", self.id, "it has ended and was deleted")
            self._numbers = iter(range(number + 1, number + size))
            self._next_size = min(2 * size, continuations.MOST_ADDED_AT_ONCE)
        return number


class StartedBatch(Batch):
    """A batch that a handler starts. It takes members until the handler's message is completed."""

    def __init__(
        self,
        batch: NewBatch,
        ask: Callable[..., Any],
        add: Callable[[NewMessage], None],
        start: Callable[[str, BatchOptions, str, int], StartedBatch],
        at_end: list[Callable[[], NewBatch]],
    ) -> None:
        """``at_end`` gets a function that returns the batch with its number of members, for the handler's end."""
        super().__init__(batch.queue, batch.id, ask)
        self._add, self._start, self._members = add, start, 0
        self._adding = Lock()
        at_end.append(lambda: batch._replace(total=self._members))

    def add(self, member: Sendable) -> str:
        with self._adding:
            message = member_of(member, self._batch_queue, self.id, self._members)
            self._add(message)
            self._members += 1
        return message.id

    def add_batch(self, **options: Unpack[BatchOptions]) -> Batch:
        with self._adding:
            inner = self._start(inner_id(self.id, self._members), options, self._batch_queue, 0)
            self._members += 1
        return inner


def first_number(producer: Producer, continuation: bytes, batch_queue: str, batch_id: str, count: int) -> int | None:
    """Reserve ``count`` numbers for members, which a message with this ``continuation`` adds. Returns the first; None
    if there is no such batch. UsageError in a link of a chain before the last, whose end is not the end of a member."""
    if continuations.decoded(continuation)[0].links:  # GUARD a batch grows with the end of a chain
        raise UsageError("batch.add", "before the last link of a chain", "add members in the last link")
    return Batches(producer).number_members(batch_queue, batch_id, count)


def answer_about(
    store: Store,
    what: str,
    batch_queue: str,
    batch_id: str,
    *more: Any,
    readable: Callable[[Message], Message] = lambda message: message,
) -> Any:
    """The answer to the question ``what`` of a `Batch`. For ``status``: the batch's status. For ``members``, ``cancel``
    and ``redrive``, the last argument is a chunk's number, and the answer is a pair: the chunk's members, or the counts
    of what was done in it; and the next chunk's number, None after the last. NotFound if there is no such batch."""
    reader = store.batches
    batch = reader.status(batch_id, batch_queue) if what == "status" else reader.batch(batch_id, batch_queue)
    if what == "status":
        instants = (None if each is None else epoch_ms(each) for each in batch[8:11])
        return [*batch[:8], *instants, batch.callbacks]
    if what == "members":
        found, following = reader.page(batch, *more)
        return [outcome_of(readable(each)) for each in found], following
    acting = store.batch_actions
    return (acting.cancel_chunk if what == "cancel" else acting.redrive_chunk)(batch, *more)


def outcome_of(message: Message) -> tuple[Any, ...]:
    """How a member ended: the fields of a `MemberOutcome` as JSON values."""
    member = continuations.member_of(message.id)
    number = member[1] if member else None
    ended = message.id, number, message.handler, str(message.state), message.result, message.last_error
    return *ended, message.payload, dict(message.headers)
