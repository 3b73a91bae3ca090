"""One seed: an installation, its work, its faults, its end; and what the invariants have against it."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

from pollconsumer.core.choices import HandOff
from pollconsumer.interface.testing.fake_store import DirectConnection
from pollconsumer.store.client.patience import Budget
from pollconsumer.store.client.server_wire import ServerWire
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.reading.inspector import Inspector
from pollconsumer.store.server import count_of
from pollconsumer.tuning.forecast.distributions import Lognormal
from tests.faults import store_view
from tests.faults.checker import violations
from tests.simulation.installation import NAMESPACE, QUEUES, SCRIPTS, Installation
from tests.simulation.launchers import Kudu, Outage
from tests.simulation.launching import Host
from tests.simulation.nemesis import Nemesis
from tests.simulation.operating import Operator
from tests.simulation.platforms import PLATFORMS
from tests.simulation.producing import Producer
from tests.simulation.standing import standing
from tests.simulation.workloads import Bimodal, Exponential, Pareto

MOST_LAUNCHES_TO_DRAIN = 12
PEOPLE_TAKE_AT_MOST = 3
"""Times as long as planned: their waits are drawn, and their machines sleep."""
LAST_LAUNCH_ENDS_WITHIN = 120.0
"""Seconds for which its machine is awake: its window, grace, start-up and exit."""
EACH_MINUTE = [name for name, platform in PLATFORMS.items() if platform.period == 60.0]
BERLIN = ZoneInfo("Europe/Berlin")
CLOCK_CHANGES = (None, datetime(2030, 3, 31, 1, tzinfo=UTC), datetime(2030, 10, 27, 1, tzinfo=UTC))
LOOKS = 10
"""Random moments at which a story is checked, beside those after faults."""
SLOTS = (1, 1, 3)
DURATIONS = (Exponential(0.5), Lognormal(0.4, 1.5), Bimodal(0.3), Pareto(0.3))
BRIEF, AT_A_TIME, OFTEN_BRIEF = Exponential(0.002), 10, 0.25
"""With so many messages together, of this mean duration, slots take reserved ones by themselves."""


class Report(NamedTuple):
    seed: int
    violations: list[str]
    launches: int
    executions: int
    faults: list[str]
    virtual_seconds: float
    processor_seconds: float
    trace: list[str]


def tell(
    seed: int,
    *,
    messages: int = 60,
    faults: int = 6,
    minutes: int = 3,
    queues: int = len(QUEUES),
    kept: frozenset[str] | None = None,
) -> Report:
    """Messages and faults within so many minutes; then launches without faults, until nothing is left to do.

    ``kept``: names of the faults and of the producers' acts that happen, the others do not; all happen if None.
    """
    began = time.process_time()
    installation = Installation(seed, queues=QUEUES[:queues])
    world, chance = installation.world, installation.world.chance
    name = chance.choice(EACH_MINUTE)
    installation.platform = PLATFORMS[name]
    if name == "kudu" and chance.random() < 0.5:
        installation.platform = PLATFORMS[name]._replace(launcher=lambda _: Kudu(lock_broken=True))
    slots = chance.choice(SLOTS)
    installation.rules = installation.rules._replace(handoff=chance.choice(list(HandOff)), slots=slots)
    installation.history.one_at_a_time = slots == 1
    durations, together = chance.choice(DURATIONS), 1
    if world.stream("durations").random() < OFTEN_BRIEF:
        durations, together = BRIEF, AT_A_TIME
    clock_changes = chance.choice(CLOCK_CHANGES)
    if clock_changes is not None:
        installation.host = Host(
            world, BERLIN, clock_changes.timestamp() - chance.uniform(0.0, minutes * 60.0) // 60 * 60
        )
    world.tell(
        f"{name}, {installation.rules.handoff}, {slots} slots, {durations}, change of the clock: {clock_changes}"
    )
    busy, drain = minutes * 60.0, 60.0 * MOST_LAUNCHES_TO_DRAIN
    end = PEOPLE_TAKE_AT_MOST * busy + drain
    down = chance.uniform(0.0, busy)
    outages = [Outage(down, down + chance.uniform(30.0, 200.0), restarted=chance.random() < 0.5)]
    launchers = [
        installation.launch_until(end, role, outages if chance.random() < 0.3 else ())
        for role in (("run", "move") if chance.random() < 0.5 else ("run",))
    ]

    def happens(name: str) -> bool:
        return kept is None or name in kept

    producers = [
        Producer(installation, f"p{n}", messages // 2, busy / messages, durations, happens, together=together)
        for n in range(2)
    ]
    operator = Operator(installation, faults // 3, busy, happens)
    people = [*(each.process for each in producers), operator.process]
    wire = ServerWire(
        "memory:",
        lambda: Budget(5.0),
        connect=lambda: DirectConnection(installation.server.store.execute),
        scripts=SCRIPTS,
    )
    found: list[str] = []

    def look() -> None:
        found.extend(f"standing: {line}, at {world.now:.6f} s" for line in standing(installation, wire))

    Nemesis(installation, wire, filter(happens, faults_named(faults)), busy, look)
    for _ in range(LOOKS):
        world.at(chance.uniform(0.0, busy), look)
    world.run_until(busy)
    last = busy + drain
    while (acting := any(each.alive for each in people)) or not _is_drained(wire):
        if acting:
            last = max(last, min(world.now + drain, end))
        if world.now >= last:
            found.append(f"liveness: work is left {world.now - busy:.0f} s after the last fault")
            break
        world.run_for(10.0)
    for each in launchers:
        each.stop()
    last = world.now + LAST_LAUNCH_ENDS_WITHIN
    while alive := [each.name for each in installation.processes if each.alive]:
        if min(world.now - each.slept() for each in installation.machines) >= last:
            found.append(f"liveness: {', '.join(alive)} did not end")
            break
        world.run_for(5.0)
    history = installation.history
    history.stored = store_view.stored(wire, NAMESPACE)
    history.queues = store_view.queues(wire, NAMESPACE)
    history.leases = store_view.leases(wire, NAMESPACE)
    history.commands = installation.ran()
    found += violations(history)
    ran = sum(each.name.startswith("run") for each in installation.processes)
    trace, executions = world.trace, len(history.executions)
    world.end()
    return Report(seed, found, ran, executions, history.faults, world.now, time.process_time() - began, trace)


def faults_named(faults: int) -> list[str]:
    return [f"fault-{number}" for number in range(faults)]


def acts_named(messages: int, faults: int) -> list[str]:
    return [
        *(f"p{n}-{number}" for number in range(messages // 2) for n in range(2)),
        *(f"operator-{number}" for number in range(faults // 3)),
    ]


def _is_drained(wire: Wire) -> bool:
    """Whether nothing is left to do, not even to drop from the ready list what was cancelled there."""
    queues = Inspector(wire, NAMESPACE).overview().queues
    if any(each.ready or each.reserved or each.scheduled or each.parked for each in queues):
        return False
    return not any(
        count_of(wire.command("HGET", Keys(NAMESPACE).queue(each.name, "counters"), "left over")) for each in queues
    )
