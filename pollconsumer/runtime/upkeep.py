"""What a launch does for queues besides handling: recurrences at their instants, and repairs."""

from __future__ import annotations

from collections.abc import Callable

from pollconsumer.core.events import ConflictDropped, OrphansRecovered
from pollconsumer.runtime.launch.held import Launch
from pollconsumer.store import outbox
from pollconsumer.store.reservations import DeadLetter

EVERY = 1.0
"""Seconds between repairs."""


def tick(launch: Launch, queue: str) -> int:
    """Enqueue the due occurrences of a queue's recurrences. Returns how many."""
    # Imported lazily: most queues have none.
    from pollconsumer.store.recurring import Recurring

    recurring = Recurring(launch.store.wire, launch.store.keys.namespace)
    return recurring.tick(launch.holder, queue, launch.held_since, launch.emit)


def repair(launch: Launch, queue: str, live_fences: list[bytes], on_dead_letter: Callable[[DeadLetter], object]) -> int:
    """Recover orphans, offer places of concurrency keys, and send what dead launches left in the outbox.

    Returns how many messages that made ready.
    """
    recovered = launch.store.recover(queue, live_fences, on_dead_letter=on_dead_letter)
    if recovered:
        launch.emit(OrphansRecovered(queue, recovered))
    offered = launch.store.offer_places(queue)
    sent = outbox.send(launch.store, queue, lambda *conflict: launch.emit(ConflictDropped(*conflict)))
    return recovered + offered + sent
