"""``python -m tests.batches --minutes 2``: batches of members in three queues, while launches and producers are killed.

A fifth of the members fail, and are redriven later; some add members. At the end every batch must have called back as
often as it should, with as many members as it has.
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
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.place import tcp_server
from pollconsumer import NotFound, PollConsumer, StoreUnreachable
from tests.batches.handlers import QUEUES

LAUNCHES = 2
AT_ONCE = 5
"""Batches that a producer makes, one after the other."""
MOST_OPEN = 20
"""Batches that have not ended, before others are made."""
WITHIN = 240.0
"""Seconds for all batches to end after the last one is produced."""


class Trial:
    """Batches of ``members`` each, more of them until the time is over, in a store at ``url``."""

    def __init__(self, url: str, place: Path, members: int, kill_every: float, slots: int) -> None:
        self._place, self._members, self._kill_every = place, members, kill_every
        queues = ", ".join(f'"{queue}"' for queue in QUEUES)
        (place / "config.toml").write_text(
            f'store = "{url}"\nhandlers = ["tests.batches.handlers"]\n'
            f'[consumer]\nqueues = [{queues}]\ntimeout = "20s"\nconcurrency = {slots}\n'
            f'[logs]\ntarget = "{place / "log"}"\n'
        )
        self._environment = os.environ | {"NOTES": str(place / "notes")}
        self.app = PollConsumer(store=url)
        self._launches: list[subprocess.Popen[bytes]] = []
        self._producer: subprocess.Popen[bytes] | None = None
        self.batches, self.kills, self.redriven, self.done = list[str](), Counter[str](), 0, 0

    def run(self, seconds: float) -> list[str]:
        """Go on for so long, then until all have ended. Returns what is wrong."""
        began = killed = time.monotonic()
        while not self._all_then() or time.monotonic() < began + seconds:
            now = time.monotonic()
            if now > began + seconds + WITHIN:
                break
            self._keep_running(produces=now < began + seconds)
            if began + seconds > now > killed + self._kill_every:
                killed = now
                self._kill()
            self._redrive()
            time.sleep(0.2)
        for process in self._launches:
            process.terminate()
            process.wait()
        return self._judge()

    def _keep_running(self, *, produces: bool) -> None:
        self._launches = [each for each in self._launches if each.poll() is None]
        while len(self._launches) < LAUNCHES:
            self._launches.append(self._start("-m", "pollconsumer", "run", "--instances", str(LAUNCHES)))
        if self._producer is not None and self._producer.poll() is None:
            return
        if self._producer is None or self._producer.returncode == 0:  # otherwise the same batch again
            if not produces or len(self.batches) - self.done >= MOST_OPEN:
                return
            made = len(self.batches)
            self.batches += [f"b{number}" for number in range(made, made + AT_ONCE)]
        words = ("-m", "tests.batches.producer", str(self._members), *self.batches[-AT_ONCE:])
        self._producer = self._start(*words)

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, *words]
        environment = self._environment | {"POLLCONSUMER_CONFIG": str(self._place / "config.toml")}
        output = (self._place / "output").open("ab")
        return subprocess.Popen(command, env=environment, stdout=output, stderr=output)

    def _kill(self) -> None:
        """Kill a launch, or the producer."""
        running = {"producer": self._producer} | dict(zip(("launch", "launch too"), self._launches, strict=False))
        name, process = random.choice([*running.items()])
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()
            self.kills[name] += 1

    def _redrive(self) -> None:
        for batch in random.sample(self.batches, min(2, len(self.batches))):
            try:
                self.redriven += self.app.batches.get(batch).redrive()
            except (NotFound, StoreUnreachable):
                continue

    def _all_then(self) -> bool:
        """Whether every batch has called `then`, and no producer is to go on."""
        while self.done < len(self.batches) and self._found(self.batches[self.done]):
            self.done += 1
        return self.done == len(self.batches) and (self._producer is None or self._producer.poll() == 0)

    def _found(self, batch: str) -> bool:
        try:
            return self.app.message(f"{batch}:then").state == "completed"
        except NotFound:
            return False

    def _judge(self) -> list[str]:
        notes = Counter((self._place / "notes").read_text().splitlines())
        calls = Counter(line.split()[0] + " " + line.split()[1] for line in notes.elements())
        wrong = [f"{call} was called {times} times" for call, times in calls.items() if times > 1]
        for batch in self.batches:
            status = self.app.batches.get(batch).status()
            grown = self._members + self._members // 10 * 3
            if (status.state, status.total, status.completed, status.dead) != ("ended", grown, grown, 0):
                wrong.append(f"{batch}: {status}")
            wrong += [
                f"{batch}:{name} was not called"
                for name in ("then", "failed", "ended")
                if not any(call.startswith(f"{batch}:{name} ") for call in calls)
            ]
            if not any(
                line.startswith(f"{batch}:then ") and line.endswith(f" {grown} {grown} {grown}") for line in notes
            ):
                wrong.append(f"{batch}:then found other members")
        return wrong


def main() -> int:
    """1 if a callback is missing or was called twice, or if a batch has other members than it should."""
    parser = argparse.ArgumentParser(prog="python -m tests.batches", description=(__doc__ or "").partition(":")[2])
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--members", type=int, default=30, help="of each batch")
    parser.add_argument("--kill-every", type=float, default=2.0, help="seconds")
    parser.add_argument("--concurrency", type=int, default=1, help="of each launch")
    given = parser.parse_args()
    with ExitStack() as stack:
        url = stack.enter_context(tcp_server())
        place = Path(stack.enter_context(TemporaryDirectory()))
        trial = Trial(url, place, given.members, given.kill_every, given.concurrency)
        wrong = trial.run(given.minutes * 60)
        print(f"{len(trial.batches)} batches; killed: {dict(trial.kills)}; redriven: {trial.redriven}")
        print(f"wrong: {len(wrong)}", *wrong[:20], sep="\n  ")
        if wrong:
            print((place / "output").read_text()[-3000:])
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
