"""What a heartbeat sees of the messages in its launch's hand: those that take long are told to the store.

The launch itself writes when a handler began with its end: a write for each beginning would cost brief messages more
than they take.
"""

from __future__ import annotations

from pollconsumer.runtime.launch.shared_memory.flight import Flight
from pollconsumer.store.records.id_text import id_text

LOOK_EVERY = 0.4
"""Seconds: a message that is in hand at two looks is told of within a second of its beginning."""
MOST_TOLD = 256
"""How many messages are told of, at most: as many as a launch may have slots."""


class Sightings:
    """Since when each message has been in hand, on the boot clock, as of the last look."""

    def __init__(self, flight: Flight) -> None:
        self._flight = flight
        self._since: dict[tuple[str, bytes], float] = {}
        self._told: set[tuple[str, bytes]] = set()
        self._late: set[tuple[str, bytes]] = set()
        """Messages whose launch was called at their limits."""

    def look(self, now: float) -> bool:
        """Look again. Returns whether a message was in hand at the look before, and was not told of yet."""
        in_hand = [(each.queue, each.id) for each in self._flight.left_behind() if not each.ended]
        self._since = {each: self._since.get(each, now) for each in in_hand}
        standing = {each for each, since in self._since.items() if since < now}
        untold, self._told = standing - self._told, standing
        return bool(untold)

    def any_overdue(self, now: float) -> bool:
        """Whether the limit of a message in hand has passed since the last call; ``now`` on the monotonic clock."""
        late = {(each.queue, each.id) for each in self._flight.left_behind() if 0.0 < each.ends_by <= now}
        new, self._late = late - self._late, late
        return bool(new)

    def standing(self) -> list[tuple[str, str, float]]:
        """Queue and id of each message that was in hand at two looks, and when it was first seen."""
        told = [(*each, self._since[each]) for each in self._told]
        return [(queue, id_text(message_id), since) for queue, message_id, since in told[:MOST_TOLD]]
