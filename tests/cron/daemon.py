"""Debian's cron, with tables and a ``sendmail`` of its own.

Cron's spool, its other tables, its PID file and ``sendmail`` are mounted over in the harness's mount namespace alone,
so that the machine's own cron and crontab are neither seen nor touched.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cron.place import BIN, REPOSITORY, Place, Unfit, replaced

if TYPE_CHECKING:
    from collections.abc import Mapping

CRON = "/usr/sbin/cron"
SPOOL = Path("/var/spool/cron/crontabs")


class Cron:
    """It runs in the foreground, as a child, from `start` to `stop`. Its files are in ``directory``."""

    def __init__(self, directory: Path) -> None:
        if not Path(CRON).exists():
            raise Unfit("needs cron: apt-get install cron")
        self._mail, self._output = directory / "mail", directory / "cron-output"
        self._daemon: subprocess.Popen[bytes] | None = None
        self._mounted: list[str] = []
        programs, empty, table = directory / "sbin", directory / "empty", directory / "no-table"
        programs.mkdir()
        empty.mkdir()
        sendmail = programs / "sendmail"
        sendmail.write_text(f"#!/bin/sh\nexec cat >>{self._mail}\n")
        sendmail.chmod(0o755)
        table.touch(0o644)
        for options, where in (
            (["-t", "tmpfs", "-o", "mode=755", "none"], "/run"),
            (["-t", "tmpfs", "-o", f"mode=1730,gid={SPOOL.stat().st_gid}", "none"], str(SPOOL)),
            (["--bind", str(table)], "/etc/crontab"),
            (["--bind", str(empty)], "/etc/cron.d"),
            (["-t", "overlay", "-o", f"ro,lowerdir={programs}:/usr/sbin", "none"], "/usr/sbin"),
        ):
            subprocess.run(["mount", *options, where], check=True)
            self._mounted.append(where)

    def install(self, crontab: str, variables: Mapping[str, str]) -> None:
        """As the user's crontab, with the variables before it."""
        lines = "".join(f"{name}={value}\n" for name, value in variables.items())
        subprocess.run(["crontab", "-"], input=lines + crontab, text=True, check=True)

    def start(self) -> None:
        self._run(["cron", "-f", "-L", "15"], CRON, {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})

    def _run(self, command: list[str], program: str, environment: Mapping[str, str]) -> None:
        with self._output.open("wb") as output:
            self._daemon = subprocess.Popen(
                command, executable=program, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment
            )

    def stop(self) -> None:
        """No more launches; those that run go on."""
        if self._daemon is not None:
            self._daemon.terminate()
            self._daemon.wait()
            self._daemon = None

    def close(self) -> None:
        self.stop()
        for mounted in reversed(self._mounted):
            subprocess.run(["umount", "--lazy", mounted], check=False)

    def ended(self) -> int | None:
        """Its exit code if it ended by itself."""
        return None if self._daemon is None else self._daemon.poll()

    def mailed(self) -> str:
        """All that it would have mailed."""
        return self._mail.read_text() if self._mail.exists() else ""

    def printed(self) -> str:
        return self._output.read_text() if self._output.exists() else ""


class CronPlace(Place):
    """A place under cron, with the crontab of the repository and its line for a mover."""

    def __init__(self, modules: str, *, variables: Mapping[str, str] | None = None, keep: bool = False) -> None:
        """``variables`` go into the crontab's environment."""
        super().__init__(modules, keep=keep)
        self.variables = dict(variables or {})

    def __enter__(self) -> CronPlace:
        super().__enter__()
        self.cron = Cron(self.directory)
        crontab = (REPOSITORY / "crontab.example").read_text()
        crontab = replaced(crontab, "/opt/pollconsumer/bin", str(BIN))
        crontab = replaced(crontab, "/etc/pollconsumer", str(self.directory))
        crontab = replaced(crontab, "# * * * * * exec", "* * * * * exec")
        self.cron.install(crontab, {"HOME": str(self.directory), **self.variables})
        return self

    def __exit__(self, *exception: object) -> None:
        self.cron.close()
        super().__exit__(*exception)
