"""Messages that are handled at most once: recorded in the store as begun before their handlers are called.

A record takes a round trip. So brief messages are recorded several at a time, and a record takes along the settlement
of what was handled before. If the launch and its heartbeat die together, all recorded messages become dead letters; if
the launch dies alone, the heartbeat returns the messages whose handlers were not called.
"""

from __future__ import annotations

from pollconsumer.runtime.launch.shared_memory.series import BEGUN, RECORDED, Series
from pollconsumer.runtime.session.exchange import Exchange
from pollconsumer.store.records.reservations import Reservation
from pollconsumer.store.records.steps import Done

TOGETHER_FOR = 0.001
"""Seconds that messages recorded together are expected to take: about ten round trips, so that the round trip of the
record is a small part."""
MOST_TOGETHER = 8


def together(expected: float) -> int:
    """How many messages to record at a time if each is expected to take ``expected`` seconds."""
    return min(MOST_TOGETHER, int(TOGETHER_FOR / expected) or 1) if expected > 0 else MOST_TOGETHER


class Beginnings:
    """Keeps count, in the memory shared with the heartbeat, of which messages of a series are recorded."""

    def __init__(self, series: Series, exchange: Exchange) -> None:
        self._counts, self._exchange = series.counts, exchange

    def record(self, following: list[Reservation], done: list[Done]) -> bool:
        """Record ``following``, messages of one queue, as begun, unless the first was recorded before; then ``done`` is
        settled, too, and cleared. False if the first is not recorded: it must not be handled."""
        counts = self._counts
        if counts[BEGUN] >= counts[RECORDED]:
            counts[RECORDED] = counts[BEGUN] + len(following)  # before the store has it: the launch may die in between
            counts[RECORDED] = counts[BEGUN] + self._exchange.begin(following, done)
            done.clear()
        return counts[RECORDED] > counts[BEGUN]
