"""A proposal: from today's settings, one change after the other, each kept only if the replay is better off with it.

Better: fewer launches that the watchdog ends, beyond two in a hundred; else fewer overruns, beyond the default target
under that launcher; else messages that wait noticeably less. So no proposal is worse than today's settings.

Where few messages are very long, the margin that keeps them from overrunning closes most of each window to all the
others. So fewer ends and overruns are no reason for waits that are noticeably longer, nor, unless waits are noticeably
shorter, to give up more than a twentieth of the time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from pollconsumer.core.choices import LauncherRule, Loop
from pollconsumer.core.durations import OVERRUN_TARGETS, margin
from pollconsumer.core.histogram import BOUNDS
from pollconsumer.core.notation.timespan import format_duration
from pollconsumer.tuning.forecast.consumer_rules import Rules
from pollconsumer.tuning.forecast.distributions import Chance
from pollconsumer.tuning.launch_facts import LaunchFacts, lacking
from pollconsumer.tuning.replay import Replay, ReplayOutcome

ENDED_AT_MOST = 0.02
"""Share of launches that the watchdog may end, beside one launch, which may be chance."""
GIVEN_UP_AT_MOST = 0.05
"""Share that may be given up of the time in which a launch is there, for fewer launches that are ended or overrun."""
NOTICED, NOTICED_SECONDS = 0.2, 0.01
"""The share, and the seconds, by which a wait must become shorter to be noticed."""
BUSY_AT_MOST = 0.7
"""Share of the time of each slot: beyond it messages queue up."""
MOST_SLOTS = 64
TARGETS = (0.02, 0.05, 0.1, 0.2, 0.5)
LEAST_FACTOR = 1.0
FACTORS_OF_ARTICLE = (1.0, 2.0, 3.0, 5.0, 10.0, 20.0)
IDLE_TIMES_OF_ARTICLE = (0.5, 1.0, 2.0)
LONGEST_WAIT, USUAL_IDLE = 0.8, 5.0
"""Seconds: a woken loop looks around each 0.8 s, however long it idles."""


class Change(NamedTuple):
    """A change of a setting, by its name in `Rules`; durations in seconds."""

    setting: str
    today: float
    proposed: float
    reason: str


class Proposal(NamedTuple):
    """The changes that are proposed. ``missing``: why there is no proposal; it has no outcomes then. ``simulated``:
    launches, in all simulations together."""

    missing: list[str]
    changes: list[Change]
    rules: Rules
    today: ReplayOutcome | None = None
    proposed: ReplayOutcome | None = None
    simulated: int = 0


def propose(facts: LaunchFacts, chance: Callable[[], Chance]) -> Proposal:
    """The proposal by ``facts``. ``chance``: makes a source of random numbers, the same each time."""
    if missing := lacking(facts):
        return Proposal(missing, [], facts.rules)
    search = _Search(facts, Replay(facts, chance))
    search.timeout()
    search.concurrency()
    search.margin()
    search.idle_time()
    return Proposal([], search.changes, search.rules, search.first, search.outcome, search.simulated)


def burden(outcome: ReplayOutcome, rule: LauncherRule) -> tuple[float, float, float]:
    """What settings are compared by: less is better."""
    ended = max(0.0, round(outcome.ended_by_watchdog - ENDED_AT_MOST - 1 / max(1, outcome.launches), 2))
    return ended, max(0.0, round(outcome.overruns - OVERRUN_TARGETS[rule], 2)), outcome.wait


class _Search:
    """Looks for better settings: ``rules``, with their ``outcome``, are the best so far."""

    def __init__(self, facts: LaunchFacts, replay: Replay) -> None:
        self._facts, self._replay = facts, replay
        self.simulated = 0
        self.changes: list[Change] = []
        self.rules = facts.rules
        self.first = self.outcome = self._simulate(facts.rules)

    def timeout(self) -> None:
        period, rules = self._replay.period, self.rules
        if rules.scheduled and rules.timeout > period - 1:  # a launch stops for the next one
            return
        wanted = float(round(period))
        if self._facts.found.rule is LauncherRule.DROP and not rules.scheduled:
            wanted -= math.ceil(1 + max((each.exit or 0.0 for each in self._facts.launches), default=0.0))
        if wanted > (rules.min_margin or 0.0):
            why = f"launches start every {format_duration(period)}"
            self._take([rules._replace(timeout=wanted)], {"timeout": why})

    def concurrency(self) -> None:
        rules, load = self.rules, self._replay.load
        wanted = math.ceil(min(MOST_SLOTS, load / BUSY_AT_MOST))
        if wanted > rules.slots:
            busy = f"half of the messages come in launches that could use {load:.1f} slots"
            why = f"{busy}; more slots help handlers that mostly wait for others"
            self._take([rules._replace(slots=wanted)], {"slots": why})

    def margin(self) -> None:
        rules, mean = self.rules, format_duration(self._facts.mean)
        factor = f"a message takes {mean} on average, and the margin is a multiple of that"
        if rules.loop is Loop.ARTICLE:
            candidates = [rules._replace(tolerance_factor=each) for each in FACTORS_OF_ARTICLE]
            self._take(candidates, {"tolerance_factor": factor})
        else:
            target = f"one message in a hundred takes {format_duration(self._replay.p99)} or more"
            self._take(self._margins(), {"tolerance_factor": factor, "overrun_target": target})

    def idle_time(self) -> None:
        rules = self.rules
        if rules.loop is Loop.ARTICLE:
            shorter = [rules._replace(idle_time=each) for each in IDLE_TIMES_OF_ARTICLE if each < rules.idle_time]
            self._take(shorter, {"idle_time": "with loop = article a launch ends when less than idle_time is left"})
        elif rules.idle_time < LONGEST_WAIT:
            self.rules = rules._replace(idle_time=USUAL_IDLE)
            why = "an enqueue ends a wait at once: short waits only cost calls of the server"
            self.changes.append(Change("idle_time", rules.idle_time, USUAL_IDLE, why))

    def _margins(self) -> Iterator[Rules]:
        """The greater of the margin's parts decides: each target with today's factor, and with one that is no more than
        the target needs."""
        rules, durations = self.rules, self._facts.durations
        of_one = margin(max(BOUNDS[0], self._facts.mean), 0.0, LEAST_FACTOR, rules.slots)
        for target in sorted({*TARGETS, rules.overrun_target}):
            enough = math.ceil(2 * durations.excess(target / rules.slots) / of_one) / 2
            for factor in {rules.tolerance_factor, min(rules.tolerance_factor, max(LEAST_FACTOR, enough))}:
                yield rules._replace(overrun_target=target, tolerance_factor=factor)

    def _take(self, candidates: Iterable[Rules], why: dict[str, str]) -> None:
        """Take the best of ``candidates``, if it is better than the best so far; of those as good, the one that changes
        least."""
        outcomes = {each: self._simulate(each) for each in candidates if each != self.rules}
        better = [each for each in outcomes if self._is_better(outcomes[each], self.outcome)]
        if not better:
            return
        best = outcomes[min(better, key=lambda each: self._burden(outcomes[each]))]
        as_good = [each for each in better if not self._is_better(best, outcomes[each])]
        chosen = min(as_good, key=lambda each: (_changed(self.rules, each), self._burden(outcomes[each])))
        effect = _effect(self.outcome, outcomes[chosen])
        for setting, reason in why.items():
            today, proposed = (getattr(rules, setting) for rules in (self.rules, chosen))
            if today != proposed:
                self.changes.append(Change(setting, today, proposed, f"{reason}; {effect}"))
        self.rules, self.outcome = chosen, outcomes[chosen]

    def _simulate(self, rules: Rules) -> ReplayOutcome:
        outcome = self._replay.outcome(rules)
        self.simulated += outcome.launches
        return outcome

    def _burden(self, outcome: ReplayOutcome) -> tuple[float, float, float]:
        return burden(outcome, self._facts.found.rule)

    def _is_better(self, one: ReplayOutcome, other: ReplayOutcome) -> bool:
        (*ours, wait), (*theirs, longer) = self._burden(one), self._burden(other)
        if wait < longer * (1 - NOTICED) - NOTICED_SECONDS:
            return ours <= theirs
        if longer < wait * (1 - NOTICED) - NOTICED_SECONDS:
            return False
        return ours < theirs and one.coverage > other.coverage - GIVEN_UP_AT_MOST


def _changed(rules: Rules, other: Rules) -> int:
    return sum(one != another for one, another in zip(rules, other, strict=True))


def _effect(before: ReplayOutcome, after: ReplayOutcome) -> str:
    told = [
        f"waits of {format_duration(after.wait)} on average instead of {format_duration(before.wait)}",
        f"{after.overruns:.1%} of the launches overrun instead of {before.overruns:.1%}",
    ]
    if after.ended_by_watchdog != before.ended_by_watchdog:
        told.append(f"the watchdog kills {after.ended_by_watchdog:.1%} instead of {before.ended_by_watchdog:.1%}")
    return ", ".join(told)
