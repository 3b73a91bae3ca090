"""A launch's work for its queues other than handling: announcement, due recurrences, repairs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any

from pollconsumer.core.errors import NodeLost, PollConsumerError
from pollconsumer.core.events import MessagesFound, OrphansRecovered
from pollconsumer.runtime.launch.launch import Launch, LaunchPlan
from pollconsumer.store.leases import set_back_by
from pollconsumer.store.queues import outbox
from pollconsumer.store.records.reservations import DeadLetter

EVERY = 1.0
"""Seconds between repairs."""
EXPIRING_FOR = 0.2
"""Maximum seconds of `end_expired` at a launch's end. The next launch may wait meanwhile."""
EXPIRING_PAGES = 10
LAUNCHED_EVERY = 600.0
"""Assumed maximum time between two launches of a consumer, in seconds, unless its settings make it longer."""


def served_for(plan: LaunchPlan) -> float:
    """Seconds after a launch's start during which its queues count as served: twice the longest of its timeout, the
    time between scheduled launches, and ten minutes. Another launch of its group should have started by then."""
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
    ``served``: whether this launch handles its messages. ``handlers``: as in `Maintenance.announce`."""
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
    """Send the messages in the outbox of ``queue`` to their queues. Returns their number."""

    def others(*members: Any) -> list[str]:
        from pollconsumer.store.reading.batch_reader import BatchReader  # members' ids are seldom taken

        return BatchReader(launch.store.wire, launch.store.keys.namespace).others(*members)

    return outbox.send(launch.store, queue, launch.emit, others)


def repair(launch: Launch, queue: str, live_fences: list[bytes], on_dead_letter: Callable[[DeadLetter], object]) -> int:
    """Recover orphans, let messages begin that waited for a concurrency key which is free now, and send what dead
    launches left in the outbox. ``live_fences``: those of the launches that are alive. Returns how many messages this
    made ready."""
    recovered = launch.store.maintenance.recover(queue, live_fences, on_dead_letter=on_dead_letter)
    if recovered:
        launch.emit(OrphansRecovered(queue, recovered))
    offered = launch.store.maintenance.offer_places(queue)
    return recovered + offered + send_on(launch, queue)


def end_expired(launch: Launch, queues: Sequence[str]) -> None:
    """Expire messages of ``queues``, which no launch serves, and send what is in the outboxes of these queues. Time may
    not suffice for all queues, so each launch begins with another queue. Errors are ignored, since rights may be
    missing."""
    until = min(launch.clock() + EXPIRING_FOR, launch.window.stop_before - launch.min_margin / 2)
    first = int(launch.claim.fence) % len(queues) if queues else 0
    for queue in (*queues[first:], *queues[:first]):
        if launch.clock() >= until:
            return
        with suppress(PollConsumerError):
            launch.store.maintenance.expire(queue, EXPIRING_PAGES)
            send_on(launch, queue)
