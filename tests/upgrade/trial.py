"""What two versions do to a store, one after the other, and what is wrong in the end.

The old version leaves a backlog, then its producers and launches work alone, then those of either, by chance; the new
version drains. Back: the new version's producers go on, with messages that only it can read, beside the old one's
launches, which drain the others; the new version drains what waited. While producers work, something is killed
once or several times between two launches.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from pollconsumer.core.lifecycle import State
from pollconsumer.store.actions import MessageActions
from pollconsumer.store.reading.inspector import Inspector
from tests.faults import store_view
from tests.faults.checker import violations
from tests.faults.configuration import QUOTA, QUOTA_PERIOD
from tests.faults.history import Batch, read_executions
from tests.faults.history_reader import read_history
from tests.faults.installation import NAMESPACE
from tests.faults.nemesis import Nemesis
from tests.faults.platform import Platform
from tests.store.acting import AllRecurrences
from tests.upgrade.backlog import enqueue_backlog
from tests.upgrade.two_versions import TwoVersions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.history import History

OLD, NEW = "old", "new"
PROCESSES = 10
"""Of producers, one after the other, in each part."""
LIVE = 40
"""Of so many messages one is enqueued in each part beside launches; the others are the backlog."""
BATCH = "batch"
WAITING = [f"{BATCH}.{number}" for number in range(20)]
"""The members of a batch. Each has an order key: only a version that has these can read it."""
KILLS = (
    *["kill launch"] * 4,
    *["kill launch and heartbeat"] * 3,
    *["kill heartbeat", "kill mover", "kill isolated process", "terminate launch", "kill server"],
)
LAUNCHED = [["--instances", "2", "--concurrency", slots] for slots in "14"]
LONGEST_DRAIN = 1200.0
LONGEST_BOTH = 300.0
"""Seconds for which both versions work on the backlog."""


class QueueStep(NamedTuple):
    """Messages for one process of a producer."""

    source: str
    first: int
    messages: int
    options: tuple[str, ...] = ()


def shares(source: str, first: int, count: int) -> list[QueueStep]:
    each = max(1, count // PROCESSES)
    return [QueueStep(source, at, min(each, first + count - at)) for at in range(first, first + count, each)]


class Trial:
    """``interpreters``: of the versions `OLD` and `NEW`."""

    def __init__(self, interpreters: dict[str, str], messages: int, seed: int) -> None:
        self.place = TwoVersions(interpreters, seed)
        self.seconds: dict[str, int] = {}
        self.faults: list[str] = []
        self.history: History | None = None
        self._messages, self._chance = messages, random.Random(seed)
        self._wire = self.place.server.wire()
        self._inspector = Inspector(self._wire, NAMESPACE)

    def run(self) -> list[str]:
        """What is wrong."""
        live = self._messages // LIVE
        backlog = self._messages - 3 * live
        self.place.launched = [OLD]
        enqueue_backlog(self.place, self._chance, backlog)
        self._load("the old version alone", [OLD], [OLD], shares("old", 0, live))
        self._load("both", [OLD, NEW], [OLD, NEW], shares("both", 0, live), enough=self._messages // 10)
        self._drain("the new version drains", NEW)
        batch = QueueStep(BATCH, 0, len(WAITING), ("--as-batch",))
        self._load("back", [OLD], [NEW], [batch, *shares("back", 0, live)])
        self._drain("the old version drains", OLD, but=len(WAITING))
        wrong = list(self._begun_too_soon())
        self._drain("the new version drains again", NEW)
        return [*wrong, *self._judge()]

    def _load(
        self, part: str, launched: list[str], producing: list[str], given: list[QueueStep], enough: int | None = None
    ) -> None:
        """Launches and producers of these versions, and kills, until all is enqueued, and no more than ``enough`` is
        left to be done."""
        began = time.monotonic()
        self.place.launched, self.place.producing = launched, producing
        platform = Platform(self.place, self.place.period, LAUNCHED)
        nemesis = Nemesis(self._chance.randrange(1 << 30), self.place, platform)
        producers = [threading.Thread(target=self._produce, args=(given[number::2],)) for number in range(2)]
        for producer in producers:
            producer.start()
        while any(producer.is_alive() for producer in producers) or (
            enough is not None and self._left() > enough and time.monotonic() - began < LONGEST_BOTH
        ):
            time.sleep(nemesis.chance.uniform(0.2, 1) * self.place.period)
            nemesis.strike(nemesis.chance.choice(KILLS))
            self.place.server.await_ready()
        platform.stop()
        self.faults += nemesis.done
        self.seconds[part] = round(time.monotonic() - began)

    def _produce(self, given: list[QueueStep]) -> None:
        """A process after the other. One in ten is killed."""
        for share in given:
            producer = self.place.start_producer(share.source, str(share.first), str(share.messages), *share.options)
            if self._chance.random() < 0.1 and not share.options:
                time.sleep(self._chance.uniform(0.5, 2))
                producer.process.kill()
                self.faults.append("kill producer")
            producer.process.wait()

    def _drain(self, part: str, version: str, *, but: int = 0) -> None:
        """Launches of this version until nothing is left to be done, but for so many messages."""
        began = time.monotonic()
        for command in self.place.commands:
            command.process.wait()
        self.place.launched = [version]
        self._pause_recurrences()
        mover = self.place.start("-q", "move", "--timeout", f"{LONGEST_DRAIN}s")
        while self._left() > but and time.monotonic() - began < LONGEST_DRAIN:
            self.place.run("-q", "run", "--until-empty", "--timeout", "60s")
            self._pause_recurrences()
        mover.process.terminate()
        mover.process.wait()
        self.seconds[part] = round(time.monotonic() - began)

    def _pause_recurrences(self) -> None:
        """Where they are defined by now: it is launches that do that."""
        recurring = AllRecurrences(self._wire, NAMESPACE)
        for standing in list(recurring.statuses(lambda _: None)):
            recurring.pause(standing)

    def _left(self) -> int:
        counts = self._inspector.overview().queues
        return sum(queue.ready + queue.reserved + queue.scheduled for queue in counts)

    def _begun_too_soon(self) -> Iterator[str]:
        """What only the new version can read waits for it; makes it due, so that it waits no longer."""
        begun = {each.id for each in read_executions(self.place.directory / "executions.jsonl")}
        person = MessageActions(self._wire, NAMESPACE)
        for name in WAITING:
            found = self._inspector.message(name)
            if found.state not in (State.SCHEDULED, State.READY) or found.id in begun:
                yield f"{found.id} is {found.state} before a version came that can read it"
            else:
                person.change(found.queue, found.id, delay=0)

    def _judge(self) -> list[str]:
        for command in self.place.commands:
            command.process.wait()
        self.history = read_history(self.place, self._wire)
        self.history.one_at_a_time, self.history.settled_within = False, 10_000
        self.history.quota = ("limited", QUOTA, int(QUOTA_PERIOD * 1000))
        self.history.batches = [Batch(BATCH, "default", {"ended": "default"}, len(WAITING), "closed")]
        self.history.counted = store_view.batches(self._wire, NAMESPACE)
        return violations(self.history)

    def figures(self) -> dict[str, object]:
        """What was done, for a report."""
        assert self.history is not None
        versions = self.place.version_of
        return {
            "messages": len(self.history.stored),
            "states": Counter(each.state for each in self.history.stored),
            "executions": len(self.history.executions),
            "executions by version": Counter(versions.get(each.pid, "other") for each in self.history.executions),
            "executions that a kill cut off": sum(each.ended is None for each in self.history.executions),
            "processes": dict(self.place.started),
            "kills": Counter(self.faults),
            "seconds": self.seconds,
        }

    def close(self, *, keep: bool) -> None:
        self._wire.close()
        self.place.close(keep=keep)
