"""The forecast, which has no store, agrees with the program in virtual time; so does a table with itself."""

from __future__ import annotations

import random

import pytest

from pollconsumer.core.choices import HandOff
from pollconsumer.core.launcher import TIMES, UNKNOWN
from tests.as_set import rules_as_set
from tests.forecast.consumer_rules import Rules
from tests.forecast.figures import Figures
from tests.forecast.forecast import Forecast
from tests.leaving_out import long
from tests.simulation import table
from tests.simulation.hosts.world import World
from tests.simulation.measuring import Measured
from tests.simulation.platforms import PLATFORMS
from tests.simulation.workloads import Constant, Exponential, Workload

SECONDS = 300.0
WORKLOAD = Workload(Exponential(0.5), every=2.0)
SPARSE = Workload(Constant(0.01), every=10.0)


def simulated(name: str, rules: Rules) -> Figures:
    messages = WORKLOAD.messages(random.Random(1), 0.0, SECONDS)
    return Measured(1, PLATFORMS[name], rules, messages, SECONDS).run().figures()


def forecast(name: str, rules: Rules) -> Figures:
    messages = WORKLOAD.messages(random.Random(1), 0.0, SECONDS)
    chance = World(1).stream("launcher")  # so that both launchers have one offset
    return Forecast(PLATFORMS[name], rules, messages, chance, SECONDS).run().figures()


@pytest.mark.parametrize(
    ("name", "handoff"),
    [
        ("debian-cron", HandOff.BATON),
        ("busybox", HandOff.DEADLINE),
        long("debian-cron", HandOff.DEADLINE),
        long("systemd", HandOff.BATON),
    ],
)
def test_a_forecast_has_the_figures_of_the_simulation(name: str, handoff: HandOff) -> None:
    rules = rules_as_set(handoff)
    one, other = simulated(name, rules), forecast(name, rules)
    assert (one.launches, one.windows, one.dropped) == (other.launches, other.windows, other.dropped)
    assert one.coverage == pytest.approx(other.coverage, abs=0.02)
    assert one.gap.p50 == pytest.approx(other.gap.p50, rel=0.15, abs=0.005)
    assert one.latency.p50 == pytest.approx(other.latency.p50, rel=0.1, abs=0.01)


@pytest.mark.parametrize("name", ["flock", long("supercronic")])
def test_a_launcher_that_nothing_names_is_known_by_the_ticks_that_it_drops(name: str) -> None:
    """A launch with a baton is alive at one tick or two, until three such launches have shown what that costs: without
    that, seven ticks of fifteen would be dropped."""
    unnamed = PLATFORMS[name]._replace(found=UNKNOWN)
    messages = SPARSE.messages(random.Random(1), 0.0, 3 * SECONDS)
    dropped = Measured(1, unnamed, rules_as_set(HandOff.BATON), messages, 3 * SECONDS).run().figures().dropped
    assert 0 < dropped <= 2 * TIMES


def test_a_launcher_that_nothing_names_and_that_starts_launches_beside_others_may_go_on() -> None:
    unnamed = PLATFORMS["debian-cron"]._replace(found=UNKNOWN)
    messages = SPARSE.messages(random.Random(1), 0.0, 2 * SECONDS)
    figures = Measured(1, unnamed, rules_as_set(HandOff.BATON), messages, 2 * SECONDS).run().figures()
    assert figures.coverage > 0.999


def test_each_row_of_a_table_has_its_launcher_and_figures_and_a_seed_repeats_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["table", "--forecast", "--minutes", "10", "--launchers", "busybox", "kudu", "--workloads", "pareto"]
    monkeypatch.setattr("sys.argv", arguments)
    table.main()
    first = capsys.readouterr().out
    table.main()
    assert capsys.readouterr().out == first
    assert [line.split()[:3] for line in first.splitlines()[1:]] == [
        [name, handoff, "pareto"] for name in ("busybox", "kudu") for handoff in ("deadline", "baton")
    ]
