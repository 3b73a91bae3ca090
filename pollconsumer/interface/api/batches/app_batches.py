"""``app.batches``: batches that anybody has enqueued."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from time import monotonic
from typing import Any, TypeVar

from pollconsumer.core.errors import UsageError
from pollconsumer.core.lifecycle import State, StateName
from pollconsumer.core.notation.timespan import Span
from pollconsumer.core.spans import seconds_in
from pollconsumer.interface.api.handle import Handle
from pollconsumer.interface.api.store_calls import StoreCalls
from pollconsumer.interface.settings.values import parse_word
from pollconsumer.runtime.handling.batch_in_hand import FAILED, MemberOutcome
from pollconsumer.runtime.handling.waits import slot_waits
from pollconsumer.runtime.session.batch_answers import outcome_of
from pollconsumer.store.batch_interventions import BatchInterventions, CancelledMembers
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.reading.batch_reader import UNFINISHED, BatchReader, BatchStatus
from pollconsumer.store.reading.messages import Message

T = TypeVar("T")
FIRST_PAUSE, LONGEST_PAUSE = 0.01, 0.5
_WHICH: Mapping[State | None, str] = {State.COMPLETED: "completed", State.DEAD: "dead"}
"""Which members to read for those of a state; for others all are read."""


class AppBatches:
    """An application's batches, iterable. ``get`` raises NotFound, all raise StoreUnreachable."""

    def __init__(self, app: StoreCalls) -> None:
        self._app = app

    def get(self, id: str) -> BatchHandle:  # noqa: A002  as in PollConsumer.batch
        """A handle to a batch that anybody has enqueued, and that is kept: until two days after its end."""
        return BatchHandle(self._app, self._app.ask(lambda *store: BatchReader(*store).batch(id)))

    async def get_async(self, id: str) -> BatchHandle:  # noqa: A002  as in PollConsumer.batch
        """`get` without blocking the event loop."""
        return BatchHandle(self._app, await self._app.ask_async(lambda *store: BatchReader(*store).batch(id)))

    def __iter__(self) -> Iterator[BatchHandle]:
        for found in self._app.ask_for_each(lambda *store: BatchReader(*store).batches()):
            yield BatchHandle(self._app, found)


