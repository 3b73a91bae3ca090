"""Orders of five steps, two sleeps, a signal and a call, while launches and the server are killed: ``python -m
tests.faults.orders``.

All attempts of an order must be given the same result of a step, and each order must be completed once. The report
counts the functions that were called again, since their process died before it had recorded the result.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections import Counter, defaultdict
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

from benchmarks.place import info
from pollconsumer.core.errors import BadData
from pollconsumer.core.messages.message import NewMessage
from pollconsumer.core.messages.payloads import encode_payload
from pollconsumer.store.actions import MessageActions
from pollconsumer.store.client.patience import Budget
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.queues.producer import Producer
from tests.site import Launch, Site

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NAMESPACE = "pollconsumer"
VICTIMS = ("launch", "server")
MOST_IN_VAIN = 5
"""Launches in a row that complete no order, before the rest is given up."""
STEPS = ("charge", "pack", "ship", "bill", "thank", "remind")
PER_ORDER = 2
"""Messages: its own, and that of the bill, which it calls."""
HANDLERS = """
import secrets
from pollconsumer import Context

def do(order, name):
    token = secrets.token_hex(4)
    note(f"body {order} {name} {token}")
    time.sleep(0.15)
    return token

@app.handler(max_attempts=50, retry=Backoff(first="10ms", factor=1, most="10ms"))
def bill(order: str) -> str:
    return do(order, "bill")

@app.handler(max_attempts=50, retry=Backoff(first="10ms", factor=1, most="10ms"))
def order(order: str, context: Context) -> dict:
    found = {}

    def step(name):
        found[name] = context.step(name, do, order, name)
        note(f"given {order} {name} {found[name]}")

    step("charge")
    step("pack")
    context.sleep("300ms")
    found["approved"] = context.wait_for("approved", timeout="1h")
    note(f"given {order} approved {found['approved']}")
    step("ship")
    found["bill"] = context.call("bill", {"order": order}, timeout="1h")
    note(f"given {order} bill {found['bill']}")
    step("thank")
    context.sleep("300ms")
    step("remind")
    return found
"""


class Orders:
    def __init__(
        self, seconds: float, kill_every: float, at_once: int, slots: int, victims: Sequence[str], chance: Random
    ) -> None:
        self._site = Site('durability = "strict"\n', forks_launches=False)  # the server keeps all it has acknowledged
        with (self._site.directory / "handlers.py").open("a") as handlers:
            handlers.write(HANDLERS)
        self._seconds, self._kill_every, self._at_once, self._chance = seconds, kill_every, at_once, chance
        self._slots, self._victims = slots, victims
        self._ids: list[str] = []
        self._kills = Counter[str]()

    def run(self) -> list[str]:
        """Enqueue, signal and kill until the time is over, then let all of it end. Returns what was wrong, and last a
        summary."""
        try:
            self._site.command("store", "start")
            wire = Wire(f"unix://{self._site.socket}", lambda: Budget(10.0))
            producer, signals = Producer(wire, NAMESPACE), MessageActions(wire, NAMESPACE)
            until, launch = time.monotonic() + self._seconds, None
            while time.monotonic() < until:
                if launch is None or launch.poll() is not None:
                    launch = self._site.start("run", "--timeout", "30s", "--concurrency", str(self._slots))
                    self._site.await_holder(launch.pid)
                self._enqueue(producer)
                for name in self._chance.sample(self._ids[-2 * self._at_once :], self._at_once):
                    self._signal(signals, name)
                time.sleep(self._kill_every * (0.5 + self._chance.random()))
                self._kill(launch, wire)
            if launch is not None:
                launch.terminate()
                launch.wait()
            for name in self._ids:
                self._signal(signals, name)
            wire.close()
            return [*self._ended(), *self._wrong(), self._summary()]
        finally:
            self._site.close()

    def _kill(self, launch: Launch, wire: Wire) -> None:
        victim = self._chance.choice(self._victims)
        self._kills[victim] += 1
        if victim == "launch":
            launch.kill()
            launch.wait()
            return
        os.kill(int(info(wire, "server")["process_id"]), signal.SIGKILL)
        self._site.command("store", "start")

    def _enqueue(self, producer: Producer) -> None:
        for _ in range(self._at_once):
            name = f"o{len(self._ids) + 1}"
            producer.enqueue_one(NewMessage(name, "default", "order", encode_payload({"order": name})))
            self._ids.append(name)

    @staticmethod
    def _signal(signals: MessageActions, name: str) -> None:
        with suppress(BadData):  # it is completed
            signals.signal("default", name, "approved", name)

    def _ended(self) -> Iterator[str]:
        """Launches without faults, with dead letters redriven, until all orders are completed, or several launches have
        completed none."""
        completed, in_vain = 0, 0
        while in_vain < MOST_IN_VAIN:
            self._site.command("dead", "redrive", "--all")
            self._site.drain("--linger", "2s", "--concurrency", str(self._slots))
            (queue,) = self._site.json("status")["queues"]
            if queue["completed"] == PER_ORDER * len(self._ids):
                return
            in_vain = in_vain + 1 if queue["completed"] == completed else 0
            completed = queue["completed"]
        yield f"{len(self._ids)} orders, {completed} messages are completed: {queue}"

    def _wrong(self) -> Iterator[str]:
        given: dict[tuple[str, str], set[str]] = defaultdict(set)
        for what, order, step, token in self._noted():
            if what == "given":
                given[order, step].add(token)
        for order in self._ids:
            for step in STEPS:
                if len(given[order, step]) != 1:
                    yield f"{order} was given {len(given[order, step])} results of {step}: {given[order, step]}"
            if given[order, "approved"] != {order}:
                yield f"{order} was given {given[order, 'approved']} as its signal"

    def _noted(self) -> Iterator[Sequence[str]]:
        for note in self._site.notes():
            if note.startswith(("body", "given")):
                yield note.split(" ")

    def _summary(self) -> str:
        bodies: dict[tuple[str, str], int] = defaultdict(int)
        for what, order, step, _ in self._noted():
            bodies[order, step] += what == "body"
        again = sum(times - 1 for times in bodies.values() if times)
        return f"{len(self._ids)} orders, killed: {dict(self._kills)}, {again} bodies run again"


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.faults.orders", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--kill-every", type=float, default=2, metavar="SECONDS", help="on average")
    parser.add_argument("--at-once", type=int, default=6, help="orders that are enqueued with each launch")
    parser.add_argument("--concurrency", type=int, default=4, help="of each launch")
    parser.add_argument(
        "--kill", nargs="+", choices=VICTIMS, default=VICTIMS, metavar="VICTIM", help=", ".join(VICTIMS)
    )
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    orders = Orders(given.seconds, given.kill_every, given.at_once, given.concurrency, given.kill, Random(given.seed))
    *wrong, summary = orders.run()
    print("\n".join([*wrong, summary]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
