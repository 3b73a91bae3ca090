"""A batch as a program has it: with its members as handles, and without blocking an event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from pollconsumer.core.lifecycle import State, StateName
from pollconsumer.core.notation.timespan import Span
from pollconsumer.interface.api.handle import Handle, Looks
from pollconsumer.interface.api.store_calls import StoreCalls
from pollconsumer.interface.settings.values import parse_word
from pollconsumer.runtime.handling.batch_in_hand import Batch, answer_about, in_a_handler, sum_cancelled
from pollconsumer.runtime.handling.slot_waits import slot_waits
from pollconsumer.store.batch_interventions import CancelledMembers
from pollconsumer.store.reading.batch_reader import UNFINISHED, BatchStatus
from pollconsumer.store.store import Store

_WHICH: dict[State | None, str] = {State.COMPLETED: "completed", State.DEAD: "dead"}
"""Which members to read for those of a state; for others all are read."""
LONGEST_PAUSE = 0.5


class AppBatch(Batch):
    """A `Batch` of a program: one that it opens, or looks up."""

    def __init__(self, app: StoreCalls, home: str, batch_id: str, listed: BatchStatus | None = None) -> None:
        super().__init__(home, batch_id, lambda *question: app.ask(self._question(*question)))
        self._app, self._seen = app, listed

    @property
    def listed(self) -> BatchStatus:
        """The batch as it was read last."""
        return self._seen or self.status()

    def members(self, state: State | StateName | None = None) -> Iterator[Handle[Any]]:
        """Handles to the members that are kept, or to those in ``state``, in the order of their numbers; read a page at
        a time. Of a chain the link that came last. ``listed`` is the message as it was read."""
        wanted, batch = None if state is None else parse_word(State, "state", state), self.status()
        for message in self._app.ask_for_each(lambda store: store.batches.members(batch, _WHICH.get(wanted))):
            if wanted is None or message.state is wanted:
                yield self._app.handle_of(message)

    async def status_async(self) -> BatchStatus:
        """`status` without blocking the event loop."""
        return self._read(await self._app.ask_async(self._question("status", self._home, self.id)))

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
        if slot_waits() is not None:
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
        """What is answered of each chunk of the batch; other calls come in between."""
        at: int | None = 0
        while at is not None:
            page, at = await self._app.ask_async(self._question(what, self._home, self.id, at))
            yield page
