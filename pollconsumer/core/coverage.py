"""What the ledger shows about gaps in service: ticks without a launch, the part of each minute in which no launch takes
messages, and messages that ran longer than their launch's window."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

from pollconsumer.core.choices import HandOff, LauncherRule
from pollconsumer.core.launcher import BY_PRODUCERS
from pollconsumer.core.notation.instants import clock, iso
from pollconsumer.core.notation.text import counted
from pollconsumer.core.spans import format_duration
from pollconsumer.core.window import StopReason, why_stopped

LOOKED_AT = 10
"""Number of launches whose starts show how often a launcher without a known schedule starts one."""
FEWEST = 3
EARLY = 0.1
"""Share of a period by which a tick may come earlier than computed."""
MUCH = 0.2
"""If a larger share of a window, or of a period, is unserved, `unserved_time` returns a line."""
WINDOW_OVER = why_stopped(StopReason.NO_TIME_TO_IDLE)
MOST_NAMED = 3
_TYPES = [str, str, str, int, int]


class Hole(NamedTuple):
    """A series of consecutive ``ticks``, from ``first_ms`` to ``last_ms``, at which no launch of a group started.
    ``period``: seconds from tick to tick. ``before``: the id of the launch that ended the series, by starting at
    ``until_ms``. If none has started yet, both are None."""

    role: str
    queues: tuple[str, ...]
    first_ms: int
    last_ms: int
    ticks: int
    period: float
    before: str | None
    until_ms: int | None

    def text(self, now: int, *, utc: bool = False) -> str:
        """Such as ``5 ticks without a launch, 23:19 to 23:23``. A time has its date if that is not the date of ``now``.
        Times are in this machine's zone, or in UTC with ``utc``."""
        first, last = (clock(at, now, utc=utc).removesuffix(":00") for at in (self.first_ms, self.last_ms))
        return f"{counted(self.ticks, 'tick')} without a launch, {first if self.ticks == 1 else f'{first} to {last}'}"


def holes_of(entries: Sequence[Mapping[str, Any]], now: int) -> list[Hole]:
    """The holes that ``entries`` of the ledger show, both sorted newest first. ``now``: the server's clock in epoch ms.

    The ticks of a launch follow from its own schedule or, without one, from the usual time between starts. A group, the
    launches that share a lease, has no ticks if a producer started any, or if half of them or more end with `EMPTY`."""
    groups = defaultdict[str, list[Mapping[str, Any]]](list)
    for entry in reversed(entries):
        if "started_ms" in entry and entry.get("lineage"):
            groups[entry["lineage"].rpartition(":")[0]].append(entry)
    found = [hole for group in groups.values() for hole in _holes_of_group(group, now)]
    holes = [hole for hole in found if hole.before is not None or not _replaced(hole, entries)]
    return sorted(holes, key=lambda hole: hole.last_ms, reverse=True)


def _replaced(hole: Hole, entries: Sequence[Mapping[str, Any]]) -> bool:
    """Whether other launches have served all queues of the hole's group since ``hole`` began, so that the crontab has
    probably changed."""
    since = (each for each in entries if each["role"] == hole.role and each.get("started_ms", 0) > hole.first_ms)
    return bool(hole.queues) and {*hole.queues} <= {queue for each in since for queue in each["queues"]}


