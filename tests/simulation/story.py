"""One seed: an installation, its work, its faults, its end; and what the invariants have against it."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple
from unittest.mock import patch
from zoneinfo import ZoneInfo

from pollconsumer.core.choices import After, HandOff
from pollconsumer.core.errors import NotFound
from pollconsumer.core.messages.continuation import member_of
from pollconsumer.core.notation.instants import datetime_of
from pollconsumer.core.recurrence import Recurrence
from pollconsumer.interface.api import batches
from pollconsumer.interface.memory_store import DirectConnection
from pollconsumer.store.client.patience import Budget
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.queues.batches import OPEN_FOR_MS
from pollconsumer.store.reading.batch_reader import FIRST_ADDED, BatchReader
from pollconsumer.store.reading.inspector import Inspector
from pollconsumer.store.recurrence_actions import Recurrences
from pollconsumer.store.server import count_of
from tests.faults import store_view
from tests.faults.checker import violations
from tests.faults.handlers_known import AFTER_END, BULK, PERIOD_MS, SIGNAL
from tests.forecast.distributions import Lognormal
from tests.forecast.launchers import Kudu, Outage
from tests.simulation.batch_producing import VISITS, BatchProducer
from tests.simulation.installation import NAMESPACE, QUEUES, SCRIPTS, Installation
from tests.simulation.launching import Host
from tests.simulation.nemesis import Nemesis
from tests.simulation.operating import Operator
from tests.simulation.platforms import PLATFORMS
from tests.simulation.producing import Producer
from tests.simulation.standing import standing
from tests.simulation.workloads import Bimodal, Exponential, Pareto

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from tests.faults.history import History

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
MEMBERS_AT_ONCE = 2
"""That a producer sends, so that it may die between them."""
BRIEF, AT_A_TIME, OFTEN_BRIEF = Exponential(0.002), 10, 0.25
"""With so many messages together, of this mean duration, slots take reserved ones by themselves."""
GATHERED, GATHERED_OF, GATHERED_AT_A_TIME = "bulk", 3, 6
"""The producer of a bulk handler's messages: one for so many of the others, so many together."""


class Report(NamedTuple):
    seed: int
    violations: list[str]
    launches: int
    executions: int
    faults: list[str]
    virtual_seconds: float
    processor_seconds: float
    trace: list[str]
    met: list[str]


