"""Requests to a monitor, in its dialect: the first reports that a run begins, the last how it ended. A run is a launch,
or an occurrence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit, urlunsplit

from pollconsumer.core.choices import Dialect
from pollconsumer.core.events.events import LaunchEnded
from pollconsumer.core.window import why_stopped


class Ping(NamedTuple):
    """An HTTP request: a POST if it has a body, else a GET. ``token``: its bearer token, if any. ``content``: the media
    type of the body."""

    url: str
    body: bytes | None = None
    token: str = ""
    content: str = "text/plain; charset=utf-8"


class RunEnd(NamedTuple):
    """How a run ended. ``code``: 0 is success. ``line``: the result in words. ``counts``: what the run did, as numbers
    by name."""

    code: int
    line: str
    seconds: float
    counts: Mapping[str, int] = {}


def dialect_of(url: str, chosen: Dialect) -> Dialect:
    """``chosen``; for `AUTO` the dialect of the monitor at ``url``."""
    if chosen is not Dialect.AUTO:
        return chosen
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host in ("cronitor.link", "cronitor.io") or host.endswith((".cronitor.link", ".cronitor.io")):
        return Dialect.CRONITOR
    if host == "nosnch.in" or host.endswith(".nosnch.in"):
        return Dialect.SNITCH
    if parts.path.startswith("/api/") and "/cron/" in parts.path:
        return Dialect.SENTRY
    if host == "hc-ping.com" or host.startswith("hc.") or "healthchecks" in host:
        return Dialect.HEALTHCHECKS
    return Dialect.PLAIN


def first(url: str, dialect: Dialect, run: str) -> Ping | None:
    """The request that reports the beginning of a run; None if the dialect has none. ``run``: the UUID of the run."""
    match dialect:
        case Dialect.HEALTHCHECKS:
            return Ping(extended(url, {"rid": run}, "/start"))
        case Dialect.CRONITOR:
            return Ping(extended(url, {"state": "run", "series": run}))
        case Dialect.SENTRY:
            return Ping(extended(url, {"check_in_id": run, "status": "in_progress"}))
        case Dialect.SNITCH:
            return None
    return Ping(url)


def last(url: str, dialect: Dialect, run: str, end: RunEnd) -> Ping:
    """The request that reports how a run has ended."""
    code, line, well = end.code, end.line, end.code == 0
    match dialect:
        case Dialect.HEALTHCHECKS:
            return Ping(extended(url, {"rid": run}, f"/{code & 255}"), line.encode())
        case Dialect.CRONITOR:
            query = [("state", "complete" if well else "fail"), ("series", run), ("status_code", str(code))]
            counts = {**end.counts, "duration": f"{end.seconds:.3f}"}
            query += [("metric", f"{name}:{value}") for name, value in counts.items()]
            return Ping(extended(url, [*query, ("message", line)]))
        case Dialect.SENTRY:
            status, seconds = "ok" if well else "error", f"{end.seconds:.3f}"
            return Ping(extended(url, {"check_in_id": run, "status": status, "duration": seconds}))
        case Dialect.SNITCH:
            return Ping(extended(url, {"s": str(code), "m": line}))
    return Ping(url, line.encode())


def ending_of(end: LaunchEnded, code: int) -> RunEnd:
    """The end of a launch as a run's end, with the counts that the ledger has."""
    line = (
        f"{end.role} ran {end.running_seconds:.1f}s ({why_stopped(end.stop_reason)}): {end.counts()}; exit code {code}"
    )
    return RunEnd(code, line, end.running_seconds, {"count": end.handled, "error_count": end.failed})


def extended(url: str, query: Mapping[str, str] | Sequence[tuple[str, str]], path: str = "") -> str:
    """``url`` with ``path`` appended to its path, and ``query`` to its query."""
    parts = urlsplit(url)
    extended = parts.path.rstrip("/") + path if path else parts.path
    return urlunsplit(parts._replace(path=extended, query="&".join(filter(None, (parts.query, urlencode(query))))))
