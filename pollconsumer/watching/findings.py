"""Computes what is wrong with a running system: findings from facts. Those about the server come first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from pollconsumer.core.choices import LauncherRule
from pollconsumer.core.coverage import WorkBeyond, holes_of, unserved_time
from pollconsumer.core.durations import OVERRUN_TARGETS
from pollconsumer.core.errors import shown
from pollconsumer.core.launcher import past_launch
from pollconsumer.core.notation.text import counted
from pollconsumer.core.spans import DAY, format_duration
from pollconsumer.core.window import StopReason
from pollconsumer.watching.facts import (
    AT_LEAST,
    LOOKED_AT,
    MISSED,
    Expected,
    Facts,
    Finding,
    LaunchGroup,
    QueueFacts,
    ServerFacts,
    groups_of,
)

UNRECORDED = ("launch_absent", "mover_absent", "launches_died")
"""Findings that only follow from a server that cannot write: launches cannot record that they came, or ended."""
MOST_SKEW = 2.0
"""Seconds by which two clocks may differ without effect: a launch allows a second for its tick."""
NEARLY_FULL = 0.9
GROWN = 4
"""No append-only file should grow to this multiple of its rewritten size: by default, doubling causes a rewrite."""
SMALLEST_REWRITTEN = 64 << 20
"""Size in bytes below which a server, by default, does not rewrite its append-only file."""
SPARE_DISK = 64 << 20
LAGGING = 10.0
"""A replica lags if it is so many seconds behind. It reports once a second."""
INSTALL = "'pollconsumer init cron --install'"
LONG_WAIT = 600.0
"""A message that has been ready for more seconds is a finding, unless launches come more rarely, or its queue has its
own alarm."""
BATCH_LATE, BATCH_LONG = 600.0, 3600.0
"""Seconds that a batch may be overdue; and seconds that a closed batch may wait for launches of its members' queues."""
JUDGED = 100
"""Number of launches of a group that are judged: the newest ones."""
FEWEST_JUDGED, FEWEST_OVERRUNS, OFTEN = 20, 3, 2
"""Overruns are a finding only if at least so many launches are judged, with at least so many overruns, and if their
share is this multiple of the target or more."""
LATE = 0.5
"""Seconds by which a launch may outlast its window without an effect on the next launch."""
LATELY = 3600.0
"""Seconds for which a hole, or one launch that failed or was killed, is a finding: that launch's own output was mailed.
In the last so many seconds, launches are examined for projects that share a lease."""
REPEATED = 3
"""If so many launches within a day ended in the same way of `ENDS`, they are a finding all day."""
CUT_SHORT = (StopReason.HANDED_OVER, StopReason.LEASE_LOST, StopReason.STORE_UNREACHABLE, StopReason.FAILED)
"""Stop reasons of launches whose end shows nothing about the margin."""
ENDS = {
    StopReason.WATCHDOG: (
        "launches_overlong",
        "were killed by the watchdog",
        'give the handler that did not stop at its limit isolation="process", or a timeout that it keeps',
    ),
    StopReason.FAILED: (
        "launches_failed",
        "ended with an error",
        "look for the error in their output; pollconsumer check finds most causes",
    ),
    StopReason.DIED: (
        "launches_died",
        "died",
        "look for 'out of memory' in the system's log; was the store away?",
    ),
}


def findings_of(facts: Facts) -> list[Finding]:
    groups = groups_of(facts.launches, facts.now, facts.expected)
    found = list[Finding]()
    if facts.lost:
        waiting = f"; these queues wait: {', '.join(facts.unreachable)}" if facts.unreachable else ""
        fix = f"start them, or replicas of them{waiting}"
        found.append(Finding("node_lost", None, "nodes of the cluster do not answer", ", ".join(facts.lost), fix))
    for server in (facts.server, *facts.others):
        location = f" at {server.location}" if server.location else ""
        found += [each._replace(what=each.what + location) for each in server_findings(server, facts.expected)]
    found += [
        *queue_findings(facts, groups),
        *handler_findings(facts),
        *batch_findings(facts, groups),
        *launch_findings(facts, groups),
    ]
    if facts.server.lacking and all(group.absent for group in groups):
        lacking = " ".join(each.lower() for each in facts.server.lacking)
        fix = "grant them (docs/reference/rights.md): launches with this login cannot start"
        found.append(Finding("rights", None, "the store's user lacks rights of a launch", lacking, fix))
    if facts.server.broken:  # GUARD what is only not recorded
        found = [each for each in found if each.name not in UNRECORDED]
    return found


