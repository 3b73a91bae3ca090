"""A table of what launches are worth: launcher × hand-off × workload.

``python -m tests.simulation.table --minutes 20`` runs the program itself, in virtual time; ``--forecast --hours 168``
forecasts weeks without a store. A seed repeats a table to the byte.
"""

from __future__ import annotations

import argparse
import random
import sys
from itertools import product

from pollconsumer.core.choices import HandOff, LauncherRule
from pollconsumer.core.durations import OVERRUN_TARGETS
from pollconsumer.core.launcher import given_launcher
from tests.as_set import rules_as_set
from tests.forecast.distributions import Lognormal
from tests.forecast.figures import Figures, Spread
from tests.forecast.forecast import Forecast
from tests.forecast.launchers import Platform
from tests.simulation.measuring import Measured
from tests.simulation.platforms import PLATFORMS
from tests.simulation.workloads import Bimodal, Constant, Exponential, Pareto, Workload

AHEAD = 3.35
"""Seconds: never due with another message."""
WORKLOADS = {
    "steady": Workload(Constant(0.01), every=0.1, scheduled=10, ahead=AHEAD),
    "exponential": Workload(Exponential(0.5), every=1.0, scheduled=10, ahead=AHEAD),
    "lognormal": Workload(Lognormal(0.5, 1.5), every=1.0, scheduled=10, ahead=AHEAD),
    "bimodal": Workload(Bimodal(0.5), every=1.0, scheduled=10, ahead=AHEAD),
    "pareto": Workload(Pareto(0.5), every=1.0, scheduled=10, ahead=AHEAD),
    "hanging": Workload(Exponential(0.5), every=1.0, hanging=0.0005, scheduled=10, ahead=AHEAD),
    "crashing": Workload(Exponential(0.5), every=1.0, crashing=0.005, scheduled=10, ahead=AHEAD),
}
LINE = "{:18} {:8} {:11} {:>7} {:>8} {:>15} {:>20} {:>20} {:>9} {:>7}"
HEADINGS = (
    "launcher",
    "hand-off",
    "workload",
    "windows",
    "coverage",
    "gap p50, max",
    "latency p50 p99 max",
    "late p50 p99 max",
    "overruns",
    "dropped",
)


def main() -> int:
    given = arguments()
    print(LINE.format(*HEADINGS))
    for workload, name, handoff in product(given.workloads, given.launchers, given.handoffs):
        figures = cell(given, PLATFORMS[name], HandOff(handoff), WORKLOADS[workload])
        print(LINE.format(name, handoff, workload, *row(figures)), flush=True)
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.simulation.table", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--launchers", nargs="+", choices=PLATFORMS, default=[*PLATFORMS])
    parser.add_argument("--handoffs", nargs="+", choices=[*HandOff], default=[*HandOff])
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=["steady", "lognormal"])
    parser.add_argument("--minutes", type=float, default=5.0, help="virtual minutes of each row")
    parser.add_argument("--hours", type=float, help="the same in hours")
    parser.add_argument("--forecast", action="store_true", help="without a store")
    parser.add_argument("--min-margin", type=float, help="learned, if it is not given")
    parser.add_argument("--launcher", choices=[*LauncherRule], default=LauncherRule.AUTO)
    parser.add_argument("--idle-time", type=float, default=rules_as_set().idle_time)
    parser.add_argument("--tolerance-factor", type=float, default=rules_as_set().tolerance_factor)
    parser.add_argument("--overrun-target", type=float, help="that of the launcher's rule, if it is not given")
    parser.add_argument("--slots", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def cell(given: argparse.Namespace, platform: Platform, handoff: HandOff, workload: Workload) -> Figures:
    seconds = given.minutes * 60 if given.hours is None else given.hours * 3600
    rule = given_launcher(LauncherRule(given.launcher), platform.found).rule
    rules = rules_as_set(
        handoff,
        timeout=platform.period,
        min_margin=given.min_margin,
        overrun_target=OVERRUN_TARGETS[rule] if given.overrun_target is None else given.overrun_target,
        launcher=LauncherRule(given.launcher),
        idle_time=given.idle_time,
        tolerance_factor=given.tolerance_factor,
        slots=given.slots,
    )
    messages = workload.messages(random.Random(given.seed), 0.0, seconds)
    if given.forecast:
        return Forecast(platform, rules, messages, random.Random(given.seed), seconds).run().figures()
    return Measured(given.seed, platform, rules, messages, seconds).run().figures()


def row(figures: Figures) -> tuple[object, ...]:
    return (
        figures.windows,
        f"{figures.coverage:.2%}",
        f"{text(figures.gap.p50)} {text(figures.gap.most)}",
        in_words(figures.latency),
        in_words(figures.lateness),
        f"{figures.overruns:.1%}",
        figures.dropped,
    )


def in_words(spread: Spread) -> str:
    return " ".join(map(text, spread))


def text(seconds: float) -> str:
    return f"{seconds * 1000:.1f}ms" if seconds < 1 else f"{seconds:.1f}s"


if __name__ == "__main__":
    sys.exit(main())
