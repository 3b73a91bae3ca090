"""Clocks that are set, and clocks that stand still."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.core.errors import LeaseLost
from pollconsumer.runtime.new_messages import new_message
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.leases import TTL
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.reading.ledger import launches_of
from tests.simulation.hosts.network import Network
from tests.simulation.hosts.process import Machine, Process
from tests.simulation.hosts.server import BEGINS
from tests.simulation.hosts.world import World
from tests.simulation.installation import NAMESPACE, Installation, Opener
from tests.simulation.launching import Host

if TYPE_CHECKING:
    from random import Random


@pytest.fixture
def installation() -> Installation:
    return Installation(1)


def launched(installation: Installation, machine: int = 0) -> Process:
    """A launch of a consumer that has its lease."""
    process = installation.launch("run", installation.machines[machine])
    installation.world.run_for(10.0)
    return process


def enqueue_after(installation: Installation, seconds: float, *, lasts: float = 0.1) -> None:
    def enqueue(process: Process) -> int:
        process.sleep(seconds)
        store = RedisStore(Opener(installation.server, process).wire(), NAMESPACE, clocks=process)
        store.enqueue([new_message("plain", {"seconds": lasts, "fails": 0}, id="m")])
        return 0

    Process(installation.machines[1], "producer", enqueue)


def handled(installation: Installation) -> list[tuple[str, str | None]]:
    return [(each.id, each.outcome) for each in installation.history.executions]


@pytest.mark.parametrize(("wrong", "ahead"), [(0.0, 50.0), (30.0, 20.0), (-30.0, 20.0), (86400.0, 50.0)])
def test_the_next_launch_is_reckoned_by_the_clock_of_the_machine(wrong: float, ahead: float) -> None:
    world = World(1)
    world.run_until(10.0)
    assert Host(world).next_launches("* * * * *", wrong)[0] == pytest.approx(ahead)


# A machine that sleeps


def sleeper(machine: Machine, seconds: float, woken: list[float]) -> Process:
    """A process that sleeps, and notes when it goes on."""

    def live(process: Process) -> int:
        process.sleep(seconds)
        woken.append(machine.world.now)
        return 0

    return Process(machine, "sleeper", live)


def test_timers_stand_still_while_a_machine_sleeps() -> None:
    world = World(1)
    machine, woken = Machine(world, "ant"), list[float]()
    sleeper(machine, 10.0, woken)
    world.run_until(4.0)
    before = machine.monotonic(), machine.boot_time()
    machine.sleep_for(100.0)
    world.run_until(104.0)
    assert (machine.monotonic() - before[0], machine.boot_time() - before[1]) == pytest.approx((0.0, 100.0))
    world.run_until(200.0)
    assert woken == [pytest.approx(110.0)]


def test_a_process_that_is_stopped_on_a_sleeping_machine_goes_on_after_both() -> None:
    world = World(1)
    machine, woken = Machine(world, "ant"), list[float]()
    process = sleeper(machine, 1.0, woken)
    world.run_until(0.5)
    process.actor.suspend()
    machine.sleep_for(10.0)
    world.run_until(5.0)
    process.actor.resume()
    world.run_until(20.0)
    assert woken == [pytest.approx(11.0)]


def test_a_launch_goes_on_with_its_window_after_its_machine_slept(installation: Installation) -> None:
    """Its lease lapsed, and nobody took it: its heartbeat revives it, though the hard end is past by the boot clock."""
    launch = launched(installation)
    installation.machines[0].sleep_for(200.0)
    enqueue_after(installation, 205.0)
    installation.world.run_for(300.0)
    assert handled(installation) == [("m", "ok")]
    assert launch.code == 0


def test_what_others_recovered_while_a_machine_slept_is_not_handled_twice(installation: Installation) -> None:
    """The server reserved it for the launch, asleep, that was waiting for it."""
    launched(installation)
    installation.world.run_for(0.5)  # until it waits: each five seconds it counts what it has settled
    installation.machines[0].sleep_for(100.0)
    enqueue_after(installation, 0.1)
    installation.world.run_for(60.0)
    installation.launch("move", installation.machines[1])
    installation.world.run_for(70.0)
    assert [line for line in installation.world.trace if "OrphansRecovered(queue='default', messages=1)" in line]
    assert handled(installation) == [("m", "ok")]


def test_a_launch_whose_lease_was_taken_while_its_machine_slept_ends_at_once(installation: Installation) -> None:
    launch = launched(installation)
    installation.machines[0].sleep_for(100.0)
    installation.world.run_for(90.0)
    other = installation.launch("run", installation.machines[1])
    installation.world.run_for(13.0)
    assert launch.code == LeaseLost.exit_code
    assert other.alive


# The server's clock


def test_a_server_whose_clock_is_set_forward_takes_a_lease_from_a_holder_that_trusts_it(
    installation: Installation,
) -> None:
    """Which then changes nothing any more: the fence tells."""
    enqueue_after(installation, 0.0, lasts=30.0)
    first, _ = launched(installation), launched(installation, 1)
    installation.server.set_clock(TTL)
    installation.world.run_for(60.0)
    assert first.code == LeaseLost.exit_code
    assert handled(installation) == [("m", "ok"), ("m", "ok")]


def test_a_server_whose_clock_is_set_back_does_not_keep_a_dead_holders_lease(installation: Installation) -> None:
    first = launched(installation)
    assert first.heartbeat is not None
    first.heartbeat.stop()
    first.end()
    installation.server.set_clock(-3600.0)
    second = launched(installation)
    enqueue_after(installation, 0.0)
    installation.world.run_for(2 * TTL)
    assert handled(installation) == [("m", "ok")]
    assert second.alive


def test_a_consumer_that_waits_when_the_servers_clock_is_set_back_hears_of_the_next_message(
    installation: Installation,
) -> None:
    """The server's end of the wait is an hour away."""
    launched(installation)
    installation.server.set_clock(-3600.0)
    enqueue_after(installation, 3.0)
    installation.world.run_for(10.0)
    assert handled(installation) == [("m", "ok")]