def server_findings(server: ServerFacts, expected: Expected) -> Iterator[Finding]:
    if abs(server.skew) - server.skew_within > MOST_SKEW:
        side = "ahead of" if server.skew > 0 else "behind"
        yield Finding(
            "clock_skew", None, "clocks differ",
            f"the server's is {format_duration(abs(server.skew))} {side} this machine's",
            "synchronise both (NTP): due times follow the server's clock, crontabs this machine's",
        )  # fmt: skip
    if server.set_back:
        yield Finding(
            "clock_set_back", None, "the server's clock was set back", f"by {format_duration(server.set_back)}",
            "correct it (NTP): until it has caught up, scheduled messages wait that much longer",
        )  # fmt: skip
    if server.runs_another:
        yield Finding(
            "program", None, "embedded server still runs another program", server.program,
            f"stop it (pollconsumer store stop): the next launch starts {expected.program}",
        )  # fmt: skip
    yield from _persistence_findings(server)
    yield from _memory_findings(server)
    yield from _replica_findings(server, expected)
    if server.may_cut_off is False:
        yield Finding(
            "rights", None, "rights missing over a network", "client|id, client|kill",
            "grant them (docs/reference/rights.md): a delayed packet can cause a message to be handled twice",
        )  # fmt: skip


def _persistence_findings(server: ServerFacts) -> Iterator[Finding]:
    if not server.appends and not server.replica_lags:
        yield Finding(
            "persistence", None, "no append-only file", "accepted messages are lost if the server dies",
            "set appendonly yes, or attach a replica",
        )  # fmt: skip
    for what in server.broken:
        yield Finding("persistence", None, "server cannot write", what, "look at its log, and whether its disk is full")
    size, base = server.append_only_bytes, max(server.append_only_base, SMALLEST_REWRITTEN)
    if server.appends and size > GROWN * base:
        yield Finding(
            "append_only_file", None, "append-only file is not rewritten",
            f"{_size(size)}, {_size(base)} after the last time",
            "look at the server's log, and at auto-aof-rewrite-percentage",
        )  # fmt: skip
    if server.disk_free is not None and server.disk_free < size + SPARE_DISK:
        yield Finding(
            "disk_space", None, "disk nearly full",
            f"{_size(server.disk_free)} free, the append-only file has {_size(size)}",
            f"free some space: a rewrite needs as much again and {_size(SPARE_DISK)}; a full disk stops all writes",
        )  # fmt: skip


def _memory_findings(server: ServerFacts) -> Iterator[Finding]:
    if not server.max_memory:
        return
    if server.policy != "noeviction":
        yield Finding(
            "eviction", None, "store evicts", f"maxmemory-policy {server.policy}", "leases may vanish; set noeviction"
        )
    if server.used_memory > NEARLY_FULL * server.max_memory:
        yield Finding(
            "memory", None, "memory nearly full",
            f"{_size(server.used_memory)} of maxmemory {_size(server.max_memory)}",
            "raise maxmemory: the server refuses writes when it is reached",
        )  # fmt: skip


def _replica_findings(server: ServerFacts, expected: Expected) -> Iterator[Finding]:
    online, wanted = len(server.replica_lags), expected.replicas
    if wanted is not None and online < wanted:
        listed = ", ".join(f"{location} {state}" for location, state in sorted(server.replica_states.items()))
        absent = max(0, wanted - len(server.replica_states))
        yield Finding(
            "replication", None, "too few replicas",
            f"{online} of {wanted} online: {listed or 'none'}; {absent} not connected",
            "see the log of replicas that are not online, attach more, or lower strict.replicas: until then enqueue "
            "reports that messages are not replicated, and launches wait",
        )  # fmt: skip
    if server.replica_lags and (lag := max(server.replica_lags)) > LAGGING:
        yield Finding(
            "replication", None, "replica lags", f"last contact {format_duration(lag)} ago",
            "see its log and the network: if it is promoted, messages that it lacks are lost",
        )  # fmt: skip


def _size(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count / 1000:.0f} kB"


