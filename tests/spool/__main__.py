"""``python -m tests.spool``: 10,000 messages, their store away every other ten seconds, producers and launches killed.

With ``--embedded`` the store is the embedded server, which is killed each minute, as hosts do that reap daemons. At the
end each message that was acknowledged must have been handled, and as one message: each attempt of it once.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from pollconsumer.core.errors import PollConsumerError
from pollconsumer.runtime.embedded.directory import PID
from pollconsumer.runtime.embedded.server import EmbeddedServer
from pollconsumer.runtime.embedded.start import find_program
from pollconsumer.runtime.spool import Spool, SpoolState
from tests.trials.launches import Launches, kill
from tests.trials.place import Command, Place

PRODUCERS, LAUNCHES = 4, 2
WITHIN = 300.0
"""Seconds for all messages to be handled after the last one is produced."""


class Remote:
    """A server that writes each command through before it answers. It is away every other ``every`` seconds."""

    def __init__(self, place: Path, every: float) -> None:
        self.address, self._place, self._every = f"unix://{place}/s", place, every
        self._began, self._process = time.monotonic(), self._start()
        self.kills = 0

    def _start(self) -> subprocess.Popen[bytes]:
        options = ["--port", "0", "--unixsocket", f"{self._place}/s", "--dir", str(self._place), "--save", ""]
        options += ["--appendonly", "yes", "--appendfsync", "always"]
        return subprocess.Popen([find_program(), *options], stdout=subprocess.DEVNULL)

    def disturb(self) -> None:
        is_away = int((time.monotonic() - self._began) // self._every) % 2 == 1
        if is_away and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
            self.kills += 1
        elif not is_away:
            self.restore()

    def restore(self) -> None:
        if self._process.poll() is not None:
            self._process = self._start()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


class Reaped:
    """The embedded server, which is killed every so many seconds."""

    address = "embedded"

    def __init__(self, place: Path, every: float) -> None:
        self._server, self._every, self._killed = EmbeddedServer(place / "pollconsumer"), every, time.monotonic()
        self.kills = 0

    def disturb(self) -> None:
        if time.monotonic() > self._killed + self._every:
            self._killed = time.monotonic()
            os.kill(int((self._server.directory / PID).read_text()), signal.SIGKILL)
            self.kills += 1

    def restore(self) -> None: ...

    def close(self) -> None:
        try:
            self._server.stop()
        except PollConsumerError as error:
            print(error)


class Trial:
    def __init__(self, data: Path, store: Remote | Reaped, pause: float, kill_every: float) -> None:
        """``data``: the directory of an embedded server."""
        self._store, self._pause, self._kill_every = store, pause, kill_every
        self.place = Place(store.address, quick_leases=False)
        self.place.environment["XDG_DATA_HOME"] = str(data)
        self.place.configure(
            'namespace = "trial"\nhandlers = ["tests.spool.handlers"]\nspool = "spool"\n'
            '[consumer]\ntimeout = "30s"\nestimated_duration = "10ms"\n'
        )
        self._producers: dict[int, Command] = {}
        self._made, self.kills, self.most_spooled = 0, Counter[str](), 0

    def run(self, messages: int, seconds: float) -> list[str]:
        """Go on until so many are acknowledged, at most for ``seconds``, then until all are handled. Returns what is
        wrong."""
        launches = Launches(self.place, [["run"]] * LAUNCHES)  # as cron does, in a hurry
        began = killed = time.monotonic()
        while len(self._accepted()) < messages and time.monotonic() < began + seconds:
            self._store.disturb()
            self._keep_producing()
            if time.monotonic() > killed + self._kill_every:
                killed = time.monotonic()
                self._kill(launches)
            self.most_spooled = max(self.most_spooled, self._state().waiting)
            time.sleep(0.2)
        for producer in self._producers.values():
            producer.process.kill()
            producer.process.wait()
        self._store.restore()
        ended = time.monotonic()
        while (self._missing() or self._state().waiting) and time.monotonic() < ended + WITHIN:
            time.sleep(0.5)
        print(f"produced for {ended - began:.0f}s, all handled {time.monotonic() - ended:.0f}s later")
        launches.stop()
        return self._judge()

    def _keep_producing(self) -> None:
        for number in range(PRODUCERS):
            if number not in self._producers or not self._producers[number].is_running():
                self._made += 1
                words = ("-m", "tests.spool.producer", f"p{self._made}", str(self._pause))
                self._producers[number] = self.place.start_python(*words)

    def _kill(self, launches: Launches) -> None:
        producers = [each for each in self._producers.values() if each.is_running()]
        for kind, commands in (("producer", producers), ("launch", launches.running())):
            if commands:
                kill(random.choice(commands))
                self.kills[kind] += 1

    def _lines(self, name: str) -> list[str]:
        path = self.place.directory / name
        return path.read_text().splitlines() if path.exists() else []

    def _accepted(self) -> dict[str, str]:
        """Whether each acknowledged message is a duplicate, by its id."""
        return dict(line.partition(" ")[::2] for line in self._lines("accepted"))

    def _missing(self) -> set[str]:
        return self._accepted().keys() - {line.partition(" ")[0] for line in self._lines("notes")}

    def _state(self) -> SpoolState:
        return Spool(self.place.directory / "spool", "trial").state()

    def _judge(self) -> list[str]:
        accepted, notes = self._accepted(), self._lines("notes")
        attempts = Counter(line.rpartition(" ")[0] for line in notes)
        spooled = sum(duplicate == "None" for duplicate in accepted.values())
        again = sum(not each.endswith(" 1") for each in attempts)
        print(f"{len(accepted)} acknowledged, {spooled} of them spooled, at most {self.most_spooled} files at a time")
        print(f"killed: {dict(self.kills)}, store {self._store.kills} times; attempts after the first: {again}")
        print(f"errors of enqueue: {len(self._lines('refused'))}")
        lost = self._missing()
        twice = [each for each, times in attempts.items() if times > 1]
        state = self._state()
        print(f"lost: {len(lost)}; twice: {len(twice)}; left in the spool: {state.waiting}, refused: {state.refused}")
        wrong = [f"lost: {each}" for each in sorted(lost)] + [f"twice: {each}" for each in sorted(twice)]
        return wrong + [f"left in the spool: {state}"] * bool(state.waiting or state.refused)


def main() -> int:
    """1 if a message is lost, or was taken in twice."""
    parser = argparse.ArgumentParser(prog="python -m tests.spool", description=(__doc__ or "").partition(":")[2])
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, default=8.0, help="at most")
    parser.add_argument("--pause", type=float, default=0.02, help="seconds between calls of a producer")
    parser.add_argument("--kill-every", type=float, default=2.0, help="seconds; 0.2 or more")
    parser.add_argument("--away-every", type=float, default=10.0, help="seconds; with --embedded between its kills")
    parser.add_argument("--embedded", action="store_true", help="a host that reaps daemons")
    given = parser.parse_args()
    with TemporaryDirectory() as name:
        store = (Reaped if given.embedded else Remote)(Path(name), given.away_every)
        trial = Trial(Path(name), store, given.pause, given.kill_every)
        with closing(store), closing(trial.place):
            wrong = trial.run(given.messages, given.minutes * 60)
            if wrong:
                print(trial.place.errors()[-3000:])
        print(*wrong[:20], sep="\n  ")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
