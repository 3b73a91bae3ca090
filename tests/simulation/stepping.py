"""An installation whose clock is set, once: the server's alone, or that of the machine with it."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from pollconsumer.core.choices import Missed
from pollconsumer.core.recurrence import MOST_CAUGHT_UP, Recurrence
from pollconsumer.interface.memory_store import DirectConnection
from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.runtime.new_messages import new_message
from pollconsumer.store.client.patience import Budget
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.leases import Leases
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.reading.ledger import launches_of
from pollconsumer.store.recurrence_actions import Recurrences
from pollconsumer.watching.facts import ServerFacts
from pollconsumer.watching.findings import server_findings
from tests.as_set import expected_as_set
from tests.simulation.hosts.process import Process
from tests.simulation.hosts.server import BEGINS
from tests.simulation.installation import NAMESPACE, SCRIPTS, Installation, Opener

if TYPE_CHECKING:
    from collections.abc import Iterator


MINUTE, EVERY = 60.0, 20.0
"""Seconds: between launches; between two occurrences."""
MESSAGES, MOST, PERIOD = 8, 2, 20.0
"""With a rate: sent at the beginning, handed out in a period of so many seconds at most."""
ENDS, SOON = 360.0, 2 * MINUTE
"""Seconds of a story, and after the step within which all goes on: what runs then, and the launch after."""
BEGUN_WITHIN = 0.1
"""Seconds after a message was handed out."""
SMALL = 60.0
"""A smaller step may pass as a late launch does."""


class Step(NamedTuple):
    """``seconds`` forward or backward, ``at`` a true instant. ``alone``: the machine's clock is right, or stays so."""

    seconds: float
    at: float
    alone: bool


class Occurred(NamedTuple):
    """In true seconds, when an occurrence was begun; its ``instant`` as seconds of the server's clock since BEGINS."""

    instant: float
    began: float


class Stepping(Installation):
    def __init__(self, seed: int, step: Step) -> None:
        super().__init__(seed)
        self.step = step
        self.occurred: dict[str, list[Occurred]] = {}
        self.rated: list[float] = []
        self.problems: list[str] = []
        self.recurrences = [
            Recurrence(f"c-{each}", "occur", every=EVERY, missed=each, occurrence_wanted=True) for each in Missed
        ]
        self.launch_until(ENDS, "run")
        Process(self.machines[1], "producer", self._produce)
        self.world.at(step.at, self._set)

    def run(self) -> Stepping:
        self.world.run_until(ENDS)
        return self

    def _set(self) -> None:
        self.server.set_clock(self.step.seconds)
        if not self.step.alone:
            for each in self.machines:
                each.ahead += self.step.seconds

    def _produce(self, process: Process) -> int:
        wire = Opener(self.server, process).wire()
        for missed in Missed:
            put = Recurrence(
                f"p-{missed}", "occur", every=EVERY, missed=missed, occurrence_wanted=True, at_run_time=True
            )
            Recurrences(wire, NAMESPACE).put([(put, "now")])
        process.sleep(self.step.at - 10.0)
        rate = f"{MOST}/{PERIOD:.0f}s"
        store = RedisStore(wire, NAMESPACE, clocks=process)
        store.enqueue([new_message("rated", {}, rate=rate, rate_key="k") for _ in range(MESSAGES)])
        return 0

    def handlers(self, process: Process) -> dict[str, Handler]:
        def occur(payload: dict[str, Any], context: Any) -> None:
            instant = datetime.fromisoformat(payload["occurrence"]).timestamp() - BEGINS
            now = self.world.now
            self.occurred.setdefault(context.id.partition("@")[0], []).append(Occurred(instant, now))
            if instant > self.server.clock() - BEGINS + 0.001:
                self.problems.append(f"{context.id} was begun before the server's clock showed its instant")
            process.sleep(0.01)

        def rated(_payload: dict[str, Any], _context: Any) -> None:
            self.rated.append(self.world.now)
            process.sleep(0.01)

        return {"occur": Handler("occur", occur, takes_context=True), "rated": Handler("rated", rated)}

    # What must hold

    def judge(self) -> list[str]:
        return [*self.problems, *self._of_occurrences(), *self._of_rates(), *self._of_readings()]

    def _of_occurrences(self) -> Iterator[str]:
        seconds, at, _ = self.step
        for missed in Missed:
            for name in (f"c-{missed}", f"p-{missed}"):
                occurred = self.occurred.get(name, [])
                if twice := [each for each, count in Counter(each.instant for each in occurred).items() if count > 1]:
                    yield f"{name} occurred twice for {twice}"
                in_burst = sum(at <= each.began < at + SOON for each in occurred)
                allowed = (
                    SOON / EVERY
                    + 1
                    + (MOST_CAUGHT_UP if missed is Missed.ALL else min(max(0.0, seconds), SMALL) / EVERY + 1)
                )
                if in_burst > allowed:
                    yield f"{name} occurred {in_burst} times within {SOON:.0f} s of the step, not {allowed:.0f} at most"
                goes_on = [each for each in occurred if each.began >= at + SOON]
                due = int((ENDS - at - SOON) / EVERY) - 1
                if seconds > -SMALL and len(goes_on) < due:
                    yield f"{name} occurred {len(goes_on)} times from then on, not {due} at least"
                if seconds <= -SMALL:
                    # Instants that it had before the step have ids that are known; all others must come.
                    yield from self._gap(name, occurred, at)

    def _gap(self, name: str, occurred: list[Occurred], at: float) -> Iterator[str]:
        before = {each.instant for each in occurred if each.began < at}
        shown = ENDS + self.step.seconds
        now = at + SOON + self.step.seconds
        expected = {n * EVERY for n in range(int(now // EVERY) + 1, int(shown // EVERY))} - before
        there = {round(each.instant / EVERY) * EVERY for each in occurred}
        if lacking := sorted(expected - there):
            yield f"{name} did not occur for {len(lacking)} instants from {SOON:.0f} s after the step on: {lacking[:3]}"

    def _of_rates(self) -> Iterator[str]:
        at, taken = self.step.at, sorted(self.rated)
        for first, after in zip(taken, taken[MOST:], strict=False):
            if after - first < PERIOD - BEGUN_WITHIN and not first < at <= after:
                yield f"{MOST + 1} messages were handed out within {after - first:.3f} s, at {first:.1f} s"
        if len(taken) < MESSAGES:
            yield f"{len(taken)} of {MESSAGES} messages with a rate were handled"

    def _of_readings(self) -> Iterator[str]:
        wire = Wire(
            "memory:", lambda: Budget(5.0), connect=lambda: DirectConnection(self.server.store.execute), scripts=SCRIPTS
        )
        told = {
            each.name
            for each in server_findings(ServerFacts(set_back=Leases(wire, NAMESPACE).set_back_by()), expected_as_set())
        }
        if ("clock_set_back" in told) != (self.step.seconds < -SMALL):
            yield f"doctor says {', '.join(sorted(told)) or 'nothing'}"
        for entry in launches_of(wire, Keys(NAMESPACE), 100):
            if not 0.0 <= entry["running_seconds"] < 2 * MINUTE or entry["stop_reason"] in ("died", "watchdog"):
                yield f"the ledger has {entry}"
