"""An installation on a cluster whose nodes die and whose slots move: what was lost or handled twice, and the delays."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from pollconsumer.store.client.cluster_wire import slot_of
from pollconsumer.store.keyspace import Keys
from tests.cluster.tested import client_module
from tests.forecast.figures import quantile
from tests.trials import recording
from tests.trials.launches import Launches
from tests.trials.place import Place
from tests.trials.recording import read_accepted, read_executed

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.nodes import Cluster

NAMESPACE = "trial"
EXPECTED = ("never had a message", "no time to take a message")
"""In what launches say: the first ones come before a message, and a busy machine starts some as their window ends."""
LONGEST_DRAIN = 600.0


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
        self.place, self._cluster, self._queues = Place(store, quick_leases=False), cluster, queues
        if by_client:
            self.place.bring(client_module(store))
        names = ", ".join(f'"q{number}"' for number in range(queues))
        self.place.configure(
            f'namespace = "{NAMESPACE}"\ndurability = "{durability}"\nhandlers = ["tests.trials.handlers"]\n'
            f'[strict]\nwithin = "2s"\n[consumer]\nqueues = [{names}]\ntimeout = "{launch}s"\n'
            f'[mover]\ntimeout = "{launch}s"\n'
        )
        self._over, self._one_fault = threading.Event(), threading.Lock()
        self._faults = Counter[str]()

    def run(self, seconds: float, pace: float, faults: Faults) -> Result:
        launches = Launches(self.place, [["run"], ["move"]])
        queues = [f"q{number}" for number in range(self._queues)]
        producer = self.place.start_python("-m", "tests.trials.producing", "m", str(pace), "1", *queues)
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
        producer.process.terminate()
        producer.process.wait()
        self._over.set()
        launches.stop()
        while self.place.run("run", "--until-empty", within=LONGEST_DRAIN).code != 0:
            pass
        return self._result()

    def close(self) -> None:
        self.place.close()

    def _result(self) -> Result:
        accepted, executed = read_accepted([self.place]), read_executed([self.place])
        first: dict[str, float] = {}
        for each in executed:
            if each.since > executed[0].at:  # those before it waited for the first launch's start
                first.setdefault(each.message, each.at - each.since)
        ran = [command.ran() for command in self.place.commands]
        said = [line for each in ran for line in each.errors.splitlines()]
        return Result(
            acknowledged=len(accepted),
            lost=[each.message for each in recording.lost(accepted, executed)],
            twice=recording.twice(executed),
            latencies=sorted(first.values()),
            longest_pause=max((after.at - before.at for before, after in pairwise(executed)), default=0.0),
            faults=self._faults,
            exits=Counter(each.code for each in ran),
            said=Counter(line for line in said if not any(each in line for each in EXPECTED)),
        )

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
