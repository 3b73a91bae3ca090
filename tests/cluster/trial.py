"""An installation on a cluster whose nodes die and whose slots move: what was lost or handled twice, and the delays."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pollconsumer.store.client.cluster_wire import slot_of
from pollconsumer.store.keyspace import Keys
from tests.cluster.producing import ACKNOWLEDGED
from tests.cluster.tested import client_module
from tests.forecast.figures import quantile
from tests.short_directory import short_directory

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.nodes import Cluster

NAMESPACE = "trial"
EXPECTED = ("never had a message", "no time to take a message")
"""In what launches say: the first ones come before a message, and a busy machine starts some as their window ends."""
PACKAGE = Path(__file__).parents[2]


class Faults(NamedTuple):
    """Seconds between two of a kind; 0 for none."""

    kill_every: float = 0.0
    freeze_every: float = 0.0
    move_every: float = 0.0


class Result(NamedTuple):
    """``latencies`` in seconds, sorted, from the producer's first try to the handler's start."""

    acknowledged: int
    lost: list[str]
    twice: list[str]
    latencies: list[float]
    longest_pause: float
    faults: Counter[str]
    exits: Counter[int]
    said: Counter[str]

    def quantile(self, share: float) -> float:
        return quantile(self.latencies, share)


class Trial:
    """``store`` is the URL, ``cluster`` where faults are to come from. A launch takes ``launch`` seconds; the next one
    begins at once. ``by_client``: by a RedisCluster, and not by the URL."""

    def __init__(
        self,
        store: str,
        cluster: Cluster | None,
        queues: int,
        *,
        launch: float,
        durability: str = "everysec",
        by_client: bool = False,
    ) -> None:
        self.directory, self._cluster, self._queues = short_directory(), cluster, queues
        named = f'store = "{store}"'
        if by_client:
            (self.directory / "bring.py").write_text(client_module(store))
            named = 'client = "bring:client"'
        names = ", ".join(f'"q{number}"' for number in range(queues))
        (self.directory / "config.toml").write_text(
            f'{named}\nnamespace = "{NAMESPACE}"\ndurability = "{durability}"\nhandlers = ["noting"]\n'
            f'[strict]\nwithin = "2s"\n[consumer]\nqueues = [{names}]\ntimeout = "{launch}s"\n'
            f'[mover]\ntimeout = "{launch}s"\n'
        )
        shutil.copy(Path(__file__).with_name("noting.py"), self.directory)
        self._over, self._one_fault = threading.Event(), threading.Lock()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._exits, self._said, self._faults = Counter[int](), Counter[str](), Counter[str]()

    def run(self, seconds: float, pace: float, faults: Faults) -> Result:
        launching = [threading.Thread(target=self._launch, args=(command,)) for command in ("run", "move")]
        for thread in launching:
            thread.start()
        producer = self._start("-m", "tests.cluster.producing", str(self._queues), str(pace), stdin=subprocess.PIPE)
        harming = [
            threading.Thread(target=self._harm, args=(name, act, every, time.monotonic() + seconds))
            for name, act, every in (
                ("kill", self._kill, faults.kill_every),
                ("freeze", self._freeze, faults.freeze_every),
                ("move", self._move, faults.move_every),
            )
            if every
        ]
        for thread in harming:
            thread.start()
        time.sleep(seconds)
        for thread in harming:
            thread.join()
        producer.communicate(b"\n")
        self._over.set()
        for process in self._running.values():
            process.terminate()
        for thread in launching:
            thread.join()
        while self._count(self._command("run", "--until-empty")) != 0:
            pass
        return self._result()

    def close(self) -> None:
        shutil.rmtree(self.directory)

    def _result(self) -> Result:
        acknowledged = (self.directory / ACKNOWLEDGED).read_text().split()
        notes = [line.split() for line in (self.directory / "notes").read_text().splitlines()]
        handled = Counter(name for name, _, _ in notes)
        begun = sorted(float(at) for _, _, at in notes)
        first: dict[str, float] = {}
        for name, since, at in notes:
            if float(since) > begun[0]:  # those before it waited for the first launch's start
                first.setdefault(name, float(at) - float(since))
        return Result(
            acknowledged=len(acknowledged),
            lost=[name for name in acknowledged if name not in handled],
            twice=[name for name, times in handled.items() if times > 1],
            latencies=sorted(first.values()),
            longest_pause=max(after - before for before, after in pairwise(begun)),
            faults=self._faults,
            exits=self._exits,
            said=self._said,
        )

    def _start(self, *words: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        environment = {
            "PATH": os.defpath, "HOME": str(self.directory), "PYTHONPATH": str(PACKAGE),
            "POLLCONSUMER_CONFIG": "config.toml",
        }  # fmt: skip
        return subprocess.Popen(
            [sys.executable, *words], cwd=self.directory, env=environment, stdin=stdin,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip

    def _command(self, *words: str) -> subprocess.Popen[bytes]:
        return self._start("-m", "pollconsumer", *words)

    def _launch(self, command: str) -> None:
        while not self._over.is_set():
            self._running[command] = self._command(command)
            self._count(self._running[command])

    def _count(self, process: subprocess.Popen[bytes]) -> int:
        _, errors = process.communicate()
        self._exits[process.returncode] += 1
        said = (line for line in errors.decode().splitlines() if not any(each in line for each in EXPECTED))
        self._said.update(said)
        return process.returncode

    def _harm(self, name: str, act: Callable[[], None], every: float, until: float) -> None:
        while not self._over.wait(every) and time.monotonic() < until:
            with self._one_fault:
                act()
            self._faults[name] += 1

    def _kill(self) -> None:
        assert self._cluster is not None
        self._cluster.fail_over(random.choice(self._cluster.primaries()))

    def _freeze(self) -> None:
        assert self._cluster is not None
        self._cluster.fail_over(random.choice(self._cluster.primaries()), freeze=True)

    def _move(self) -> None:
        """A queue's slot, or that of leases, to another node."""
        assert self._cluster is not None
        keys, queue = Keys(NAMESPACE), random.randrange(self._queues + 1)
        slot = slot_of(keys.control("fences") if queue == self._queues else keys.queue(f"q{queue}", "ready"))
        owner = self._cluster.owner(slot)
        self._cluster.move(slot, random.choice([node for node in self._cluster.primaries() if node.port != owner.port]))
