"""``python -m tests.partition --rounds 3``: the host that holds the lease is cut off, frozen, or gone.

Needs the right to make network namespaces (root, CAP_SYS_ADMIN and CAP_NET_ADMIN); without it, it says so, with 77.
In the end nothing is lost, no execution began under a fence after one under a higher fence, and each completion that
the store kept is of the highest fence under which its message was handled. Prints figures as one object of JSON.
"""

from __future__ import annotations

import argparse
import json
import secrets
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from statistics import median
from typing import TYPE_CHECKING, Any

from pollconsumer.runtime.embedded.start import find_program
from pollconsumer.runtime.messages import new_message
from pollconsumer.store.connecting.patience import Budget
from pollconsumer.store.connecting.wire import Wire
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.producer import Producer
from pollconsumer.store.reading.inspector import Inspector
from tests.partition.hosts import Host, NotPermitted
from tests.short_directory import short_directory

if TYPE_CHECKING:
    from collections.abc import Callable

NAMESPACE = "pollconsumer"
FAULTS = ("cut off", "cut off for 3 s", "frozen", "gone")
ENQUEUE_EVERY = 0.15
SETTLING = 8.0
"""Seconds after a host is back."""
LONGEST = 60.0
"""Seconds until the other host must have taken over."""


class Trial:
    def __init__(self) -> None:
        self.directory = short_directory()
        (self.directory / "config.toml").write_text('handlers = ["handlers"]\n')
        shutil.copy(__file__.replace("__main__", "handlers"), self.directory / "handlers.py")
        self.hosts: list[Host] = []
        self._server: subprocess.Popen[bytes] | None = None
        self._over = threading.Event()
        self.accepted: list[str] = []
        self.taken_over: dict[str, list[float]] = {fault: [] for fault in FAULTS}

    def run(self, rounds: int) -> dict[str, Any]:
        for number in (1, 2):
            self.hosts.append(Host(number, self.directory))
        port, password = _free_port(), secrets.token_hex(8)
        addresses = [host.address for host in self.hosts]
        self._server = subprocess.Popen(
            [find_program(), "--port", str(port), "--bind", "127.0.0.1", *addresses, "--requirepass", password,
             "--save", "", "--appendonly", "no", "--dir", str(self.directory)],
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        self._wire = Wire(f"redis://:{password}@127.0.0.1:{port}/0", lambda: Budget(20))
        self._wire.command("PING")
        for host in self.hosts:
            host.start(f"redis://:{password}@{host.address}:{port}/0")
        producer = threading.Thread(target=self._produce, args=[f"redis://:{password}@127.0.0.1:{port}/0"])
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
            host.remove()
        if self._server is not None:
            self._server.kill()
            self._server.wait()
        shutil.rmtree(self.directory)

    def _harm(self, fault: str) -> None:
        """The host of a launch that has just begun."""
        before = self._last()["fence"]
        self._await(lambda: self._last()["fence"] > before)
        holder = self._last()["host"]
        (host,) = (host for host in self.hosts if host.name == holder)
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
            self._await(lambda: self._last()["host"] != holder)
            first = next(line for line in self._lines() if line["host"] != holder and line["at"] > began)
            self.taken_over[fault].append(first["at"] - began)
        if fault == "frozen":
            host.thaw()
        host.heal()
        before = len(self._lines())
        time.sleep(SETTLING)
        self._await(lambda: len(self._lines()) > before)

    def _produce(self, url: str) -> None:
        producer = Producer(Wire(url, lambda: Budget(20)), NAMESPACE)
        while not self._over.wait(ENQUEUE_EVERY):
            self.accepted.append(producer.enqueue_one(new_message("work", {})).id)

    def _await(self, holds: Callable[[], bool], seconds: float = LONGEST) -> None:
        until = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > until:
                states = [Inspector(self._wire, NAMESPACE).message(name) for name in self._unfinished()[:5]]
                raise TimeoutError(f"nobody works; last: {self._last()}; unfinished: {states}")
            time.sleep(0.1)

    def _lines(self) -> list[dict[str, Any]]:
        path = self.directory / "executions.jsonl"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def _unfinished(self) -> list[str]:
        ended = {line["id"] for line in self._lines() if line["what"] == "end"}
        return [name for name in self.accepted if name not in ended]

    def _last(self) -> dict[str, Any]:
        """The execution that began last under the highest fence."""
        return max(self._lines(), key=lambda line: (line["fence"], line["at"]))

    def _figures(self, rounds: int) -> dict[str, Any]:
        lines = sorted(self._lines(), key=lambda line: line["at"])
        highest, stale = 0, 0
        for line in lines:
            if line["what"] == "begin":
                stale += line["fence"] < highest
                highest = max(highest, line["fence"])
        fences: dict[str, list[int]] = {}
        for line in lines:
            if line["what"] == "begin":
                fences.setdefault(line["id"], []).append(line["fence"])
        results = self._wire.command("HMGET", Keys(NAMESPACE).queue("default", "results"), *self.accepted)
        kept = dict(zip(self.accepted, results, strict=True))
        again = [name for name, of_message in fences.items() if len(of_message) > 1]
        for host in self.hosts:
            host.remove()
        return {
            "rounds": rounds,
            "accepted": len(self.accepted),
            "lost": sum(result is None for result in kept.values()),
            "handled_again": len(again),
            "begun_under_a_stale_fence": stale,
            "stale_completions_kept": sum(
                kept[name] is not None and int(kept[name].partition(b"\n")[0] or 0) != max(fences[name])
                for name in again
            ),
            "longest_overlap_seconds": round(_overlap(lines), 3),
            "taken_over_seconds": {
                fault: {"median": round(median(seconds), 1), "most": round(max(seconds), 1)}
                for fault, seconds in self.taken_over.items()
                if seconds
            },
            "exit_codes": Counter(code for host in self.hosts for code, _ in host.ended),
            "said": Counter(
                line
                for host in self.hosts
                for _, said in host.ended
                for line in said.splitlines()
                if line.startswith("pollconsumer: ")
            ),
        }


def _overlap(lines: list[dict[str, Any]]) -> float:
    """How long, at most, two hosts were handling at the same time."""
    begun: dict[tuple[str, int], dict[str, Any]] = {}
    spans = []
    for line in lines:
        key = (line["id"], line["fence"])
        if line["what"] == "begin":
            begun[key] = line
        elif key in begun:
            spans.append((begun[key]["at"], line["at"], line["host"]))
    spans.sort()
    longest, ends = 0.0, dict[str, float]()
    for since, until, host in spans:
        longest = max([longest, *(min(until, end) - since for other, end in ends.items() if other != host)])
        ends[host] = max(until, ends.get(host, 0.0))
    return longest


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help=f"of {', '.join(FAULTS)}")
    given = parser.parse_args()
    trial = Trial()
    try:
        found = trial.run(given.rounds)
    except NotPermitted as error:
        print(f"not permitted to make hosts: {error}", file=sys.stderr)
        return 77
    finally:
        trial.close()
    print(json.dumps(found, indent=2))
    return 1 if found["lost"] or found["begun_under_a_stale_fence"] or found["stale_completions_kept"] else 0


if __name__ == "__main__":
    sys.exit(main())
