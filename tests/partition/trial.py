"""Hosts that start launches, a server on a host of its own, and what is done to the host that holds a lease."""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from pollconsumer.runtime.embedded.start import find_program
from pollconsumer.runtime.new_messages import new_message
from pollconsumer.store.client.patience import Budget
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.queues.producer import Producer
from pollconsumer.store.reading.inspector import Inspector
from tests.faults import store_view
from tests.network import Host, Network
from tests.partition.hosts import LaunchingHost
from tests.short_directory import short_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NAMESPACE = "pollconsumer"
FAULTS = ("cut off", "cut off for 3 s", "frozen", "gone")
ENQUEUE_EVERY = 0.15
"""Seconds, for each launch that works at a time."""
SETTLING = 8.0
"""Seconds after a host is back."""
LONGEST = 180.0
"""Seconds until another host must have taken over."""

Line = dict[str, Any]
"""That an execution began, or ended: ``what``, its message's ``id``, its ``fence``, its ``host``, and ``at`` when, on
the monotonic clock."""


class Trial:
    """``instances`` of a consumer, on a host more than that."""

    def __init__(self, instances: int) -> None:
        self.directory = short_directory()
        (self.directory / "config.toml").write_text(f'handlers = ["handlers"]\n[consumer]\ninstances = {instances}\n')
        shutil.copy(Path(__file__).with_name("handlers.py"), self.directory)
        self._instances = instances
        self._network: Network | None = None
        self.hosts: list[LaunchingHost] = []
        self._server: subprocess.Popen[bytes] | None = None
        self._over = threading.Event()
        self.accepted: list[str] = []
        self.taken_over: dict[str, list[float]] = {fault: [] for fault in FAULTS}

    def run(self, rounds: int) -> dict[str, Any]:
        """NotPermitted without the right to make hosts."""
        url = self._start()
        producer = threading.Thread(target=self._produce, args=[url])
        producer.start()
        self._await(lambda: len(self._lines()) > 20)
        for _ in range(rounds):
            for fault in FAULTS:
                self._harm(fault)
        self._over.set()
        producer.join()
        self._await(lambda: not self._unfinished(), 5 * LONGEST)
        time.sleep(SETTLING)
        return self._figures(rounds)

    def close(self) -> None:
        self._over.set()
        for host in self.hosts:
            host.kill()
            host.stop()
        if self._network is not None:
            self._network.remove()
        if self._server is not None:
            self._server.wait()
        shutil.rmtree(self.directory)

    def _start(self) -> str:
        """Returns the server's URL for this process, which is on none of the hosts."""
        network = self._network = Network()
        place, password, socket = Host(network), secrets.token_hex(8), self.directory / "s"
        self._server = subprocess.Popen(
            [*place.enter, find_program(), "--bind", place.address, "--unixsocket", str(socket),
             "--requirepass", password, "--save", "", "--appendonly", "no", "--dir", str(self.directory)],
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        url = f"unix://:{password}@{socket}"
        self._wire = Wire(url, lambda: Budget(20))
        self._wire.command("PING")
        for _ in range(self._instances + 1):
            self.hosts.append(LaunchingHost(network, self.directory, f"redis://:{password}@{place.address}/0"))
        for host in self.hosts:
            host.start()
        return url

    def _harm(self, fault: str) -> None:
        """The host of a launch that has just begun."""
        before = self._last()["fence"]
        self._await(lambda: self._last()["fence"] > before)
        held = self._last()
        (host,) = (host for host in self.hosts if host.name == held["host"])
        began = time.monotonic()
        if fault == "frozen":
            host.freeze()
        elif fault == "gone":
            host.vanish()
        else:
            host.cut()
        if fault == "cut off for 3 s":
            time.sleep(3)
        else:
            self._await(lambda: any(self._since(held)))
            self.taken_over[fault].append(next(self._since(held))["at"] - began)
        host.recover()
        lines = len(self._lines())
        time.sleep(SETTLING)
        self._await(lambda: len(self._lines()) > lines)

    def _since(self, held: Line) -> Iterator[Line]:
        """What began later in the same place, on other hosts."""
        places = self._places()
        for line in self._lines():
            later = line["fence"] > held["fence"] and places.get(line["fence"]) == places[held["fence"]]
            if later and line["host"] != held["host"]:
                yield line

    def _places(self) -> dict[int, str]:
        """Lease names, by fence."""
        return {lease.fence: lease.lease_name for lease in store_view.leases(self._wire, NAMESPACE)}

    def _produce(self, url: str) -> None:
        producer = Producer(Wire(url, lambda: Budget(20)), NAMESPACE)
        while not self._over.wait(ENQUEUE_EVERY / self._instances):
            self.accepted.append(producer.enqueue_one(new_message("work", {})).id)

    def _await(self, holds: Callable[[], bool], seconds: float = LONGEST) -> None:
        until = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > until:
                states = [Inspector(self._wire, NAMESPACE).message(name) for name in self._unfinished()[:5]]
                raise TimeoutError(f"nobody works; last: {self._last()}; unfinished: {states}")
            time.sleep(0.1)

    def _lines(self) -> list[Line]:
        path = self.directory / "executions.jsonl"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def _unfinished(self) -> list[str]:
        ended = {line["id"] for line in self._lines() if line["what"] == "end"}
        return [name for name in self.accepted if name not in ended]

    def _last(self) -> Line:
        """The execution that began last under the highest fence."""
        return max(self._lines(), key=lambda line: (line["fence"], line["at"]))

    def _figures(self, rounds: int) -> dict[str, Any]:
        for host in self.hosts:
            host.stop()
        lines = sorted(self._lines(), key=lambda line: line["at"])
        fences: dict[str, list[int]] = {}
        for line in lines:
            if line["what"] == "begin":
                fences.setdefault(line["id"], []).append(line["fence"])
        results = self._wire.command("HMGET", Keys(NAMESPACE).queue("default", "results"), *self.accepted)
        kept = dict(zip(self.accepted, results, strict=True))
        again = [name for name, of_message in fences.items() if len(of_message) > 1]
        ended = [each for host in self.hosts for each in host.ended]
        return {
            "rounds": rounds,
            "instances": self._instances,
            "accepted": len(self.accepted),
            "lost": sum(result is None for result in kept.values()),
            "handled_again": len(again),
            "begun_under_a_stale_fence": stale(lines, self._places()),
            "stale_completions_kept": sum(
                (result := kept[name]) is not None and int(result.partition(b"\n")[0] or 0) != fences[name][-1]
                for name in again
            ),
            "longest_with_more_than_may_work_seconds": round(longest_with_more(lines, self._instances), 3),
            "taken_over_seconds": {
                fault: {"median": round(median(seconds), 1), "most": round(max(seconds), 1)}
                for fault, seconds in self.taken_over.items()
                if seconds
            },
            "exit_codes": Counter(each.code for each in ended),
            "said": _said(each.said for each in ended if each.harmed),
            "said_by_other_hosts": _said(each.said for each in ended if not each.harmed),
        }


def _said(texts: Iterator[str]) -> Counter[str]:
    return Counter(line for text in texts for line in text.splitlines() if line.startswith("pollconsumer: "))


def stale(lines: list[Line], places: dict[int, str]) -> int:
    """How many executions began after one under a higher fence of the same place."""
    highest, stale = dict[str, int](), 0
    for line in lines:
        if line["what"] == "begin":
            place = places[line["fence"]]
            stale += line["fence"] < highest.get(place, 0)
            highest[place] = max(line["fence"], highest.get(place, 0))
    return stale


def longest_with_more(lines: list[Line], instances: int) -> float:
    """How long, at most, more launches than ``instances`` were handling at the same time, without a pause."""
    ended = {(line["id"], line["fence"]) for line in lines if line["what"] == "end"}
    handling, since, longest = Counter[int](), None, 0.0
    for line in lines:
        if (line["id"], line["fence"]) not in ended:
            continue  # its launch was killed
        handling[line["fence"]] += 1 if line["what"] == "begin" else -1
        if sum(count > 0 for count in handling.values()) > instances:
            since = line["at"] if since is None else since
        elif since is not None:
            longest, since = max(longest, line["at"] - since), None
    return longest