@patch.object(batches, "PAGE", MEMBERS_AT_ONCE)
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
        installation.launch_until(end + drain, role, outages if chance.random() < 0.3 else ())
        for role in (("run", "move") if chance.random() < 0.5 else ("run",))
    ]

    def happens(name: str) -> bool:
        return kept is None or name in kept

    producers = [
        Producer(installation, f"p{n}", messages // 2, busy / messages, durations, happens, together=together)
        for n in range(2)
    ]
    if happens(GATHERED):
        sent = messages // GATHERED_OF
        producers.append(
            Producer(
                installation,
                GATHERED,
                sent,
                busy / sent,
                durations,
                happens,
                together=GATHERED_AT_A_TIME,
                handlers=[world.stream(GATHERED).choice(BULK)],
            )
        )
    operator = Operator(installation, faults // 3, busy, happens)
    of_batches = [BatchProducer(installation, name, busy, durations, happens) for name in batches_named(messages)]

    def acting() -> bool:
        made = [*(each.processes for each in producers), *(each.processes for each in of_batches)]
        return any(each.alive for each in (operator.process, *chain.from_iterable(made)))

    wire = Wire(
        "memory:",
        lambda: Budget(60.0),
        connect=lambda: DirectConnection(installation.server.store.execute),
        scripts=SCRIPTS,
    )
    found, recurrences = list[str](), Recurrences(wire, NAMESPACE)
    if happens(AFTER_END):
        recurrences.put([(crawl(world.stream(AFTER_END), installation, busy), "now")])

    def look() -> None:
        found.extend(f"standing: {line}, at {world.now:.6f} s" for line in standing(installation, wire))

    Nemesis(installation, wire, filter(happens, faults_named(faults)), busy, look)
    for _ in range(LOOKS):
        world.at(chance.uniform(0.0, busy), look)
    world.run_until(busy)
    with suppress(NotFound):
        recurrences.remove(AFTER_END)  # the server's clock may have been set back: it would go on to the end
    last = busy + drain
    given_up = False
    while True:
        people_act = acting()
        idle, waiting = not people_act and _is_idle(wire), _states_of_waiting(wire, installation.history)
        if idle and not waiting:
            break
        if people_act:
            last = max(last, min(world.now + drain, end))
        elif idle and waiting == {"open"} and not given_up:
            # As if it were an hour later: batches whose producers have died are given up.
            given_up, last = True, world.now + drain
            installation.server.set_clock(OPEN_FOR_MS / 1000)
            installation.broken_at = world.now
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
    history.counted = store_view.batches(wire, NAMESPACE)
    history.commands = installation.ran()
    found += violations(history)
    ran = sum(each.name.startswith("run") for each in installation.processes)
    trace, executions = world.trace, len(history.executions)
    world.end()
    spent = time.process_time() - began
    return Report(seed, found, ran, executions, history.faults, world.now, spent, trace, [*_met(history)])


def faults_named(faults: int) -> list[str]:
    return [f"fault-{number}" for number in range(faults)]


def acts_named(messages: int, faults: int) -> list[str]:
    return [
        *(f"p{n}-{number}" for number in range(messages // 2) for n in range(2)),
        *(f"operator-{number}" for number in range(faults // 3)),
        AFTER_END,
        GATHERED,
        *(f"{GATHERED}-{number}" for number in range(messages // GATHERED_OF)),
        *batches_named(messages),
        *(f"{name}-{visit}" for name in batches_named(messages) for visit in range(VISITS)),
    ]


def batches_named(messages: int) -> list[str]:
    """One for twenty messages."""
    return [f"b{number}" for number in range(messages // 20)]


def crawl(chance: Random, installation: Installation, seconds: float) -> Recurrence:
    """What recurs for so many seconds, a period after the end of the last occurrence."""
    payload = {"seconds": chance.uniform(0.0, 2 * PERIOD_MS / 1000), "fails": chance.choice([0, 1, 9])}
    until = installation.server.now_ms() + int(seconds * 1000)
    return Recurrence(
        AFTER_END, AFTER_END, every=PERIOD_MS / 1000, queue=chance.choice(installation.queues), payload=payload,
        at_run_time=True, until=datetime_of(until), after=After.END,
    )  # fmt: skip


def _is_idle(wire: Wire) -> bool:
    """Whether nothing is left to do, not even to drop from the ready list what was cancelled there."""
    queues, keys = Inspector(wire, NAMESPACE).overview().queues, Keys(NAMESPACE)
    if any(each.ready or each.reserved or each.scheduled or each.parked for each in queues):
        return False
    names = [each.name for each in queues]
    left_over = [count_of(wire.command("HGET", keys.queue(name, "counters"), "left over")) for name in names]
    return not any(left_over) and not any(wire.command("LLEN", keys.queue(name, "outbox")) for name in names)


def _states_of_waiting(wire: Wire, history: History) -> set[str]:
    """Of batches that have not ended. Those of which the server lost something may wait for ever."""
    lost, found = history.lost(), BatchReader(wire, NAMESPACE).batches()
    return {each.state for each in found if each.ended_at is None and each.id not in lost}


def _met(history: History) -> Iterator[str]:
    """What is to be met with of batches, chains, steps and options."""
    yield from (f"batches {each.state}" for each in history.counted)
    yield from (f"batches whose producer is {each.fate}" for each in history.batches)
    for each in history.stored:
        if each.handler == AFTER_END:
            yield f"occurrences {each.state}"
        elif ":" in each.id:
            yield f"callbacks {each.id.rpartition(':')[2]}"
        elif "+" in each.id:
            yield "links"
        elif member := member_of(each.id):
            yield f"{'added members' if member[1] >= FIRST_ADDED else 'members'} {each.state}"
            if each.generation:
                yield "members redriven"
    together = [each.together for each in history.executions if each.handler in BULK]
    yield from (f"messages called {'together' if count > 1 else 'alone'} in bulk" for count in together)
    yield from (f"signals {each.outcome}" for each in history.operations if each.what == "signal")
    yield from (f"replacements {each.outcome}" for each in history.operations if each.replaces())
    yield from (f"changes {each.outcome}" for each in history.operations if each.what == "change")
    yield from ("calls put off" for each in history.executions if each.outcome == "PutOff")
    yield from ("messages skipped" for each in history.operations if each.skips)
    waits = [each.given[SIGNAL] for each in history.executions if SIGNAL in each.given]
    yield from (f"waits with {'none' if value == 'None' else 'a signal'}" for value in waits)
