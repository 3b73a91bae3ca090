"""What the completion of a message brings about: what is enqueued next, and what its batch is told."""

from __future__ import annotations

import json
from typing import NamedTuple

from pollconsumer.core.lifecycle import State
from pollconsumer.core.messages.message import NewMessage
from pollconsumer.core.messages.sequel import Sequel, decoded
from pollconsumer.runtime.handling.context import LaunchContext
from pollconsumer.store.queues.outbox_entry import pack, told_of_member
from pollconsumer.store.records.reservations import Reservation
from pollconsumer.store.records.steps import Extra

RESULTS_KEPT_MS = 48 * 3600 * 1000
"""Time for which results of members are kept at least, for the callbacks of their batch."""


class Completion(NamedTuple):
    """A message that is completed ``at`` an instant of the server, in epoch ms, and its encoded result."""

    reservation: Reservation
    context: LaunchContext | None
    result: bytes
    at: int

    def extra(self, kept_for_ms: int) -> Extra | None:
        """What the completion leaves, if anything; its result for ``kept_for_ms``."""
        context, stored, told = self.context, self.reservation.lot.sequel, b""
        following, added = list[NewMessage](), 0
        if context is not None:
            following, added = [*context.enqueued], context.added
        if stored:
            sequel, _ = decoded(stored)
            following += self._next(sequel)
            if sequel.ends_member(State.COMPLETED):
                told = told_of_member(sequel.batch, added)
                kept_for_ms = kept_for_ms and max(kept_for_ms, RESULTS_KEPT_MS)  # GUARD results of members are kept
            elif sequel.batch:  # its id is the member's: its result would be taken for that of the chain
                kept_for_ms = 0
        opened = [] if context is None else context.batches()
        outgoing = pack(following, self.at, opened) if following or opened else b""
        kept = self.result if kept_for_ms else b""
        return (kept_for_ms, kept, outgoing, told) if kept or outgoing or told else None

    def _next(self, sequel: Sequel) -> list[NewMessage]:
        reservation, result = self.reservation, json.loads(self.result) if self.result else None
        return sequel.following(reservation.name, reservation.queue, State.COMPLETED, self.at, result)
