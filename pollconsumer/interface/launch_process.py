"""A launch in a process of its own, which another program starts: a web server, a producer.

The launch's signals, its watchdog's exit, its forks and its handlers' hold on the interpreter are none of that
program's. It has no secret on its command line, which every user of a host can read: it finds its settings where the
program has them.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

from pollconsumer.core.errors import ConfigurationError
from pollconsumer.interface.settings.model import Settings
from pollconsumer.interface.settings.names import CONFIG_VARIABLE, variable
from pollconsumer.interface.settings.values import PROCESS

# Neither waits for a successor, nor is the platform's: it may come at any time, while another is alive.
RULES = ("--handoff", "deadline", "--launcher", "parallel", "--if-free", "--until-empty")


def launch_command(*options: str) -> list[str]:
    """The command line of a launch with ``options``."""
    return [_interpreter(), "-m", "pollconsumer", "run", *RULES, *options]


def launch_environment(settings: Settings, place: tuple[object, str | None]) -> dict[str, str]:
    """The environment of a launch of the store at ``place``, where that is not the settings': this process's, without
    what is of no use to a launch: the tokens, but the one with which it has itself followed by a URL; of CGI also the
    request's headers, of which one has a token, and another is a proxy of the client's choice. ConfigurationError for a
    store that no other process can open."""
    unused, of_cgi = {variable("web.enqueue_token")}, "REQUEST_METHOD" in os.environ
    if settings.consumer.on_demand in (None, PROCESS):
        unused.add(variable("web.token"))
    headers = {name for name in os.environ if of_cgi and name.startswith("HTTP_")}
    given = {name: value for name, value in os.environ.items() if name not in headers and name not in unused}
    store, namespace = place
    if store is not None and not isinstance(store, str):
        fix = "name a function that makes it as client in the configuration, and give the application no store"
        raise ConfigurationError("a launch of its own", "an application with a client of its own", fix)
    if settings.config is not None:
        given[CONFIG_VARIABLE] = str(settings.config)
    if store is not None:
        given[variable("store")] = store
    if namespace is not None:
        given[variable("namespace")] = namespace
    return given | {"PYTHONPATH": os.pathsep.join(_import_path())}


def _interpreter() -> str:
    """Python. In a server that has it built in, ``sys.executable`` is that server."""
    named = Path(sys.executable or "none")
    return str(named if named.name.startswith("python") else Path(sys.prefix, "bin", "python3"))


def _import_path() -> list[str]:
    """Where this process finds modules beside the interpreter's own: on many hosts its start has added directories."""
    own = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    found = [Path(entry) for entry in sys.path if entry and Path(entry).is_dir()]
    return [str(each.absolute()) for each in found if not any(each.is_relative_to(place) for place in own)]
