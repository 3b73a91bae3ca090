"""The store against a model of it in plain Python, through any sequence of what producers, launches and people do.

Nothing here waits for time to pass: due times lie hours ahead or behind, and hours pass by bringing forward what is
stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.store.machine.invariants import Invariants

if TYPE_CHECKING:
    from tests.store.servers import Server


@pytest.mark.crossing
def test_the_store_agrees_with_its_model_whatever_happens(server: Server) -> None:
    class StoreMachine(Invariants):
        pass

    StoreMachine.server = server
    examples = settings().max_examples // (3 if server.url else 6)  # a real server is twice as fast
    run_state_machine_as_test(
        StoreMachine,
        settings=settings(
            max_examples=examples, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
