"""What is wrong with queues, as that nobody comes for their messages; and which batches are stuck: they do not end in
time, or nobody comes for their members."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

from pollconsumer.core.notation.text import counted
from pollconsumer.core.notation.timespan import DAY, format_duration
from pollconsumer.watching.health.facts import BatchFacts, Expected, Facts, Finding, QueueFacts
from pollconsumer.watching.health.groups import LaunchGroup

INSTALL = "'pollconsumer init cron --install'"
LONG_WAIT = 600.0
"""Seconds: a ready message that waits longer waits too long, unless launches come more rarely."""
BATCH_LATE, BATCH_LONG = 600.0, 3600.0
"""Seconds for which a batch may be overdue, and after which a closed one should not wait for launches."""


def of_queues(facts: Facts, groups: Sequence[LaunchGroup]) -> Iterator[Finding]:
    consumers = [group for group in groups if group.role == "consumer"]
    missed = _missed(facts, consumers)
    if missed[None] and not consumers:
        what = f"no launch has run yet for {_named(missed[None])}"
        yield _unserved(missed[None], facts.expected, what, f"{INSTALL} has cron start one each minute")
    for queue in facts.queues:
        serving = [group for group in consumers if queue.name in group.queues]
        if any(not group.absent for group in serving):
            yield from _of_served(queue, serving)
        elif queue in missed[None] and consumers:
            fix = f"start 'pollconsumer run --queue {queue.name}' too"
            if queue.name not in (facts.expected.queues or ("default",)):
                fix += ", or name it in consumer.queues with the others"
            yield _unserved([queue], facts.expected, f"no launch serves queue {queue.name}", fix)
        yield from _of_pause(queue)
        yield from _of_ends(queue, facts.expected.recent)
        yield from _of_parked(queue, facts.paused_handlers)
        if queue.quarantined:
            yield Finding(
                "outbox_unreadable", queue.name, f"messages in the outbox of queue {queue.name} cannot be read",
                counted(queue.quarantined, "message"),
                "look at them with 'pollconsumer dead list --unreadable', then purge them",
            )  # fmt: skip
    for group in consumers:
        if queues := missed[group.name]:
            yield _absent(group, queues)
    deserted = {queue.name for queues in missed.values() for queue in queues}
    overdue = sum(queue.overdue for queue in facts.queues if queue.name in deserted)
    yield from _of_movers((group for group in groups if group.role == "mover"), overdue)
    yield from _of_recurrences(facts, groups, deserted)


def _missed(facts: Facts, consumers: Sequence[LaunchGroup]) -> defaultdict[str | None, list[QueueFacts]]:
    """The queues in use for which no consumer comes, by the one that came last; those of none by None."""
    found = defaultdict[str | None, list[QueueFacts]](list)
    nobody_there = all(group.absent for group in consumers)
    for queue in facts.queues:
        serving = [group for group in consumers if queue.name in group.queues]
        latest = min(serving, key=lambda group: group.seen, default=None)
        if any(not group.absent for group in serving):
            continue
        if latest is None:
            if _waiting(queue):
                found[None].append(queue)
        elif _waiting(queue) or (
            (nobody_there or _is_expected(queue, latest, facts.expected))
            and not _was_tried(queue, latest, facts, consumers)
        ):
            found[latest.name].append(queue)
    return found


def _of_pause(queue: QueueFacts) -> Iterator[Finding]:
    """The finding about a pause that may be forgotten."""
    waits = queue.oldest_ready
    if queue.paused and not queue.resumes and waits is not None and waits > DAY:
        yield Finding(
            "paused", queue.name, f"queue {queue.name} is paused",
            f"{counted(queue.ready, 'message')} ready, the oldest for {format_duration(waits)}",
            f"'pollconsumer queue resume {queue.name}' ends the pause, 'queue pause {queue.name} --for 2h' limits it",
        )  # fmt: skip


def _of_parked(queue: QueueFacts, paused: Collection[str]) -> Iterator[Finding]:
    for handler, messages in sorted(queue.parked.items()):
        if handler in paused:
            continue
        yield Finding(
            "handler_unknown", handler, f"no launch knows handler {handler}",
            f"{counted(messages, 'message')} wait{'s' if messages == 1 else ''} in queue {queue.name}",
            f'add its module to handlers, or aliases=["{handler}"] to the handler that has another name now',
        )  # fmt: skip


def _of_movers(movers: Iterable[LaunchGroup], overdue: int) -> Iterator[Finding]:
    for mover in movers:
        if mover.absent and (overdue or mover.seen < DAY):
            yield Finding(
                "mover_absent", None, "no mover has run lately", _seen(mover),
                "check that cron, or your platform, still starts 'pollconsumer move'",
            )  # fmt: skip


def _waiting(queue: QueueFacts) -> int:
    return queue.ready + queue.scheduled


def _is_expected(queue: QueueFacts, latest: LaunchGroup, expected: Expected) -> bool:
    """Whether a queue without messages, which no launch served lately, is still in use: it may have been given up."""
    return queue.name in expected.queues or latest.seen < DAY


def _was_tried(queue: QueueFacts, latest: LaunchGroup, facts: Facts, consumers: Sequence[LaunchGroup]) -> bool:
    """Whether a person alone named the queue, in a launch or two beside the usual ones: it may be misspelt."""
    is_known = queue.name in facts.expected.queues or any(each.queue == queue.name for each in facts.recurrences)
    return latest.by_hand and not is_known and not all(group.by_hand for group in consumers)


def _unserved(queues: Sequence[QueueFacts], expected: Expected, what: str, fix: str) -> Finding:
    if user := expected.alone:
        fix += f"; launches of another user than {user} do not read this store: set data= or store= to share one"
    return Finding("queue_unserved", ",".join(queue.name for queue in queues), what, _counts(queues), fix)


def _absent(group: LaunchGroup, queues: Sequence[QueueFacts]) -> Finding:
    """The finding about a consumer that stays away, with the queues that no other one has served since."""
    subject = ",".join(queue.name for queue in queues)
    value = _seen(group) + (f", {counts}" if (counts := _counts(queues)) else "")
    if group.by_producers:
        return Finding(
            "launch_absent", subject, f"only producers start launches for {_named(queues)}",
            f"the last one that was not theirs started {format_duration(group.seen)} ago",
            f"add a crontab line ({INSTALL}): without it retries, and messages due later, wait",
        )  # fmt: skip
    by_hand = not any(each.get("platform") for each in group.launches)
    return Finding(
        "launch_absent", subject, f"no launch has run lately for {_named(queues)}", value,
        "check that cron, or your platform, still starts 'pollconsumer run'"
        + (f"; {INSTALL} has cron start it" if by_hand else ""),
    )  # fmt: skip


def _of_ends(queue: QueueFacts, recent: float) -> Iterator[Finding]:
    """Findings about messages that came to a bad end of late, and about occurrences that were skipped."""
    span = format_duration(recent)
    if queue.died:
        yield Finding(
            "dead_letters", queue.name, f"queue {queue.name} has new dead letters", f"{queue.died} in the last {span}",
            f"'pollconsumer dead list --queue {queue.name}' shows why; then redrive or purge them",
        )  # fmt: skip
    if queue.skipped_ago is not None and queue.skipped_ago < recent:
        yield Finding(
            "occurrences_skipped", queue.name, f"occurrences of queue {queue.name} were skipped",
            f"{queue.skipped} so far, the last one {format_duration(queue.skipped_ago)} ago",
            "'pollconsumer recurrences list' shows which; launches are too rare, or the previous one is unfinished",
        )  # fmt: skip


def _of_served(queue: QueueFacts, serving: Sequence[LaunchGroup]) -> Iterator[Finding]:
    longest = max(LONG_WAIT, min(group.allowed for group in serving))
    if queue.oldest_ready is not None and queue.oldest_ready > longest and not queue.paused:
        yield Finding(
            "oldest_ready", queue.name, f"queue {queue.name} is behind",
            f"its oldest ready message has waited {format_duration(queue.oldest_ready)}, {queue.ready} are ready",
            "raise consumer.concurrency or consumer.instances, or the queue's limits",
        )  # fmt: skip
    if queue.overdue_by is not None and queue.overdue_by > longest and not queue.paused:
        yield Finding(
            "overdue", queue.name, f"messages of queue {queue.name} are overdue",
            f"{counted(queue.overdue, 'message')}, the oldest for {format_duration(queue.overdue_by)}",
            "launches run, but do not get to them: see the log of one (run -v)",
        )  # fmt: skip


def _of_recurrences(facts: Facts, groups: Sequence[LaunchGroup], deserted: set[str]) -> Iterator[Finding]:
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
                "recurrence_unowned", each.name, f"no launch defines recurrence {each.name} any more",
                f"launches of {' '.join(each.owners)} did",
                f"start these again, or remove it ('pollconsumer recurrences remove {each.name}')",
            )  # fmt: skip


def _named(queues: Sequence[QueueFacts]) -> str:
    return f"queue{'s'[: len(queues) > 1]} {', '.join(queue.name for queue in queues)}"


def _counts(queues: Sequence[QueueFacts]) -> str:
    counts = {what: sum(getattr(queue, what) for queue in queues) for what in ("ready", "scheduled", "overdue")}
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count)


def _seen(group: LaunchGroup) -> str:
    rate = "" if group.period is None else f", before that every {format_duration(group.period)}"
    return f"the last one {format_duration(group.seen)} ago{rate}"


def of_batches(facts: Facts, groups: Sequence[LaunchGroup]) -> Iterator[Finding]:
    served = {queue for group in groups if group.role == "consumer" and not group.absent for queue in group.queues}
    for batch in facts.batches:
        if batch.overdue_by is not None and batch.overdue_by > BATCH_LATE:
            yield _of_overdue_batch(batch)
        elif batch.state == "closed" and batch.age > BATCH_LONG and not served.issuperset(batch.queues[1:]):
            yield _of_unserved_batch(batch, [queue for queue in batch.queues[1:] if queue not in served])


def _of_overdue_batch(batch: BatchFacts) -> Finding:
    end = "abandoned" if batch.state == "open" else "expired"
    return Finding(
        "batch_stuck", batch.id, f"batch {batch.id} is still {batch.state}",
        f"it should have been {end} {format_duration(batch.overdue_by or 0.0)} ago",
        f"launches of queue {batch.queues[0]} do that: check that they run, and see the log of one (run -v)",
    )  # fmt: skip


def _of_unserved_batch(batch: BatchFacts, unserved: Sequence[str]) -> Finding:
    return Finding(
        "batch_stuck", batch.id, f"no launch serves the members of batch {batch.id}",
        f"{batch.outstanding} of {batch.total} have not ended after {format_duration(batch.age)}",
        f"start launches for queue{'s'[: len(unserved) > 1]} {', '.join(unserved)}, or cancel the batch",
    )  # fmt: skip