def queue_findings(facts: Facts, groups: Sequence[LaunchGroup]) -> Iterator[Finding]:
    consumers = [group for group in groups if group.role == "consumer"]
    missed = _missed(facts, consumers)
    if missed[None] and not consumers:
        yield _never_served(missed[None], facts.expected)
    for queue in facts.queues:
        yield from _queue_findings(queue, facts, consumers, is_missed=queue in missed[None])
    for group in consumers:
        if queues := missed[group.name]:
            yield _absent(group, queues)
    deserted = {queue.name for queues in missed.values() for queue in queues}
    overdue = sum(queue.counts.overdue for queue in facts.queues if queue.name in deserted)
    for group in groups:
        if group.role == "mover" and group.absent and (overdue or group.seen < DAY):
            yield Finding(
                "mover_absent", None, "no mover has run lately", _seen_ago(group),
                "check that cron, or your platform, still starts 'pollconsumer move'",
            )  # fmt: skip
    yield from _recurrence_findings(facts, groups, deserted)


def _queue_findings(
    queue: QueueFacts, facts: Facts, consumers: Sequence[LaunchGroup], *, is_missed: bool
) -> Iterator[Finding]:
    """Findings about a queue. ``is_missed``: no consumer has ever served it."""
    serving = [group for group in consumers if queue.name in group.queues]
    alarm = facts.expected.wait_alarms.get(queue.name)
    if alarm is not None or any(not group.absent for group in serving):
        yield from _waiting_findings(queue, serving, alarm)
    if is_missed and consumers:
        fix = f"start 'pollconsumer run --queue {queue.name}' too"
        if queue.name not in (facts.expected.queues or ("default",)):
            fix += ", or name it in consumer.queues with the others"
        if any((each.get("platform") or "cron") == "cron" for group in consumers for each in group.launches):
            fix += f"; {INSTALL} writes cron's lines anew"
        yield _unserved([queue], facts.expected, f"no launch serves queue {queue.name}", fix)
    yield from _pause_findings(queue, facts.paused_handlers)
    yield from _bad_end_findings(queue, facts.expected.recent)
    yield from _parked_findings(queue, facts.paused_handlers)
    yield from _of_held_order(queue)
    if queue.quarantined:
        yield Finding(
            "outbox_unreadable", queue.name, f"messages in the outbox of queue {queue.name} cannot be read",
            counted(queue.quarantined, "message"),
            "look at them with 'pollconsumer dead list --unreadable', then purge them",
        )  # fmt: skip


def _missed(facts: Facts, consumers: Sequence[LaunchGroup]) -> defaultdict[str | None, list[QueueFacts]]:
    """Name of the consumer that served a queue last (None: none ever did) → the queues in use that none serves now."""
    found = defaultdict[str | None, list[QueueFacts]](list)
    nobody_there = all(group.absent for group in consumers)
    for queue in facts.queues:
        serving = [group for group in consumers if queue.name in group.queues]
        latest = min(serving, key=lambda group: group.seen, default=None)
        if any(not group.absent for group in serving):
            continue
        waits = queue.counts.ready + queue.counts.scheduled
        if latest is None:
            if waits:
                found[None].append(queue)
            continue
        # A queue without messages that no launch has served lately may have been abandoned on purpose.
        is_used = nobody_there or queue.name in facts.expected.queues or latest.seen < latest.allowed + DAY
        if waits or (is_used and not _was_tried(queue, latest, facts, consumers)):
            found[latest.name].append(queue)
    return found


def _pause_findings(queue: QueueFacts, handlers: Mapping[str, float]) -> Iterator[Finding]:
    """Findings about pauses that a person may have forgotten. ``handlers``: for how long each paused handler has been
    paused."""
    waits = queue.counts.oldest_ready_seconds
    if queue.counts.paused and queue.counts.resumes_in_seconds is None and waits is not None and waits > DAY:
        yield Finding(
            "paused", queue.name, f"queue {queue.name} is paused",
            f"{counted(queue.counts.ready, 'message')} ready, the oldest for {format_duration(waits)}",
            f"'pollconsumer queue resume {queue.name}' ends the pause, 'queue pause {queue.name} --for 2h' limits it",
        )  # fmt: skip
    for handler, messages in sorted(queue.parked.items()):
        if (lasts := handlers.get(handler, 0.0)) > DAY:
            yield Finding(
                "paused", handler, f"handler {handler} is paused",
                f"for {format_duration(lasts)}, {counted(messages, 'message')} of queue {queue.name} waiting",
                f"'pollconsumer handler resume {handler}' ends the pause",
            )  # fmt: skip


