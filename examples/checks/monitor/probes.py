"""Probes. A probe takes a check and returns what it saw, or raises."""

from __future__ import annotations

import math
import sqlite3
import time
from contextlib import closing
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen

if TYPE_CHECKING:
    from collections.abc import Callable

    from .checks import Check

MOST_READ = 1024**2
"""Maximum number of bytes read of a page."""
LEFT_BEHIND = 1.0
"""Seconds after a check's timeout within which the library's own timeout should fire."""


class Trouble(Exception):
    """An answer other than the expected one."""


class Seen(NamedTuple):
    ok: bool
    detail: str
    seconds: float


def look(check: Check) -> Seen:
    """Probe for at most the check's timeout, even if name resolution, connection or a slow answer hangs."""
    began = time.monotonic()
    answers: SimpleQueue[tuple[bool, str]] = SimpleQueue()
    Thread(target=lambda: answers.put(_answer(check)), name=check.name, daemon=True).start()
    try:
        ok, detail = answers.get(timeout=check.timeout)
    except Empty:
        ok, detail = False, f"no answer within {check.timeout:g} s"
    return Seen(ok, detail, time.monotonic() - began)


def _answer(check: Check) -> tuple[bool, str]:
    try:
        return True, PROBES[check.kind](check)
    except Trouble as trouble:
        return False, str(trouble)
    except Exception as error:
        return False, f"{type(error).__name__}: {error}".strip()


def url(check: Check) -> str:
    try:
        with urlopen(check.target, timeout=check.timeout + LEFT_BEHIND) as response:
            page = response.read(MOST_READ).decode(errors="replace")
    except HTTPError as error:
        with error:
            raise Trouble(f"{error.code} {error.reason}") from None
    if check.expect and check.expect not in page:
        raise Trouble(f"{check.expect!r} is not in the page")
    return f"{response.status} {response.reason}"


def sqlite(check: Check) -> str:
    until = time.monotonic() + check.timeout + LEFT_BEHIND
    with closing(sqlite3.connect(f"file:{quote(check.target)}?mode=ro", uri=True, timeout=check.timeout)) as connection:
        connection.set_progress_handler(lambda: time.monotonic() > until, 10_000)
        return _expected(check, connection.execute(check.query).fetchone())


def postgresql(check: Check) -> str:
    import psycopg  # lazily: only needed for such a check

    longest = check.timeout + LEFT_BEHIND
    options = f"-c default_transaction_read_only=on -c statement_timeout={longest * 1000:.0f}"
    with psycopg.connect(check.target, connect_timeout=math.ceil(longest), options=options) as connection:
        return _expected(check, connection.execute(check.query.encode()).fetchone())


def _expected(check: Check, row: tuple[Any, ...] | None) -> str:
    if row is None:
        raise Trouble("the query gives no row")
    if check.expect and str(row[0]) != check.expect:
        raise Trouble(f"{row[0]}, not {check.expect}")
    return str(row[0])


PROBES: dict[str, Callable[[Check], str]] = {"url": url, "sqlite": sqlite, "postgresql": postgresql}
