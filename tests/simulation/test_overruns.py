"""How many launches outlast their window: the excess margin bounds it, a multiple of the mean does not."""

from __future__ import annotations

import pytest

from tests.leaving_out import long
from tests.simulation.overruns import DISTRIBUTIONS, MARGINS, cost, launches


@pytest.mark.parametrize("durations", ["lognormal", "pareto", long("exponential"), long("bimodal")])
def test_with_a_target_of_one_in_a_hundred_few_more_launches_overrun(durations: str) -> None:
    rules = MARGINS["excess"]._replace(overrun_target=0.01)
    assert cost(launches("debian-cron", DISTRIBUTIONS[durations], rules, 500, seed=1), rules).overruns <= 0.02


@pytest.mark.parametrize("durations", ["lognormal", "pareto"])
@pytest.mark.parametrize("margin", ["article", "mean"])
def test_a_multiple_of_the_mean_bounds_no_heavy_tail(durations: str, margin: str) -> None:
    rules = MARGINS[margin]
    assert cost(launches("debian-cron", DISTRIBUTIONS[durations], rules, 100, seed=1), rules).overruns > 0.05
