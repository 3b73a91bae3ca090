"""Pictures for the pages, as inline SVG. They are stretched to the page's width, so text stands outside of them.

Launches are drawn as in the article's log, but to scale. Each is a column at its position in the hour. From its tick
upwards it shows waiting for the lease, work, idling, and the margin up to the window's end. What is above that end is
an overrun. A blank part below it is the gap, in which nobody held the lease."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

from markupsafe import Markup

from pollconsumer.core.durations import BOUNDS, Histogram
from pollconsumer.core.notation.instants import datetime_of
from pollconsumer.core.notation.text import printable
from pollconsumer.core.spans import format_duration
from pollconsumer.core.window import StopReason, why_stopped
from pollconsumer.dashboard.excerpts import Completions
from pollconsumer.dashboard.page_reader import Page, PastSpan

BARS = 60
"""Number of bars in a chart, one for each minute."""
MINUTE = 60_000
SHORTEST = 0.001
"""The lower edge of a chart of durations, in seconds. The scale is logarithmic."""
HOUR = 3600.0
"""The time that a picture of launches covers, in seconds."""
ABNORMAL = (
    StopReason.DIED, StopReason.WATCHDOG, StopReason.LEASE_LOST, StopReason.STORE_UNREACHABLE, StopReason.FAILED,
)  # fmt: skip
AT_WINDOWS_END = (StopReason.NO_TIME_TO_HANDLE, StopReason.NO_TIME_TO_IDLE)
"""Stop reasons of launches that ended when their margin began."""
MOST_GROUPS = 8
FEWEST = 5
"""Least number of intervals between launches from which launches can count as regular."""
PUNCTUAL = 0.1
"""If half of the intervals differ from the median interval by less than this share of it, launches count as regular."""
PARTS_OF_PAST = {PastSpan.DAY: (96, "the quarter of an hour"), PastSpan.WEEK: (84, "two hours")}
"""Time span → the number of bars in its chart, and what each bar stands for."""
AXIS_LABELS = {PastSpan.DAY: 4, PastSpan.WEEK: 7}
"""Time span → the number of intervals between the labels below its chart."""


class Box(NamedTuple):
    """A rectangle in units of the picture; ``bottom`` is measured upwards. ``kind``: a class of the stylesheet."""

    kind: str
    left: float
    bottom: float
    width: float
    height: float


def group(boxes: Iterable[Box], title: str) -> Markup:
    """Boxes that belong together. A browser shows ``title`` when the pointer is over them."""
    inner = Markup("").join(_rectangle(box) for box in boxes if box.width > 0 and box.height > 0)
    return Markup("<g><title>{}</title>{}</g>").format(printable(title), inner)


def line(kind: str, bottom: float, width: float) -> Markup:
    """A horizontal line across the whole picture."""
    return Markup('<line class="{}" x1="0" x2="{}" y1="{}" y2="{}"/>').format(
        kind, _decimal(width), *[_decimal(-bottom)] * 2
    )


def picture(kind: str, width: float, height: float, parts: Iterable[Markup], label: str) -> Markup:
    """An image of ``width`` times ``height`` units. The stylesheet sizes it by ``kind``. ``label``: a description for
    those who cannot see it."""
    return Markup(
        '<svg class="{}" viewBox="0 {} {} {}" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>'
    ).format(kind, _decimal(-height), _decimal(width), _decimal(height), printable(label), Markup("").join(parts))


def _rectangle(box: Box) -> Markup:
    corner = (box.left, -box.bottom - box.height, box.width, box.height)
    return Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>').format(box.kind, *map(_decimal, corner))


def _decimal(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".")


class Chart(NamedTuple):
    """A picture with its title. ``scale``: its values at equal distances, from the top down."""

    title: str
    image: Markup
    scale: tuple[str, ...]


class _Minute(NamedTuple):
    at: str
    completed: float
    waited: Sequence[float]
    late: Sequence[float]


def completion_charts(completions: Sequence[Completions], now: int) -> list[Chart]:
    """Charts of the last hour, for all queues of ``completions`` together: messages completed in each minute, how long
    they waited, and how late they were. No charts if nothing was completed. ``now``: in epoch ms."""
    minutes = [_minute(completions, now - (BARS - number) * MINUTE) for number in range(BARS)]
    if not any(minute.completed for minute in minutes):
        return []
    throughput = [(minute.completed, 0.0, f"{minute.at}: {minute.completed:.0f} completed") for minute in minutes]
    charts = [
        _bars("completed per minute", "completed messages by the minute", throughput),
        _spans("waited for a launch", minutes, [m.waited for m in minutes]),
    ]
    if any(minute.late for minute in minutes):
        charts.append(_spans("became ready after their due time", minutes, [m.late for m in minutes]))
    return charts


def durations_drawn(histogram: Histogram) -> Page:
    """The page values of a histogram: ``image``; ``top``: the number of messages at its upper edge; ``shortest`` and
    ``longest``: the durations at its left and right edge."""
    first, last = min(histogram.counts), max(histogram.counts)
    most = max(histogram.counts.values())
    boxes = [
        group([Box("work", bucket - first, 0, 0.9, count)], f"up to {format_duration(BOUNDS[bucket])}: {count:,}")
        for bucket, count in sorted(histogram.counts.items())
    ]
    shortest, longest = format_duration(BOUNDS[first - 1] if first else 0.0), format_duration(BOUNDS[last])
    image = picture("durations", last - first + 1, most, boxes, f"handling durations from {shortest} to {longest}")
    return Page(image=image, top=f"{most:,}", shortest=shortest, longest=longest)


def _minute(completions: Sequence[Completions], begin: int) -> _Minute:
    end = begin + MINUTE
    completed = sum(each.between(begin, end) for each in completions)
    ended = [t for each in completions for t in each.samples if t.completed_at and begin <= t.completed_at < end]
    waited = [(t.reserved_at - t.enqueued_at) / 1000 for t in ended if t.reserved_at and t.enqueued_at]
    late = [(t.enqueued_at - t.due_at) / 1000 for t in ended if t.enqueued_at and t.due_at]
    return _Minute(clock(begin), completed, waited, late)


def _spans(title: str, minutes: Sequence[_Minute], spans: Sequence[Sequence[float]]) -> Chart:
    """A chart of durations. Each minute's bar goes from the shortest to the longest, and marks the median."""
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
            caption = f"{minute.at}: median {format_duration(median(each))}, longest {format_duration(max(each))}"
            parts.append(group(boxes, caption))
    scale = tuple(format_duration(SHORTEST * (top / SHORTEST) ** share) for share in (1.0, 0.5, 0.0))
    return Chart(title, picture("chart", BARS, height, parts, f"how long messages {title}"), scale)


