"""What decides in a forecast: the settings of a consumer."""

from __future__ import annotations

from typing import NamedTuple

from pollconsumer.core.choices import HandOff, LauncherRule, Loop


class Rules(NamedTuple):
    """The settings of a consumer that decide; durations in seconds. ``min_margin`` None: learned. ``scheduled``: a
    launch knows when the next one comes."""

    handoff: HandOff = HandOff.DEADLINE
    timeout: float = 60.0
    grace: float = 10.0
    idle_time: float = 5.0
    estimated_duration: float = 2.0
    tolerance_factor: float = 5.0
    min_margin: float | None = None
    overrun_target: float = 0.01
    launcher: LauncherRule = LauncherRule.AUTO
    slots: int = 1
    loop: Loop = Loop.WOKEN
    longest_wait: float = 0.8
    call: float = 0.0005
    scheduled: bool = True


class Margin(NamedTuple):
    """As `durations.MarginRule`."""

    estimated_duration: float
    tolerance_factor: float
    min_margin: float
    overrun_target: float
    loop: Loop = Loop.WOKEN
