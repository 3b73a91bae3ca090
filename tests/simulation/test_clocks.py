"""A machine whose time of day was set wrong: a launch there plans by it."""

from __future__ import annotations

import pytest

from pollconsumer.interface.testing.simulation.world import World
from tests.simulation.launching import Host


@pytest.mark.parametrize(("wrong", "ahead"), [(0.0, 50.0), (30.0, 20.0), (-30.0, 20.0), (86400.0, 50.0)])
def test_the_next_launch_is_reckoned_by_the_clock_of_the_machine(wrong: float, ahead: float) -> None:
    world = World(1)
    world.run_until(10.0)
    assert Host(world).next_launches("* * * * *", wrong)[0] == pytest.approx(ahead)
