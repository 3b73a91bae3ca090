"""Groups of launches, as the ledger shows them: when each was seen last, and how often it comes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

from pollconsumer.core.launcher.detection import BY_PRODUCERS, ON_DEMAND
from pollconsumer.core.window import StopReason
from pollconsumer.watching.health.facts import Expected

LOOKED_AT = 10
"""Launches of a lineage whose starts tell how often they come."""
FEWEST = 3
MISSED = 3
"""Launches missing in succession from which on the group counts as absent."""
AT_LEAST = 180.0
UNLEARNED = 1200.0
"""Seconds without a launch, where too few are known to tell how often they come."""


class LaunchGroup(NamedTuple):
    """Launches that share a lease. ``seen``: seconds since the last one was there, 0 while one is. ``period``: seconds
    between starts, by the ledger or, while it has too few, by the schedule; None if unknown. Launches that producers
    have started say nothing about a launcher: ``seen`` and ``period`` are of the others. ``by_producers``: whether a
    producer started the newest one."""

    name: str
    role: str
    queues: tuple[str, ...]
    seen: float
    period: float | None
    launches: list[Mapping[str, Any]]
    """The group's launches, newest first."""
    by_producers: bool = False

    @property
    def allowed(self) -> float:
        """Seconds for which the group may be away."""
        return UNLEARNED if self.period is None else max(AT_LEAST, MISSED * self.period)

    @property
    def by_hand(self) -> bool:
        """Whether a person has started all launches, a few that ended as soon as nothing was left."""
        ended = all(each["stop_reason"] == StopReason.EMPTY and not each.get("platform") for each in self.launches)
        return ended and len(self.launches) < FEWEST

    @property
    def absent(self) -> bool:
        return self.seen > self.allowed


def groups_of(launches: Sequence[Mapping[str, Any]], now: int, expected: Expected) -> list[LaunchGroup]:
    """The groups of ``launches``, which are those of the ledger, newest first; ``now`` in epoch ms of the server's
    clock."""
    by_name: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for launch in launches:
        if "started_ms" in launch and launch.get("lineage"):
            by_name[launch["lineage"].rpartition(":")[0]].append(launch)
    return [_group(name, found, now, expected) for name, found in by_name.items()]


def _group(name: str, launches: list[Mapping[str, Any]], now: int, expected: Expected) -> LaunchGroup:
    by_lineage: defaultdict[str, list[int]] = defaultdict(list)
    for launch in launches:
        if launch.get("platform") not in BY_PRODUCERS:
            by_lineage[launch["lineage"]].append(launch["started_ms"])
    periods = [_period(starts[:LOOKED_AT]) for starts in by_lineage.values() if len(starts) >= FEWEST]
    # A scheduler's request that meets a launch by a URL leaves no entry: each of those may be its.
    others = [launch for launch in launches if launch.get("platform") != ON_DEMAND]
    first = (now - launches[-1]["started_ms"]) / 1000
    seen = min((_seen(launch, now) for launch in others), default=first)
    role, queues = launches[0]["role"], tuple(launches[0]["queues"])
    scheduled = expected.period if expected.concerns(role, queues) else None
    by_producers = launches[0].get("platform") == ON_DEMAND
    return LaunchGroup(name, role, queues, seen, min(periods, default=scheduled), launches, by_producers)


def _period(starts: list[int]) -> float:
    return median(abs(later - earlier) for later, earlier in pairwise(starts)) / 1000


def _seen(launch: Mapping[str, Any], now: int) -> float:
    if launch["stop_reason"] is None:
        return 0.0
    last = int(launch.get("ended_ms", launch["started_ms"]))
    return max(0, now - last) / 1000
