"""A launch that a request has started, in a process of its own.

The launch's signals, its watchdog's exit, its forks and its handlers' hold on the interpreter are none of the web
worker's. It has no secret on its command line, which every user of a host can read: it finds its settings where the
application has them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from pollconsumer.core.errors import ConfigurationError
from pollconsumer.interface.settings.model import Settings
from pollconsumer.interface.settings.names import CONFIG_VARIABLE, OUTCOME_VARIABLE, variable
from pollconsumer.web.launch_outcome import told_outcome

LINGER = 2.0
"""Seconds for which there must be nothing left before a launch ends: hosts bill the time of a request."""


class LaunchChild:
    """The process. ``place``: of the application's store, where that is not the settings'. OSError if the system
    refuses a process; ConfigurationError for a store that no other process can open."""

    def __init__(self, settings: Settings, place: tuple[object, str | None], seconds: float) -> None:
        """``seconds``: the launch's window."""
        environment = _environment(settings, place)
        self._told, telling = os.pipe()
        try:
            self._process = subprocess.Popen(
                command_of(seconds),
                cwd=settings.directory,
                env=environment | {OUTCOME_VARIABLE: str(telling)},
                stdin=subprocess.DEVNULL,
                stdout=2,  # where a server runs a script for each request, standard output is the answer
                pass_fds=(telling,),
                start_new_session=True,  # the server's own end does not end it
            )
        except BaseException:
            os.close(self._told)
            raise
        finally:
            os.close(telling)

    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait(self, seconds: float) -> tuple[int | None, dict[str, Any] | None]:
        """Wait for its end, at most ``seconds``. Returns its exit code, None if it goes on, and what it has told. To be
        called once."""
        try:
            code = self._process.wait(seconds)
            return code, told_outcome(self._told)
        except subprocess.TimeoutExpired:
            return None, None
        finally:
            os.close(self._told)


def command_of(seconds: float) -> list[str]:
    """The command line of a launch with a window of ``seconds``."""
    # What waits for a successor would outlast the request, so the hand-off is "deadline"; a request comes whether or
    # not a launch is alive, so the launcher is "parallel".
    rules = ["--timeout", f"{seconds:.15g}s", "--handoff", "deadline", "--launcher", "parallel"]
    ends = ["--if-free", "--until-empty", "--linger", f"{LINGER:g}s"]
    return [_interpreter(), "-m", "pollconsumer", "run", *rules, *ends]


def _interpreter() -> str:
    """Python. In a server that has it built in, ``sys.executable`` is that server."""
    named = Path(sys.executable or "none")
    return str(named if named.name.startswith("python") else Path(sys.prefix, "bin", "python3"))


def _environment(settings: Settings, place: tuple[object, str | None]) -> dict[str, str]:
    """This process's environment, without what is of no use to a launch: the tokens; of CGI also the request's headers,
    of which one has a token, and another is a proxy of the client's choice."""
    tokens, of_cgi = (variable("web.token"), variable("web.enqueue_token")), "REQUEST_METHOD" in os.environ
    headers = {name for name in os.environ if of_cgi and name.startswith("HTTP_")}
    given = {name: value for name, value in os.environ.items() if name not in headers and name not in tokens}
    store, namespace = place
    if store is not None and not isinstance(store, str):
        fix = "name a function that makes it as client in the configuration, and give the application no store"
        raise ConfigurationError("launch by a URL", "an application with a client of its own", fix)
    if settings.config is not None:
        given[CONFIG_VARIABLE] = str(settings.config)
    if store is not None:
        given[variable("store")] = store
    if namespace is not None:
        given[variable("namespace")] = namespace
    return given | {"PYTHONPATH": os.pathsep.join(_import_path())}


def _import_path() -> list[str]:
    """Where this process finds modules beside the interpreter's own: on many hosts its start has added directories."""
    own = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    found = [Path(entry) for entry in sys.path if entry and Path(entry).is_dir()]
    return [str(each.absolute()) for each in found if not any(each.is_relative_to(place) for place in own)]
