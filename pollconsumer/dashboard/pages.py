"""Pages as HTML. Everything that is not of a template is escaped, and made visible, in one place."""

from __future__ import annotations

import json
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from pollconsumer.core.durations import Histogram
from pollconsumer.core.errors import PollConsumerError
from pollconsumer.core.launcher.work_beyond import working_on
from pollconsumer.core.lifecycle import State
from pollconsumer.core.messages.codec import shown_value
from pollconsumer.core.notation.instants import ago, datetime_of, iso
from pollconsumer.core.notation.text import printable
from pollconsumer.core.window import why_stopped
from pollconsumer.dashboard.drawings.charts import clock, of_completions, of_durations
from pollconsumer.dashboard.drawings.launches_drawn import drawn
from pollconsumer.dashboard.drawings.past_drawn import marks_of, of_past
from pollconsumer.dashboard.links import Filed, Served
from pollconsumer.dashboard.readings.batch_page_reader import OfBatch, OfBatches
from pollconsumer.dashboard.readings.page_reader import (
    LOOKED_THROUGH,
    PAGE,
    SEARCHED,
    SHOWN,
    Front,
    OfDead,
    OfHandler,
    OfInterventions,
    OfMessage,
    OfQueue,
    OfRecurrence,
    OfSearch,
)
from pollconsumer.dashboard.readings.past_reader import OfPast, PastSpan
from pollconsumer.interface.cli.output import span
from pollconsumer.store.reading.messages import Message

TEMPLATES = Path(__file__).with_name("templates")
BRIEF, LONGEST = 160, 64 << 10
"""Characters of a payload or an error in a table, and on the page of its message."""


class Pages:
    """Renders pages. ``token``: what a form must send; None where nothing can be done from a page."""

    def __init__(self, namespace: str, links: Served | Filed, token: str | None = None) -> None:
        environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(TEMPLATES),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            finalize=_visible,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        environment.filters |= _FILTERS
        environment.globals |= {"namespace": namespace, "links": links, "token": token, "State": State}
        environment.globals["explained"] = _EXPLAINED
        self._environment = environment

    def front(self, front: Front, *, served: bool, refresh: int | None = None, done: str | None = None) -> str:
        """The first page. ``served``: it has a link that reads it again. ``refresh``: seconds after which a browser
        does that by itself. ``done``: what the action that led here has done."""
        pictures = drawn(front.launches, front.now)
        charts = of_completions([*front.completions.values()], front.now)
        more = {
            "pictures": pictures,
            "charts": charts,
            "spans": [*PastSpan],
            "served": served,
            "refresh": refresh,
            "shown": SHOWN,
        }
        return self._render("front.html", front, done=done, **more)

    def message(self, page: OfMessage, done: str | None = None) -> str:
        return self._render("message.html", page, done=done)

    def dead(self, page: OfDead, done: str | None = None) -> str:
        count = sum(group.number for group in page.groups)
        error = page.groups[0].last.error if page.wanted.error and page.groups else None
        return self._render("dead.html", page, done=done, count=count, error=error)

    def queue(self, page: OfQueue) -> str:
        return self._render("queue.html", page, charts=of_completions([page.completions], page.now), size=PAGE)

    def handler(self, page: OfHandler) -> str:
        known = page.durations
        chart = None if known is None else of_durations(known)
        shares = {} if known is None else {name: _within(known, share) for name, share in _SHARES.items()}
        return self._render("handler.html", page, chart=chart, shares=shares, looked_through=LOOKED_THROUGH)

    def batches(self, page: OfBatches) -> str:
        return self._render("batches.html", page, size=PAGE)

    def batch(self, page: OfBatch, done: str | None = None) -> str:
        return self._render("batch.html", page, done=done)

    def recurrence(self, page: OfRecurrence) -> str:
        return self._render("recurrence.html", page)

    def search(self, page: OfSearch) -> str:
        return self._render("search.html", page, searched=SEARCHED)

    def interventions(self, page: OfInterventions) -> str:
        return self._render("interventions.html", page)

    def past(self, page: OfPast) -> str:
        return self._render("past.html", page, charts=of_past(page), marks=marks_of(page), spans=[*PastSpan])

    def problem(self, title: str, error: PollConsumerError | str) -> str:
        return self._environment.get_template("problem.html").render(now=None, done=None, title=title, error=str(error))

    def _render(self, template: str, page: Any, done: str | None = None, **more: Any) -> str:
        return self._environment.get_template(template).render(**page._asdict(), done=done, **more)