@pytest.mark.parametrize(("by", "ends"), [(-10.0, 13.1), (1.0, 2.1), (60.0, 0.1)])
def test_a_wait_ends_by_the_servers_clock(installation: Installation, by: float, ends: float) -> None:
    ended = list[float]()

    def live(process: Process) -> int:
        wire = Opener(installation.server, process).wire()
        began = installation.world.now
        wire.once([("BLPOP", "nothing", "3")], blocking=60.0)
        ended.append(installation.world.now - began)
        return 0

    Process(installation.machines[0], "waiting", live)
    installation.world.run_until(0.05)
    installation.server.set_clock(by)
    installation.world.run_until(60.0)
    assert ended == [pytest.approx(ends, abs=0.1)]


class Slow(Network):
    """Each way takes as long."""

    def latency(self, stream: Random) -> float:  # noqa: ARG002  of its base
        return 0.1


def test_the_instants_of_a_launch_in_the_ledger_are_not_early_by_the_reply_that_gave_it_the_lease(
    installation: Installation,
) -> None:
    installation.server.network = Slow()
    first = launched(installation)  # which loads the scripts
    first.signals.signal = signal.SIGTERM
    installation.world.run_for(20.0)
    assert first.code == 0
    second = launched(installation)
    found: list[dict[str, Any]] = []

    def read(process: Process) -> int:
        wire = Opener(installation.server, process).wire()
        found.extend(launches_of(wire, Keys(NAMESPACE), 2))
        return 0

    Process(installation.machines[1], "reader", read)
    installation.world.run_for(10.0)
    assert found[0]["started_ms"] == pytest.approx((BEGINS + second.began) * 1000, abs=5)
    assert found[0]["ended_ms"] - found[0]["started_ms"] == pytest.approx(1000 * found[0]["running_seconds"], abs=5)
