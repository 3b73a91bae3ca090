"""A place of its own for cron: namespaces, a home, a configuration, a crontab, and the commands that are run there.

The harness runs in a mount and a PID namespace. Cron's spool, its other tables, its PID file and ``sendmail`` are
mounted over in there only, so that the machine's own cron and crontab are neither seen nor touched. Every process ends
with the harness, even if that is killed.
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
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

REPOSITORY = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
SPOOL = Path("/var/spool/cron/crontabs")
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
    if not Path("/usr/sbin/cron").exists():
        raise Unfit("needs cron: apt-get install cron")
    if INSIDE not in os.environ:
        unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
            raise Unfit("needs mount and PID namespaces: in a container, run that with CAP_SYS_ADMIN")
        os.environ[INSIDE] = "1"
        os.execvp(unshare[0], [*unshare, sys.executable, *sys.orig_argv[1:]])


class Place:
    """Directory, environment and cron of one scenario, all of it removed at the end of its ``with``."""

    def __init__(self, modules: str, *, variables: Mapping[str, str] | None = None, keep: bool = False) -> None:
        """``modules`` replaces the handlers of config.toml; ``variables`` go into the crontab's environment."""
        # Short, as a unix socket's path is limited to 107 bytes.
        self.directory = Path(tempfile.mkdtemp(prefix="pccron-", dir="/tmp"))
        self.config = self.directory / "config.toml"
        self.mail = self.directory / "mail"
        self.cron_output = self.directory / "cron-output"
        self.environment = {
            "HOME": str(self.directory),
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "POLLCONSUMER_CONFIG": str(self.config),
        }
        self.variables = dict(variables or {})
        self._modules, self._keep = modules, keep
        self._cron: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Place:
        config = (REPOSITORY / "config.toml").read_text()
        self.config.write_text(_replaced(config, '["examples.hello"]', f'["{self._modules}"]'))
        shutil.copy(Path(__file__).with_name("measured.py"), self.directory)
        (self.directory / "examples").symlink_to(REPOSITORY / "examples")
        self._mount()
        crontab = (REPOSITORY / "crontab.example").read_text()
        crontab = _replaced(crontab, "/opt/pollconsumer/bin", str(BIN))
        crontab = _replaced(crontab, "/etc/pollconsumer", str(self.directory))
        crontab = _replaced(crontab, "# * * * * * exec", "* * * * * exec")  # the mover, too
        variables = {"HOME": str(self.directory), **self.variables}
        lines = "".join(f"{name}={value}\n" for name, value in variables.items())
        subprocess.run(["crontab", "-"], input=lines + crontab, text=True, check=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_cron()
        with suppress(subprocess.SubprocessError):
            self.call("store", "stop")
        for mounted in reversed(self._mounted):
            subprocess.run(["umount", "--lazy", mounted], check=False)
        if self._keep:
            show(f"kept: {self.directory}")
        else:
            shutil.rmtree(self.directory, ignore_errors=True)

    def start_cron(self) -> None:
        """Run Debian's cron in the foreground, as our child."""
        with self.cron_output.open("wb") as output:
            self._cron = subprocess.Popen(
                ["/usr/sbin/cron", "-f", "-L", "15"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
            )

    def stop_cron(self) -> None:
        """No more launches; those that run go on."""
        if self._cron is not None:
            self._cron.terminate()
            self._cron.wait()
            self._cron = None

    def cron_ended(self) -> int | None:
        """Cron's exit code if it ended by itself."""
        return None if self._cron is None else self._cron.poll()

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

    def mailed(self) -> str:
        """All that cron would have mailed."""
        return self.mail.read_text() if self.mail.exists() else ""

    def _mount(self) -> None:
        programs, empty = self.directory / "sbin", self.directory / "empty"
        programs.mkdir()
        empty.mkdir()
        sendmail, table = programs / "sendmail", self.directory / "no-table"
        sendmail.write_text(f"#!/bin/sh\nexec cat >>{self.mail}\n")
        sendmail.chmod(0o755)
        table.touch(0o644)
        self._mounted: list[str] = []
        for options, where in (
            (["-t", "tmpfs", "-o", "mode=755", "none"], "/run"),
            (["-t", "tmpfs", "-o", f"mode=1730,gid={SPOOL.stat().st_gid}", "none"], str(SPOOL)),
            (["--bind", str(table)], "/etc/crontab"),
            (["--bind", str(empty)], "/etc/cron.d"),
            (["-t", "overlay", "-o", f"ro,lowerdir={programs}:/usr/sbin", "none"], "/usr/sbin"),
        ):
            subprocess.run(["mount", *options, where], check=True)
            self._mounted.append(where)


def show(text: str) -> None:
    """A line on standard output, at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _replaced(text: str, old: str, new: str) -> str:
    if old not in text:
        raise Unfit(f"{old} is not where it was: the files that the harness copies have changed")
    return text.replace(old, new)
