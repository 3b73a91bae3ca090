"""Writes the pages as files at a launch's end, after its lease was released. The time for that is bounded. The launch
does not fail if that fails."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from pollconsumer.core.errors import PollConsumerError
from pollconsumer.interface.configured_store import opener_of
from pollconsumer.interface.logs.logs import about, log
from pollconsumer.interface.settings.model import Settings
from pollconsumer.runtime.system.own_threads import start_thread
from pollconsumer.runtime.system.watchdog import LateAct
from pollconsumer.store.client.patience import Budget

PAGES_WITHIN = 1.0
"""Seconds. Pages that are not written by then are left to the next launch."""


def write_at_end(settings: Settings, static: str) -> LateAct:
    """Begin to write the pages to the directory ``static``, relative to that of the settings. Returns a function that
    waits for the pages, `PAGES_WITHIN` from the beginning at most, and logs a warning if they were not written."""
    until = time.monotonic() + PAGES_WITHIN
    problems: list[str] = []
    writer = None
    try:
        pages_path = settings.directory / Path(static).expanduser()
        writer = start_thread("static pages", _write, settings, pages_path, problems)
    except RuntimeError as error:  # no thread can be started
        problems.append(str(error))

    def await_pages(left: Callable[[], float]) -> None:
        if writer is not None and not writer.join(min(until - time.monotonic(), left())):
            problems.append(
                f"not written within {PAGES_WITHIN:g}s; unset dashboard.static, or run 'dashboard --static "
                "DIR' from the crontab"
            )
        for problem in problems[:1]:
            log.warning("static pages: %s", problem, extra=about("static pages"))

    return await_pages


def _write(settings: Settings, directory: Path, problems: list[str]) -> None:
    try:
        # Imported here, within the bounded time.
        from pollconsumer.dashboard.files import write_pages
        from pollconsumer.dashboard.page_reader import reading_of
        from pollconsumer.store.store import Store

        wire = opener_of(settings).bare_wire(lambda: Budget(PAGES_WITHIN))
        wire.skips_lost = True
        try:
            write_pages(reading_of(settings, Store(wire, settings.namespace)), directory)
        finally:
            wire.close()
    except ModuleNotFoundError as error:
        problems.append(f"no module {error.name}; pip install 'pollconsumer[dashboard]'")
    except PollConsumerError as error:
        problems.append(str(error))
