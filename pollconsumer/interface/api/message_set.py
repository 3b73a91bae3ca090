"""Messages that have something in common, to go through and to act on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from itertools import islice
from typing import Any

from pollconsumer.interface.api.handle import Handle
from pollconsumer.interface.api.store_calls import StoreCalls
from pollconsumer.store.queues.interventions import Interventions
from pollconsumer.store.reading.message_selector import (
    Chosen,
    Selection,
    by_queue,
    dead_letters,
    unreserved,
)
from pollconsumer.store.reading.messages import Message

AT_ONCE = 100
"""Messages that a thread reads for an event loop before it hands them over."""


class Messages:
    """What `PollConsumer.messages` selects: iterable, as often as you like. Each iteration reads the store anew, a page
    of 500 messages at a time, and keeps none of them.

    A message that enters another state meanwhile may be missed, or come twice. All methods: NotFound for an unknown
    queue, StoreUnreachable.
    """

    def __init__(self, app: StoreCalls, selection: Selection) -> None:
        self._app, self._selection = app, selection

    def __iter__(self) -> Iterator[Handle[Any]]:
        """A handle to each, whose ``listed`` is the message as it was read."""
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
        """How many there are now. Reads all of them."""
        return sum(1 for _ in self)

    def cancel_all(self) -> int:
        """Cancel those of the messages that are scheduled or ready. Returns how many are cancelled now."""
        chosen = self._app.ask(lambda store: unreserved(store.selector, self._selection))
        return self._act(chosen, lambda each, queue, ids: each.cancel_all(queue, ids))

    def redrive_all(self, *, from_start: bool = False) -> int:
        """Return the dead letters among them to their queues, with attempts reset to zero; ``from_start``: without
        their checkpoints, steps and signals. Returns how many were returned: one is left if another message has its
        unique key by now."""
        chosen = self._app.ask(lambda store: dead_letters(store.selector, self._selection))
        return self._act(chosen, lambda each, queue, ids: each.redrive(queue, ids, from_start=from_start))

    def _act(self, chosen: Chosen, act: Callable[[Interventions, str, list[str]], list[str]]) -> int:
        return sum(
            len(self._app.ask(lambda store: act(store.interventions, queue, ids)))  # noqa: B023  called at once
            for queue, ids in by_queue(chosen).items()
        )
