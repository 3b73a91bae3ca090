"""A cron that launches each 15 minutes, as shared hosts allow at most: windows of 14 minutes, and no mover."""

from __future__ import annotations

from datetime import datetime
from math import ceil
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.core.choices import HandOff, Missed
from pollconsumer.core.durations import MarginRule
from pollconsumer.core.recurrence import Recurrence
from pollconsumer.core.retry import Backoff
from pollconsumer.runtime.consumer import consume
from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.runtime.new_messages import new_message
from pollconsumer.runtime.session.pace import ConsumerOptions
from pollconsumer.store.queues.redis_store import RedisStore
from tests.as_set import rules_as_set
from tests.leaving_out import long
from tests.simulation.hosts.process import Process
from tests.simulation.hosts.server import BEGINS
from tests.simulation.installation import NAMESPACE, QUEUES, Installation, OneSlot, Opener
from tests.simulation.platforms import PLATFORMS

if TYPE_CHECKING:
    from pollconsumer.core.window import StopReason
    from pollconsumer.runtime.handling.context import Context
    from pollconsumer.runtime.launch.launch import Launch

SECONDS, TIMEOUT = 1_900.0, 840.0
EVERY = 30.0
"""Seconds between two occurrences, and between two messages."""
AHEAD, AGAIN = 47.3, 20.0
"""A message is due so long after it is sent; a failed one is tried again so long after it failed."""
MARGIN = 2.0
"""Seconds before the end of a launch, at most, from which on it begins nothing."""
EXACT, ON_TIME, AT_MOST = 0.001, 0.05, 1.0
"""Seconds: the resolution of due times; the median wait; the longest, behind what came due during a start."""
RECURRENCE = Recurrence("each", "occur", every=EVERY, missed=Missed.ALL, occurrence_wanted=True)


class Quarters(Installation):
    """``late``: for each kind, when a message was due, and how long after it was begun."""

    def __init__(self, handoff: HandOff) -> None:
        super().__init__(1, PLATFORMS["cpanel-15m"], rules_as_set(handoff, timeout=TIMEOUT))
        self.late: dict[str, list[tuple[float, float]]] = {"due": [], "again": [], "occur": []}
        self.failed: dict[str, float] = {}
        self.held: list[tuple[float, float]] = []
        self.launch_until(SECONDS, "run")
        Process(self.machines[0], "producer", self._produce)

    def run(self) -> None:
        self.world.run_until(SECONDS)

    def _produce(self, process: Process) -> int:
        store = RedisStore(Opener(self.server, process).wire(), NAMESPACE, clocks=process)
        while True:
            store.enqueue([new_message("due", {"due": self.world.now + AHEAD}, in_=AHEAD), new_message("again", {})])
            process.pause(EVERY)

    def work(self, launch: Launch, process: Process) -> StopReason:
        rules, began = self.rules, self.world.now
        options = ConsumerOptions(
            QUEUES,
            rules.idle_time,
            MarginRule(rules.estimated_duration, rules.tolerance_factor, launch.min_margin, rules.overrun_target),
        )
        reason = consume(launch, options, self.handlers(process), [RECURRENCE], OneSlot(process))
        self.held.append((began, self.world.now))
        return reason

    def handlers(self, process: Process) -> dict[str, Handler]:
        def note(kind: str, due: float) -> None:
            self.late[kind].append((due, self.world.now - due))
            process.sleep(0.01)

        def again(_: dict[str, Any], context: Context | None) -> None:
            assert context is not None
            if context.attempt == 1:
                self.failed[context.id] = self.world.now
                raise ValueError("not yet")
            note("again", self.failed.pop(context.id) + AGAIN)

        def occur(payload: dict[str, Any], _: Context | None) -> None:
            note("occur", datetime.fromisoformat(payload["occurrence"]).timestamp() - BEGINS)

        later = Backoff(first=AGAIN, factor=1, most=AGAIN, jitter=0)
        return {
            "due": Handler("due", lambda payload, _: note("due", payload["due"])),
            "again": Handler("again", again, takes_context=True, retry=later),
            "occur": Handler("occur", occur),
        }


@pytest.mark.parametrize("handoff", [HandOff.DEADLINE, long(HandOff.BATON)])
def test_due_messages_retries_and_recurrences_are_on_time_within_windows_of_a_quarter(handoff: HandOff) -> None:
    """What comes due between two windows is begun with the next one, and no occurrence is left out."""
    quarters = Quarters(handoff)
    quarters.run()
    begins, ends = zip(*quarters.held, strict=True)
    assert len(begins) == 2
    for kind, begun in quarters.late.items():
        waits = []
        for due, late in begun:
            begin = next((begin for begin, end in quarters.held if due < end - MARGIN), None)
            if begin is not None:
                assert late >= -EXACT, kind
                waits.append(late - max(0.0, begin - due))
        assert sorted(waits)[len(waits) // 2] < ON_TIME, kind
        assert max(waits) < AT_MOST, kind
    occurrences = [due for due, _ in quarters.late["occur"] if begins[0] < due < ends[-1]]
    first = ceil(begins[0] / EVERY)
    assert occurrences == [EVERY * n for n in range(first, first + len(occurrences))]
    assert EVERY * (first + len(occurrences)) >= ends[-1]
    gap = begins[1] - ends[0]
    assert gap < ON_TIME if handoff.on_call else gap > 60.0
