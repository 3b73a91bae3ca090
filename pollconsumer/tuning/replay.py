"""Recorded launches again, under other settings: the same messages at the same instants, in virtual time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle, islice, pairwise
from typing import NamedTuple

from pollconsumer.core.choices import LauncherRule, Loop
from pollconsumer.core.measured import Measured
from pollconsumer.tuning.forecast.consumer_rules import Rules
from pollconsumer.tuning.forecast.distributions import Arrival, Chance, Demand, Distribution, draw
from pollconsumer.tuning.forecast.figures import Record, spread
from pollconsumer.tuning.forecast.forecast import Forecast
from pollconsumer.tuning.forecast.launchers import (
    EXIT,
    START_UP,
    BusyboxCrond,
    CronDaemon,
    Launcher,
    Platform,
    SystemdTimer,
    TickDropper,
)
from pollconsumer.tuning.launch_facts import LaunchFacts, Seen, schedule_of

LAUNCHES, FEWEST = 300, 30
"""How many launches are simulated each time; fewer where they handle many messages, at least FEWEST."""
MESSAGES = 10_000
"""Messages of one simulation, about."""
TOGETHER_FROM = MESSAGES // FEWEST
"""Messages of a launch, on average, beyond which several are simulated as one of their total duration."""
DRAWN = 10
"""Durations drawn, at most, for a number of messages that are simulated as one."""
LONGEST_SPAN = 3.0
"""The longest time between two launches, in periods: launches that were further apart count as if they were this far
apart."""
SHORTEST_IDLE = {Loop.WOKEN: 5.0, Loop.ARTICLE: 0.1}
"""The shortest idle time that is simulated, since every wait costs time: under ``woken`` the length of a wait decides
nothing."""
FEWEST_KNOWN = 5
"""The number of start-up or exit times below which those of Debian's cron on a machine of ours stand in."""
WITHOUT_WAITING = 0.05
"""Seconds of gap from which on a launch has not waited for the one before."""
UNKNOWN_OFFSET = 1.0
LAUNCHERS: Mapping[LauncherRule, Callable[[float], Launcher]] = {
    LauncherRule.PARALLEL: CronDaemon,
    LauncherRule.QUEUE: SystemdTimer,
    LauncherRule.DROP: TickDropper,
}


class ReplayOutcome(NamedTuple):
    """Shares of launches that overran their window, or were ended by the watchdog; of the time in which the lease was
    held; of the ticks that were dropped. ``wait``: from the due time of a message to its start, on average, and for
    all but one in a hundred; in seconds. A message that is not begun at the end has waited until then."""

    launches: int
    overruns: float
    ended_by_watchdog: float
    coverage: float
    dropped: float
    wait: float
    wait_p99: float


class Replay:
    """Simulates the recorded launches under other settings. ``chance``: makes a source of random numbers, the same each
    time. ``facts`` lack nothing."""

    def __init__(self, facts: LaunchFacts, chance: Callable[[], Chance]) -> None:
        period = facts.period()
        schedule = None if period is None else schedule_of(period)
        assert period is not None
        assert schedule is not None
        self.period, self._chance = period, chance
        self._platform = _platform(facts, schedule)
        mean = sum(each.messages for each in facts.launches) / len(facts.launches)
        launches = int(min(LAUNCHES, max(FEWEST, MESSAGES / max(1.0, mean))))
        cells = [*islice(cycle(_cells(facts.launches[-launches:], period)), launches)]
        self._seconds = sum(seconds for _, seconds in cells)
        together = math.ceil(mean / TOGETHER_FROM) or 1
        durations = Measured.durations(facts.durations)
        self.p99 = durations.quantile(0.99)
        self._messages = [*_messages(cells, durations, chance(), together)]
        self._learned = facts.durations if together == 1 else None
        self.load = _load(cells, facts.mean)

    def outcome(self, rules: Rules) -> ReplayOutcome:
        idle_time = max(rules.idle_time, SHORTEST_IDLE[rules.loop])
        rules = rules._replace(launcher=LauncherRule.AUTO, idle_time=idle_time)
        messages, learned = iter(self._messages), self._learned
        record = Forecast(self._platform, rules, messages, self._chance(), self._seconds, learned=learned).run()
        return self._outcome(record)

    def _outcome(self, record: Record) -> ReplayOutcome:
        figures = record.figures()
        begun = len(record.latencies)
        waits = [*record.latencies, *(max(0.0, self._seconds - due) for _, due, _ in self._messages[begun:])]
        return ReplayOutcome(
            launches=record.launches,
            overruns=figures.overruns,
            ended_by_watchdog=record.ended_by_force / max(1, len(record.tenures)),
            coverage=figures.coverage,
            dropped=record.dropped / max(1, record.launches + record.dropped),
            wait=sum(waits) / len(waits) if waits else 0.0,
            wait_p99=spread(waits).p99,
        )


def _cells(launches: Sequence[Seen], period: float) -> Iterator[tuple[int, float]]:
    """How many messages each launch handled, and the seconds from its start to that of the next one."""
    for each, after in pairwise(launches):
        yield each.messages, min(max(after.started - each.started, period / 10), LONGEST_SPAN * period)
    yield launches[-1].messages, period


def _load(cells: Sequence[tuple[int, float]], mean: float) -> float:
    """Seconds of handling in each second, when half of the messages come: the other half comes when it is less."""
    left = sum(count for count, _ in cells) / 2
    for load, count in sorted(((count * mean / seconds, count) for count, seconds in cells), reverse=True):
        left -= count
        if left <= 0:
            return load
    return 0.0


def _messages(
    cells: Sequence[tuple[int, float]], durations: Distribution, chance: Chance, together: int
) -> Iterator[Arrival]:
    begin = 0.0
    for count, seconds in cells:
        for sent in sorted(begin + chance.random() * seconds for _ in range(math.ceil(count / together))):
            drawn = [draw(durations, chance) for _ in range(min(together, DRAWN))]
            yield Arrival(sent, sent, Demand(sum(drawn) * together / len(drawn)))
        begin += seconds


def _platform(facts: LaunchFacts, schedule: str) -> Platform:
    found, launches = facts.found, facts.launches
    offsets = [each.offset for each in launches if each.offset is not None and not _waited(each)]
    least = max(0.0, min(offsets, default=UNKNOWN_OFFSET))
    start_ups = [
        each.waited + (0.0 if each.offset is None else max(0.0, each.offset - least))
        for each in launches
        if not _waited(each)
    ]
    exits = [each.exit for each in launches if each.exit is not None]
    kind = BusyboxCrond if found.reaped_late else LAUNCHERS[found.rule]
    return Platform(
        lambda _: kind(least),
        Measured.values(start_ups) if len(start_ups) >= FEWEST_KNOWN else START_UP,
        Measured.values(exits) if len(exits) >= FEWEST_KNOWN else EXIT,
        schedule,
        found=found,
    )


def _waited(launch: Seen) -> bool:
    """Whether the launch may have waited for the one before, so that its start says nothing about the launcher."""
    return launch.gap is None or launch.gap < WITHOUT_WAITING
