"""Simulates what ``python -m tests.cron.run latency --mixed`` does for real, to compare coverage, gap and latency.

``python -m tests.simulation.agreement --handoff baton`` prints the figures that the report under cron has, too. Cron's
offsets and the start-up time are that machine's: the report's ledger tells the first, and the gap their sum.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator, Sequence

from pollconsumer.core.choices import HandOff
from tests.as_set import rules_as_set
from tests.cron.produce import AHEAD, LASTING, LASTS, PERIOD, SCHEDULED
from tests.forecast.distributions import Arrival, Demand
from tests.forecast.figures import Figures
from tests.forecast.forecast import Forecast
from tests.forecast.launchers import CronDaemon, Decision, LaunchedProcess, Platform
from tests.simulation.measuring import Measured
from tests.simulation.table import HEADINGS, LINE, row
from tests.simulation.workloads import Uniform


class ObservedCron(CronDaemon):
    """Starts each launch as late as it was seen to, and those after as late as the last."""

    def __init__(self, offsets: Sequence[float]) -> None:
        super().__init__(0.0)
        self._offsets, self._last = iter(offsets), offsets[-1]

    def look(self, now: float, ticks: Sequence[float], launches: Sequence[LaunchedProcess]) -> Decision:
        return super().look(now + next(self._offsets, self._last), ticks, launches)


def mixed(seconds: float) -> Iterator[Arrival]:
    """The messages of the producer under cron."""
    for sequence in range(int(seconds / PERIOD)):
        sent = sequence * PERIOD
        scheduled = sequence % SCHEDULED == SCHEDULED - 1
        lasts = LASTS if sequence % LASTING == LASTING - 1 and not scheduled else 0.0
        yield Arrival(sent, sent + AHEAD if scheduled else sent, Demand(lasts))


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.simulation.agreement", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--handoff", choices=[*HandOff], default=HandOff.DEADLINE)
    parser.add_argument("--launches", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--offsets", type=float, nargs="+", default=[1.8], help="seconds from each minute to the start of a process"
    )
    parser.add_argument("--start-up", type=float, default=0.5, help="seconds from there until it asks for the lease")
    given = parser.parse_args()
    platform = Platform(lambda _: ObservedCron(given.offsets), Uniform(0.9 * given.start_up, 1.1 * given.start_up))
    rules, seconds = rules_as_set(HandOff(given.handoff)), given.launches * 60.0
    print(LINE.format(*HEADINGS))
    for what, figures in (
        ("simulated", Measured(given.seed, platform, rules, mixed(seconds), seconds).run().figures()),
        ("forecast", Forecast(platform, rules, mixed(seconds), random.Random(given.seed), seconds).run().figures()),
    ):
        say(what, given.handoff, figures)
    return 0


def say(what: str, handoff: str, figures: Figures) -> None:
    print(LINE.format(what, handoff, "mixed", *row(figures)), flush=True)


if __name__ == "__main__":
    sys.exit(main())
