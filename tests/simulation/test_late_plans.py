"""A launch that was suspended between its start and its plan teaches the next ones nothing."""

from __future__ import annotations

from pollconsumer.runtime.new_messages import new_message
from pollconsumer.store.queues.redis_store import RedisStore
from tests.simulation.hosts.process import Process
from tests.simulation.installation import NAMESPACE, Installation, Opener


def test_launches_after_one_that_planned_two_minutes_late_have_time_to_handle() -> None:
    installation = Installation(1)
    world, machine = installation.world, installation.machines[0]

    def enqueue(process: Process) -> int:
        process.sleep(185.0)
        store = RedisStore(Opener(installation.server, process).wire(), NAMESPACE, clocks=process)
        store.enqueue([new_message("plain", {"seconds": 0.1, "fails": 0}, id="m")])
        return 0

    Process(machine, "producer", enqueue)
    world.run_until(1.0)
    late = installation.launch("run", machine)
    late.actor.suspend()
    world.run_until(120.5)
    late.actor.resume()
    world.run_until(181.0)
    installation.launch("run", machine)
    world.run_until(240.0)
    assert [each.id for each in installation.history.executions] == ["m"]
