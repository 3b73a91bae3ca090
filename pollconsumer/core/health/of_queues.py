"""What is wrong with queues: nobody comes for their messages, or nobody has their handlers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pollconsumer.core.health.facts import Facts, Finding, Queue
from pollconsumer.core.health.groups import Group
from pollconsumer.core.notation.timespan import DAY, format_duration

LONG_WAIT = 600.0
"""Seconds: a ready message that waits longer waits too long, unless launches come more rarely."""


def of_queues(facts: Facts, groups: Sequence[Group]) -> Iterator[Finding]:
    consumers = [group for group in groups if group.role == "consumer"]
    movers = [group for group in groups if group.role == "mover"]
    anybody_there = any(not group.absent for group in consumers)
    deserted = set()
    for queue in facts.queues:
        serving = [group for group in consumers if queue.name in group.queues]
        if any(not group.absent for group in serving):
            yield from _of_served(queue, serving)
        elif finding := _of_deserted(facts, queue, serving, anybody_there=anybody_there):
            deserted.add(queue.name)
            yield finding
        for handler, messages in sorted(queue.parked.items()):
            yield Finding(
                "handler_unknown", handler, f"nobody has handler {handler}", f"{messages} waiting in {queue.name}",
                "name its module in handlers, for the launches that serve the queue",
            )  # fmt: skip
    overdue = sum(queue.overdue for queue in facts.queues if queue.name in deserted)
    for mover in movers:
        if mover.absent and (overdue or mover.seen < DAY):
            yield Finding(
                "mover_absent", None, "no mover came lately", _seen(mover),
                "see whether its launcher still starts 'pollconsumer move'",
            )  # fmt: skip
    yield from _of_recurrences(facts, groups, deserted)


def _of_deserted(facts: Facts, queue: Queue, serving: Sequence[Group], *, anybody_there: bool) -> Finding | None:
    """Of a queue that no launch has served lately. It may have been given up: then it has no messages."""
    waiting = queue.ready + queue.scheduled
    latest = min(serving, key=lambda group: group.seen, default=None)
    if latest is None:
        if not waiting:
            return None
        value = _counts(queue)
        fix = f"add it to consumer.queues, or launch 'pollconsumer run --queue {queue.name}'"
        return Finding("queue_unserved", queue.name, f"nobody serves queue {queue.name}", value, fix)
    expected = queue.name in facts.expected.queues or latest.seen < DAY or not anybody_there
    if not (waiting or expected):
        return None
    value = _seen(latest) + (f", {_counts(queue)}" if waiting else "")
    fix = "see whether its launcher still starts 'pollconsumer run'"
    return Finding("launch_absent", queue.name, f"no launch came lately for queue {queue.name}", value, fix)


def _of_served(queue: Queue, serving: Sequence[Group]) -> Iterator[Finding]:
    longest = max(LONG_WAIT, min(group.allowed for group in serving))
    if queue.oldest_ready is not None and queue.oldest_ready > longest and not queue.paused:
        yield Finding(
            "oldest_ready", queue.name, f"queue {queue.name} is behind",
            f"its oldest ready message waits since {format_duration(queue.oldest_ready)}, {queue.ready} are ready",
            "raise consumer.concurrency or consumer.instances, or the queue's limits",
        )  # fmt: skip
    if queue.overdue_by is not None and queue.overdue_by > longest and not queue.paused:
        yield Finding(
            "overdue", queue.name, f"messages of queue {queue.name} are not promoted",
            f"{queue.overdue} overdue, the oldest since {format_duration(queue.overdue_by)}",
            "launches come, and do not reach them: look at the log of one (run -v)",
        )  # fmt: skip


def _of_recurrences(facts: Facts, groups: Sequence[Group], deserted: set[str]) -> Iterator[Finding]:
    there = {group.name for group in groups if not group.absent}
    for queue in facts.queues:
        listed = sum(each.queue == queue.name and each.error is not None for each in facts.recurrences)
        if (more := queue.unreadable - listed) > 0 and listed:
            yield Finding(
                "recurrences_unreadable", queue.name, f"more recurrences of queue {queue.name} are unreadable",
                f"{more}", "'pollconsumer recurrences list' shows all",
            )  # fmt: skip
    for each in facts.recurrences:
        if each.error is not None:
            yield Finding(
                "recurrence_unreadable", each.name, f"recurrence {each.name} is unreadable", each.error,
                f"upgrade pollconsumer, or remove it ('pollconsumer recurrences remove {each.name}')",
            )  # fmt: skip
        elif each.owners and each.queue not in deserted and not there & {*each.owners}:
            yield Finding(
                "recurrence_unowned", each.name, f"nobody defines recurrence {each.name}", " ".join(each.owners),
                f"launch these again, or remove it ('pollconsumer recurrences remove {each.name}')",
            )  # fmt: skip


def _counts(queue: Queue) -> str:
    counts = {"ready": queue.ready, "scheduled": queue.scheduled, "overdue": queue.overdue}
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count)


def _seen(group: Group) -> str:
    rate = "" if group.period is None else f", every {format_duration(group.period)} before"
    return f"last seen {format_duration(group.seen)} ago{rate}"