def _scale(seconds: float) -> float:
    return math.log10(max(SHORTEST, seconds) / SHORTEST)


def clock(at: float) -> str:
    """Hours and minutes of an instant in epoch ms, in UTC."""
    return datetime_of(int(at)).strftime("%H:%M")


class DrawnLaunch(NamedTuple):
    """A launch to draw. ``at``: seconds from the beginning of the hour to its tick. All other times are seconds from
    that tick. ``window``: the window's end; None if unknown. ``died``: its end was `ABNORMAL`. ``long_work``: whether
    it handled a message that took longer than its window."""

    at: float
    started: float
    acquired: float
    worked: float
    ended: float
    window: float | None
    margin: float
    died: bool
    long_work: bool
    handled: int
    failed: int
    title: str


def drawn(launches: Sequence[Mapping[str, Any]], now: int) -> list[Page]:
    """The page values of each group of launches with the same role and queues, consumers first. ``now``: in epoch ms.
    ``top``: seconds at the picture's upper edge. ``covered``: the share of time since the first launch in which a
    launch held the lease. ``longest_gap``: the longest time in seconds in which none did. ``missing``: the number of
    launches that did not come, if launches come regularly."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for entry in reversed(launches):
        if "started_ms" in entry:
            groups.setdefault((entry["role"], ", ".join(entry["queues"])), []).append(entry)
    ordered = sorted(groups.items(), key=lambda item: (item[0][0] != "consumer", -len(item[1]), item[0]))
    return [_draw(role, queues, entries, now) for (role, queues), entries in ordered[:MOST_GROUPS]]


def _draw(role: str, queues: str, entries: Sequence[Mapping[str, Any]], now: int) -> Page:
    found = [_launched(entry, now) for entry in entries]
    gaps = [later.at - earlier.at for earlier, later in pairwise(found) if later.at > earlier.at]
    width = min(max(0.8 * median(gaps), 6.0), 300.0) if gaps else 48.0
    top = max(1.05 * max(max(each.ended, each.window or 0.0) for each in found), 10.0)
    most = max([1, *(each.handled + each.failed for each in found)])
    title = f"{role}, {queues}" if queues else role
    covered, longest_gap = _held(found)
    columns = [_column(each, width) for each in found]
    if windows := [each.window for each in found if each.window]:
        columns.append(line("window", median(windows), HOUR))  # where windows usually end
    bars = [
        group(
            [Box("work", each.at, 0, width, each.handled), Box("died", each.at, each.handled, width, each.failed)],
            each.title,
        )
        for each in found
    ]
    return Page(
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
        missing=_missing([*gaps, HOUR - found[-1].at]),
        total=sum(each.handled for each in found),
        failures=sum(each.failed for each in found),
    )


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
        window = ended + margin if reason in AT_WINDOWS_END else None
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
        handled=entry["handled"],
        failed=entry["failed"],
        title="; ".join(_launch_lines(entry)),
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


def _overran(each: DrawnLaunch) -> float:
    return 0.0 if each.window is None else max(0.0, each.ended - max(each.window, each.acquired))


def _missing(gaps: Sequence[float]) -> int:
    """The number of ticks without a launch. ``gaps``: seconds from launch to launch, and from the last one to now."""
    *between, since = gaps
    if len(between) < FEWEST:
        return 0
    period = median(between)
    if sum(abs(each - period) < PUNCTUAL * period for each in between) < len(between) / 2:
        return 0
    return sum(round(each / period) - 1 for each in between if each > period) + max(0, round(since / period) - 1)


def _held(found: Sequence[DrawnLaunch]) -> tuple[float, float]:
    """The share of time since the first launch in which one held the lease; and the longest time without a holder."""
    spans = sorted((each.at + each.acquired, each.at + each.ended) for each in found)
    begin = until = max(0.0, spans[0][0])
    held = longest_gap = 0.0
    for start, end in [*spans, (HOUR, HOUR)]:
        longest_gap = max(longest_gap, start - until)
        held += max(0.0, end - max(start, until))
        until = max(until, end)
    return min(1.0, held / max(0.001, HOUR - begin)), longest_gap


def _launch_lines(entry: Mapping[str, Any]) -> Iterator[str]:
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


def history_charts(page: Page) -> list[Chart]:
    """Charts of the messages and launches of a day or a week. No chart if there was no launch."""
    if not page.launches:
        return []
    died = [launch["stop_reason"] == StopReason.DIED for launch in page.launches]
    messages = [(launch["handled"], launch["failed"]) for launch in page.launches]
    return [
        _chart(page, "messages", ("completed", "failed"), messages),
        _chart(page, "launches", ("ended", "died"), [(1 - each, int(each)) for each in died]),
    ]


def axis_labels(page: Page) -> list[str]:
    """The labels below a chart, at equal distances."""
    count = AXIS_LABELS[page.span]
    step = page.span.milliseconds // count
    instants = [page.now - step * (count - number) for number in range(count + 1)]
    return [_named(page.span, at) if page.span is PastSpan.DAY else f"{datetime_of(at):%b %d}" for at in instants]


def _chart(page: Page, title: str, words: tuple[str, str], counts: Sequence[tuple[int, int]]) -> Chart:
    """A chart of ``counts``, two numbers for each launch. ``words`` name them: a bar shows the first, its red part the
    second. ``title``: what is counted."""
    count, each_time = PARTS_OF_PAST[page.span]
    width, begin = page.span.milliseconds / count, page.now - page.span.milliseconds
    sums = [(0, 0)] * count
    for launch, (done, bad) in zip(page.launches, counts, strict=True):
        bar = min(count - 1, int((launch["started_ms"] - begin) / width))
        sums[bar] = sums[bar][0] + done, sums[bar][1] + bad
    bars = [
        (done, bad, f"{_named(page.span, begin + bar * width)}: {done:,} {words[0]}, {bad:,} {words[1]}")
        for bar, (done, bad) in enumerate(sums)
    ]
    return _bars(f"{title} by {each_time}", f"{title} of the last {page.span}", bars)


def _bars(title: str, label: str, bars: Sequence[tuple[float, float, str]]) -> Chart:
    """A chart of bars. Each has a number of good results, a number of bad ones, drawn above in red, and a caption."""
    most = max(1.0, *(well + bad for well, bad, _ in bars))
    parts = [
        group([Box("work", number, 0, 0.8, well), Box("died", number, well, 0.8, bad)], caption)
        for number, (well, bad, caption) in enumerate(bars)
    ]
    return Chart(title, picture("chart", len(bars), most, parts, label), (f"{most:,.0f}", "0"))


def _named(span: PastSpan, at: float) -> str:
    return clock(at) if span is PastSpan.DAY else f"{datetime_of(int(at)):%b %d %H:%M}"
