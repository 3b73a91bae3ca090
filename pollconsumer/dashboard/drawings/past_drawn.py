"""A day or a week of launches as bars."""

from __future__ import annotations

from collections.abc import Sequence

from pollconsumer.core.notation.instants import datetime_of
from pollconsumer.core.window import StopReason
from pollconsumer.dashboard.drawings.charts import Chart, clock
from pollconsumer.dashboard.drawings.svg import Box, group, picture
from pollconsumer.dashboard.readings.past_reader import OfPast, PastSpan

BARS = {PastSpan.DAY: (96, "the quarter of an hour"), PastSpan.WEEK: (84, "two hours")}
"""How many bars a chart has, and the time that each stands for."""
MARKS = {PastSpan.DAY: 4, PastSpan.WEEK: 7}
"""Distances between the instants that stand below."""


def of_past(page: OfPast) -> list[Chart]:
    """Charts of messages and of launches; none if there was no launch."""
    if not page.launches:
        return []
    died = [launch["stop_reason"] == StopReason.DIED for launch in page.launches]
    messages = [(launch["handled"], launch["failed"]) for launch in page.launches]
    return [
        _chart(page, "messages", ("completed", "failed"), messages),
        _chart(page, "launches", ("ended", "died"), [(1 - each, int(each)) for each in died]),
    ]


def marks_of(page: OfPast) -> list[str]:
    """The instants below a chart, at equal distances."""
    count = MARKS[page.span]
    step = page.span.milliseconds // count
    instants = [page.now - step * (count - number) for number in range(count + 1)]
    return [_named(page.span, at) if page.span is PastSpan.DAY else f"{datetime_of(at):%b %d}" for at in instants]


def _chart(page: OfPast, title: str, words: tuple[str, str], counts: Sequence[tuple[int, int]]) -> Chart:
    """Bars of what the first of ``words`` says, with what the second says upon it in red. ``counts``: how many each
    launch had of both."""
    bars, each_time = BARS[page.span]
    width, begin = page.span.milliseconds / bars, page.now - page.span.milliseconds
    sums = [(0, 0)] * bars
    for launch, (done, bad) in zip(page.launches, counts, strict=True):
        bar = min(bars - 1, int((launch["started_ms"] - begin) / width))
        sums[bar] = sums[bar][0] + done, sums[bar][1] + bad
    most = max(1, *map(sum, sums))
    parts = [
        group(
            [Box("work", bar, 0, 0.8, done), Box("died", bar, done, 0.8, bad)],
            f"{_named(page.span, begin + bar * width)}: {done:,} {words[0]}, {bad:,} {words[1]}",
        )
        for bar, (done, bad) in enumerate(sums)
    ]
    image = picture("chart", bars, most, parts, f"{title} of the last {page.span}")
    return Chart(f"{title} by {each_time}", image, (f"{most:,}", "0"))


def _named(span: PastSpan, at: float) -> str:
    return clock(at) if span is PastSpan.DAY else f"{datetime_of(int(at)):%b %d %H:%M}"
