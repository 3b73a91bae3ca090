"""What decides in a forecast: the settings of a consumer."""

from __future__ import annotations

from typing import NamedTuple

from pollconsumer.core.choices import HandOff, LauncherRule, Loop
from pollconsumer.core.durations import HANDLER_LIMIT


class Rules(NamedTuple):
    """The settings of a consumer that decide; durations in seconds. ``min_margin`` None: learned. ``scheduled``: a
    launch knows when the next one comes."""

    handoff: HandOff
    timeout: float
    grace: float
    idle_time: float
    estimated_duration: float
    tolerance_factor: float
    min_margin: float | None
    overrun_target: float
    slots: int
    loop: Loop
    launcher: LauncherRule = LauncherRule.AUTO
    longest_wait: float = 0.8
    call: float = 0.0005
    scheduled: bool = True
    handler_limit: float = HANDLER_LIMIT