def _of_held_order(queue: QueueFacts) -> Iterator[Finding]:
    held = queue.held
    if held is None or (held.newer and held.first <= LONG_WAIT):  # an upgrade takes time
        return
    by, fix = "dead letter", f"'pollconsumer dead redrive {held.head}', or 'dead purge', lets them go on"
    if held.newer:
        by, fix = "a newer version's message", "start launches of that version: only these can handle it"
    value = f"{counted(held.waiting, 'message')} behind it, the first for {format_duration(held.first)}"
    value += f"; {counted(held.others, 'more key')}" if held.others else ""
    what = f"order key {shown(held.key)} of queue {queue.name} is held by {by} {held.head}"
    yield Finding("order_held", queue.name, what, value, fix)


def _parked_findings(queue: QueueFacts, paused: Collection[str]) -> Iterator[Finding]:
    for handler, messages in sorted(queue.parked.items()):
        if handler in paused:
            continue
        yield Finding(
            "handler_unknown", handler, f"no launch knows handler {handler}",
            f"{counted(messages, 'message')} wait{'s' if messages == 1 else ''} in queue {queue.name}",
            f'add its module to handlers, or aliases=["{handler}"] to the handler that has another name now',
        )  # fmt: skip


def _was_tried(queue: QueueFacts, latest: LaunchGroup, facts: Facts, consumers: Sequence[LaunchGroup]) -> bool:
    """Whether this queue may be misspelt: a person started the launches that named it, the platform starts others."""
    is_known = queue.name in facts.expected.queues or any(each.queue == queue.name for each in facts.recurrences)
    return latest.by_hand and not is_known and not all(group.by_hand for group in consumers)


def _unserved(queues: Sequence[QueueFacts], expected: Expected, what: str, fix: str) -> Finding:
    if user := expected.alone:
        fix += f"; launches of another user than {user} do not read this store: set data= or store= to share one"
    return Finding("queue_unserved", ",".join(queue.name for queue in queues), what, _counts(queues), fix)


def _never_served(queues: Sequence[QueueFacts], expected: Expected) -> Finding:
    found = _unserved(queues, expected, "no launch has run yet", f"{INSTALL} has cron start one each minute")
    named = ", ".join(queue.name for queue in queues)
    return found._replace(value=f"{found.value} in queue{'s'[: len(queues) > 1]} {named}")


def _absent(group: LaunchGroup, queues: Sequence[QueueFacts]) -> Finding:
    """The finding about a consumer that no longer comes, with its queues that no other consumer has served since. An
    alarm must not end when these change, so ``what`` names all queues of the consumer."""
    subject, of = ",".join(queue.name for queue in queues), ",".join(group.queues)
    value = _seen_ago(group) + (f", {counts}" if (counts := _counts(queues)) else "")
    if group.by_producers:
        return Finding(
            "launch_absent", subject, f"only producers start launches ({of})",
            f"the last one that was not theirs started {format_duration(group.seen)} ago",
            f"add a crontab line ({INSTALL}): without it retries, and messages due later, wait",
        )  # fmt: skip
    by_hand = not any(each.get("platform") for each in group.launches)
    return Finding(
        "launch_absent", subject, f"no launch has run lately ({of})", value,
        "check that cron, or your platform, still starts 'pollconsumer run'"
        + (f"; {INSTALL} has cron start it" if by_hand else ""),
    )  # fmt: skip


def _bad_end_findings(queue: QueueFacts, recent: float) -> Iterator[Finding]:
    """Findings about new dead letters, and about skipped occurrences."""
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


def _waiting_findings(queue: QueueFacts, serving: Sequence[LaunchGroup], alarm: float | None) -> Iterator[Finding]:
    longest = max(LONG_WAIT, min((group.allowed for group in serving), default=0.0))
    waits_at_most = longest if alarm is None else alarm
    waits, ready = queue.counts.oldest_ready_seconds, queue.counts.ready
    if waits is not None and waits > waits_at_most and not queue.counts.paused:
        yield Finding(
            "oldest_ready", queue.name, f"queue {queue.name} is behind",
            f"its oldest ready message has waited {format_duration(waits)}, {ready} are ready",
            "raise consumer.concurrency or consumer.instances, or the queue's limits",
        )  # fmt: skip
    if queue.overdue_by is not None and queue.overdue_by > longest and not queue.counts.paused:
        yield Finding(
            "overdue", queue.name, f"messages of queue {queue.name} are overdue",
            f"{counted(queue.counts.overdue, 'message')}, the oldest for {format_duration(queue.overdue_by)}",
            "launches do not get to them: see the log of one (run -v)",
        )  # fmt: skip


def _recurrence_findings(facts: Facts, groups: Sequence[LaunchGroup], deserted: set[str]) -> Iterator[Finding]:
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


