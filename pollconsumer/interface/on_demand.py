"""Starts launches on demand, as the setting ``on_demand`` says: as a process, or by a request to an endpoint's URL.

A launch must not affect the program that starts it, by its signals, its watchdog's exit, its forks, or handlers that
hold the interpreter. Its command line has no secret, since every user of a host can read it. It reads its settings from
where the program found them."""

from __future__ import annotations

import atexit
import os
import sys
import sysconfig
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pollconsumer.core.errors import ConfigurationError, PollConsumerError
from pollconsumer.core.launcher import DEMANDED_VARIABLE, ON_DEMAND
from pollconsumer.core.window import StopReason, tick_from
from pollconsumer.interface.logs.logs import log
from pollconsumer.interface.settings.model import Settings
from pollconsumer.interface.settings.names import CONFIG_VARIABLE, OVERRIDING_VARIABLE, variable
from pollconsumer.interface.settings.values import PROCESS
from pollconsumer.runtime.launch.pings import Ping, delivered
from pollconsumer.runtime.system.own_threads import Started, start_thread
from pollconsumer.runtime.system.watchdog import before_exit
from pollconsumer.store.leases import TTL
from pollconsumer.store.queues.demand import ONE_WITHIN_MS, ServingMarker

if TYPE_CHECKING:
    from pollconsumer.runtime.launch.launch import Launch

# The launch does not wait for a successor, and is not the platform's. It may come at any time, while another one is
# alive.
RULES = ("--handoff", "deadline", "--launcher", "parallel", "--if-free", "--until-empty")
LINGER = 10.0
"""A launch in a process of its own ends after its queues were empty for so many seconds."""
ANSWERED_WITHIN = 3.0
"""Seconds that a program waits at its exit for answers to its requests; an answer may come when a launch ends."""
FOLLOWED_WITHIN = 1.0
"""Seconds that a launch waits at its exit until its request for the next launch has arrived: a proxy drops a request if
the client is gone. The answer comes only when the next launch ends."""
MOST_STARTED = 4
"""Maximum number of started launches that have not ended: one works, one exits, and others are late."""
_started: list[Any] = []
"""The processes of launches that this process has started."""
_sending: list[Started] = []
LEAVING_MESSAGES = (
    StopReason.EMPTY,
    StopReason.NO_TIME_TO_HANDLE,
    StopReason.NO_TIME_TO_IDLE,
    StopReason.MEMORY,
    StopReason.DESCRIPTORS,
)
"""After these ends of a launch, another one may follow. EMPTY is one of them, since a message may have come after the
last look. After any other end a launch follows only if a producer wanted one meanwhile: the launch that it started may
have found the lease held."""


def launch_command(*options: str) -> list[str]:
    """The command line of a launch with ``options``."""
    named = Path(sys.executable or "none")  # in a server with a built-in Python it is the server
    python = named if named.name.startswith("python") else Path(sys.prefix, "bin", "python3")
    return [str(python), "-m", "pollconsumer", "run", *RULES, *options]


def launch_environment(settings: Settings, location: tuple[object, str | None]) -> dict[str, str]:
    """The environment of a launch, made of this process's. ``location``: a store and a namespace, each None for that of
    the settings. The endpoint's tokens are left out, except the one with which the launch asks a URL to start the next
    launch. In CGI the headers of the request are left out, too: one holds a token, another a proxy that the client
    chose. ConfigurationError for a store that no other process can open."""
    unused, is_cgi = {variable("web.enqueue_token"), variable("web.manage_token")}, "REQUEST_METHOD" in os.environ
    if settings.consumer.on_demand in (None, PROCESS):
        unused.add(variable("web.token"))
    headers = {name for name in os.environ if is_cgi and name.startswith("HTTP_")}
    given = {name: value for name, value in os.environ.items() if name not in headers and name not in unused}
    store, namespace = location
    if settings.client is not None and "://" in settings.client:  # its address, in place of a function's name
        fix = "name a function that makes it as client in the configuration, and give the application no store"
        raise ConfigurationError("a launch of its own", "an application with a client of its own", fix)
    if settings.config is not None:
        given[CONFIG_VARIABLE] = str(settings.config)
    if isinstance(store, str):
        given |= {variable("store"): store, OVERRIDING_VARIABLE: "1"}
    if namespace is not None:
        given[variable("namespace")] = namespace
    return given | {"PYTHONPATH": os.pathsep.join(_import_path())}


def _import_path() -> list[str]:
    """The directories in which this process finds modules, without the interpreter's own. On many hosts the start of
    the process has added some."""
    own = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    found = [Path(entry) for entry in sys.path if entry and Path(entry).is_dir()]
    return [str(each.absolute()) for each in found if not any(each.is_relative_to(location) for location in own)]


def start_launch(settings: Settings, await_answer: Callable[[], float] | None = None) -> None:
    """Start a launch by the setting ``on_demand``. If none can be started, a warning says why.

    ``await_answer``: given by a launch that exits; returns how many seconds it may wait until its request has arrived.
    None: do not wait."""
    launch_by = settings.consumer.on_demand
    try:
        if launch_by == PROCESS:
            _start_process(settings)
        elif launch_by is not None:
            _send_request(launch_by, settings)
            if await_answer is not None:
                _sending.pop().join(min(FOLLOWED_WITHIN, await_answer()))
    except (OSError, RuntimeError, ConfigurationError) as error:
        log.warning("no launch on demand: %s", getattr(error, "strerror", None) or error)


def _start_process(settings: Settings) -> None:
    import subprocess  # a launch needs it only if it leaves messages

    _started[:] = [each for each in _started if each.poll() is None]  # the system keeps one until asked
    _refuse_more_than_most(_started, "processes that have not ended")
    process = subprocess.Popen(
        launch_command("--linger", f"{LINGER:g}s"),
        cwd=settings.directory,
        env=launch_environment(settings, (None if settings.client else settings.store, settings.namespace))
        | {DEMANDED_VARIABLE: ON_DEMAND},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # the program's end must not end the launch
    )
    _started.append(process)


def _send_request(url: str, settings: Settings) -> None:
    def send() -> None:
        # Some hosts stop a launch if nobody waits for its request.
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


def present_during(
    launch: Launch, settings: Settings, queues: Sequence[str], work: Callable[[], StopReason]
) -> StopReason:
    """Do the ``work`` of a launch. Meanwhile producers find that a launch serves ``queues``. Once its lease is
    released, another launch is started if a message is ready, unless the platform will soon start one."""
    marker = ServingMarker(launch.store.wire, launch.store.keys, queues, settings.consumer.queues)
    marker.begin(launch.window.left(launch.clock()) + TTL)  # the heartbeat prolongs it after the window's end
    reason = work()
    marker.end()

    def follow(left: Callable[[], float]) -> None:
        with suppress(PollConsumerError):  # the store is away: the next message, or the platform, starts a launch
            has_left_any, is_wanted = marker.left()
            ahead, elapsed = launch.plan.next_launches, launch.clock() - launch.window.start
            # Whether the schedule has a launch soon, within the time in which producers start no second one.
            is_followed = ahead is not None and tick_from(elapsed, ahead) - elapsed < ONE_WITHIN_MS / 1000
            if has_left_any and (reason in LEAVING_MESSAGES or is_wanted) and not is_followed:
                start_launch(settings, await_answer=left)

    before_exit(follow)
    return reason
