"""Launches every two seconds, a message every few milliseconds, and something killed or suspended all the time.

``python -m tests.faults.run [--seconds 60] [--seed N] [--concurrency N]`` works on an installation of its own, and says
which seed it used. At the end it heals everything, drains, and exits 1 when a message was lost, was handled early,
became a dead letter, or ended twice more often than the faults can explain.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tests.site import Site

if TYPE_CHECKING:
    import subprocess

PERIOD = 2.0
HANDLERS = """
import os, random, time
from pathlib import Path
from pollconsumer import Backoff, PollConsumer

app = PollConsumer()
notes = os.open(Path(__file__).with_name("notes"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

@app.handler(max_attempts=1000, retry=Backoff(first="10ms", factor=1, most="10ms"))
def work(n: int, due: float) -> None:
    began = time.time()
    os.write(notes, f"start {n} {began - due}\\n".encode())
    time.sleep(random.choice([0, 0, 0, 0.001, 0.02]))
    if random.random() < 0.02:
        raise ValueError("no luck")
    os.write(notes, f"end {n} 0\\n".encode())
"""
PRODUCER = """
import sys, time, random, json
sys.path.insert(0, sys.argv[1])
from handlers import work
from pollconsumer import StoreUnreachable, OutcomeUnknown
until, n = time.monotonic() + float(sys.argv[2]), 0
accepted = open(sys.argv[1] + "/accepted", "a", buffering=1)
while time.monotonic() < until:
    delay = random.choice([0, 0, 0.3])
    sending = work.using(id=f"m{n}", priority=random.choice([0, 0, 5, -5]), in_=delay or None)
    while True:
        try:
            sending.enqueue(n=n, due=time.time() + delay)
            break
        except (OutcomeUnknown, StoreUnreachable):
            pass  # the id makes repeating it harmless
    print(n, file=accepted)
    n += 1
    time.sleep(random.uniform(0, 0.01))
"""


class Storm:
    """Everything that a platform, a person and bad luck do to an installation."""

    def __init__(self, seed: int, concurrency: int) -> None:
        self.chance = random.Random(seed)
        self.site = Site(f"[consumer]\nconcurrency = {concurrency}\n")
        (self.site.directory / "handlers.py").write_text(HANDLERS)
        self.launches: list[subprocess.Popen[str]] = []
        self.faults: Counter[str] = Counter()
        self.codes: Counter[int] = Counter()
        self.over = threading.Event()

    def run(self, seconds: float) -> list[str]:
        """What went wrong."""
        (self.site.directory / "producer.py").write_text(PRODUCER)
        producer = self._python("producer.py", str(self.site.directory), str(seconds))
        platform = threading.Thread(target=self._launch_for_ever)
        platform.start()
        while producer.poll() is None:
            time.sleep(self.chance.uniform(0.1, 0.6))
            self._harm()
        self.over.set()
        platform.join()
        for launch in self.launches:
            with suppress(ProcessLookupError):
                launch.send_signal(signal.SIGCONT)
        self.codes.update(launch.wait(60) for launch in self.launches)
        return self._check(producer.returncode)

    def _python(self, *arguments: str) -> subprocess.Popen[str]:
        import subprocess

        environment = self.site.environment | {"PYTHONPATH": str(Path.cwd())}
        return subprocess.Popen([sys.executable, *arguments], cwd=self.site.directory, env=environment, text=True)

    def _launch_for_ever(self) -> None:
        bounds = ["--timeout", f"{PERIOD}s", "--grace", "1s"]
        pace = ["--min-margin", "200ms", "--idle-time", "300ms", "--estimated-duration", "1ms"]
        while not self.over.wait(PERIOD):
            self.launches.append(self.site.start("-q", "run", *bounds, *pace))
            self.launches.append(self.site.start("-q", "move", "--timeout", f"{PERIOD}s"))

    def _harm(self) -> None:
        living = [launch for launch in self.launches[-6:] if launch.poll() is None]
        if not living:
            return
        launch = self.chance.choice(living)
        fault = self.chance.choice(["kill", "kill heartbeat", "stop", "terminate", "kill server", "none", "none"])
        self.faults[fault] += 1
        with suppress(OSError, AssertionError, ValueError, KeyError):
            if fault == "kill":
                launch.kill()
            elif fault == "kill heartbeat":
                os.kill(self.site.heartbeat_of(launch.pid), signal.SIGKILL)
            elif fault == "stop":
                launch.send_signal(signal.SIGSTOP)
                time.sleep(self.chance.uniform(0.1, 2))
                launch.send_signal(signal.SIGCONT)
            elif fault == "terminate":
                launch.terminate()
            elif fault == "kill server":
                os.kill(self.site.json("store", "status")["pid"], signal.SIGKILL)

    def _check(self, produced: int) -> list[str]:
        accepted = [int(line) for line in (self.site.directory / "accepted").read_text().split()]
        wrong = [f"the producer ended with {produced}"] if produced else []
        until = time.monotonic() + 120
        while time.monotonic() < until:  # leases of killed heartbeats lapse, backoffs end
            self.site.command("move", "--timeout", "2s")
            self.site.drain()
            counts = self.site.json("status")["queues"][0]
            if not counts["ready"] + counts["reserved"] + counts["scheduled"]:
                break
        starts: Counter[int] = Counter()
        ends: Counter[int] = Counter()
        early = 0
        for line in (self.site.directory / "notes").read_text().splitlines():
            what, n, after = line.split()
            (starts if what == "start" else ends)[int(n)] += 1
            early += what == "start" and float(after) < -0.001
        lost = [n for n in accepted if not ends[n]]
        wrong += [f"lost: {lost[:10]} ({len(lost)})"] if lost else []
        wrong += [f"early: {early}"] if early else []
        wrong += [f"left: {counts}"] if counts["ready"] + counts["reserved"] + counts["scheduled"] else []
        wrong += [f"dead letters: {counts['dead']}"] if counts["dead"] else []
        for launch in self.launches:
            errors = launch.communicate()[1]
            # Suspended beyond its hard end, a launch may be ended by the watchdog that can say no more than 1; and a
            # signal may come before the interpreter has read the first line of ours.
            struck = launch.returncode == 1 and "Timeout (" in errors and "Traceback" not in errors
            if launch.returncode not in (0, 69, 75, 124, 143, -signal.SIGKILL, -signal.SIGTERM) and not struck:
                wrong.append(f"exit code {launch.returncode}: {errors}")
        twice = sum(count - 1 for count in ends.values())
        explained = sum(self.faults[fault] for fault in ("kill", "stop", "kill server", "kill heartbeat")) * 130
        wrong += [f"ended twice without cause: {twice}"] if twice > explained else []
        summary = {
            "accepted": len(accepted),
            "ended twice": twice,
            "faults": dict(self.faults),
            "codes": dict(self.codes),
        }
        print(json.dumps(summary))  # noqa: T201  a report
        return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--concurrency", type=int, default=1)
    given = parser.parse_args()
    print(f"seed {given.seed}")  # noqa: T201  a report
    storm = Storm(given.seed, given.concurrency)
    wrong = storm.run(given.seconds)
    for line in wrong:
        print(line)  # noqa: T201  a report
    if wrong:
        print(f"kept: {storm.site.directory}")  # noqa: T201  a report
        raise SystemExit(1)
    storm.site.close()


if __name__ == "__main__":
    main()
