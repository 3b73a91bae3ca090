"""Pages as HTML, and their addresses. Addresses are relative, since all pages are in one directory.

All text that does not come from a template is escaped, and its invisible characters are shown. That is done in one
place. An address is None if its page does not exist."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jinja2
from markupsafe import Markup, escape

from pollconsumer.core.coverage import working_on
from pollconsumer.core.durations import Histogram
from pollconsumer.core.errors import PollConsumerError
from pollconsumer.core.lifecycle import State
from pollconsumer.core.messages.codec import shown_value
from pollconsumer.core.notation.digests import sha256
from pollconsumer.core.notation.instants import ago, datetime_of, iso
from pollconsumer.core.notation.text import printable
from pollconsumer.core.window import why_stopped
from pollconsumer.dashboard.drawings import (
    axis_labels,
    clock,
    completion_charts,
    drawn,
    durations_drawn,
    history_charts,
)
from pollconsumer.dashboard.page_reader import LOOKED_THROUGH, PAGE, SEARCHED, SHOWN, Page, PastSpan
from pollconsumer.interface.cli.output import span
from pollconsumer.store.reading.messages import Message

STYLE, ICON, SCRIPT = "style.css", "icon.svg", "live.js"
SEPARATOR = "~"
"""Separates names in a file's name. A name that contains it is replaced by a digest."""
_AS_IT_IS = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")
LONGEST_NAME = 1000
"""Maximum length of an id or a name that has a page, in characters."""
SHORT, LONGEST = 160, 64 << 10
"""Maximum length of a payload or an error that a page shows: in a table, and on the message's own page."""
_SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
ADDRESSES: dict[str, tuple[str, ...]] = {
    "audit": (),
    "batch": ("queue", "id", "first"),
    "batches": ("queue", "skip"),
    "dead": ("queue", "handler", "error"),
    "enqueue": ("handler",),
    "handler": ("name",),
    "message": ("queue", "id"),
    "past": ("of",),
    "put": ("name",),
    "queue": ("name", "state", "skip"),
    "recurrence": ("name",),
    "search": (),
}
"""Page → the names of the values in its address."""
FIRST_PART = {("first", "0"), ("skip", "0")}
FIRST: dict[str, object] = {"state": State.READY, **dict(FIRST_PART)}
"""Values that a page's address has if none are given for them."""


class Served:
    """Makes addresses of pages at a server, with the values that `ADDRESSES` lists. A value of None is left out. The
    address is None if a value is too long or has a NUL."""

    front = "./"

    def __call__(self, page: str, *given: object) -> str | None:
        named = _named(page, given)
        if any(len(text) > LONGEST_NAME or "\0" in text for text in named.values()):
            return None
        return f"{page}?{urlencode(named, errors='replace')}" if named else page


class Filed:
    """Makes addresses of pages that are files: the files' names. None for a page that is not in ``pages``, the names of
    all files written. Files have no search, no actions, and no second part of a list."""

    front = "index.html"

    def __init__(self, pages: Collection[str]) -> None:
        self._pages = pages

    def __call__(self, page: str, *given: object) -> str | None:
        file = file_of(page, *(text for name, text in _named(page, given).items() if (name, text) not in FIRST_PART))
        return file if file in self._pages else None


def _named(page: str, given: tuple[object, ...]) -> dict[str, str]:
    """The values in the address of a page, by name."""
    chosen = FIRST | dict(zip(ADDRESSES[page], given, strict=False))
    return {name: str(chosen[name]) for name in ADDRESSES[page] if chosen.get(name) is not None}


def file_of(kind: str, *names: str) -> str:
    """The name of the file for a page about ``names``. A digest replaces the names if one of them cannot be part of a
    file's name, or has capital letters, which some file systems do not distinguish."""
    is_safe = all(_AS_IT_IS.fullmatch(name) and name == name.lower() for name in names)
    named = SEPARATOR.join(names) if is_safe else sha256("\n".join(names).encode("utf-8", "replace"))[:32]
    return f"{kind}-{named}.html"


