"""What `tune` knows of the launches of a group, and whether that is enough. Spans in seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

from pollconsumer.core.choices import LauncherRule
from pollconsumer.core.histogram import Histogram
from pollconsumer.core.launcher.detection import UNKNOWN, Found, given_launcher, recorded_launcher
from pollconsumer.core.launcher.past import past_launch
from pollconsumer.core.notation.text import counted
from pollconsumer.core.notation.timespan import format_duration
from pollconsumer.tuning.forecast.consumer_rules import Rules

FEWEST_LAUNCHES, FEWEST_MESSAGES = 30, 50


class Seen(NamedTuple):
    """A launch that has ended, by the ledger. ``waited``: from its start until it held the lease; ``gap``: for which
    nobody had held it before. ``offset`` and ``period``: from its tick to its start, and to the next tick. None where
    unknown."""

    started: float
    acquired: float
    messages: int
    gap: float | None = None
    offset: float | None = None
    period: float | None = None
    exit: float | None = None

    @property
    def waited(self) -> float:
        return max(0.0, self.acquired - self.started)


class LaunchFacts(NamedTuple):
    """What is known of the launches. ``launches``: those of one lease, oldest first. ``durations``: the remembered ones
    of all their handlers. ``rules``: the settings in force. ``found``: their launcher."""

    launches: Sequence[Seen]
    durations: Histogram
    rules: Rules
    found: Found

    @property
    def mean(self) -> float:
        return self.durations.mean or 0.0

    def period(self) -> float | None:
        """Seconds between two ticks: by the schedule, else by the starts of the launches. None if too few are known."""
        by_schedule = [each.period for each in self.launches if each.period is not None]
        apart = by_schedule or [later.started - earlier.started for earlier, later in pairwise(self.launches)]
        return median(apart) if apart else None


def lineage_to_tune(entries: Sequence[Mapping[str, Any]], queues: Sequence[str]) -> str | None:
    """The lease of consumers of these ``queues``, or of any, whose launches have handled most by the entries of the
    ledger. None if there is none."""
    handled = Counter[str]()
    for entry in entries:
        if entry["role"] == "consumer" and entry.get("lineage") and (not queues or entry["queues"] == sorted(queues)):
            handled[entry["lineage"]] += 1 + int(entry["handled"])
    return handled.most_common(1)[0][0] if handled else None


def launches_of(entries: Sequence[Mapping[str, Any]], lineage: str | None) -> list[Seen]:
    """The ended launches of a lease, oldest first, by the entries of the ledger, newest first."""
    return [seen for entry in reversed(entries) if entry.get("lineage") == lineage and (seen := _seen(entry))]


def launcher_of(entries: Sequence[Mapping[str, Any]], lineage: str | None, rule: LauncherRule) -> Found:
    """The launcher that most launches of a lease found, under the ``rule`` of the settings."""
    found = Counter((entry["platform"], entry["launcher"]) for entry in entries if entry.get("lineage") == lineage)
    return given_launcher(rule, recorded_launcher(*found.most_common(1)[0][0]) if found else UNKNOWN)


def _seen(entry: Mapping[str, Any]) -> Seen | None:
    """The launch of ``entry``; None if it has not ended, or never held the lease."""
    if entry["stop_reason"] is None or not entry.keys() >= {"started_ms", "acquired_ms", "ended_ms"}:
        return None
    past = past_launch(dict(entry))
    known = past.offset is not None and past.next_tick is not None
    return Seen(
        started=entry["started_ms"] / 1000,
        acquired=entry["acquired_ms"] / 1000,
        messages=max(0, int(entry["handled"] + entry["failed"] + entry["yielded"])),
        gap=entry["gap_seconds"],
        offset=past.offset,
        period=(past.offset or 0.0) + (past.next_tick or 0.0) if known else None,
        exit=past.exit,
    )


def schedule_of(period: float) -> str | None:
    """The cron expression whose ticks are always ``period`` seconds apart; None if there is none."""
    minutes = round(period / 60)
    hours = minutes // 60
    if minutes > 0 and 60 % minutes == 0:
        return f"*/{minutes} * * * *" if minutes < 60 else "0 * * * *"
    return f"0 */{hours} * * *" if hours > 0 and minutes % 60 == 0 and 24 % hours == 0 else None


def lacking(facts: LaunchFacts) -> list[str]:
    """What is missing for a proposal; nothing if there is enough."""
    missing = []
    if (known := len(facts.launches)) < FEWEST_LAUNCHES:
        missing.append(f"launches: {known} ended, {FEWEST_LAUNCHES} are needed")
    if (known := facts.durations.count) < FEWEST_MESSAGES:
        missing.append(f"durations: {counted(known, 'message')} measured, {FEWEST_MESSAGES} are needed")
    period = facts.period()
    if not missing and (period is None or schedule_of(period) is None):
        apart = "at unknown times" if period is None else f"every {format_duration(period)}"
        missing.append(f"a regular schedule: launches start {apart}, which divides neither an hour nor a day")
    return missing
