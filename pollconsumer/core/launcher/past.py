"""What entries of the ledger show about earlier launches of a group.

One thing is how long after its tick a launch starts, and how long after its end its process exits: the next deadline
has to allow for both. The other is what a launcher does at a tick at which a launch is alive. This counts if neither
the environment nor a parent process names the launcher. All times are in seconds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from pollconsumer.core import json_values
from pollconsumer.core.choices import LauncherRule
from pollconsumer.core.launcher.detection import Found
from pollconsumer.core.window import OUR_OWN

LONGEST = 3600.0
"""Seconds. A longer offset, exit time or wait for the next tick is corrupt, or of no use."""
TIMES = 3
"""How often in succession the same must be seen before it counts: a suspended machine, too, starts no launch."""
SOON = 3.0
"""A launcher that queues starts the next launch within so many seconds after the end of the one before. A pod that
starts later may have been started beside it. A launch may also end by itself within this time after a tick, just before
a late launcher starts the next one. That is no sign of waiting."""
PERIODS = 2
"""A launcher that drops a tick starts another launch within this number of periods, since a launch with a baton is
alive at two ticks. After a longer time, the machine was suspended, or the launcher had stopped."""
LAUNCHES = 10
"""Number of launches from which punctuality is learned."""
FLOOR = 0.25
"""The margin is longer than the largest exit time by so many seconds: a launch that ends after the next one has started
makes it wait."""
FLOOR_OF_DROP = 0.5
"""The least margin where ticks are dropped. The parent must notice the end of the process."""
OF_EXIT = 0.25
"""The margin where ticks are dropped, as a share of the largest exit time: on a busy machine a longer one will come."""
UNLEARNED_EXIT = 1.75


class Past(NamedTuple):
    """An earlier launch. Instants are in seconds of the server's clock, spans in seconds; both are None where unknown.
    ``offset``: from its tick to its start. ``next_tick``: from its start to the tick after that. ``exit``: from its end
    to that of its process. ``observed``: as the launch recorded it, see `Observed`."""

    started: float | None
    ended: float | None
    offset: float | None
    next_tick: float | None
    exit: float | None
    observed: object

    @property
    def gone(self) -> float | None:
        """When the launch's process had ended; None if that is unknown."""
        return None if self.ended is None else self.ended + (self.exit or 0.0)

    def waited_for(self, before: Past) -> bool:
        """Whether the launch ``before`` was, or may have been, alive at this one's tick, so that a launcher that queues
        started this one when ``before`` had ended."""
        if self.started is None or self.offset is None or before.gone is None:
            return True
        return before.gone > self.started - self.offset


def past_launches(entries: Iterable[bytes], group: str, own: str = "") -> list[Past]:
    """The launches of ``group`` among ``entries``, newest first, without the launch ``own`` and without corrupt
    entries."""
    found = []
    for text in entries:
        try:
            entry = json_values.parse(text)
        except ValueError:
            continue
        if not isinstance(entry, dict) or (own and entry.get("launch_id") == own):
            continue
        if str(entry.get("lineage")).rpartition(":")[0] == group:
            found.append(past_launch(entry))
    return found


def past_launch(entry: dict[str, Any]) -> Past:
    return Past(
        _instant(entry.get("started_ms")),
        _instant(entry.get("ended_ms")),
        _span(entry.get("launch_offset_seconds")),
        _span(entry.get("next_tick_seconds")),
        _span(entry.get("exit_seconds")),
        entry.get("observed"),
    )


def _span(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) <= LONGEST else None


def _instant(value: object) -> float | None:
    return value / 1000 if type(value) is int and value.bit_length() < 64 else None


class Observed(NamedTuple):
    """What the launcher did at a tick while a launch was alive, the last ``times`` in succession. AUTO: no such tick
    was seen."""

    rule: LauncherRule = LauncherRule.AUTO
    times: int = 0

    @property
    def decides(self) -> LauncherRule:
        return self.rule if self.times >= TIMES else LauncherRule.PARALLEL


