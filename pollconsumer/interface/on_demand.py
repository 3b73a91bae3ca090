"""Starts launches on demand, as ``on_demand`` says: in a process of their own, or by the URL of an endpoint."""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable
from typing import Any

from pollconsumer.core.errors import ConfigurationError
from pollconsumer.core.launcher.detection import DEMANDED_VARIABLE, ON_DEMAND
from pollconsumer.core.news.pings import Ping
from pollconsumer.interface.logs.logs import log
from pollconsumer.interface.settings.model import Settings
from pollconsumer.interface.settings.values import PROCESS
from pollconsumer.runtime.system.own_threads import Started, start_thread

LINGER = 10.0
"""Seconds for which there must be nothing left before a process ends: messages often follow each other."""
ANSWERED_WITHIN = 3.0
"""Seconds for which the exit of a program waits for all answers to its requests, which may come when launches end."""
FOLLOWED_WITHIN = 1.0
"""Seconds for which the exit of a launch waits until its successor's request has come through: a proxy gives up a
request whose client has gone. The answer comes when the successor ends."""
MOST_STARTED = 4
"""Starts of this process whose launches have not ended: of one that works, one that exits, and late ones."""

_started: list[Any] = []
"""Processes."""
_sending: list[Started] = []


def start_launch(settings: Settings, await_answer: Callable[[], float] | None = None) -> None:
    """Start a launch. A warning says why there is none.

    ``await_answer``: in a launch that exits, how many seconds that has left; some are spent on a request. Without it
    nothing is waited for.
    """
    way = settings.consumer.on_demand
    try:
        if way == PROCESS:
            _start_process(settings)
        elif way is not None:
            _send_request(way, settings)
            if await_answer is not None:
                _sending.pop().join(min(FOLLOWED_WITHIN, await_answer()))
    except (OSError, RuntimeError, ConfigurationError) as error:
        log.warning("no launch on demand: %s", getattr(error, "strerror", None) or error)


def _start_process(settings: Settings) -> None:
    import subprocess  # which a launch needs only if it leaves messages

    from pollconsumer.interface.launch_process import launch_command, launch_environment

    _started[:] = [each for each in _started if each.poll() is None]  # the system keeps what nobody asks about
    _refuse_more_than_most(_started, "processes that have not ended")
    process = subprocess.Popen(
        launch_command("--linger", f"{LINGER:g}s"),
        cwd=settings.directory,
        env=launch_environment(settings, (None if settings.client else settings.store, settings.namespace))
        | {DEMANDED_VARIABLE: ON_DEMAND},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # the end of the program is not the launch's
    )
    _started.append(process)


def _send_request(url: str, settings: Settings) -> None:
    from pollconsumer.runtime.launch.pings import delivered

    def send() -> None:
        # Some hosts stop a launch whose request nobody waits for.
        failed = delivered(Ping(url, b"", settings.web.token or ""), settings.web.budget + ANSWERED_WITHIN)
        if failed is not None:
            log.warning("no launch on demand: its URL: %s", failed.reason)

    _sending[:] = [each for each in _sending if not each.join(0)]
    _refuse_more_than_most(_sending, "requests without an answer")
    _sending.append(start_thread("on demand", send))


def _refuse_more_than_most(begun: list[Any], what: str) -> None:
    if len(begun) >= MOST_STARTED:
        raise RuntimeError(f"{len(begun)} {what}")


@atexit.register
def _await_answers() -> None:
    until = time.monotonic() + ANSWERED_WITHIN
    for each in _sending:
        each.join(until - time.monotonic())
