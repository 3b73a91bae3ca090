"""Infers from the ledger what a launcher does at a tick at which a launch is alive. That decides where neither the
environment nor a parent process names the launcher."""

from __future__ import annotations

from typing import NamedTuple

from pollconsumer.core.choices import LauncherRule
from pollconsumer.core.launcher.past import Past
from pollconsumer.core.window import OUR_OWN

TIMES = 3
"""Number of times that the same is seen in succession before it counts: a suspended machine, too, starts no launch."""
SOON = 3.0
"""Seconds after the end of a launch within which a launcher that queues starts the next. A pod that starts later may
have been started beside it. A launch that ends within this time after a tick may do so by itself, just before a
launcher that is late at times starts the next one: that is no sign of waiting."""
PERIODS = 2
"""A launcher that drops a tick starts another launch within this number of periods: a launch with a baton is alive at
two ticks. After a longer time, the machine was suspended or the launcher had stopped."""


class Observed(NamedTuple):
    """What the launcher did the last ``times`` that a launch was alive at a tick. AUTO: nothing was seen."""

    rule: LauncherRule = LauncherRule.AUTO
    times: int = 0

    @property
    def decides(self) -> LauncherRule:
        return self.rule if self.times >= TIMES else LauncherRule.PARALLEL


class Began(NamedTuple):
    """A launch: when it started, by the server's clock, and how long after its tick; all in seconds."""

    started: float
    offset: float | None


def observed(before: Past | None, now: Began, least_offset: float) -> Observed:
    """What the launch before had noted, and what the start of the present one adds. ``least_offset``: the least time
    from a tick to a start."""
    if before is None:
        return Observed()
    noted, rule = read_observed(before.observed), _at_the_tick(before, now, least_offset)
    if rule is None:
        return noted
    return Observed(rule, noted.times + 1 if rule is noted.rule else 1)


def read_observed(value: object) -> Observed:
    match value:
        case [str(rule), int(times)] if rule in [*LauncherRule] and times >= 0:
            return Observed(LauncherRule(rule), times)
    return Observed()


def _at_the_tick(before: Past, now: Began, least_offset: float) -> LauncherRule | None:
    """What the launcher did at the tick after the start of ``before``; None if it is unknown, or if ``before`` had
    ended by then."""
    started, ended, offset, next_tick, *_ = before
    gone = before.gone
    if started is None or ended is None or gone is None or offset is None or next_tick is None or now.offset is None:
        return None
    if now.started < ended:
        return LauncherRule.PARALLEL
    tick, period = started + next_tick, next_tick + offset
    if gone < tick + max(0.0, least_offset):
        return None
    late = now.started - now.offset - tick  # from that tick to the one at which the launch after it was due
    if late < OUR_OWN:
        waited = gone > tick + max(0.0, least_offset) + SOON
        return LauncherRule.QUEUE if waited and now.started <= gone + SOON else None
    return LauncherRule.DROP if late < PERIODS * period + OUR_OWN else None
