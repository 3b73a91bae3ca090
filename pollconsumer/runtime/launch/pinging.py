"""Tells a monitor of a launch, in the background: one that does not answer delays nothing but the exit."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import NamedTuple
from urllib.parse import urlsplit

from pollconsumer.core.choices import Dialect
from pollconsumer.core.events import LaunchEnded
from pollconsumer.core.pings import Ping, dialect_of, first, last

ANSWER_WITHIN = 3.0
"""Seconds."""
NO_ANSWER = "no answer in time"
BROKEN_FROM = 500
"""Status codes from which the monitor is at fault, not the request."""


class Failed(NamedTuple):
    """Why a request was not delivered, and whether another try may help."""

    reason: str
    again: bool


class Pinger:
    """Made before there are threads. ``deliver`` sends a request, and returns None if the monitor took it."""

    def __init__(self, url: str, dialect: Dialect, deliver: Callable[[Ping], Failed | None] | None = None) -> None:
        self.host = urlsplit(url).hostname or ""
        self._url, self._dialect, self._run = url, dialect_of(url, dialect), _new_uuid()
        self._deliver = deliver or delivered
        self._waiting: SimpleQueue[Ping | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._deliver_all, daemon=True)
        self._problem: str | None = None

    def begin(self) -> None:
        """The launch holds the lease."""
        if (ping := first(self._url, self._dialect, self._run)) is not None:
            self._waiting.put(ping)
        self._thread.start()

    def end(self, ended: LaunchEnded, code: int) -> None:
        """The launch has ended."""
        self._waiting.put(last(self._url, self._dialect, self._run, ended, code))
        self._waiting.put(None)

    def wait(self, seconds: float) -> str | None:
        """Wait so long for the answers. Returns why a request was not delivered, None if all were."""
        self._thread.join(max(0.0, seconds))
        return NO_ANSWER if self._thread.is_alive() else self._problem

    def _deliver_all(self) -> None:
        while (ping := self._waiting.get()) is not None:
            failed = self._deliver(ping)
            if failed is not None and failed.again:
                failed = self._deliver(ping)
            if failed is not None:
                self._problem = failed.reason


def delivered(ping: Ping) -> Failed | None:
    """None if the monitor took it. A reason has nothing of the URL, which is a secret."""
    # Imported in the background, since it is slow.
    from urllib.error import HTTPError, URLError
    from urllib.request import Request, urlopen

    headers = {"User-Agent": "pollconsumer", "Content-Type": "text/plain; charset=utf-8"}
    try:
        urlopen(Request(ping.url, ping.body, headers), timeout=ANSWER_WITHIN).close()
    except HTTPError as error:
        error.close()
        return Failed(f"it answers {error.code}", again=error.code >= BROKEN_FROM)
    except URLError as error:
        return Failed(_reason(error.reason), again=True)
    except Exception as error:  # http.client's own, and those of sockets
        return Failed(_reason(error), again=True)
    return None


def _reason(error: BaseException | str) -> str:
    if isinstance(error, TimeoutError):
        return NO_ANSWER
    return (isinstance(error, OSError) and error.strerror) or type(error).__name__


def _new_uuid() -> str:
    """Version 4."""
    digits = os.urandom(16).hex()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"
