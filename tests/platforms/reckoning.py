"""The best coverage that a launcher allows to launches that start, and exit, as quickly as was measured."""

from __future__ import annotations

from typing import NamedTuple

from pollconsumer.core.choices import HandOff, LauncherRule


class Costs(NamedTuple):
    """In seconds. ``start_up``: from the start of a process to its lease; ``exit``: from its release to the process's
    end; ``delay``: from the launcher's decision to the process's start; ``scatter``: the mean of the start offsets,
    less the least; ``reaped_late``: by which the end of a process must precede the launcher's look."""

    start_up: float
    exit: float
    delay: float = 0.0
    scatter: float = 0.0
    reaped_late: float = 0.0


def best_coverage(rule: LauncherRule, handoff: HandOff, costs: Costs, period: float = 60.0) -> float:
    """Of launches that handle for as long as none is dropped and, under a deadline, none overlaps."""
    if rule is not LauncherRule.PARALLEL:
        return 1 - (costs.reaped_late + costs.exit + costs.delay + costs.start_up) / period
    return 1.0 if handoff.on_call else 1 - (costs.scatter + costs.start_up) / period
