"""One seeded run: an installation under load and faults, healed, drained, and read."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from pollconsumer.store.reading.inspector import Inspector
from tests.faults.configuration import QUOTA, QUOTA_PERIOD, SHORTEST_PERIOD, STARTS, mixed
from tests.faults.history_reader import read_history
from tests.faults.installation import NAMESPACE, PASSWORD, Installation
from tests.faults.nemesis import Nemesis
from tests.faults.platform import Platform
from tests.store.acting import AllRecurrences

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.faults.history import History

PACE = 0.9
"""How many half periods a fault takes, with the pause before it, on the average."""
LONGEST_DRAIN = 120


class Storm:
    """``messages`` operations of two producers, while ``faults`` are done: those, or so many of an order of chance."""

    def __init__(self, seed: int, messages: int, faults: int | Sequence[str]) -> None:
        self.seed, self._messages, self._faults = seed, messages, faults
        self.chance = random.Random(seed)
        self.installation = Installation(slow_loading=True)
        self._concurrency = self.chance.choice([1, 1, 4])
        self._instances = self.chance.choice([1, 1, 1, 2])
        self._groups = self.chance.choice([1, 1, 2])
        self._secrets: list[str] = []
        # Straight to the server: the proxy plays no part in what is read.
        self._wire = self.installation.server.wire()
        self._launches: list[list[str]] = []
        self._period = self._configure()

    def _configure(self) -> float:
        """With a period that leaves launches time to work, however slow the machine is. Returns it."""
        directory = self.installation.directory
        self.installation.configure(mixed(directory, SHORTEST_PERIOD), "handlers.py", "program.py", of=__file__)
        start = self.installation.run("-q", "run", "--until-empty", "--timeout", "60s")
        period = max(SHORTEST_PERIOD, round(STARTS * start.seconds, 1))
        self.installation.configure(mixed(directory, period))
        return period

    def run(self) -> History:
        options = ["--concurrency", str(self._concurrency), "--instances", str(self._instances)]
        options += ["--handoff", self.chance.choice(["deadline", "baton"])]
        groups = [options, ["--queue", "second", *options]]
        self._launches = groups[: self._groups]
        platform = Platform(self.installation, self._period, self._launches)
        nemesis = Nemesis(self.seed, self.installation, platform)
        faults = nemesis.deal(self._faults) if isinstance(self._faults, int) else self._faults
        pace = len(faults) * PACE * self._period / self._messages
        producers = [
            self.installation.start_python(
                "-m", "tests.faults.producer", str(2 * self.seed + n), str(self._messages // 2), str(pace)
            )
            for n in range(2)
        ]
        try:
            for fault in faults:
                time.sleep(self.chance.uniform(0.05, 0.3) * self._period)
                self._look_at_arguments()
                nemesis.strike(fault)
            for producer in producers:
                producer.process.wait()
        finally:
            platform.stop()
        nemesis.heal()
        self._drain()
        return self._read(nemesis)

    def _look_at_arguments(self) -> None:
        """Whoever lists processes must not see the store's password."""
        for _, words in self.installation.processes():
            if any(PASSWORD in word for word in words):
                self._secrets.append(f"arguments: {' '.join(words)}")

    def _drain(self) -> None:
        """Clean launches, until nothing is left to be done, or it seems that something never will be."""
        for command in self.installation.commands:
            command.process.wait()
        mover = self.installation.start("-q", "move", "--timeout", f"{LONGEST_DRAIN}s")
        until = time.monotonic() + LONGEST_DRAIN
        self._pause_recurrences()
        # At the same time, one in each slot: what had a launch that was killed with its heartbeat waits for the next
        # launch in its slot, or for the hard end.
        once = ["-q", "run", "--until-empty", "--linger", "5s", "--timeout", "60s"]
        several = [self.installation.start(*once, *each) for each in self._launches for _ in range(self._instances)]
        for command in several:
            command.process.wait()
        while self._left() and time.monotonic() < until:
            self.installation.run("-q", "run", "--until-empty", "--timeout", "60s")
            self._pause_recurrences()
        mover.process.terminate()
        mover.process.wait()

    def _pause_recurrences(self) -> None:
        """Where they are defined by now: it is launches that do that."""
        recurring = AllRecurrences(self._wire, NAMESPACE)
        for standing in list(recurring.statuses(lambda _: None)):
            recurring.pause(standing)

    def _left(self) -> int:
        counts = Inspector(self._wire, NAMESPACE).overview().queues
        return sum(queue.ready + queue.reserved + queue.scheduled for queue in counts)

    def _read(self, nemesis: Nemesis) -> History:
        history = read_history(self.installation, self._wire)
        history.faults, history.resumed, history.pauses = nemesis.done, nemesis.resumed, nemesis.pauses
        history.handler_pauses = nemesis.handler_pauses
        history.secrets = [*self._secrets, *self._leaked()]
        history.one_at_a_time = self._concurrency == self._instances == self._groups == 1
        history.quota = ("limited", QUOTA, int(QUOTA_PERIOD * 1000))
        return history

    def close(self, *, keep: bool = False) -> None:
        self._wire.close()
        self.installation.close(keep=keep)

    def _leaked(self) -> Iterator[str]:
        """Files of ours that hold the password."""
        for path in self.installation.directory.rglob("*"):
            ours = path.is_file() and not path.is_relative_to(self.installation.directory / "appendonlydir")
            if ours and PASSWORD.encode() in path.read_bytes():
                yield str(path.relative_to(self.installation.directory))
