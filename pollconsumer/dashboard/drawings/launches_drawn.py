"""The launches of the last hour as a picture, the log of the article drawn to scale.

Each launch is a column where it stands in the hour, from its tick up: waiting for the lease, work, idling, and the
margin up to the window's end. What stands above that line overran it; what is blank below the line is the gap, during
which nobody held the lease.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

from markupsafe import Markup

from pollconsumer.core.notation.instants import datetime_of
from pollconsumer.core.notation.timespan import format_duration
from pollconsumer.core.window import StopReason, why_stopped
from pollconsumer.dashboard.drawings.svg import Box, group, line, picture

HOUR = 3600.0
"""Seconds that are drawn."""
ABNORMAL = (
    StopReason.DIED, StopReason.WATCHDOG, StopReason.LEASE_LOST, StopReason.STORE_UNREACHABLE, StopReason.FAILED,
)  # fmt: skip
CUT_SHORT = (StopReason.NO_TIME_TO_HANDLE, StopReason.NO_TIME_TO_IDLE)
"""Reasons that end a launch where its margin begins."""
MOST_GROUPS = 8
FEWEST = 5
"""Times between launches from which on they may be regular."""
PUNCTUAL = 0.1
"""Share of a period by which half of the launches may be early or late, for the others to be missing."""


class DrawnLaunch(NamedTuple):
    """A launch. ``at``: seconds from the beginning of the hour to its tick; all other times are seconds from that tick.
    ``window``: its end, None if that is unknown; ``died``: it did not end by itself; ``long_work``: it handled a
    message that took longer than its window."""

    at: float
    started: float
    acquired: float
    worked: float
    ended: float
    window: float | None
    margin: float
    died: bool
    long_work: bool
    runs: bool
    handled: int
    failed: int
    title: str


class Drawn(NamedTuple):
    """Launches of one role and set of queues. ``top``: seconds at the picture's upper edge; ``covered``: share of the
    time since the first one for which one of them held the lease; ``longest_gap``: most seconds for which none did;
    ``missing``: launches that did not come, where they come regularly."""

    title: str
    columns: Markup
    handled: Markup
    top: float
    most_handled: int
    launches: int
    overran: int
    died: int
    covered: float
    longest_gap: float
    missing: int
    total: int
    failures: int


def drawn(launches: Sequence[Mapping[str, Any]], now: int) -> list[Drawn]:
    """The pictures, one for each group of launches, consumers first. ``now`` in epoch ms."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for entry in reversed(launches):
        if "started_ms" in entry:
            groups.setdefault((entry["role"], ", ".join(entry["queues"])), []).append(entry)
    ordered = sorted(groups.items(), key=lambda item: (item[0][0] != "consumer", -len(item[1]), item[0]))
    return [_draw(role, queues, entries, now) for (role, queues), entries in ordered[:MOST_GROUPS]]


def _draw(role: str, queues: str, entries: Sequence[Mapping[str, Any]], now: int) -> Drawn:
    found = [_launched(entry, now) for entry in entries]
    apart = [later.at - earlier.at for earlier, later in pairwise(found) if later.at > earlier.at]
    width = min(max(0.8 * median(apart), 6.0), 300.0) if apart else 48.0
    top = max(1.05 * max(max(each.ended, each.window or 0.0) for each in found), 10.0)
    most = max([1, *(each.handled + each.failed for each in found)])
    title = f"{role}, {queues}" if queues else role
    covered, longest_gap = _held(found)
    columns = [*(_column(each, width) for each in found), *_usual_window(found)]
    bars = [_bar(each, width) for each in found]
    return Drawn(
        title=title,
        columns=picture("launches", HOUR, top, columns, f"{title}: launches of the last hour"),
        handled=picture("handled", HOUR, most, bars, f"{title}: messages of each launch"),
        top=top,
        most_handled=most,
        launches=len(found),
        overran=sum(_overran(each) > 0 and not each.long_work for each in found),
        died=sum(each.died for each in found),
        covered=covered,
        longest_gap=longest_gap,
        missing=_missing([*apart, HOUR - found[-1].at]),
        total=sum(each.handled for each in found),
        failures=sum(each.failed for each in found),
    )


def _usual_window(found: Sequence[DrawnLaunch]) -> list[Markup]:
    """A line where windows usually end."""
    windows = [each.window for each in found if each.window]
    return [line("window", median(windows), HOUR)] if windows else []