def _counts(queues: Sequence[QueueFacts]) -> str:
    counts = {what: sum(getattr(queue.counts, what) for queue in queues) for what in ("ready", "scheduled", "overdue")}
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count)


def _seen_ago(group: LaunchGroup) -> str:
    rate = "" if group.period is None else f", before that every {format_duration(group.period)}"
    return f"the last one {format_duration(group.seen)} ago{rate}"


def handler_findings(facts: Facts) -> Iterator[Finding]:
    """Findings about messages that took longer, or less time, than an alarm of their handler allows."""
    in_flight: list[WorkBeyond] = [each for launch in facts.launches for each in launch.get("working_on", ())]
    at_work = {each.handler: each for each in sorted(in_flight, key=lambda each: -each.since)}  # the oldest of each
    for handler, limits in facts.expected.duration_alarms.items():
        for limit, seconds in limits.items():
            took, message_id, ago = facts.outliers.get((limit, handler), (seconds, "", 0.0))
            value = f"message {message_id} took {format_duration(took)}, {format_duration(ago)} ago"
            is_slow, is_recent = limit == "slower_than", ago < facts.expected.recent
            if is_slow and (work := at_work.get(handler)) and (since := (facts.now - work.since) / 1000) > seconds:
                value, is_recent, took = f"message {work.id} is handled since {format_duration(since)}", True, since
            if is_recent and (took > seconds if is_slow else took < seconds):
                than = f"{'longer' if is_slow else 'less'} than {format_duration(seconds)}"
                yield Finding(
                    "handler_slow" if is_slow else "handler_fast", handler, f"handler {handler} takes {than}", value,
                    f"look {'what it waits for' if is_slow else 'whether it does its work'}, or change "
                    f"alarms.handlers.{handler}.{limit}",
                )  # fmt: skip


def batch_findings(facts: Facts, groups: Sequence[LaunchGroup]) -> Iterator[Finding]:
    served = {queue for group in groups if group.role == "consumer" and not group.absent for queue in group.queues}
    for batch in facts.batches:
        if batch.overdue_by is not None and batch.overdue_by > BATCH_LATE:
            end = "abandoned" if batch.state == "open" else "expired"
            yield Finding(
                "batch_stuck", batch.id, f"batch {batch.id} is still {batch.state}",
                f"it should have been {end} {format_duration(batch.overdue_by)} ago",
                f"launches of queue {batch.queues[0]} do that: check that they run, and see the log of one (run -v)",
            )  # fmt: skip
        elif batch.state == "closed" and batch.age > BATCH_LONG and not served.issuperset(batch.queues[1:]):
            unserved = [queue for queue in batch.queues[1:] if queue not in served]
            yield Finding(
                "batch_stuck", batch.id, f"no launch serves the members of batch {batch.id}",
                f"{batch.outstanding} of {batch.total} have not ended after {format_duration(batch.age)}",
                f"start launches for queue{'s'[: len(unserved) > 1]} {', '.join(unserved)}, or cancel the batch",
            )  # fmt: skip


def launch_findings(facts: Facts, groups: Sequence[LaunchGroup]) -> Iterator[Finding]:
    yield from _hole_findings(facts)
    for group in groups:
        yield from _project_findings(group, facts.now)
        recent = [each for each in group.launches[:JUDGED] if facts.now - each["started_ms"] < DAY * 1000]
        queues = ",".join(group.queues) or "all queues"
        yield from _end_findings(group, recent, queues, facts.now)
        if group.role == "consumer" and not group.absent:
            yield from _overrun_findings(recent, queues, facts.expected)
            if facts.expected.concerns(group.role, group.queues):
                yield from _length_findings(group, facts, queues)


def unserved_times(facts: Facts) -> Iterator[str]:
    """Lines about time that launches leave unserved. They are no findings, since the settings cause such time."""
    for group in groups_of(facts.launches, facts.now, facts.expected):
        if facts.expected.concerns(group.role, group.queues) and not group.absent:
            rule, expected = _rule(group.launches[0]), facts.expected
            if line := unserved_time(group.launches, expected.window, rule, expected.handoff, expected.period):
                yield f"unserved by launches of {','.join(group.queues)}: {line}"


def _hole_findings(facts: Facts) -> Iterator[Finding]:
    """Findings about holes that ended within the last hour and were long enough for `launch_absent`. An hourly doctor
    finds each once."""
    for hole in holes_of(facts.launches, facts.now):
        is_recent = hole.until_ms is not None and facts.now - hole.until_ms < LATELY * 1000
        if is_recent and hole.ticks >= MISSED and hole.ticks * hole.period >= AT_LEAST:
            queues = ",".join(hole.queues) or "all queues"
            yield Finding(
                "launches_missed", queues, f"no launch started for a time ({queues})", hole.text(facts.now),
                "was the machine off, or cron? See the system's log of that time",
            )  # fmt: skip


