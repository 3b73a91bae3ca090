"""Commands in forks of one process that has imported them all: a tenth of the cost of a start.

Launches, and what else imports the user's modules, are started as users start them (tests/site.py). So is each command
in test_text_from_outside.py, and those of test_exits.py.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.exits import RUNS

if TYPE_CHECKING:
    from collections.abc import Mapping

ENDS_WITHIN = 180
"""Seconds after which a command is ended by a signal."""


class Forks:
    """Runs commands one at a time. The process to fork from starts with the first and ends with `close`."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def run(
        self, arguments: tuple[str, ...], directory: Path, environment: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        request = json.dumps([arguments, str(directory), environment])
        with self._lock:
            process = self._process = self._process or _start()
            assert process.stdin is not None
            assert process.stdout is not None
            print(request, file=process.stdin, flush=True)
            code, output, errors = json.loads(process.stdout.readline())
        done = subprocess.CompletedProcess(["-m", "pollconsumer", *arguments], code, output, errors)
        RUNS.note(done, errors)
        return done

    def close(self) -> None:
        if self._process is not None:
            self._process.communicate()


def _start() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", __name__],
        cwd=Path(__file__).parents[1],
        env={"PATH": os.defpath},  # as in a Site: what an interpreter reads at its start is the same
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _serve() -> None:
    _import_commands()
    gc.freeze()
    for line in sys.stdin:
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            pid = os.fork()
            if pid == 0:
                try:
                    for descriptor, source in enumerate(
                        (os.open(os.devnull, os.O_RDONLY), output.fileno(), errors.fileno())
                    ):
                        os.dup2(source, descriptor)
                    _become(*json.loads(line))
                finally:
                    os._exit(1)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            sys.stdout.write(json.dumps([code, _content(output), _content(errors)]) + "\n")
            sys.stdout.flush()


def _import_commands() -> None:
    from pollconsumer.interface.cli import COMMANDS

    for module in {target.partition(":")[0] for target, _ in COMMANDS.values()}:
        import_module(f"pollconsumer.interface.cli.{module}")
    for lazily in (
        "interface.settings.sources",
        "interface.settings.cache",
        "runtime.embedded.server",
        "runtime.embedded.start",
        "store.inspector",
    ):
        import_module(f"pollconsumer.{lazily}")


def _become(arguments: list[str], directory: str, environment: dict[str, str]) -> None:
    from pollconsumer import __main__ as command

    signal.alarm(ENDS_WITHIN)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[0] = directory
    sys.argv = [command.__file__, *arguments]
    command.main()


def _content(file: Any) -> str:
    file.seek(0)
    text: str = file.read().decode()
    return text


FORKS = Forks()

if __name__ == "__main__":
    _serve()
