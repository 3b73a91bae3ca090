"""What launches in a row: a real cron, or a stand-in; by the command that `pollconsumer init` prints."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC
from functools import partial
from pathlib import Path
from typing import Protocol

from tests.cron.daemon import Cron
from tests.cron.place import BIN, Place, Unfit, replaced
from tests.cron.scenarios import wait_for
from tests.cron.watch import Watch
from tests.forecast.distributions import draw
from tests.forecast.launchers import LaunchedProcess, Launcher, looks, ticks
from tests.platforms.figures import dropped
from tests.platforms.rows import Platform, Row
from tests.platforms.stand_in import StandIn
from tests.simulation.platforms import PLATFORMS, POD_START_UP

BUSYBOX = "/bin/busybox"
ENDS_WITHIN = 20.0
"""Seconds from SIGTERM."""
RUN = re.compile(r'\brun"?,? "?--config')
"""As a line of a crontab, of a unit or of a shell script has it, or an array of YAML."""
WORD = re.compile(r'[^\s",\[\]]+')


class Launching(Protocol):
    offset: float
    """Seconds from a tick until the launcher looks."""

    def start(self) -> None: ...
    def stop(self) -> None:
        """No more launches; those that run go on."""

    def terminate(self) -> None:
        """SIGTERM to those that run. Returns when they have ended."""

    def processes(self) -> list[LaunchedProcess]: ...
    def delay(self) -> float:
        """Seconds from the launcher's decision to the start of the process, on average."""

    def dropped(self, due: list[float]) -> int:
        """How many of these ticks it dropped."""

    def printed(self) -> str:
        """Output of launches, as the launcher would have mailed or logged it."""

    def close(self) -> None: ...


def launching(place: Place, row: Row) -> Launching:
    return UnderCron(place, row.platform) if row.platform.daemon else Imitated(place, row)


class UnderCron:
    """Under Debian's cron, or busybox's crond."""

    offset = 0.0

    def __init__(self, place: Place, platform: Platform) -> None:
        self._cron = Cron(place.directory) if platform.daemon == "cron" else Crond(place)
        self._watch = Watch()
        crontab = init(place, platform.init)
        if platform.wrapper:
            crontab = replaced(
                crontab, "\n* * * * * exec ", f"\n* * * * * exec {platform.wrapper}{place.directory}/lock "
            )
        self._cron.install(crontab, {"HOME": str(place.directory)})

    def start(self) -> None:
        self._watch.start()
        self._cron.start()

    def stop(self) -> None:
        self._cron.stop()

    def terminate(self) -> None:
        for process in self._watch.alive():
            os.kill(process.pid, signal.SIGTERM)
        wait_for(lambda: not self._watch.alive(), ENDS_WITHIN)

    def processes(self) -> list[LaunchedProcess]:
        return [LaunchedProcess(each.started, each.ended) for each in self._watch.processes]

    def delay(self) -> float:
        return 0.0

    def dropped(self, due: list[float]) -> int:
        return dropped(due, self.processes())

    def printed(self) -> str:
        return self._cron.mailed()

    def close(self) -> None:
        self._cron.close()
        self._watch.stop()


class Crond(Cron):
    """busybox's, with a directory of crontabs of its own."""

    def __init__(self, place: Place) -> None:
        super().__init__(place.directory)
        crond = [BUSYBOX, "crond", "--help"]
        if not Path(BUSYBOX).exists() or subprocess.run(crond, capture_output=True, check=False).returncode:
            raise Unfit("needs busybox with crond: apt-get install busybox-static")
        self._crontabs = place.directory / "crontabs"
        # It sets HOME from /etc/passwd, and hands down the rest.
        home = place.directory
        self._environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "XDG_DATA_HOME": f"{home}/.local/share",
            "XDG_STATE_HOME": f"{home}/.local/state",
            "XDG_CACHE_HOME": f"{home}/.cache",
        }

    def install(self, crontab: str, variables: object) -> None:  # noqa: ARG002  it ignores variables in crontabs
        self._crontabs.mkdir()
        (self._crontabs / "root").write_text(crontab)

    def start(self) -> None:
        self._run(["crond", "-f", "-c", str(self._crontabs)], BUSYBOX, self._environment)


class Imitated:
    """Under a stand-in, with the environment or the parent that the launcher gives to a launch."""

    def __init__(self, place: Place, row: Row) -> None:
        self._place, self._platform, self._handoff = place, row.platform, row.handoff
        self._chance = random.Random(row.name)
        launcher = PLATFORMS[row.name].launcher(self._chance)
        self.offset = launcher.offset
        self._output = place.directory / "printed"
        self._command = [str(BIN / "pollconsumer"), "run", "--config", str(place.config), *self._options()]
        delay = (lambda: draw(POD_START_UP, self._chance)) if row.platform.pod else (lambda: 0.0)
        self._stand_in = StandIn(launcher, partial(_looks, launcher), self._spawn, delay)
        self.start, self.stop, self.terminate = self._stand_in.start, self._stand_in.stop, self._stand_in.terminate
        self.processes, self.delay = self._stand_in.processes, self._stand_in.mean_delay

    def dropped(self, due: list[float]) -> int:  # noqa: ARG002  it counts them itself
        return self._stand_in.dropped

    def printed(self) -> str:
        return self._output.read_text() if self._output.exists() else ""

    def close(self) -> None:
        """Its processes end with the namespace."""

    def _options(self) -> list[str]:
        """Of `init`, but for the hand-off, which is the row's, and what a comment in its output says instead."""
        line = next(line for line in init(self._place, self._platform.init).splitlines() if RUN.search(line))
        words = WORD.findall(line)
        options = words[words.index("--config") + 2 :]
        if "--handoff" in options:
            options[options.index("--handoff") + 1] = self._handoff
        if self._platform.launcher:
            options[options.index("--launcher") + 1] = self._platform.launcher
        return options

    def _spawn(self) -> subprocess.Popen[bytes]:
        environment = {**self._place.environment, **self._platform.variables(time.time() // 60 * 60)}
        command, program = self._command, None
        if self._platform.parent:
            # A shell by the launcher's name, which waits, after SIGTERM, too.
            line = f"trap : TERM; {' '.join(command)}; exit $?"
            command, program = [self._platform.parent, "-c", line], "/bin/sh"
        with self._output.open("ab") as output:
            return subprocess.Popen(
                command,
                executable=program,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                cwd=self._place.directory,
                start_new_session=True,
            )


def _looks(launcher: Launcher, after: float) -> Iterator[tuple[float, tuple[float, ...]]]:
    return looks(ticks("* * * * *", after, UTC), launcher.offset)


def init(place: Place, platform: str) -> str:
    """What `init` prints for a platform. Kubernetes is given the URL of a store, as it refuses an embedded one."""
    kubernetes = platform == "kubernetes"
    store, image = (["--store", "redis://store"], ["--image", "image"]) if kubernetes else ([], [])
    done = place.call(*store, "init", platform, *image)
    done.check_returncode()
    return done.stdout
