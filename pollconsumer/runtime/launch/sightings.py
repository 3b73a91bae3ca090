"""What a heartbeat sees of the messages in its launch's hand: those that take long are told to the store.

The launch itself writes when a handler began with its end: a write for each beginning would cost brief messages more
than they take.
"""

from __future__ import annotations

from pollconsumer.runtime.launch.shared_memory.flight import Flight
from pollconsumer.runtime.launch.shared_memory.launch_progress import Sighting
from pollconsumer.store.records.id_text import id_text

LOOK_EVERY = 0.4
"""Seconds: a message that is in hand at two looks is told of within a second of its beginning."""
MOST_TOLD = 256
"""How many messages are told of, at most: as many as a launch may have slots."""


class Sightings:
    """Since when each message has been in hand, on the boot clock, as of the last look."""

    def __init__(self, flight: Flight, stop_before: float) -> None:
        """``stop_before``: the end of the launch's window, on the monotonic clock."""
        self._flight, self._stop_before = flight, stop_before
        self._since: dict[tuple[str, bytes], float] = {}
        self._told: set[tuple[str, bytes]] = set()
        self.standing: list[Sighting] = []
        """The messages that were in hand at the last two looks."""
        self.beyond = False
        """Whether the window was over at the last look."""
        self._late: set[tuple[str, bytes]] = set()
        """Messages whose launch was called at their limits."""

    def look(self, now: float, monotonic: float) -> bool:
        """Look again; ``now`` on the boot clock. Returns whether a message was in hand at the look before, and was not
        told of yet, or only before the window was over."""
        in_hand = {(each.queue, each.id): each for each in self._flight.left_behind() if not each.ended}
        self._since = {each: self._since.get(each, now) for each in in_hand}
        standing = {each: since for each, since in self._since.items() if since < now}
        self.standing = [
            (each.handler, each.queue, id_text(each.id), standing[key], now + each.ends_by - monotonic)
            for key, each in in_hand.items()
            if key in standing
        ][:MOST_TOLD]
        beyond, before = monotonic > self._stop_before, self.beyond
        untold = standing.keys() - (self._told if beyond == before else ())
        self._told, self.beyond = {*standing}, beyond
        return bool(untold)

    def any_overdue(self, now: float) -> bool:
        """Whether the limit of a message in hand has passed since the last call; ``now`` on the monotonic clock."""
        late = {(each.queue, each.id) for each in self._flight.left_behind() if 0.0 < each.ends_by <= now}
        new, self._late = late - self._late, late
        return bool(new)
