"""A simulated launch with several slots: each handler runs in an actor of its own."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from pollconsumer.runtime.new_messages import new_message
from pollconsumer.store.queues.redis_store import RedisStore
from tests.simulation.hosts.process import Process
from tests.simulation.hosts.slots import ActorLock
from tests.simulation.hosts.world import World
from tests.simulation.installation import NAMESPACE, RULES, Installation, Opener

if TYPE_CHECKING:
    from tests.faults.history import Execution


def executions(handlers: list[str], *, seconds: float = 2.0, fails: int = 0) -> list[Execution]:
    """Of a launch with three slots, which is sent a message for each of ``handlers`` in its sixth second."""
    installation = Installation(1, rules=RULES._replace(slots=3))

    def enqueue(process: Process) -> int:
        store = RedisStore(Opener(installation.server, process).wire(), NAMESPACE, clocks=process)
        process.sleep(5.0)
        sent = {f"m{number}": name for number, name in enumerate(handlers)}
        payload = {"seconds": seconds, "fails": fails}
        store.enqueue([new_message(name, {**payload, "id": each}, id=each) for each, name in sent.items()])
        return 0

    Process(installation.machines[0], "producer", enqueue)
    installation.launch("run", installation.machines[0])
    installation.world.run_until(30.0)
    return installation.history.executions


def test_three_messages_are_handled_at_once_and_the_fourth_after_one_of_them() -> None:
    *first, fourth = executions(["plain"] * 4)
    assert max(each.started for each in first) < min(each.ended or 0 for each in first)
    assert fourth.started >= min(each.ended or 0 for each in first)


def test_concurrent_handlers_take_turns_on_their_connection() -> None:
    found = executions(["steps"] * 3, seconds=0.0)
    assert [each.kept for each in found] == [2, 2, 2]


@pytest.mark.parametrize("handler", ["plain", "isolated"])
def test_a_retry_that_is_due_soon_is_begun_then(handler: str) -> None:
    first, second = executions([handler], seconds=0.0, fails=1)
    assert (second.started - (first.ended or 0)) / 1e6 == pytest.approx(0.05, abs=0.02)


def test_the_handlers_of_a_launch_die_with_it() -> None:
    installation = Installation(1, rules=RULES._replace(slots=3))
    process = installation.launch("run", installation.machines[0])
    told = list[str]()

    def live() -> None:
        process.sleep(1.0)
        told.append("lives on")

    installation.world.run_until(1.0)
    process.start_thread("slot", live)
    installation.world.run_until(1.5)
    process.end()
    installation.world.run_until(5.0)
    assert told == []


def test_an_actor_that_ends_resumes_nobody() -> None:
    world, told = World(1), list[str]()

    def starter() -> None:
        world.start("other", lambda: told.append("other ends"))
        assert world.running is not None
        world.running.pause(5.0)
        told.append(f"starter goes on at {world.now}, as {world.running.name}")

    world.start("starter", starter)
    world.run_until(10.0)
    assert told == ["other ends", "starter goes on at 5.0, as starter"]


def test_a_lock_of_actors_lets_the_others_run() -> None:
    world, told = World(1), list[str]()
    lock = ActorLock(world)

    def hold(name: str) -> None:
        with lock:
            told.append(f"{name} holds it")
            assert world.running is not None
            world.running.pause(1.0)
            told.append(f"{name} leaves it")

    for name in ("one", "two"):
        world.start(name, partial(hold, name))
    world.run_until(5.0)
    assert [line.split()[1] for line in told] == ["holds", "leaves", "holds", "leaves"]
