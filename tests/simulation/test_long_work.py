"""Handlers of several windows, mixed with short ones: none is ended within its limit, and nobody waits needlessly."""

from __future__ import annotations

import heapq
import random
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.core.choices import HandOff
from tests.as_set import rules_as_set
from tests.forecast.distributions import Arrival, Demand
from tests.leaving_out import long
from tests.simulation.long_work import Case, LongWork
from tests.simulation.measuring import HANDLER, Measured
from tests.simulation.platforms import PLATFORMS
from tests.simulation.workloads import Exponential, Workload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pollconsumer.runtime.handling.context import LaunchContext
    from pollconsumer.runtime.handling.handler import Handler
    from tests.simulation.hosts.process import Process

DEADLINE, BATON = HandOff
SHOWN = {
    Case(DEADLINE): [2],
    Case(DEADLINE, slots=4): [1],
    Case(BATON): [1],
    Case(BATON, slots=4): [1, 2],
    Case(BATON, slots=4, instances=2): [1],
    Case(DEADLINE, instances=2, apart=True): [1],
    Case(DEADLINE, slots=4, platform="flock"): [1],
    Case(DEADLINE, kills=True): [1],
    Case(BATON, slots=4, kills=True): [1],
    Case(BATON, instances=2, kills=True): [2],
}
"""The seeds that are always told, of some cases; each other one proves the same."""


def cases() -> Iterator[Case]:
    for handoff in HandOff:
        for slots in (1, 4):
            for kills in (False, True):
                for instances in (1, 2):
                    for apart in (False, True):
                        yield Case(handoff, slots, instances, apart, kills)
                for platform in ("systemd", "flock"):
                    yield Case(handoff, slots, kills=kills, platform=platform)


@pytest.mark.parametrize(
    ("seed", "case"),
    [
        (seed, case) if seed in SHOWN.get(case, ()) else long(seed, case)
        for case in cases()
        for seed in sorted({1, *SHOWN.get(case, ())})
    ],
)
def test_long_work_is_finished_and_short_work_goes_on_beside_it(seed: int, case: Case) -> None:
    assert LongWork(seed, case).tell() == []


MINUTES, REPORT, AT = 13, 180.0, (90.0, 420.0)
"""Minutes of messages; seconds that a report takes, and the instants at which it is sent."""


class Reports(Measured):
    """A hundred short messages a minute, and two reports. ``reported``: when these were handled."""

    def __init__(self) -> None:
        seconds = MINUTES * 60.0
        short = Workload(Exponential(0.1), every=0.6).messages(random.Random(1), 0.0, seconds)
        messages = heapq.merge(short, (Arrival(at, at, Demand(REPORT)) for at in AT))
        self.reported: list[float] = []
        super().__init__(1, PLATFORMS["debian-cron"], rules_as_set(), messages, seconds)

    def handlers(self, process: Process) -> dict[str, Handler]:
        handler = super().handlers(process)[HANDLER]

        def run(payload: dict[str, Any], context: LaunchContext | None) -> None:
            began = self.world.now
            handler.run(payload, context)
            if payload["seconds"] == REPORT:
                self.reported.append(self.world.now - began)

        return {HANDLER: handler._replace(run=run)}


def test_a_report_of_minutes_among_short_messages_leaves_the_coverage_as_it_is() -> None:
    reports = Reports()
    figures, tenures = reports.run().figures(), reports.record.tenures
    assert reports.reported == pytest.approx([REPORT] * len(AT), abs=1.0)
    whole = tenures[-1].acquired - tenures[0].acquired
    assert 1 - (1 - figures.coverage) * whole / (whole - sum(reports.reported)) >= 0.9
