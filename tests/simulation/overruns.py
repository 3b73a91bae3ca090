"""How many launches outlast their window, and what that costs, in virtual time: a table of margins, and one of targets.

``python -m tests.simulation.overruns`` compares the article's margin, a multiple of the mean, and the excess;
``python -m tests.simulation.overruns --targets`` shows what each target costs under each kind of launcher. A backlog is
always at hand. ``python -m benchmarks.overruns`` does the first for real.
"""

from __future__ import annotations

import argparse
import random
import sys
from itertools import pairwise, product
from typing import NamedTuple

from pollconsumer.core.choices import Loop
from tests.as_set import rules_as_set
from tests.forecast.consumer_rules import Rules
from tests.forecast.distributions import Distribution, Lognormal
from tests.forecast.figures import Record
from tests.forecast.forecast import Forecast
from tests.simulation.platforms import PLATFORMS
from tests.simulation.workloads import Bimodal, Exponential, Pareto, Workload


class Within(NamedTuple):
    """Durations of a handler with a ``timeout``, which ends those that would last longer."""

    durations: Distribution
    timeout: float

    def quantile(self, queue_step: float) -> float:
        return min(self.durations.quantile(queue_step), self.timeout)


MEAN = 0.4
DISTRIBUTIONS: dict[str, Distribution] = {
    "exponential": Exponential(MEAN),
    "lognormal": Lognormal(MEAN, 1.2),
    "bimodal": Bimodal(MEAN),
    "pareto": Within(Pareto(MEAN, 1.3), 30.0),
}
SLOTS = (1, 4)
MARGINS = {
    "article": rules_as_set(loop=Loop.ARTICLE, min_margin=0.0),
    "mean": rules_as_set(overrun_target=1.0),
    "excess": rules_as_set(),
}
LAUNCHERS = {"parallel": "debian-cron", "queue": "systemd", "drop": "supercronic"}
TARGETS = (1.0, 0.3, 0.1, 0.05, 0.02, 0.01, 0.005)
BEYOND = 1.5
"""How much more arrives than can be handled."""


def launches(platform: str, durations: Distribution, rules: Rules, count: int, seed: int) -> Record:
    workload, seconds = Workload(durations, every=MEAN / rules.slots / BEYOND), count * 60.0
    messages = workload.messages(random.Random(seed), 0.0, seconds)
    return Forecast(PLATFORMS[platform], rules, messages, random.Random(seed), seconds).run()


class Cost(NamedTuple):
    """Shares of launches; seconds for each minute, or of a message that is sent at a random instant."""

    overruns: float
    dropped: float
    cut_off: float
    uncovered: float
    repeated: float
    waits: float


def cost(record: Record, rules: Rules) -> Cost:
    figures, tenures = record.figures(), record.tenures
    minutes = (tenures[-1].released - tenures[0].acquired) / 60
    gaps = (max(0.0, after.acquired - before.released) for before, after in pairwise(tenures))
    return Cost(
        figures.overruns,
        record.dropped / (record.launches + record.dropped),
        sum(each.released >= each.stop_before + rules.grace for each in tenures) / len(tenures),
        60 * (1 - figures.coverage),
        record.cut_off / rules.slots / minutes,
        sum(gap**2 for gap in gaps) / 2 / 60 / minutes,
    )


def print_margins(count: int, target: float, seed: int) -> None:
    row = "{:12} {:>5} {:8} {:>8} {:>9} {:>8} {:>9}"
    print(row.format("durations", "slots", "margin", "launches", "overruns", "cut off", "coverage"))
    for (name, durations), slots, (margin, rules) in product(DISTRIBUTIONS.items(), SLOTS, MARGINS.items()):
        chosen = rules._replace(slots=slots, overrun_target=target if margin == "excess" else rules.overrun_target)
        found = cost(launches("debian-cron", durations, chosen, count, seed), chosen)
        queue_steps = f"{found.overruns:.1%}", f"{found.cut_off:.1%}", f"{1 - found.uncovered / 60:.1%}"
        print(row.format(name, slots, margin, count, *queue_steps), flush=True)


def print_targets(count: int, seed: int) -> None:
    """Means over all distributions and slots, and the worst of these."""
    row = "{:9} {:>7} {:>16} {:>16} {:>16} {:>16} {:>16} {:>16}"
    print(row.format("launcher", "target", *(f"{name}, worst" for name in Cost._fields)))
    for (launcher, platform), target in product(LAUNCHERS.items(), TARGETS):
        cells = []
        for durations, slots in product(DISTRIBUTIONS.values(), SLOTS):
            rules = rules_as_set(overrun_target=target, slots=slots)
            cells.append(cost(launches(platform, durations, rules, count, seed), rules))
        columns = list(zip(*cells, strict=True))
        queue_steps = [f"{sum(each) / len(each):.1%} {max(each):.1%}" for each in columns[:3]]
        seconds = [f"{sum(each) / len(each):.1f}s {max(each):.1f}s" for each in columns[3:]]
        print(row.format(launcher, target, *queue_steps, *seconds), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.simulation.overruns", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--launches", type=int, default=1_000)
    parser.add_argument("--target", type=float, default=0.01)
    parser.add_argument("--targets", action="store_true", help="what each target costs, by launcher")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if given.targets:
        print_targets(given.launches, given.seed)
    else:
        print_margins(given.launches, given.target, given.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