def _project_findings(group: LaunchGroup, now: int) -> Iterator[Finding]:
    """Findings about projects whose launches share a lease and alternate, so that each takes the other's messages. A
    new version of one project is no such case: launches of the old version no longer come."""
    projects: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for each in group.launches:
        if each.get("config") and now - each["started_ms"] < LATELY * 1000:
            projects[each["config"]].append(each)
    sharing = {
        path for pair in combinations(projects, 2) if _come_in_turn(*(projects[path] for path in pair)) for path in pair
    }
    if sharing:
        queues = ",".join(group.queues)
        yield Finding(
            "namespace_shared", queues, f"projects share one namespace, and take each other's messages ({queues})",
            ", ".join(sorted(sharing)), "give each a namespace of its own in its configuration",
        )  # fmt: skip


def _come_in_turn(one: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]]) -> bool:
    """Whether launches of two projects, with different handlers, alternated. Both are given newest first."""
    if one[0]["handlers"] == other[0]["handlers"]:
        return False
    latest_first = max(each[-1]["started_ms"] for each in (one, other))
    return bool(latest_first <= min(each[0]["started_ms"] for each in (one, other)))


def _end_findings(group: LaunchGroup, recent: Sequence[Mapping[str, Any]], queues: str, now: int) -> Iterator[Finding]:
    for reason, (name, what, fix) in ENDS.items():
        forced = [each for each in recent if each["stop_reason"] == reason]
        if not forced:
            continue
        ago = (now - forced[0].get("ended_ms", forced[0]["started_ms"])) / 1000
        if len(forced) >= REPEATED or ago < LATELY or forced[0] is group.launches[0]:
            value = f"{len(forced)} of the last {len(recent)}, most recently {format_duration(ago)} ago"
            yield Finding(name, queues, f"launches of the {group.role} {what} ({queues})", value, fix)


def _overrun_findings(recent: Sequence[Mapping[str, Any]], queues: str, expected: Expected) -> Iterator[Finding]:
    judged = [each for each in recent if each["stop_reason"] is not None and each["stop_reason"] not in CUT_SHORT]
    known = [outlasted for each in judged if (outlasted := _outlasted(each)) is not None]
    target = expected.overrun_target or OVERRUN_TARGETS[_rule(judged[0]) if judged else LauncherRule.PARALLEL]
    if len(known) >= FEWEST_JUDGED and sum(known) >= max(FEWEST_OVERRUNS, OFTEN * target * len(known)):
        yield Finding(
            "overruns", queues, f"launches run longer than their window ({queues})",
            f"{sum(known)} of the last {len(known)}",
            "raise tolerance_factor or min_margin, lower overrun_target, or give handlers a timeout",
        )  # fmt: skip


def _outlasted(launch: Mapping[str, Any]) -> bool | None:
    """Whether a launch still ran when the next one was due, although no message took longer than its window. None if
    unknown."""
    past = past_launch(dict(launch))
    if past.next_tick is None:
        return None
    if launch.get("longer_than_window"):  # GUARD what a launch may outlast its window for
        return False
    return bool(launch["running_seconds"] > past.next_tick + max(0.0, past.offset or 0.0) + LATE)


def _rule(launch: Mapping[str, Any]) -> LauncherRule:
    rule = launch.get("launcher")
    return LauncherRule(rule) if rule in OVERRUN_TARGETS else LauncherRule.PARALLEL


def _length_findings(group: LaunchGroup, facts: Facts, queues: str) -> Iterator[Finding]:
    """Findings about a ``grace`` that does not suit the time between launches."""
    expected = facts.expected
    # Launches that end as soon as nothing is left are started by hand. The times between them show nothing.
    by_hand = any(each["stop_reason"] == StopReason.EMPTY for each in group.launches[:LOOKED_AT])
    period = expected.period or (None if by_hand else group.period)
    if period is not None and expected.grace > period:
        yield Finding(
            "grace_exceeds_period", queues, f"grace is longer than the time between launches ({queues})",
            f"grace {format_duration(expected.grace)}, a launch every {format_duration(period)}",
            "lower grace: while a launch hangs for that long, the next ones cannot work",
        )  # fmt: skip
