"""What `tune` proposes for recorded launches, and what then happens to them.

``python -m tests.simulation.tuning`` simulates whole installations, which write their ledgers and remember durations;
makes a proposal from these, as `tune` does; and simulates the installations again with it, with messages and launchers
of another seed.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator

from pollconsumer.core.durations import OVERRUN_TARGETS
from pollconsumer.core.histogram import Histogram
from pollconsumer.interface.testing.fake_store import DirectConnection
from pollconsumer.store.client.patience import Budget
from pollconsumer.store.client.server_wire import ServerWire
from pollconsumer.store.leases import Leases
from pollconsumer.store.reading.inspector import Inspector
from pollconsumer.tuning.forecast.consumer_rules import Rules
from pollconsumer.tuning.forecast.distributions import Arrival, Demand, Lognormal, draw
from pollconsumer.tuning.forecast.launchers import Platform
from pollconsumer.tuning.launch_facts import LaunchFacts, launches_of, lineage_to_tune
from pollconsumer.tuning.proposal import Proposal, propose
from tests.as_set import rules_as_set
from tests.simulation.installation import NAMESPACE, SCRIPTS
from tests.simulation.measuring import Measured
from tests.simulation.platforms import PLATFORMS
from tests.simulation.table import text
from tests.simulation.workloads import Bimodal, Constant, Exponential, Workload

LAUNCHERS = ("debian-cron", "supercronic")
LINE = "{:8} {:12} {:9} {:>14} {:>6} {:>11} {:>8} {:>8} {:>9} {:>18} {:>7}"
HEADINGS = (
    "workload", "launcher", "settings", "overrun_target", "factor", "concurrency",
    "launches", "overruns", "coverage", "wait mean, p99", "dropped",
)  # fmt: skip


class Bursts:
    """Few messages, and at every tenth minute many."""

    def messages(self, chance: random.Random, begin: float, end: float) -> Iterator[Arrival]:
        for minute in range(int((end - begin) / 60)):
            count = 200 if minute % 10 == 4 else 3
            for sent in sorted(begin + 60 * (minute + chance.random()) for _ in range(count)):
                yield Arrival(sent, sent, Demand(draw(Exponential(0.3), chance)))


WORKLOADS: dict[str, Workload | Bursts] = {
    "steady": Workload(Constant(0.01), every=5.0),
    "tail": Workload(Lognormal(0.5, 1.5), every=1.0),
    "rare": Workload(Bimodal(0.035, 0.01, 25.0), every=0.5),
    "bursts": Bursts(),
    "slow": Workload(Constant(20.0), every=47.0),
}


def recorded(seed: int, platform: Platform, workload: Workload | Bursts, rules: Rules, seconds: float) -> Measured:
    measured = Measured(seed, platform, rules, workload.messages(random.Random(seed), 0.0, seconds), seconds)
    measured.run()
    return measured


def proposal_for(installation: Measured, platform: Platform, rules: Rules) -> Proposal:
    """From its ledger and histograms, as `tune` reads them."""
    store = installation.server.store
    wire = ServerWire("memory:", lambda: Budget(5.0), connect=lambda: DirectConnection(store.execute), scripts=SCRIPTS)
    entries = Inspector(wire, NAMESPACE).launches(5_000)
    lineage = lineage_to_tune(entries, ())
    assert lineage is not None
    durations = Histogram()
    for each in Leases(wire, NAMESPACE).remembered(lineage.rpartition(":")[0]).values():
        durations.include(each)
    return propose(
        LaunchFacts(launches_of(entries, lineage), durations, rules, platform.found), lambda: random.Random(1)
    )


def waits(latencies: list[float]) -> str:
    ordered = sorted(latencies)
    return f"{text(sum(ordered) / len(ordered))} {text(ordered[int(len(ordered) * 0.99)])}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.simulation.tuning", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=[*WORKLOADS])
    parser.add_argument("--launchers", nargs="+", choices=PLATFORMS, default=[*LAUNCHERS])
    parser.add_argument("--minutes", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    print(LINE.format(*HEADINGS))
    for name in given.workloads:
        for launcher in given.launchers:
            platform, workload, seconds = PLATFORMS[launcher], WORKLOADS[name], given.minutes * 60.0
            today = rules_as_set(overrun_target=OVERRUN_TARGETS[platform.found.rule])
            proposal = proposal_for(recorded(given.seed, platform, workload, today, seconds), platform, today)
            for what, rules in (("today", today), ("proposed", proposal.rules)):
                record = recorded(given.seed + 1, platform, workload, rules, seconds).record
                figures = record.figures()
                print(
                    LINE.format(
                        name, launcher, what, rules.overrun_target, rules.tolerance_factor, rules.slots,
                        figures.windows, f"{figures.overruns:.1%}", f"{figures.coverage:.1%}",
                        waits([*record.latencies]), figures.dropped,
                    ),
                    flush=True,
                )  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