def _holes_of_group(launches: list[Mapping[str, Any]], now: int) -> list[Hole]:
    """The holes in one group's ``launches``, which are sorted oldest first."""
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
    """The ticks that no launch served between ``covered``, the end of ``launch``, and ``start``, the tick of the next
    launch: the first, the last, and their number. None if there are none. All instants, and ``period``, are in ms."""
    if launch["next_tick_seconds"] is not None:
        first = launch["started_ms"] + 1000 * launch["next_tick_seconds"]
    else:
        first = launch["started_ms"] + period
    first += max(0, -(-(covered - first) // period)) * period
    number = int((start - first - EARLY * period) // period) + 1
    return (int(first), int(first + (number - 1) * period), number) if number > 0 else None


def tick_after(launch: Mapping[str, Any]) -> float | None:
    """Seconds from the tick of ``launch`` to the following one, by the schedule that it had. None if unknown."""
    if launch["next_tick_seconds"] is None or launch["launch_offset_seconds"] is None:
        return None
    return max(1.0, float(launch["next_tick_seconds"] + launch["launch_offset_seconds"]))


def _period(latest: Mapping[str, Any], before: Sequence[Mapping[str, Any]]) -> float | None:
    """Seconds from tick to tick: by the schedule of ``latest``, else by the starts of ``before``. None if unknown."""
    if (own := tick_after(latest)) is not None:
        return own
    starts = [int(launch["started_ms"]) for launch in before]
    return None if len(starts) < FEWEST else max(1.0, median(two - one for one, two in pairwise(starts)) / 1000)


def _end(launch: Mapping[str, Any], now: int) -> int:
    """The end of the launch in epoch ms, by its entry in the ledger; ``now`` if it still runs."""
    if launch["stop_reason"] is None:
        return now
    return int(launch.get("ended_ms", launch["started_ms"] + 1000 * launch["running_seconds"]))


def usual_margin(launches: Sequence[Mapping[str, Any]]) -> float | None:
    """How many seconds before the ends of their windows ``launches``, newest first, usually stop taking messages. None
    if too few launches are known."""
    ended = [each for each in launches[:LOOKED_AT] if why_stopped(each["stop_reason"]) == WINDOW_OVER]
    margins = [each["margin_seconds"] for each in ended if each.get("margin_seconds") is not None]
    return None if len(margins) < FEWEST else median(margins)


def unserved_time(
    launches: Sequence[Mapping[str, Any]],
    window: float,
    rule: LauncherRule,
    handoff: HandOff,
    period: float | None = None,
) -> str | None:
    """A line that says how much of each ``window``, or of each ``period`` between launches, is unserved, and what
    helps. None if little is unserved. ``window`` and ``period`` are in seconds. ``launches``: the ledger's entries of
    one group, newest first. ``handoff``: the setting."""
    if period is not None and period - window > MUCH * period:
        whole, served = format_duration(period), format_duration(round(window))
        return (
            f"{1 - window / period:.0%} of each {whole}: a launch ends after {served}, and the next one starts "
            f'{whole} after it started; consumer.timeout = "{whole}" would serve it'
        )
    margin = usual_margin(launches)
    if rule.handoff(handoff).on_call or margin is None or margin <= MUCH * window:
        return None
    remedy = 'consumer.handoff = "baton"' if rule is LauncherRule.PARALLEL else "a lower consumer.tolerance_factor"
    share = f"{min(1.0, margin / window):.0%} of each {format_duration(window)}"
    return (
        f"{share}: launches take no new message in their last {format_duration(margin)}, since handlers take long; "
        f"{remedy}, or shorter handlers, would serve it"
    )


class WorkBeyond(NamedTuple):
    """A message in flight past a launch's window, from ``since`` to ``until`` at most, in ms of the server's clock."""

    handler: str
    queue: str
    id: str
    since: int
    until: int

    def as_json(self) -> dict[str, str]:
        return self._asdict() | {"since": iso(self.since), "until": iso(self.until)}


def read_work(stored: object) -> list[WorkBeyond]:
    """The messages that the field ``stored`` of a ledger's entry lists. Corrupt ones are left out."""
    found = [each for each in stored if isinstance(each, list)] if isinstance(stored, list) else []
    return [WorkBeyond(*each) for each in found if [*map(type, each)] == _TYPES and min(each[3:]) >= 0]


def working_on(found: Sequence[WorkBeyond], now: int, *, utc: bool = False) -> str:
    """Such as ``working on render since 12:03:10, at most until 12:08:10``. A time has its date if that is not the date
    of ``now``. Times are in this machine's zone, or in UTC with ``utc``."""
    handlers = [*dict.fromkeys(each.handler for each in found)]
    others = f" and {len(handlers) - MOST_NAMED} others" if len(handlers) > MOST_NAMED else ""
    since, until = min(each.since for each in found), max(each.until for each in found)
    times = [clock(at, now, utc=utc) for at in (since, until)]
    return f"working on {', '.join(handlers[:MOST_NAMED])}{others} since {times[0]}, at most until {times[1]}"
