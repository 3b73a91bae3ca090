"""The batch of a message in hand: as a member of it, or as its callback."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pollconsumer.core.errors import NotFound, UsageError
from pollconsumer.core.lifecycle import State
from pollconsumer.core.messages.message import NewMessage
from pollconsumer.core.messages.sequel import MOST_ADDED_AT_ONCE
from pollconsumer.runtime.new_batches import member_of
from pollconsumer.runtime.new_messages import Sendable


@dataclass(frozen=True, slots=True)
class MemberOutcome:
    """How a member ended. ``error``: the last one, if it is not completed; ``result``: that of a completed one.
    ``index``: its number in the batch, from 0, as of ``context.batch.index``. ``handler``: empty if only the result is
    kept. ``payload``: None if it was dropped, as of members that are completed or cancelled."""

    id: str
    index: int
    handler: str
    state: State
    result: Any
    error: str | None
    payload: dict[str, Any] | None
    headers: Mapping[str, str]


FAILED = (State.DEAD, State.CANCELLED, State.EXPIRED)


class BatchInHand:
    """The batch that a message is a member of, of that ``index``; or whose callback it is, with None for an index.

    Its counts are those of when the first of them is read. They raise NotFound if the batch is no longer kept.
    """

    def __init__(
        self,
        home: str,
        batch_id: str,
        index: int | None,
        ask: Callable[..., Any],
        add: Callable[[NewMessage, int], None],
    ) -> None:
        """``ask`` asks the store ``status``, ``number`` or ``members``, given the batch's home and id, and more, in
        values of JSON."""
        self._home, self.id, self.index = home, batch_id, index
        self._ask, self._add = ask, add
        self._numbers = iter(range(0))
        self._next_size = 1

    @cached_property
    def _counts(self) -> dict[str, Any]:
        found: dict[str, Any] | None = self._ask("status", self._home, self.id)
        if found is None:
            raise NotFound("no such batch", self.id, "an ended batch is kept for two days")
        return found

    @property
    def state(self) -> str:
        """How the batch is: open, closed, ended, abandoned or expired."""
        return str(self._counts["state"])

    @property
    def total(self) -> int:
        """How many members the batch has; of one that is open, how many its members have added; of one that is
        abandoned, how many have ended at least."""
        return int(self._counts["total"])

    @property
    def completed(self) -> int:
        """How many members are completed."""
        return int(self._counts["completed"])

    @property
    def dead(self) -> int:
        """How many members are dead letters."""
        return int(self._counts["dead"])

    @property
    def cancelled(self) -> int:
        """How many members were cancelled or stopped."""
        return int(self._counts["cancelled"])

    @property
    def expired(self) -> int:
        """How many members have expired."""
        return int(self._counts["expired"])

    def results(self) -> Iterator[MemberOutcome]:
        """The completed members with their results, in the order of their numbers; read a page at a time. Of one that
        is forgotten as long as its result is kept: its handler's ``result_ttl``, two days at least."""
        return self._outcomes("results")

    def failures(self) -> Iterator[MemberOutcome]:
        """The members that are dead, cancelled or expired now, in the order of their numbers."""
        return (each for each in self._outcomes("failed") if each.state in FAILED)  # but for those that were redriven

    def add(self, member: Sendable) -> str:
        """Add a member, ``handler.args(…)`` or a chain, with the completion of this one, or not at all. Returns its id.
        UsageError in a callback and in a link before the last of a chain, NotFound if the batch is no longer kept."""
        if self.index is None:
            raise UsageError("batch.add", f"in a callback of {self.id}", "start another batch: context.start_batch")
        number = next(self._numbers, None)
        if number is None:
            size = self._next_size  # another thread of the handler may ask meanwhile
            number = self._ask("number", self._home, self.id, size)
            if number is None:
                raise NotFound("no such batch", self.id, "it has ended, and is no longer kept")
            self._numbers = iter(range(number + 1, number + size))
            self._next_size = min(2 * size, MOST_ADDED_AT_ONCE)
        message = member_of(member, self._home, self.id, number)
        self._add(message, 1)  # GUARD the batch grows
        return message.id

    def _outcomes(self, which: str) -> Iterator[MemberOutcome]:
        at: int | None = 0
        while at is not None:
            found, at = self._ask("members", self._home, self.id, which, at)
            for message_id, index, handler, state, *rest in found:
                yield MemberOutcome(message_id, index, handler, State(state), *rest)
