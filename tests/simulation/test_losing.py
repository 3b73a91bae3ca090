"""A server that comes back without its last second: what it lost is gone, and only that is excused."""

from __future__ import annotations

import pytest

from pollconsumer.core.errors import LeaseLost
from pollconsumer.interface.memory_store import DirectConnection
from pollconsumer.runtime.new_messages import new_message
from pollconsumer.store.client.patience import Budget
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.queues.redis_store import RedisStore
from tests.faults import store_view
from tests.faults.checker import violations
from tests.faults.history import Operation
from tests.faults.recording import digest
from tests.simulation.hosts.process import Process
from tests.simulation.installation import NAMESPACE, SCRIPTS, Installation, Opener
from tests.simulation.losing import Unwritten

PAYLOAD = {"seconds": 0.1, "fails": 0}


@pytest.fixture
def installation() -> Installation:
    """A producer sends a message each second, the first at 0 s; a consumer starts at 6 s."""
    installation = Installation(1)

    def enqueue(process: Process) -> int:
        store = RedisStore(Opener(installation.server, process).wire(), NAMESPACE, clocks=process)
        for name in ("first", "second", "third"):
            began = installation.now_us()
            store.enqueue([new_message("plain", PAYLOAD, id=name)])
            installation.history.operations.append(
                Operation("enqueue", "default", name, began, installation.now_us(), "ok", "plain", digest(PAYLOAD))
            )
            process.sleep(1.0)
        return 0

    Process(installation.machines[0], "producer", enqueue)

    def launch() -> None:
        installation.launch("run")

    installation.world.at(6.0, launch)
    return installation


def outside(installation: Installation) -> Wire:
    store = installation.server.store
    return Wire("memory:", lambda: Budget(5.0), connect=lambda: DirectConnection(store.execute), scripts=SCRIPTS)


def judged(installation: Installation) -> list[str]:
    """What the invariants have against it after everything was handled."""
    installation.world.run_until(70.0)
    wire, history = outside(installation), installation.history
    history.stored, history.queues = store_view.stored(wire, NAMESPACE), store_view.queues(wire, NAMESPACE)
    return violations(history)


def lose_after(installation: Installation, instant: float) -> None:
    """The server loses what it is told from then on, at 3 s, and is back at 5 s."""
    world = installation.world
    world.run_until(instant)
    unwritten = Unwritten(installation, outside(installation))
    world.run_until(3.0)
    unwritten.lose()
    world.run_until(5.0)
    installation.server.start()


def test_what_the_server_was_told_last_is_gone_and_excused(installation: Installation) -> None:
    lose_after(installation, 1.5)
    assert judged(installation) == []
    assert [each.id for each in installation.history.stored] == ["first", "second"]
    assert [each.id for each in installation.history.executions] == ["first", "second"]
    assert installation.history.undone == {("default", "third")}


def test_what_the_server_was_told_before_must_not_be_lost(installation: Installation) -> None:
    lose_after(installation, 1.5)
    installation.history.undone.clear()
    assert judged(installation) == ["accepted_is_accounted_for: third was accepted by default and is lost"]


def test_a_paused_queue_stays_paused(installation: Installation) -> None:
    paused = "{simulated:default}:q"
    lost = Unwritten(installation, outside(installation))
    installation.server.store.execute(("SET", paused, "1"))
    lost.lose()
    assert installation.server.store.execute(("GET", paused)) == b"1"


def test_a_restored_store_runs_scripts_on_what_it_held() -> None:
    store = Installation(1).server.store
    digest_of_script = store.execute(("SCRIPT", "LOAD", b"return {redis.call('LLEN', 'l'), redis.call('GET', 's')}"))
    store.execute(("RPUSH", "l", "a"))
    held = store.copied()
    store.execute(("RPUSH", "l", "b"))
    store.execute(("SET", "s", "new"))
    store.restore(held)
    assert store.execute(("EVALSHA", digest_of_script, 0)) == [1, None]


def test_a_launch_whose_start_the_server_lost_says_that_its_lease_is_lost(installation: Installation) -> None:
    """As if somebody had taken it; the store was not emptied, though the launch before was the only one, and died."""
    world = installation.world
    world.run_until(10.0)
    installation.processes[0].end()
    world.run_until(20.0)
    unwritten = Unwritten(installation, outside(installation))
    second = installation.launch("run")
    world.run_until(22.0)
    unwritten.lose()
    installation.server.start()
    world.run_until(50.0)
    assert second.code == LeaseLost.exit_code