TEMPLATES = Path(__file__).with_name("templates")


class Pages:
    """Renders pages. ``token``: the secret that a form must send; None if pages have no forms."""

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
        self._environment = environment

    def page(
        self, kind: str, page: Page, *, served: bool = True, refresh: int | None = None, done: str | None = None
    ) -> str:
        """The page of a ``kind``, which is the name of its template. ``done``: the result of the action that led here.
        ``served``: the first page gets a link that reloads it. ``refresh``: seconds after which a browser reloads the
        page."""
        values = vars(page) | (_MORE[kind](page) if kind in _MORE else {})
        template = self._environment.get_template(f"{kind}.html")
        return template.render(**values, served=served, refresh=refresh, done=done)

    def problem(self, title: str, error: PollConsumerError | str) -> str:
        return self._environment.get_template("problem.html").render(now=None, done=None, title=title, error=str(error))


def _dead_letters_values(page: Page) -> dict[str, Any]:
    error = page.groups[0].last.error if page.wanted.error and page.groups else None
    return {"count": sum(group.number for group in page.groups), "error": error}


def _handler_values(page: Page) -> dict[str, Any]:
    known = page.durations
    chart = None if known is None else durations_drawn(known)
    shares = {} if known is None else {name: _within(known, share) for name, share in _SHARES.items()}
    return {"chart": chart, "shares": shares, "looked_through": LOOKED_THROUGH}


_MORE: dict[str, Callable[[Page], dict[str, Any]]] = {
    "front": lambda page: {
        "pictures": drawn(page.launches, page.now),
        "charts": completion_charts([*page.completions.values()], page.now),
        "spans": [*PastSpan],
        "shown": SHOWN,
    },
    "dead": _dead_letters_values,
    "queue": lambda page: {"charts": completion_charts([page.completions], page.now), "size": PAGE},
    "handler": _handler_values,
    "batches": lambda _: {"size": PAGE},
    "search": lambda _: {"searched": SEARCHED},
    "past": lambda page: {"charts": history_charts(page), "marks": axis_labels(page), "spans": [*PastSpan]},
}
"""Kind of a page → a function that returns further values of its template."""


def _within(durations: Histogram, share: float) -> float:
    """How many seconds a ``share`` of the messages took at most. A histogram does not resolve durations in its shortest
    bucket, so the mean bounds the result: at most one in ten messages takes longer than ten times the mean."""
    return min(durations.quantile(share), (durations.mean or 0.0) / (1 - share))


def static_file(name: str) -> bytes:
    """The content of the stylesheet, the icon, or the script."""
    return (TEMPLATES / name).read_bytes()


def _visible(value: object) -> object:
    if isinstance(value, Markup):
        return value
    return "–" if value is None else printable(str(value))


def _block(text: str) -> Markup:
    """Text with several lines."""
    cut = text if len(text) <= LONGEST else f"{text[:LONGEST]}\n… {len(text)} characters; see 'pollconsumer status'"
    return escape("\n".join(map(printable, cut.split("\n"))))


def _shortened(value: object) -> str:
    text = value if isinstance(value, str) else _json(value, None)
    return text if len(text) <= SHORT else f"{text[:SHORT]}…"


def _json(value: object, indent: int | None = 2) -> str:
    try:
        return json.dumps(shown_value(value), ensure_ascii=False, indent=indent)
    except RecursionError:
        return "nested too deeply to be shown here"


def _moment(at: int | None, now: int) -> Markup | None:
    """The instant ``at`` of the server's clock, in UTC, and how long ago that was."""
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
    """The message's timestamps by name, in chronological order."""
    known = [(name.removesuffix("_at"), at) for name, at in message.timestamps._asdict().items() if at is not None]
    return sorted(known, key=lambda item: item[1])


_FILTERS = {
    "block": _block,
    "typed": escape,  # the value of an input is sent again, so it stays as it is
    "brief": _shortened,
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
