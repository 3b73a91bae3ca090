"""What of each minute launches leave unserved: they end a margin before the next one starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from pollconsumer.core.choices import HandOff, LauncherRule
from pollconsumer.core.notation.timespan import format_duration
from pollconsumer.core.window import StopReason, why_stopped

LOOKED_AT, FEWEST = 10, 3
MUCH = 0.2
"""The share of a window that is worth a line."""
WINDOW_OVER = why_stopped(StopReason.NO_TIME_TO_IDLE)


def usual_margin(launches: Sequence[Mapping[str, Any]]) -> float | None:
    """The seconds before their windows' ends in which ``launches``, newest first, took no message; None if unknown."""
    ended = [each for each in launches[:LOOKED_AT] if why_stopped(each["stop_reason"]) == WINDOW_OVER]
    margins = [each["margin_seconds"] for each in ended if each.get("margin_seconds") is not None]
    return None if len(margins) < FEWEST else median(margins)


def unserved_time(
    launches: Sequence[Mapping[str, Any]], window: float, rule: LauncherRule, handoff: HandOff
) -> str | None:
    """A line about how much of each ``window``, in seconds, goes unserved, and what helps; None if it is little.
    ``launches``: of one group, newest first, as the ledger has them. ``handoff``: the setting."""
    margin = usual_margin(launches)
    if rule.handoff(handoff).on_call or margin is None or margin <= MUCH * window:
        return None
    remedy = 'consumer.handoff = "baton"' if rule is LauncherRule.PARALLEL else "a lower consumer.tolerance_factor"
    share = f"{min(1.0, margin / window):.0%} of each {format_duration(window)}"
    return (
        f"{share}: launches take no new message in their last {format_duration(margin)}, since handlers take long; "
        f"{remedy}, or shorter handlers, would serve it"
    )