def _launched(entry: Mapping[str, Any], now: int) -> DrawnLaunch:
    offset = max(0.0, entry["launch_offset_seconds"] or 0.0)
    tick = entry["started_ms"] / 1000 - offset
    runs = entry["stop_reason"] is None
    acquired = entry.get("acquired_ms", entry["started_ms"]) / 1000 - tick
    ended = now / 1000 - tick if runs else entry.get("ended_ms", entry["started_ms"]) / 1000 - tick
    margin, reason = entry["margin_seconds"], entry["stop_reason"]
    ahead = entry.get("next_tick_seconds")
    if isinstance(ahead, int | float) and 0 < ahead <= HOUR:
        window = offset + ahead
    else:
        window = ended + margin if reason in CUT_SHORT else None
    worked = min(max(0.0, ended - acquired), (entry["handled"] + entry["failed"]) * entry["average_seconds"])
    return DrawnLaunch(
        at=HOUR + tick - now / 1000,
        started=offset,
        acquired=acquired,
        worked=worked,
        ended=max(ended, acquired),
        window=window,
        margin=margin,
        died=reason in ABNORMAL,
        long_work=entry["longer_than_window"] > 0,
        runs=runs,
        handled=entry["handled"],
        failed=entry["failed"],
        title=_said(entry),
    )


def _column(each: DrawnLaunch, width: float) -> Markup:
    end = each.ended if each.window is None else min(each.ended, max(each.window, each.acquired))
    boxes = [
        Box("waiting", each.at, each.started, width, each.acquired - each.started),
        Box("work", each.at, each.acquired, width, min(each.worked, end - each.acquired)),
        Box("idle", each.at, each.acquired + each.worked, width, end - each.acquired - each.worked),
        Box("over", each.at, end, width, _overran(each)),
    ]
    if each.window is not None:
        begins = max(each.ended, each.window - each.margin)
        boxes.append(Box("margin", each.at, begins, width, each.window - begins))
    if each.died:
        boxes.append(Box("died", each.at, each.ended, width, 2.0))
    return group(boxes, each.title)


def _bar(each: DrawnLaunch, width: float) -> Markup:
    boxes = [Box("work", each.at, 0, width, each.handled), Box("died", each.at, each.handled, width, each.failed)]
    return group(boxes, each.title)


def _overran(each: DrawnLaunch) -> float:
    return 0.0 if each.window is None else max(0.0, each.ended - max(each.window, each.acquired))


def _missing(apart: Sequence[float]) -> int:
    """Ticks without a launch. ``apart``: seconds between launches, and last those since the latest one."""
    *between, since = apart
    if len(between) < FEWEST:
        return 0
    period = median(between)
    if sum(abs(each - period) < PUNCTUAL * period for each in between) < len(between) / 2:
        return 0
    return sum(round(each / period) - 1 for each in between if each > period) + max(0, round(since / period) - 1)


def _held(found: Sequence[DrawnLaunch]) -> tuple[float, float]:
    """The share of the time since the first one for which the lease was held, and the longest time it was not."""
    spans = sorted((each.at + each.acquired, each.at + each.ended) for each in found)
    begin = until = max(0.0, spans[0][0])
    held = longest_gap = 0.0
    for start, end in [*spans, (HOUR, HOUR)]:
        longest_gap = max(longest_gap, start - until)
        held += max(0.0, end - max(start, until))
        until = max(until, end)
    return min(1.0, held / max(0.001, HOUR - begin)), longest_gap


def _said(entry: Mapping[str, Any]) -> str:
    return "; ".join(_parts(entry))


def _parts(entry: Mapping[str, Any]) -> Iterator[str]:
    yield f"started {datetime_of(entry['started_ms']).strftime('%H:%M:%S')}"
    yield f"ran {format_duration(entry['running_seconds'])}"
    if entry["waited_seconds"]:
        yield f"waited {format_duration(entry['waited_seconds'])}"
    yield why_stopped(entry["stop_reason"])
    yield f"{entry['handled']} completed, {entry['failed']} failed"
    if entry["average_seconds"]:
        yield f"average {format_duration(entry['average_seconds'])}"
    if entry["margin_seconds"]:
        yield f"margin {format_duration(entry['margin_seconds'])}"
    if entry["gap_seconds"] is not None:
        yield f"gap {format_duration(entry['gap_seconds'])}"
