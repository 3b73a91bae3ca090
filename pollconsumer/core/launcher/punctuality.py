"""Learns from earlier launches how long after its tick a launch starts, and how long after its end its process exits;
and computes what the next deadline has to allow for both. All in seconds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import NamedTuple

from pollconsumer.core.choices import LauncherRule
from pollconsumer.core.launcher.detection import Found
from pollconsumer.core.launcher.past import Past

LAUNCHES = 10
"""Number of launches from which it is learned."""
FLOOR = 0.25
"""Part of the margin beyond the largest exit time. A launch that ends after the next one has started makes it wait."""
FLOOR_OF_DROP = 0.5
"""Least margin where ticks are dropped: the parent must notice the end of the process."""
OF_EXIT = 0.25
"""Share of the largest exit time that is the margin where ticks are dropped: on a busy machine a longer one will
come."""
UNLEARNED_EXIT = 1.75


class Punctuality(NamedTuple):
    """How punctual launches are. ``offset``: the least time from a tick to the start of its launch. ``exit``: the
    longest from the end of a launch, as the ledger has it, to the end of its process."""

    offset: float = 0.0
    exit: float = UNLEARNED_EXIT


def punctuality_of(offsets: Collection[float], exits: Collection[float], own: float | None) -> Punctuality:
    """The punctuality by the offsets and exit times of the last launches. This launch's ``own`` offset counts only if
    it is less: a person may have started it."""
    least = min(offsets, default=0.0)
    return Punctuality(least if own is None else min(least, own), max(exits, default=UNLEARNED_EXIT))


class Allowance(NamedTuple):
    """What a launch must allow for. ``late``: seconds after the next tick by which it must have stopped; negative for
    seconds before the tick."""

    late: float
    min_margin: float


def learned(past: Sequence[Past], rule: LauncherRule, own: float | None = None) -> Punctuality:
    """The punctuality by earlier launches, newest first, and by the ``own`` offset of this one.

    Under ``queue`` a launch that waited for the one before is left out. It started late because of the wait: if it
    counted, each launch would end later than the one before.
    """
    prompt = [each for each, before in pairwise(past) if not each.waited_for(before)]
    counting = prompt if rule is LauncherRule.QUEUE else past
    offsets = [each.offset for each in counting if each.offset is not None][:LAUNCHES]
    exits = [each.exit for each in past if each.exit is not None][:LAUNCHES]
    return punctuality_of(offsets, exits, own)


def allowance(found: Found, punctuality: Punctuality, min_margin: float | None) -> Allowance:
    """What a launch started by ``found`` must allow for. ``min_margin`` is the setting: None to learn it.

    Where ticks are dropped the process must be gone before the tick, however long its last message lasts: its exit
    is no part of the margin. Elsewhere only the work must be over when the next launch starts.
    """
    if found.rule is LauncherRule.DROP:
        early = found.reaped_late + punctuality.exit
        return Allowance(-early, max(FLOOR_OF_DROP, OF_EXIT * punctuality.exit, (min_margin or 0.0) - early))
    least = punctuality.exit + FLOOR if min_margin is None else min_margin
    return Allowance(punctuality.offset, least)
