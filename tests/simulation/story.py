"""One seed: an installation, its work, its faults, its end; and what the invariants have against it."""

from __future__ import annotations

from typing import NamedTuple

from pollconsumer.core.choices import HandOff
from pollconsumer.interface.testing.fake_store import DirectConnection
from pollconsumer.store.inspector import Inspector
from pollconsumer.store.patience import Budget
from pollconsumer.store.wire import Wire
from tests.faults import store_view
from tests.faults.checker import violations
from tests.simulation.installation import NAMESPACE, SCRIPTS, Installation
from tests.simulation.nemesis import Nemesis
from tests.simulation.producing import Producer

MOST_LAUNCHES_TO_DRAIN = 12


class Report(NamedTuple):
    seed: int
    violations: list[str]
    launches: int
    executions: int
    faults: list[str]
    virtual_seconds: float
    trace: list[str]


def tell(seed: int, *, messages: int = 60, faults: int = 6, minutes: int = 3) -> Report:
    """Messages and faults within so many minutes; then launches without faults, until nothing is left to do."""
    installation = Installation(seed)
    world = installation.world
    installation.handoff = world.chance.choice(list(HandOff))
    busy = minutes * 60.0
    end = busy + 60.0 * MOST_LAUNCHES_TO_DRAIN
    installation.every_minute("run", end)
    installation.every_minute("move", end)
    producers = [Producer(installation, f"p{n}", messages // 2, busy / messages) for n in range(2)]
    Nemesis(installation, faults, busy)
    world.run_until(busy)
    wire = Wire(
        "memory:", lambda: Budget(5.0), connect=lambda: DirectConnection(installation.server.store), scripts=SCRIPTS
    )
    found: list[str] = []
    while not (all(not each.process.alive for each in producers) and _is_drained(wire)):
        if world.now >= end:
            found.append(f"liveness: work is left {world.now - busy:.0f} s after the last fault")
            break
        world.run_for(10.0)
    world.run_for(70.0)  # the last launches end
    history = installation.history
    history.stored = store_view.stored(wire, NAMESPACE)
    history.queues = store_view.queues(wire, NAMESPACE)
    history.leases = store_view.leases(wire, NAMESPACE)
    history.commands = installation.ran()
    found += violations(history)
    ran = sum(each.name.startswith("run") for each in installation.processes)
    return Report(seed, found, ran, len(history.executions), history.faults, world.now, world.trace)


def _is_drained(wire: Wire) -> bool:
    queues = Inspector(wire, NAMESPACE).overview().queues
    return all(each.ready == each.reserved == each.scheduled == each.parked == 0 for each in queues)
