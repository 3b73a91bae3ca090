"""Starts a launch for a request, unless one of this process still works, and answers with its outcome."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from threading import Lock
from typing import Any

from pollconsumer.core.errors import ConfigurationError, LeaseLost, PermissionDenied, StoreUnreachable
from pollconsumer.core.launcher import DEMANDED_VARIABLE, ON_DEMAND_BY_URL
from pollconsumer.interface.api.app import PollConsumer, calls_of
from pollconsumer.interface.on_demand import launch_command, launch_environment
from pollconsumer.interface.settings.model import Settings
from pollconsumer.interface.settings.names import OUTCOME_VARIABLE
from pollconsumer.interface.settings.values import BESIDE_WINDOW, BUDGET
from pollconsumer.runtime.system.watchdog import EXIT_CODE
from pollconsumer.store.client.own_descriptors import above_standard
from pollconsumer.web.launch_outcome import has_outcome, read_outcome
from pollconsumer.web.web_exchange import WebAnswer, failure, json_answer

FOR_ANSWER = 0.5
FOR_END = BESIDE_WINDOW - FOR_ANSWER
"""Seconds of a request's budget between the window and the answer: for the launch's end, which may wait for the store a
little longer."""
SHORTEST = 1.0
"""The shortest window for which a process is started, in seconds."""
MOST_CHILDREN = 4
"""Maximum number of unfinished launches that a web process has started."""
RUNNING = json_answer(200, {"stop_reason": "lease_held", "handled": 0, "failed": 0, "note": "already running"})
UNFINISHED = json_answer(202, {"stop_reason": None, "handled": None, "failed": None, "note": "still running"})
EXITS: dict[int, tuple[int, str]] = {
    StoreUnreachable.exit_code: (503, "the store does not answer"),
    LeaseLost.exit_code: (503, "the launch has lost its lease"),
    PermissionDenied.exit_code: (500, "the launch lacks a permission"),
    ConfigurationError.exit_code: (500, "the configuration, a handler's import or the store is refused"),
    EXIT_CODE: (500, "the launch has outlasted its window and its grace"),
}
"""Exit code of a launch → HTTP status and text of the answer."""
STANDARD_ERROR = 2


class LaunchStarter:
    def __init__(self, app: PollConsumer) -> None:
        self._calls = calls_of(app)
        self._one_at_a_time = Lock()
        self._children: list[LaunchChild] = []
        """Launches that have not ended: at most one works, the others are exiting."""

    def start(self, within: float, *, by_producer: bool) -> WebAnswer:
        """Start a launch, and answer when it has ended, but after ``within`` seconds or the budget of a request at the
        latest. If the previous launch is still working, start none: that launch has the lease, and will look for
        messages once more. If it is exiting, another one is started. ``by_producer``: a producer asks for it, on
        demand. Raises the errors of `LaunchChild`."""
        begun, settings = time.monotonic(), self._calls.settings()
        window = min(within, settings.web.budget) - (time.monotonic() - begun) - FOR_END - FOR_ANSWER
        if window < SHORTEST:
            return failure(503, error=f"too little time for a launch: {max(0.0, window):.1f}s")
        with self._one_at_a_time:
            if any(each.is_working() for each in self._children):
                return RUNNING
            self._children = [each for each in self._children if not each.has_ended()]
            if len(self._children) >= MOST_CHILDREN:
                return failure(503, error=f"{MOST_CHILDREN} launches have not ended")
            try:
                child = LaunchChild(settings, self._calls.location, window, by_producer=by_producer)
                self._children.append(child)
            except OSError as error:
                return failure(503, error=f"no process can be started: {error.strerror}")
        code, outcome = child.wait(window + FOR_END)
        if code is None:
            return UNFINISHED
        if code == 0 and outcome is not None:
            return json_answer(200, outcome)
        status, what = EXITS.get(code, (500, "the launch has failed"))
        return failure(status, error=f"{what}; see the standard error of the web server", exit_code=code)


class LaunchChild:
    """A launch in a process of its own. ``location``: store and namespace of the application, each None if the settings
    give it. OSError if the system refuses a process. ConfigurationError for a store that another process cannot
    open."""

    def __init__(
        self, settings: Settings, location: tuple[object, str | None], seconds: float, *, by_producer: bool
    ) -> None:
        """``seconds``: the launch's window. ``by_producer``: whether a producer asked for it."""
        environment = launch_environment(settings, location)
        if by_producer:
            environment[DEMANDED_VARIABLE] = ON_DEMAND_BY_URL
        # Where a server runs a script for each request, standard output is the answer.
        output = subprocess.DEVNULL if sys.__stderr__ is None else STANDARD_ERROR
        with above_standard():  # its server may have no standard streams, as under FastCGI
            outcome, telling = os.pipe()
        self._outcome, self._reading, self._is_unawaited = os.fdopen(outcome, "rb", buffering=0), Lock(), False
        try:
            self._process = subprocess.Popen(
                command_of(seconds, settings.web.linger),
                cwd=settings.directory,
                env=environment | {OUTCOME_VARIABLE: str(telling)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(telling,),
                start_new_session=True,  # the server's own end must not end it
            )
        except BaseException:
            self._outcome.close()
            raise
        finally:
            os.close(telling)

    def is_working(self) -> bool:
        """Whether the launch may still have the lease, and look for messages once more: it has neither written its
        outcome nor exited."""
        with self._reading:
            if not self._outcome.closed:
                if not self.has_ended() and not has_outcome(self._outcome.fileno()):
                    return True
                if self._is_unawaited:
                    self._outcome.close()
            return False

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def wait(self, seconds: float) -> tuple[int | None, dict[str, Any] | None]:
        """Wait for the launch's end, at most ``seconds``. Returns its exit code, None if it has not ended, and the
        outcome that it has written. To be called once."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._is_unawaited = True
            return None, None
        with self._reading, self._outcome:
            return code, read_outcome(self._outcome.fileno())


def command_of(seconds: float, linger: str) -> list[str]:
    """The command line of a launch with a window of ``seconds``."""
    window = f"{seconds:.15g}s"
    return launch_command("--timeout", window, "--linger", window if linger == BUDGET else linger)
