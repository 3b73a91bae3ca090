"""A place of its own for a scenario: namespaces, a home, a configuration, and the commands that are run there.

The harness runs in a mount and a PID namespace: every process ends with it, even if it is killed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

REPOSITORY = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
INSIDE = "TESTS_CRON_INSIDE"
DRAIN_TRIES = 30
CALL_TIMEOUT = 100.0
"""Seconds in which any one command must have ended: a launch has a minute, and its grace."""


class Unfit(Exception):
    """What this machine lacks for the harness."""


def enter() -> None:
    """Go on in namespaces of our own: runs this program anew in them. Unfit where that is not possible."""
    if os.geteuid() != 0:
        raise Unfit("needs root, to run cron")
    if INSIDE not in os.environ:
        unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
            raise Unfit("needs mount and PID namespaces: in a container, run that with CAP_SYS_ADMIN")
        os.environ[INSIDE] = "1"
        os.execvp(unshare[0], [*unshare, sys.executable, *sys.orig_argv[1:]])


class Place:
    """Directory, configuration and environment of one scenario, removed at the end of its ``with``."""

    def __init__(self, modules: str, *, keep: bool = False, parent: str = "/tmp") -> None:
        """``modules`` replaces the handlers of config.toml. A short ``parent``: a unix socket's path has 107 bytes."""
        self.directory = Path(tempfile.mkdtemp(prefix="pccron-", dir=parent))
        self.config = self.directory / "config.toml"
        self.environment = {
            "HOME": str(self.directory),
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "POLLCONSUMER_CONFIG": str(self.config),
        }
        self._modules, self._keep = modules, keep

    def __enter__(self) -> Self:
        config = (REPOSITORY / "config.toml").read_text()
        self.config.write_text(replaced(config, '["examples.hello"]', f'["{self._modules}"]'))
        shutil.copy(Path(__file__).with_name("measured.py"), self.directory)
        (self.directory / "examples").symlink_to(REPOSITORY / "examples")
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(subprocess.SubprocessError):
            self.call("store", "stop")
        if self._keep:
            show(f"kept: {self.directory}")
        else:
            shutil.rmtree(self.directory, ignore_errors=True)

    def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a pollconsumer command in the place; any exit code is accepted."""
        return subprocess.run(
            [str(BIN / "pollconsumer"), *arguments],
            env=self.environment,
            cwd=self.directory,
            capture_output=True,
            text=True,
            timeout=CALL_TIMEOUT,
            check=False,
        )

    def ask(self, *arguments: str) -> Any:
        """What a command prints with ``--json``. CalledProcessError where it fails."""
        done = self.call(*arguments, "--json")
        done.check_returncode()
        return json.loads(done.stdout)

    def python(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Start a module of this repository in the place's environment."""
        return subprocess.Popen([sys.executable, "-m", *arguments], env=self.environment, cwd=REPOSITORY)

    def drain(self) -> str:
        """Launch consumer and mover by hand until nothing is left. Returns what they printed, and what is left."""
        printed = ""
        for _ in range(DRAIN_TRIES):
            if not self.unfinished():
                return printed
            for arguments in (("run", "--until-empty"), ("move", "--timeout", "2s")):
                done = self.call(*arguments)
                if done.stdout or done.stderr or done.returncode:
                    printed += f"{' '.join(arguments)} exited {done.returncode}: {done.stdout}{done.stderr}"
            time.sleep(1.0)
        return f"{printed}{self.unfinished()} messages are left after {DRAIN_TRIES} launches"

    def unfinished(self) -> int:
        """Messages of which something is still to be done."""
        return self.count("ready", "reserved", "scheduled")

    def count(self, *states: str) -> int:
        """Messages in any of the states, over all queues."""
        return sum(queue[state] for queue in self.ask("status")["queues"] for state in states)


def show(text: str) -> None:
    """A line on standard output, at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def replaced(text: str, old: str, new: str) -> str:
    if old not in text:
        raise Unfit(f"{old} is not where it was: the files that the harness copies have changed")
    return text.replace(old, new)
