"""A day or a week of launches as bars."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pollconsumer.core.notation.instants import datetime_of
from pollconsumer.core.window import StopReason
from pollconsumer.dashboard.drawings.charts import Chart, clock
from pollconsumer.dashboard.drawings.svg import Box, group, picture
from pollconsumer.dashboard.readings.past_reader import OfPast, PastSpan

BARS = {PastSpan.DAY: 96, PastSpan.WEEK: 84}
"""Bars of a chart: of a quarter of an hour, and of two hours."""
MARKS = {PastSpan.DAY: 4, PastSpan.WEEK: 7}
"""Distances between the instants that stand below."""


def of_past(page: OfPast) -> list[Chart]:
    """Charts of messages and of launches; none if there was no launch."""
    if not page.launches:
        return []

    def failed(launch: Mapping[str, Any]) -> float:
        return float(launch["failed"])

    def died(launch: Mapping[str, Any]) -> float:
        return float(launch["stop_reason"] == StopReason.DIED)

    return [
        _chart(page, "messages", ("handled", lambda launch: float(launch["handled"])), ("failed", failed)),
        _chart(page, "launches", ("ended", lambda launch: 1.0 - died(launch)), ("died", died)),
    ]


def marks_of(page: OfPast) -> list[str]:
    """The instants below a chart, at equal distances."""
    count = MARKS[page.span]
    step = page.span.milliseconds // count
    instants = [page.now - step * (count - number) for number in range(count + 1)]
    return [_named(page.span, at) if page.span is PastSpan.DAY else f"{datetime_of(at):%b %d}" for at in instants]


Part = tuple[str, Callable[[Mapping[str, Any]], float]]
"""What is counted of a launch, and the word for it."""


def _chart(page: OfPast, title: str, first: Part, second: Part) -> Chart:
    """Bars of what is ``first``, with what is ``second`` upon it in red."""
    bars = BARS[page.span]
    width, begin = page.span.milliseconds / bars, page.now - page.span.milliseconds
    held: list[list[Mapping[str, Any]]] = [[] for _ in range(bars)]
    for launch in page.launches:
        held[min(bars - 1, int((launch["started_ms"] - begin) / width))].append(launch)
    counts = [(sum(map(first[1], each)), sum(map(second[1], each))) for each in held]
    most = max(1.0, *(sum(each) for each in counts))
    parts = [
        group(
            [Box("work", number, 0, 0.8, done), Box("died", number, done, 0.8, bad)],
            f"{_named(page.span, begin + number * width)}: {done:,.0f} {first[0]}, {bad:,.0f} {second[0]}",
        )
        for number, (done, bad) in enumerate(counts)
    ]
    label = f"{title} of the last {page.span}"
    return Chart(_titled(title, width), picture("chart", bars, most, parts, label), (f"{most:,.0f}", "0"))


def _titled(title: str, width: float) -> str:
    return f"{title} by {'the quarter of an hour' if width < 3_600_000 else 'two hours'}"


def _named(span: PastSpan, at: float) -> str:
    return clock(at) if span is PastSpan.DAY else f"{datetime_of(int(at)):%b %d %H:%M}"