def _within(durations: Histogram, share: float) -> float:
    """Seconds that ``share`` of the messages took at most. A histogram knows no less than its shortest durations, but
    at most one in ten messages takes longer than ten times the average."""
    return min(durations.quantile(share), (durations.mean or 0.0) / (1 - share))


_SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
_EXPLAINED = {
    "started": "when the launch or the handler started",
    "stopped": "why the launch ended; window over: it ended in time for the next launch",
    "ran": "how long the launch ran",
    "average": "mean duration of a handler",
    "margin": "how long before the end of its window the launch stopped taking messages",
    "gap": "time without a launch before this one",
    "offset": "how long after its tick, as the full minute, the launch started",
    "exit": "how long the process of the launch took to exit",
    "in flight": "messages that a launch has taken and not finished",
    "outstanding": "members that have not ended",
    "reserved": "when a launch took the message from its queue",
    "per minute": "messages completed in the last minute",
    "oldest ready": "how long the oldest ready message has waited for a launch",
    "late": "time from when a message was due until it was ready; of a queue: the longest of recent messages",
    "waited": "a launch: until the launch before it ended; a message: while it was ready, of a queue the mean",
    "duration": "how long the handler took; of a queue: the mean",
    "skipped": "occurrences that were not enqueued: missed, or the previous one was unfinished",
    "p90": "90 % of the messages took at most this long",
    "other": "messages that were cancelled or expired",
}
"""What the head of a column means, where it is no everyday word."""


def static_file(name: str) -> bytes:
    """The stylesheet, the icon, or the script."""
    return (TEMPLATES / name).read_bytes()


def _visible(value: object) -> object:
    if isinstance(value, Markup):
        return value
    return "–" if value is None else printable(str(value))


def _block(text: str) -> Markup:
    """Text of several lines."""
    cut = text if len(text) <= LONGEST else f"{text[:LONGEST]}\n… {len(text)} characters; see 'pollconsumer status'"
    return escape("\n".join(map(printable, cut.split("\n"))))


def _brief(value: object) -> str:
    text = value if isinstance(value, str) else _json(value, None)
    return text if len(text) <= BRIEF else f"{text[:BRIEF]}…"


def _json(value: object, indent: int | None = 2) -> str:
    try:
        return json.dumps(shown_value(value), ensure_ascii=False, indent=indent)
    except RecursionError:
        return "nested too deeply to be shown here"


def _moment(at: int | None, now: int) -> Markup | None:
    """The instant ``at`` by the server's clock, in UTC, and how long ago it was."""
    if at is None:
        return None
    moment = datetime_of(at)
    clock = moment.strftime("%H:%M:%S" if moment.date() == datetime_of(now).date() else "%Y-%m-%d %H:%M")
    return Markup('<time datetime="{}" title="{}">{} <span class="ago">{}</span></time>').format(
        iso(at), iso(at), clock, ago(at, now)
    )


def _exact(at: int) -> Markup:
    return Markup('<time datetime="{}">{}</time>').format(iso(at), iso(at).replace("T", " "))


def _instants(message: Message) -> list[tuple[str, datetime]]:
    """The message's timestamps by name, in the order in which they came."""
    known = [(name.removesuffix("_at"), at) for name, at in message.timestamps._asdict().items() if at is not None]
    return sorted(known, key=lambda item: item[1])


_FILTERS = {
    "block": _block,
    "brief": _brief,
    "json": _json,
    "moment": _moment,
    "exact": _exact,
    "ago": ago,
    "instant": lambda at: datetime_of(at).strftime("%Y-%m-%d %H:%M:%S"),
    "span": span,
    "instants": _instants,
    "grouped": lambda number: f"{number:,}",
    "clock": clock,
    "within": _within,
    "why_stopped": why_stopped,
    "working_on": partial(working_on, utc=True),
}
