"""A user's installation on trial: a directory, a configuration, and processes, whose output goes to files."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pollconsumer
from tests.faults.history import Ran
from tests.short_directory import short_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.network import Host


class Command:
    """A process of ours that was started. Its output goes to files, which no reader has to empty."""

    def __init__(self, arguments: tuple[str, ...], process: subprocess.Popen[bytes], files: tuple[Path, Path]) -> None:
        self.arguments, self.process, self._files = arguments, process, files
        self._started = time.monotonic()
        self._seconds = 0.0

    def is_running(self) -> bool:
        if self.process.poll() is None:
            return True
        self._seconds = self._seconds or time.monotonic() - self._started
        return False

    def errors(self) -> str:
        """What it has printed to stderr so far."""
        return self._files[1].read_text(errors="replace")

    def ran(self) -> Ran:
        """It must have ended."""
        assert not self.is_running()
        output = self._files[0].read_text(errors="replace")
        return Ran(self.arguments, self.process.pid, self._seconds, self.process.returncode, output, self.errors())


class Place:
    """An installation without its server, which is at ``url``; on a ``host`` of a network, or on this machine.
    ``quick_leases``: its leases lapse in a fifth of the time."""

    def __init__(self, url: str = "", host: Host | None = None, *, quick_leases: bool = True) -> None:
        self.directory = short_directory()
        self._module = "tests.trials.entry" if quick_leases else "pollconsumer"
        self._enter: tuple[str, ...] = () if host is None else host.enter
        self._enter_apart: tuple[str, ...] = () if host is None else host.enter_apart
        self.commands: list[Command] = []
        self.python = sys.executable
        self._number = 0
        self._lock = threading.Lock()
        self.environment = {
            "HOME": str(self.directory),
            "PATH": os.defpath,
            "PYTHONPATH": str(Path(pollconsumer.__file__).parents[1]),
            "POLLCONSUMER_STORE": url,
            **{f"XDG_{kind}_HOME": str(self.directory / kind.lower()) for kind in ("DATA", "STATE", "CACHE")},
        }

    def configure(self, text: str, *sources: str, of: str = "") -> None:
        """Its configuration, and files beside it, which stand beside ``of``."""
        for name in sources:
            shutil.copy(Path(of).with_name(name), self.directory / name)
        (self.directory / "config.toml").write_text(text)
        self.environment["POLLCONSUMER_CONFIG"] = str(self.directory / "config.toml")  # for modules elsewhere, too

    def bring(self, source: str) -> None:
        """Have it reach its store by what the function ``client`` of this module returns."""
        (self.directory / "bring.py").write_text(source)
        del self.environment["POLLCONSUMER_STORE"]
        self.environment["POLLCONSUMER_CLIENT"] = "bring:client"

    def start(self, *arguments: str) -> Command:
        """Start one of our commands and return at once."""
        return self._start(self._enter_apart, "-m", self._module, *arguments)

    def start_python(self, *words: str) -> Command:
        return self._start(self._enter, *words)

    def _start(self, enter: tuple[str, ...], *words: str) -> Command:
        with self._lock:
            self._number += 1
            files = tuple(self.directory / f"{self._number:04}.{kind}" for kind in ("out", "err"))
        with files[0].open("wb") as output, files[1].open("wb") as errors:
            process = subprocess.Popen(
                [*enter, self.python, *words],
                cwd=self.directory,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
            )
        command = Command(words[2:], process, (files[0], files[1]))
        with self._lock:
            self.commands.append(command)
        return command

    def run(self, *arguments: str, within: float = 120.0) -> Ran:
        """One of our commands, to its end."""
        command = self.start(*arguments)
        command.process.wait(within)
        return command.ran()

    def json(self, *arguments: str) -> Any:
        ran = self.run(*arguments, "--json")
        assert ran.code == 0, ran.errors
        return json.loads(ran.output)

    def errors(self) -> str:
        """What all of its commands have printed to stderr so far."""
        return "".join(command.errors() for command in self.commands)

    def processes(self) -> Iterator[tuple[int, list[str]]]:
        """Every process that works for this installation but its server: number and arguments."""
        mark, own = os.fsencode(self.directory), os.getpid()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == own:
                continue
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                ours = mark in (entry / "environ").read_bytes() or (entry / "cwd").readlink() == self.directory
                if ours and b"valkey-server" not in words[0] and b"redis-server" not in words[0]:
                    yield int(entry.name), [word.decode(errors="replace") for word in words]

    def kill_all(self) -> None:
        for pid, _ in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for command in self.commands:
            command.process.wait()

    def close(self, *, keep: bool = False) -> None:
        """End everything; ``keep`` the directory."""
        self.kill_all()
        if not keep:
            shutil.rmtree(self.directory)
