"""Messages in order per key while launches are killed, or nodes of a cluster: ``python -m tests.faults.order_keys``.

A tenth of the messages fail at first. Of each key, no message may begin after a later one has begun.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from benchmarks.place import tcp_server
from pollconsumer import OutcomeUnknown, PollConsumer, StoreUnreachable
from tests.cluster.nodes import Cluster
from tests.trials.launches import Launches, kill
from tests.trials.place import Place

if TYPE_CHECKING:
    from collections.abc import Sequence

QUEUES = 4
LONGEST_DRAIN = 300.0
HANDLERS = """
import os, time
from pollconsumer import Context, PollConsumer

app = PollConsumer()
notes = os.open("notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

@app.handler(queue="q0", max_attempts=1000, retry=["50ms"])
def follow(key: int, number: int, context: Context) -> None:
    os.write(notes, f"begin {key} {number}\\n".encode())
    time.sleep(0.002)
    if (key + number) % 10 == 0 and context.attempt == 1:
        raise ValueError("at first")
    os.write(notes, f"end {key} {number}\\n".encode())
"""


class OrderedKeys:
    def __init__(self, url: str, cluster: Cluster | None, keys: int, messages: int) -> None:
        self._url, self._cluster, self._keys, self._messages = url, cluster, keys, messages
        self.place = Place(url, quick_leases=False)
        queues = ", ".join(f'"q{number}"' for number in range(QUEUES))
        self.place.configure(
            'handlers = ["following"]\ndurability = "strict"\n[strict]\nwithin = "2s"\n'
            f'[consumer]\nqueues = [{queues}]\ntimeout = "20s"\nconcurrency = 4\ninstances = 2\n'
            '[mover]\ntimeout = "20s"\n'
        )
        (self.place.directory / "following.py").write_text(HANDLERS)
        self._acknowledged = list[tuple[int, int]]()
        self._faults, self._exits = Counter[str](), Counter[int]()

    def run(self, seconds: float, kill_every: float, fail_over_every: float) -> list[str]:
        """Returns what was wrong, and last a summary."""
        launches = Launches(self.place, [["run"], ["run"], ["move"]])
        producing = threading.Thread(target=self._produce, args=(seconds,))
        producing.start()
        until, next_fail_over = time.monotonic() + seconds, time.monotonic() + fail_over_every
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, kill_every))
            self._kill(launches)
            if self._cluster is not None and time.monotonic() >= next_fail_over:
                self._cluster.fail_over(random.choice(self._cluster.primaries()))
                self._faults["node"] += 1
                next_fail_over = time.monotonic() + fail_over_every
        producing.join()
        launches.stop()
        self._exits = launches.exits()
        self._drain()
        return self._judged()

    def close(self) -> None:
        self.place.close()

    def _kill(self, launches: Launches) -> None:
        """A launch, half of the time with its heartbeat."""
        running, with_heartbeat = launches.running(), random.random() < 0.5
        if running:
            kill(random.choice(running), with_heartbeat=with_heartbeat)
            self._faults["launch and heartbeat" if with_heartbeat else "launch"] += 1

    def _produce(self, seconds: float) -> None:
        app, began = PollConsumer(store=self._url, config=self.place.directory / "config.toml"), time.monotonic()
        for number in range(self._messages):
            time.sleep(max(0.0, began + seconds * number / self._messages - time.monotonic()))
            for key in random.sample(range(self._keys), self._keys):
                self._enqueue(app, key, number)

    def _enqueue(self, app: PollConsumer, key: int, number: int) -> None:
        payload = {"key": key, "number": number}
        while True:
            with suppress(OutcomeUnknown, StoreUnreachable):
                app.enqueue(
                    "follow", payload, queue=f"q{key % QUEUES}", id=f"{key}.{number}", order_key=f"customer-{key}"
                )
                self._acknowledged.append((key, number))
                return

    def _drain(self) -> None:
        mover = self.place.start("move", "--timeout", "10m")
        for _ in range(100):
            self.place.run("run", "--until-empty", "--timeout", "1m", within=LONGEST_DRAIN)
            if len(self._notes("end")) == self._keys * self._messages:
                break
        mover.process.terminate()
        mover.process.wait()

    def _notes(self, what: str) -> dict[tuple[int, int], int]:
        """How often each message began, or ended."""
        return Counter((key, number) for kind, key, number in self._noted() if kind == what)

    def _noted(self) -> list[tuple[str, int, int]]:
        lines = (self.place.directory / "notes").read_text().splitlines()
        return [(kind, int(key), int(number)) for kind, key, number in map(str.split, lines)]

    def _judged(self) -> list[str]:
        wrong, furthest = list[str](), dict[int, int]()
        for kind, key, number in self._noted():
            if kind == "begin":
                if number < furthest.get(key, 0):
                    wrong.append(f"{number} of key {key} began after {furthest[key]}")
                elif number > furthest.get(key, -1) + 1:
                    wrong.append(f"{number} of key {key} began before {number - 1}")
                furthest[key] = max(number, furthest.get(key, 0))
        ended = self._notes("end")
        wrong += [f"{number} of key {key} is lost" for key, number in self._acknowledged if (key, number) not in ended]
        again = sum(times - 1 for times in ended.values())
        summary = f"{len(self._acknowledged)} messages of {self._keys} keys, {again} handled again after a fault"
        return [
            *wrong,
            f"{summary}; killed: {dict(self._faults)}; exit codes: {dict(self._exits)}; wrong: {len(wrong)}",
        ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.faults.order_keys", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--keys", type=int, default=200)
    parser.add_argument("--messages", type=int, default=100, help="of each key")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--kill-every", type=float, default=3.0, metavar="SECONDS")
    parser.add_argument("--cluster", action="store_true", help="on three nodes with a replica each")
    parser.add_argument("--fail-over-every", type=float, default=20.0, metavar="SECONDS", help="with --cluster")
    given = parser.parse_args(arguments)
    with ExitStack() as stack:
        cluster = Cluster(3, 1) if given.cluster else None
        if cluster is not None:
            stack.callback(cluster.close)
        url = cluster.url if cluster else stack.enter_context(tcp_server())
        keys = OrderedKeys(url, cluster, given.keys, given.messages)
        stack.callback(keys.close)
        *wrong, summary = keys.run(given.minutes * 60, given.kill_every, given.fail_over_every)
    print("\n".join([*wrong[:20], summary]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