class BatchHandle:
    """A batch. ``listed``: as it was when it was read. All methods raise NotFound once it is no longer kept, and
    StoreUnreachable."""

    def __init__(self, app: StoreCalls, listed: BatchStatus) -> None:
        self._app, self.listed = app, listed
        self.id = listed.id

    def __repr__(self) -> str:
        return f"BatchHandle(id={self.id!r})"

    @property
    def state(self) -> str:
        """How the batch is now: open, closed, ended, abandoned or expired."""
        return self.status().state

    def status(self) -> BatchStatus:
        """All that is known of the batch, as it is now."""
        return self._app.ask(self._read)

    async def status_async(self) -> BatchStatus:
        """`status` without blocking the event loop."""
        return await self._app.ask_async(self._read)

    def members(self, state: State | StateName | None = None) -> Iterator[Handle[Any]]:
        """Handles to the members that are kept, or to those in ``state``, in the order of their numbers; read a page at
        a time. Of a chain the link that came last. ``listed`` is the message as it was read."""
        wanted = None if state is None else parse_word(State, "state", state)
        for message in self._members(_WHICH.get(wanted)):
            if wanted is None or message.state is wanted:
                yield self._app.handle_of(message)

    def results(self) -> Iterator[MemberOutcome]:
        """The completed members with their results, as ``context.batch.results()`` gives them, in the order of their
        numbers; read a page at a time. Of one that is forgotten as long as its result is kept: its handler's
        ``result_ttl``, two days at least."""
        return self._outcomes("results")

    def failures(self) -> Iterator[MemberOutcome]:
        """The members that are dead, cancelled or expired now, as ``context.batch.failures()`` gives them."""
        return (each for each in self._outcomes("failed") if each.state in FAILED)

    def _outcomes(self, which: str) -> Iterator[MemberOutcome]:
        for message in self._members(which):
            message_id, index, handler, state, *rest = outcome_of(self._app.decoded(message))
            yield MemberOutcome(message_id, index, handler, State(state), *rest)

    def wait(self, timeout: Span | None = None) -> BatchStatus:
        """Wait until the batch has ended, is abandoned or has expired. Returns how it is then. TimeoutError after
        ``timeout``, in seconds, as text such as ``5m`` or as a timedelta; UsageError in a handler of a launch, whose
        place the members may need. Polls the store, at intervals up to half a second."""
        waiting = _BatchWait(self.id, timeout)
        while (pause := waiting.pause_after(status := self.status())) is not None:
            self._app.pause(pause)
        return status

    async def wait_async(self, timeout: Span | None = None) -> BatchStatus:
        """`wait` without blocking the event loop."""
        waiting = _BatchWait(self.id, timeout)
        while (pause := waiting.pause_after(status := await self.status_async())) is not None:
            await self._app.pause_async(pause)
        return status

    def cancel(self) -> CancelledMembers:
        """Cancel all members that have not ended: those in hand are asked to stop, as by ``message.stop()``. Returns
        how many were cancelled at once, and how many asked to stop. A batch that is open takes members all the same."""
        return self._done(BatchInterventions.cancel)

    async def cancel_async(self) -> CancelledMembers:
        """`cancel` without blocking the event loop."""
        return await self._done_async(BatchInterventions.cancel)

    def redrive(self) -> int:
        """Return the members that are dead letters to their queues, with all attempts again. Returns how many."""
        return self._done(BatchInterventions.redrive).redriven

    async def redrive_async(self) -> int:
        """`redrive` without blocking the event loop."""
        return (await self._done_async(BatchInterventions.redrive)).redriven

    def _members(self, which: str | None) -> Iterator[Message]:
        batch = self.status()
        return self._app.ask_for_each(lambda *store: BatchReader(*store).members(batch, which))

    def _done(self, intervene: Callable[[BatchInterventions, BatchStatus], Iterator[T]]) -> T:
        """Intervene in all chunks of the batch. Returns what was done."""
        batch = self.status()
        *_, done = self._app.ask_for_each(lambda *store: intervene(BatchInterventions(*store), batch))
        return done

    async def _done_async(self, intervene: Callable[[BatchInterventions, BatchStatus], Iterator[T]]) -> T:
        """`_done`, a chunk at a time in another thread, so that other calls come in between."""
        batch, done = await self.status_async(), list[T]()
        steps = self._app.ask_for_each(lambda *store: intervene(BatchInterventions(*store), batch))
        while step := await self._app.ask_async(lambda *_: [*islice(steps, 1)]):
            done = step
        return done[0]

    def _read(self, wire: Wire, namespace: str) -> BatchStatus:
        return BatchReader(wire, namespace).batch(self.id, self.listed.home)


class _BatchWait:
    """Says when to look at an awaited batch again."""

    def __init__(self, batch: str, timeout: Span | None) -> None:
        if slot_waits() is not None:
            raise UsageError("batch.wait", "in a handler", "give the batch a callback: then=, failed=, ended=")
        self._batch, self._timeout, self._pause = batch, timeout, FIRST_PAUSE
        self._until = None if timeout is None else monotonic() + seconds_in("timeout", timeout)

    def pause_after(self, status: BatchStatus) -> float | None:
        """Seconds until the next look; None if the batch has ended."""
        if status.state not in UNFINISHED:
            return None
        pause = self._pause
        if self._until is not None and (left := self._until - monotonic()) < pause:
            if left <= 0:
                raise TimeoutError(f"batch {self._batch} is still {status.state} after {self._timeout}")
            pause = left
        self._pause = min(LONGEST_PAUSE, pause * 2)
        return pause
