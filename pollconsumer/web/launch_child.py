"""A launch that a request has started, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from threading import Lock
from typing import Any

from pollconsumer.core.launcher.detection import DEMANDED_VARIABLE, ON_DEMAND_BY_URL
from pollconsumer.interface.launch_process import launch_command, launch_environment
from pollconsumer.interface.settings.model import Settings
from pollconsumer.interface.settings.names import OUTCOME_VARIABLE
from pollconsumer.interface.settings.values import BUDGET
from pollconsumer.store.client.own_descriptors import above_standard
from pollconsumer.web.launch_outcome import has_told, told_outcome

STANDARD_ERROR = 2


class LaunchChild:
    """The process. ``place``: of the application's store, where that is not the settings'. OSError if the system
    refuses a process; ConfigurationError for a store that no other process can open."""

    def __init__(
        self, settings: Settings, place: tuple[object, str | None], seconds: float, *, of_producer: bool
    ) -> None:
        """``seconds``: the launch's window. ``of_producer``: a producer has asked for it."""
        environment = launch_environment(settings, place)
        if of_producer:
            environment[DEMANDED_VARIABLE] = ON_DEMAND_BY_URL
        # Where a server runs a script for each request, standard output is the answer.
        output = subprocess.DEVNULL if sys.__stderr__ is None else STANDARD_ERROR
        with above_standard():  # whose places the process fills, where its server has none, as under FastCGI
            told, telling = os.pipe()
        self._told, self._reading, self._is_unawaited = os.fdopen(told, "rb", buffering=0), Lock(), False
        try:
            self._process = subprocess.Popen(
                command_of(seconds, settings.web.linger),
                cwd=settings.directory,
                env=environment | {OUTCOME_VARIABLE: str(telling)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(telling,),
                start_new_session=True,  # the server's own end does not end it
            )
        except BaseException:
            self._told.close()
            raise
        finally:
            os.close(telling)

    def is_working(self) -> bool:
        """Whether its launch may still have the lease, and will look for messages once more: it has neither told its
        end nor exited."""
        with self._reading:
            if not self._told.closed:
                if not self.has_ended() and not has_told(self._told.fileno()):
                    return True
                if self._is_unawaited:
                    self._told.close()
            return False

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def wait(self, seconds: float) -> tuple[int | None, dict[str, Any] | None]:
        """Wait for its end, at most ``seconds``. Returns its exit code, None if it goes on, and what it has told. To be
        called once."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._is_unawaited = True
            return None, None
        with self._reading, self._told:
            return code, told_outcome(self._told.fileno())


def command_of(seconds: float, linger: str) -> list[str]:
    """The command line of a launch with a window of ``seconds``."""
    window = f"{seconds:.15g}s"
    return launch_command("--timeout", window, "--linger", window if linger == BUDGET else linger)