def observed(before: Past | None, started: float, offset: float | None, least_offset: float) -> Observed:
    """What the launch before had observed, and what this launch adds, which ``started`` at this instant of the server's
    clock, ``offset`` seconds after its tick. ``least_offset``: the least time from a tick to a start."""
    if before is None:
        return Observed()
    noted, rule = read_observed(before.observed), _at_the_tick(before, started, offset, least_offset)
    if rule is None:
        return noted
    return Observed(rule, noted.times + 1 if rule is noted.rule else 1)


def read_observed(value: object) -> Observed:
    match value:
        case [str(rule), int(times)] if rule in [*LauncherRule] and times >= 0:
            return Observed(LauncherRule(rule), times)
    return Observed()


def _at_the_tick(before: Past, now: float, now_offset: float | None, least_offset: float) -> LauncherRule | None:
    """What the launcher did at the tick after the start of ``before``; None if it is unknown, or if ``before`` had
    ended by then."""
    started, ended, offset, next_tick, *_ = before
    gone = before.gone
    if started is None or ended is None or gone is None or offset is None or next_tick is None or now_offset is None:
        return None
    if now < ended:
        return LauncherRule.PARALLEL
    tick, period = started + next_tick, next_tick + offset
    if gone < tick + max(0.0, least_offset):
        return None
    late = now - now_offset - tick  # from that tick to the one at which the launch after it was due
    if late < OUR_OWN:
        waited = gone > tick + max(0.0, least_offset) + SOON
        return LauncherRule.QUEUE if waited and now <= gone + SOON else None
    return LauncherRule.DROP if late < PERIODS * period + OUR_OWN else None


class Punctuality(NamedTuple):
    """How punctual launches are. ``offset``: the least time from a tick to the start of its launch. ``exit``: the
    longest from the end of a launch, as the ledger has it, to the end of its process."""

    offset: float = 0.0
    exit: float = UNLEARNED_EXIT


def punctuality_of(offsets: Collection[float], exits: Collection[float], own: float | None) -> Punctuality:
    """The punctuality by the offsets and exit times of the last launches. This launch's ``own`` offset counts only if
    it is less than theirs, since a person may have started it."""
    least = min(offsets, default=0.0)
    return Punctuality(least if own is None else min(least, own), max(exits, default=UNLEARNED_EXIT))


def learned(past: Sequence[Past], rule: LauncherRule, own: float | None = None, least_exit: float = 0.0) -> Punctuality:
    """The punctuality by earlier launches, newest first, and by the ``own`` offset of this one. ``least_exit``: where
    ticks are dropped, the exit time is taken to be at least so many seconds, since there a longer exit is cut off.

    Under ``queue`` a launch that waited for the one before is left out, since it started late because of the wait. If
    it counted, each launch would end later than the one before.
    """
    prompt = [each for each, before in pairwise(past) if not each.waited_for(before)]
    counting = prompt if rule is LauncherRule.QUEUE else past
    offsets = [each.offset for each in counting if each.offset is not None][:LAUNCHES]
    exits = [each.exit for each in past if each.exit is not None][:LAUNCHES]
    found = punctuality_of(offsets, exits, own)
    return found._replace(exit=max(found.exit, least_exit)) if rule is LauncherRule.DROP else found


def allowance(found: Found, punctuality: Punctuality, min_margin: float | None) -> tuple[float, float]:
    """What a launch started by ``found`` must allow for: the seconds after the next tick by which it must have stopped,
    negative if before the tick; and its margin. ``min_margin`` is the setting; None: the margin is learned.

    Where ticks are dropped, the process must be gone before the tick, however long its last message lasts. So its exit
    is no part of the margin. Elsewhere only the work must be over when the next launch starts.
    """
    if found.rule is LauncherRule.DROP:
        early = found.reaped_late + punctuality.exit
        return -early, max(FLOOR_OF_DROP, OF_EXIT * punctuality.exit, (min_margin or 0.0) - early)
    least = punctuality.exit + FLOOR if min_margin is None else min_margin
    return punctuality.offset, least
