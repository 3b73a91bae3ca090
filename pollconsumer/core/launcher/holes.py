"""Finds holes in the ledger: times at which the launcher should have started a launch, and none was there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

from pollconsumer.core.launcher.detection import BY_PRODUCERS
from pollconsumer.core.notation.instants import clock
from pollconsumer.core.notation.text import counted
from pollconsumer.core.window import StopReason

LOOKED_AT = 10
"""Launches whose starts tell how often a launcher without a known schedule comes."""
FEWEST = 3
EARLY = 0.1
"""Share of a period by which a tick may be earlier than reckoned."""


class Hole(NamedTuple):
    """``ticks`` in succession, from ``first_ms`` to ``last_ms``, without a launch of a group. ``period``:
    seconds from tick to tick. ``before``: the id of the launch after them, which started at ``until_ms``; both None if
    none has come yet."""

    role: str
    queues: tuple[str, ...]
    first_ms: int
    last_ms: int
    ticks: int
    period: float
    before: str | None
    until_ms: int | None

    def text(self, now: int, *, utc: bool = False) -> str:
        """``5 ticks without a launch, 23:19 to 23:23``, with dates unless they are that of ``now``; in this machine's
        zone, or in ``utc``."""
        first, last = (clock(at, now, utc=utc).removesuffix(":00") for at in (self.first_ms, self.last_ms))
        return f"{counted(self.ticks, 'tick')} without a launch, {first if self.ticks == 1 else f'{first} to {last}'}"


def holes_of(entries: Sequence[Mapping[str, Any]], now: int) -> list[Hole]:
    """The holes in ``entries`` of the ledger, newest first, as they are; ``now`` in epoch ms of the server's clock.

    A launch's own schedule tells its ticks, else the usual time between starts. Groups whose launches producers start,
    or of which half or more end as soon as their queues are empty, have no ticks.
    """
    groups = defaultdict[str, list[Mapping[str, Any]]](list)
    for entry in reversed(entries):
        if "started_ms" in entry and entry.get("lineage"):
            groups[entry["lineage"].rpartition(":")[0]].append(entry)
    found = [hole for group in groups.values() for hole in _holes_of_group(group, now)]
    holes = [hole for hole in found if hole.before is not None or not _replaced(hole, entries)]
    return sorted(holes, key=lambda hole: hole.last_ms, reverse=True)


def _replaced(hole: Hole, entries: Sequence[Mapping[str, Any]]) -> bool:
    """Whether other launches serve all queues of the group since its ``hole`` began: the crontab has other lines."""
    since = (each for each in entries if each["role"] == hole.role and each.get("started_ms", 0) > hole.first_ms)
    return bool(hole.queues) and {*hole.queues} <= {queue for each in since for queue in each["queues"]}


def _holes_of_group(launches: list[Mapping[str, Any]], now: int) -> list[Hole]:
    """``launches``: of one group, oldest first."""
    by_hand = sum(launch["stop_reason"] == StopReason.EMPTY for launch in launches)
    if 2 * by_hand >= len(launches) or any(launch["platform"] in BY_PRODUCERS for launch in launches):
        return []
    launches = sorted(launches, key=lambda launch: int(launch["started_ms"]))
    found, latest, covered = list[Hole](), launches[0], _end(launches[0], now)
    following: list[Mapping[str, Any] | None] = [*launches[1:], None]
    for number, launch in enumerate(following, 1):
        period = _period(latest, launches[max(0, number - LOOKED_AT) : number])
        if launch is None:  # the launch of the last tick may still come
            start, before, until = now - 1000 * (period or 0), None, None
        else:
            before, until = launch["launch_id"], int(launch["started_ms"])
            start = until - 1000 * (launch["launch_offset_seconds"] or 0)
        if period and (ticks := _ticks(latest, covered, start, period * 1000)):
            found.append(Hole(latest["role"], tuple(latest["queues"]), *ticks, period, before, until))
        if launch is not None and (end := _end(launch, now)) > covered:
            latest, covered = launch, end
    return found


def _ticks(launch: Mapping[str, Any], covered: int, start: float, period: float) -> tuple[int, int, int] | None:
    """The first, the last, and the number of the ticks after ``launch``, which had ended at ``covered``, and before the
    tick ``start`` of the next launch; None if there are none. Instants and ``period`` in ms."""
    if launch["next_tick_seconds"] is not None:
        first = launch["started_ms"] + 1000 * launch["next_tick_seconds"]
    else:
        first = launch["started_ms"] + period
    first += max(0, -(-(covered - first) // period)) * period
    number = int((start - first - EARLY * period) // period) + 1
    return (int(first), int(first + (number - 1) * period), number) if number > 0 else None


def _period(latest: Mapping[str, Any], before: Sequence[Mapping[str, Any]]) -> float | None:
    """Seconds from tick to tick; None if unknown."""
    if latest["next_tick_seconds"] is not None and latest["launch_offset_seconds"] is not None:
        return max(1.0, float(latest["next_tick_seconds"] + latest["launch_offset_seconds"]))
    starts = [int(launch["started_ms"]) for launch in before]
    return None if len(starts) < FEWEST else max(1.0, median(two - one for one, two in pairwise(starts)) / 1000)


def _end(launch: Mapping[str, Any], now: int) -> int:
    """When the launch had ended, by its entry; now if it runs."""
    if launch["stop_reason"] is None:
        return now
    return int(launch.get("ended_ms", launch["started_ms"] + 1000 * launch["running_seconds"]))
