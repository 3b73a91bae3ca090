"""Throughput, waiting and lateness in the last hour, and a handler's durations, as pictures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from markupsafe import Markup

from pollconsumer.core.durations import BOUNDS, Histogram
from pollconsumer.core.notation.instants import datetime_of
from pollconsumer.core.notation.timespan import format_duration
from pollconsumer.dashboard.drawings.svg import Box, group, picture
from pollconsumer.dashboard.readings.excerpts import Completions

BARS = 60
"""Bars of a chart, one for each minute."""
MINUTE = 60_000
SHORTEST = 0.001
"""Seconds at the lower edge of a picture of spans, whose scale is logarithmic."""


class Chart(NamedTuple):
    """A picture with its title. ``scale``: what heights stand for, at equal distances, the upper edge first."""

    title: str
    image: Markup
    scale: tuple[str, ...]


class DurationsDrawn(NamedTuple):
    """A picture of durations. ``top``: the messages that its upper edge stands for; ``shortest`` and ``longest``: the
    durations at its left and right edge."""

    image: Markup
    top: str
    shortest: str
    longest: str


class _Minute(NamedTuple):
    at: str
    completed: float
    waited: Sequence[float]
    late: Sequence[float]


def of_completions(completions: Sequence[Completions], now: int) -> list[Chart]:
    """Charts of all queues together: completed messages by the minute, how long they waited, and how late they were.
    None if nothing was completed. ``now`` in epoch ms."""
    minutes = [_minute(completions, now - (BARS - number) * MINUTE) for number in range(BARS)]
    if not any(minute.completed for minute in minutes):
        return []
    charts = [_throughput(minutes), _spans("waited for a launch", minutes, [m.waited for m in minutes])]
    if any(minute.late for minute in minutes):
        charts.append(_spans("became ready after their due time", minutes, [m.late for m in minutes]))
    return charts


def of_durations(histogram: Histogram) -> DurationsDrawn:
    """How many messages took how long."""
    first, last = min(histogram.counts), max(histogram.counts)
    most = max(histogram.counts.values())
    boxes = [
        group([Box("work", bucket - first, 0, 0.9, count)], f"up to {format_duration(BOUNDS[bucket])}: {count:,}")
        for bucket, count in sorted(histogram.counts.items())
    ]
    ends = format_duration(BOUNDS[max(0, first - 1)]), format_duration(BOUNDS[last])
    label = f"handling durations from {ends[0]} to {ends[1]}"
    return DurationsDrawn(picture("durations", last - first + 1, most, boxes, label), f"{most:,}", *ends)


def _minute(completions: Sequence[Completions], begin: int) -> _Minute:
    end = begin + MINUTE
    completed = sum(each.between(begin, end) for each in completions)
    ended = [t for each in completions for t in each.samples if t.completed_at and begin <= t.completed_at < end]
    waited = [(t.reserved_at - t.enqueued_at) / 1000 for t in ended if t.reserved_at and t.enqueued_at]
    late = [(t.enqueued_at - t.due_at) / 1000 for t in ended if t.enqueued_at and t.due_at]
    return _Minute(clock(begin), completed, waited, late)


def _throughput(minutes: Sequence[_Minute]) -> Chart:
    most = max(1.0, *(minute.completed for minute in minutes))
    parts = [
        group([Box("work", number, 0, 0.8, minute.completed)], f"{minute.at}: {minute.completed:.0f} completed")
        for number, minute in enumerate(minutes)
    ]
    return Chart(
        "completed per minute",
        picture("chart", BARS, most, parts, "completed messages by the minute"),
        (f"{most:.0f}", "0"),
    )


def _spans(title: str, minutes: Sequence[_Minute], spans: Sequence[Sequence[float]]) -> Chart:
    """A chart of ``spans``: for each minute a bar from the shortest to the longest, with the median."""
    top = max(0.01, *(max(each, default=0.0) for each in spans))
    height = _scale(top)
    parts = []
    for number, (minute, each) in enumerate(zip(minutes, spans, strict=True)):
        if each:
            least, middle, most = (_scale(span) for span in (min(each), median(each), max(each)))
            thick = height / 30
            boxes = [
                Box("idle", number, least, 0.8, max(thick, most - least)),
                Box("work", number, min(middle, height - thick), 0.8, thick),
            ]
            said = f"{minute.at}: median {format_duration(median(each))}, longest {format_duration(max(each))}"
            parts.append(group(boxes, said))
    scale = tuple(format_duration(SHORTEST * (top / SHORTEST) ** share) for share in (1.0, 0.5, 0.0))
    return Chart(title, picture("chart", BARS, height, parts, f"how long messages {title}"), scale)


def _scale(seconds: float) -> float:
    return math.log10(max(SHORTEST, seconds) / SHORTEST)


def clock(at: float) -> str:
    """Hour and minute of an instant in epoch ms, in UTC."""
    return datetime_of(int(at)).strftime("%H:%M")
