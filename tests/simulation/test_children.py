"""Isolated handlers run in actors of their own, which can be killed, and end with their launch."""

from __future__ import annotations

import pytest

from pollconsumer.runtime.new_messages import new_message
from pollconsumer.store.queues.redis_store import RedisStore
from tests.simulation.hosts.process import Process
from tests.simulation.installation import NAMESPACE, Installation, Opener


@pytest.fixture
def installation() -> Installation:
    """With a launch that handles an isolated message for ten seconds, in its fifth second."""
    installation = Installation(1)

    def enqueue(process: Process) -> int:
        store = RedisStore(Opener(installation.server, process).wire(), NAMESPACE, clocks=process)
        store.enqueue([new_message("isolated", {"seconds": 10.0, "fails": 0}, id="m")])
        return 0

    Process(installation.machines[0], "producer", enqueue)
    for role in ("run", "move"):
        installation.launch(role, installation.machines[0])
    installation.world.run_until(5.0)
    return installation


def test_a_message_whose_process_was_killed_is_tried_again_by_the_same_launch(installation: Installation) -> None:
    launch = installation.processes[0]
    launch.children[0].kill()
    installation.world.run_until(7.0)
    first, second = installation.history.executions
    assert (first.ended, first.fence, second.fence) == (None, second.fence, first.fence)
    assert (first.attempt, second.attempt) == (1, 2)
    assert launch.alive
    installation.world.run_until(30.0)
    assert installation.history.executions[1].outcome == "ok"


def test_a_launch_that_is_killed_takes_its_children_with_it(installation: Installation) -> None:
    launch = installation.processes[0]
    launch.end()
    assert not any(child.alive for child in launch.children)
    installation.world.run_until(30.0)
    assert [each.ended for each in installation.history.executions] == [None]
