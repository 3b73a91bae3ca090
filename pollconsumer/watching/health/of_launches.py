"""What is wrong with launches: they outlast their windows, or handlers outlast them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from pollconsumer.core.choices import LauncherRule
from pollconsumer.core.durations import OVERRUN_TARGETS
from pollconsumer.core.launcher.holes import holes_of
from pollconsumer.core.launcher.past import past_launch
from pollconsumer.core.launcher.unserved import unserved_time
from pollconsumer.core.notation.timespan import DAY, format_duration
from pollconsumer.core.window import StopReason
from pollconsumer.watching.health.facts import Expected, Facts, Finding
from pollconsumer.watching.health.groups import AT_LEAST, LOOKED_AT, MISSED, LaunchGroup, groups_of

JUDGED = 100
"""How many launches of a group are judged, the newest ones."""
FEWEST_JUDGED, FEWEST_OVERRUNS, OFTEN = 20, 3, 2
"""The number of launches, and of overruns among them, and the multiple of the target, from which on overruns are a
finding."""
LATE = 0.5
"""Seconds by which a launch may outlast its window without an effect on the next one."""
LATELY = 3600.0
"""Seconds for which one launch that was ended by force is a finding: its own output was mailed; and for which projects
are looked for that share a lease."""
REPEATED = 3
"""Launches that were ended by force within a day, from which on they are a finding all day."""
CUT_SHORT = (StopReason.HANDED_OVER, StopReason.LEASE_LOST, StopReason.STORE_UNREACHABLE, StopReason.FAILED)
"""Reasons of launches that tell nothing about the margin."""
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


def of_launches(facts: Facts, groups: Sequence[LaunchGroup]) -> Iterator[Finding]:
    yield from _of_holes(facts)
    for group in groups:
        yield from _of_projects(group, facts.now)
        recent = [each for each in group.launches[:JUDGED] if facts.now - each["started_ms"] < DAY * 1000]
        queues = ",".join(group.queues) or "all queues"
        yield from _of_ends(group, recent, queues, facts.now)
        if group.role == "consumer" and not group.absent:
            yield from _of_overruns(recent, queues, facts.expected)
            if facts.expected.concerns(group.role, group.queues):
                yield from _of_lengths(group, facts, queues)


def unserved_times(facts: Facts) -> Iterator[str]:
    """Lines about time that launches leave unserved: no findings, as it is by their settings."""
    for group in groups_of(facts.launches, facts.now, facts.expected):
        if facts.expected.concerns(group.role, group.queues) and not group.absent:
            rule, expected = _rule(group.launches[0]), facts.expected
            if line := unserved_time(group.launches, expected.window, rule, expected.handoff):
                yield f"unserved by launches of {','.join(group.queues)}: {line}"


def _of_holes(facts: Facts) -> Iterator[Finding]:
    """Holes that have ended within the last hour, as long as a `launch_absent`: the hourly doctor finds each once."""
    for hole in holes_of(facts.launches, facts.now):
        is_recent = hole.until_ms is not None and facts.now - hole.until_ms < LATELY * 1000
        if is_recent and hole.ticks >= MISSED and hole.ticks * hole.period >= AT_LEAST:
            queues = ",".join(hole.queues) or "all queues"
            yield Finding(
                "launches_missed", queues, f"no launch started for a time ({queues})", hole.text(facts.now),
                "was the machine off, or cron? See the system's log of that time",
            )  # fmt: skip


def _of_projects(group: LaunchGroup, now: int) -> Iterator[Finding]:
    """Projects that share a lease take each other's messages. Their launches come in turn: a new version of a project
    has another path and other handlers, too, but the old one comes no more."""
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
    """Whether launches with different handlers, newest first, began between each other."""
    if one[0]["handlers"] == other[0]["handlers"]:
        return False
    latest_first = max(each[-1]["started_ms"] for each in (one, other))
    return bool(latest_first <= min(each[0]["started_ms"] for each in (one, other)))


def _of_ends(group: LaunchGroup, recent: Sequence[Mapping[str, Any]], queues: str, now: int) -> Iterator[Finding]:
    for reason, (name, what, fix) in ENDS.items():
        forced = [each for each in recent if each["stop_reason"] == reason]
        if not forced:
            continue
        ago = (now - forced[0].get("ended_ms", forced[0]["started_ms"])) / 1000
        if len(forced) >= REPEATED or ago < LATELY or forced[0] is group.launches[0]:
            value = f"{len(forced)} of the last {len(recent)}, most recently {format_duration(ago)} ago"
            yield Finding(name, queues, f"launches of the {group.role} {what} ({queues})", value, fix)


def _of_overruns(recent: Sequence[Mapping[str, Any]], queues: str, expected: Expected) -> Iterator[Finding]:
    judged = [each for each in recent if each["stop_reason"] is not None and each["stop_reason"] not in CUT_SHORT]
    known = [outlasted for each in judged if (outlasted := _outlasted(each)) is not None]
    target = expected.overrun_target or _target(judged)
    if len(known) >= FEWEST_JUDGED and sum(known) >= max(FEWEST_OVERRUNS, OFTEN * target * len(known)):
        yield Finding(
            "overruns", queues, f"launches run longer than their window ({queues})",
            f"{sum(known)} of the last {len(known)}",
            "raise tolerance_factor or min_margin, lower overrun_target, or give handlers a timeout",
        )  # fmt: skip


def _outlasted(launch: Mapping[str, Any]) -> bool | None:
    """Whether a launch was there after the next one was due, and no message that took longer than its window kept it;
    None if that is unknown."""
    past = past_launch(dict(launch))
    if past.next_tick is None:
        return None
    if launch.get("longer_than_window"):  # GUARD what a launch may outlast its window for
        return False
    return bool(launch["running_seconds"] > past.next_tick + max(0.0, past.offset or 0.0) + LATE)


def _target(launches: Sequence[Mapping[str, Any]]) -> float:
    return OVERRUN_TARGETS[_rule(launches[0]) if launches else LauncherRule.PARALLEL]


def _rule(launch: Mapping[str, Any]) -> LauncherRule:
    rule = launch.get("launcher")
    return LauncherRule(rule) if rule in OVERRUN_TARGETS else LauncherRule.PARALLEL


def _of_lengths(group: LaunchGroup, facts: Facts, queues: str) -> Iterator[Finding]:
    """Grace against the time between launches."""
    expected = facts.expected
    # Launches that end as soon as nothing is left are started by hand: how soon after each other tells nothing.
    by_hand = any(each["stop_reason"] == StopReason.EMPTY for each in group.launches[:LOOKED_AT])
    period = expected.period or (None if by_hand else group.period)
    if period is not None and expected.grace > period:
        yield Finding(
            "grace_exceeds_period", queues, f"grace is longer than the time between launches ({queues})",
            f"grace {format_duration(expected.grace)}, a launch every {format_duration(period)}",
            "lower grace: while a launch hangs for that long, the next ones cannot work",
        )  # fmt: skip
