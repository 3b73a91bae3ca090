"""What a launch does for queues besides handling: its announcement, due recurrences, and repairs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from pollconsumer.core.errors import NodeLost, PollConsumerError
from pollconsumer.core.events import (
    ConflictDropped,
    MessagesFound,
    NewerMessagesFound,
    OrphansRecovered,
    OutboxEntryRefused,
)
from pollconsumer.runtime.launch.launch import Launch, LaunchPlan
from pollconsumer.store.leases import set_back_by
from pollconsumer.store.queues import outbox
from pollconsumer.store.records.reservations import DeadLetter

EVERY = 1.0
"""Seconds between repairs."""
EXPIRING_FOR = 0.2
"""Most seconds that a launch spends at its end on queues that nobody serves, since a successor may wait."""
EXPIRING_PAGES = 10
LAUNCHED_EVERY = 600.0
"""Assumed maximum time between launches of a consumer, in seconds, unless its settings say otherwise."""


def served_for(plan: LaunchPlan) -> float:
    """Within so many seconds of a launch's start, another launch of its group can be expected: twice its timeout, or
    the time between launches by its schedule, and twenty minutes at least."""
    between = 0.0
    if plan.next_launches is not None:
        next_launch, the_one_after = plan.next_launches
        between = max(next_launch, the_one_after - next_launch)
    return 2 * max(LAUNCHED_EVERY, plan.timeout, between)


def announce(
    launch: Launch,
    queue: str,
    on_dead_letter: Callable[[DeadLetter], object],
    handlers: Collection[str] = (),
    *,
    served: bool = True,
) -> None:
    """Take ``queue`` over from earlier launches, before anything is done there: recover orphans, and repair the queue.
    ``served``: this launch and its successors handle its messages. ``handlers``: as in `Maintenance.announce`."""
    # A message that takes long keeps this launch from announcing the queue again, and the next launches from the lease.
    seconds = served_for(launch.plan) + launch.end.farthest() - launch.end.stop_before if served else 0.0
    recovered = launch.store.maintenance.announce(
        launch.claim, queue, served_for=seconds, on_dead_letter=on_dead_letter, handlers=handlers
    )
    found = launch.store.maintenance.repair(queue)
    reached_ms = int(launch.claim.fence)  # a fence is never lower than the time that the clock has shown
    if set_back_by(reached_ms, launch.attendance.seen_ms):  # recurrences and rates go on at once
        # Imported lazily: hardly any clock is ever set back.
        from pollconsumer.store.recurrences import LaunchRecurrences

        LaunchRecurrences(launch.store.wire, launch.store.keys.namespace).begin_anew(launch.claim, queue)
        launch.store.maintenance.book_anew(queue, reached_ms)
    if launch.store.wire.is_cluster:
        with suppress(NodeLost):  # of a batch's queue: a later launch reports to it
            outbox.report_again(launch.store, queue)
    if recovered:
        launch.emit(OrphansRecovered(queue, recovered))
    if found:
        launch.emit(MessagesFound(queue, found))


def tick(launch: Launch, queue: str) -> int:
    """Enqueue the due occurrences of a queue's recurrences. Returns their number."""
    # Imported lazily: most queues have no recurrences.
    from pollconsumer.store.recurrences import LaunchRecurrences

    recurring, asked = LaunchRecurrences(launch.store.wire, launch.store.keys.namespace), launch.clock()

    def attended_since(now_ms: int) -> int:
        return launch.attendance.since(now_ms, asked, launch.clock())

    return recurring.tick(launch.claim, queue, attended_since, launch.emit)


def send_on(launch: Launch, queue: str) -> int:
    """Send the entries in the outbox of ``queue``. Returns the number of messages."""

    def report_conflict(message_id: str, receiver: str) -> None:
        launch.emit(ConflictDropped(message_id, receiver))

    def report_refusal(of: str, reason: str) -> None:
        launch.emit(OutboxEntryRefused(of, reason))

    def others(*members: Any) -> list[str]:
        from pollconsumer.store.reading.batch_reader import BatchReader  # members' ids are seldom taken

        return BatchReader(launch.store.wire, launch.store.keys.namespace).others(*members)

    leaving = partial(launch.emit, NewerMessagesFound(queue))
    return outbox.send(launch.store, queue, report_conflict, leaving, report_refusal, others)


def repair(launch: Launch, queue: str, live_fences: list[bytes], on_dead_letter: Callable[[DeadLetter], object]) -> int:
    """Recover orphans, offer places of concurrency keys, and send what dead launches left in the outbox.

    Returns how many messages became ready by that.
    """
    recovered = launch.store.maintenance.recover(queue, live_fences, on_dead_letter=on_dead_letter)
    if recovered:
        launch.emit(OrphansRecovered(queue, recovered))
    offered = launch.store.maintenance.offer_places(queue)
    sent = send_on(launch, queue)
    return recovered + offered + sent


def end_expired(launch: Launch, queues: Sequence[str]) -> None:
    """Expire messages of ``queues`` that nobody serves, and send what their outboxes have. A launch has time for some
    of the queues, so each launch begins with another queue. Errors of the store are ignored, since rights to these
    queues may be missing."""
    until = min(launch.clock() + EXPIRING_FOR, launch.window.stop_before - launch.min_margin / 2)
    first = int(launch.claim.fence) % len(queues) if queues else 0
    for queue in (*queues[first:], *queues[:first]):
        if launch.clock() >= until:
            return
        with suppress(PollConsumerError):
            launch.store.maintenance.expire(queue, EXPIRING_PAGES)
            send_on(launch, queue)
