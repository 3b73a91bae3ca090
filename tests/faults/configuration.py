"""The configuration of an installation under mixed faults: every feature, and bounds for a short period."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

QUEUES = ("default", "second", "limited")
QUOTA, QUOTA_PERIOD = 20, 2.0
SHORTEST_PERIOD, STARTS = 2.0, 4
"""Seconds from launch to launch, and how many times as long as a start that is at least."""
CONFIGURATION = """
handlers = ["handlers"]

[consumer]
queues = [{queues}]
timeout = "{period}s"
grace = "1s"
min_margin = "200ms"
idle_time = "300ms"
estimated_duration = "1ms"

[mover]
timeout = "{period}s"
grace = "1s"
idle_time = "200ms"

[queues.limited]
quota = "{quota}/{quota_period}s"
max_in_flight = 2

[commands.program]
command = [{program}]
timeout = "20s"
max_attempts = 4
retry = {{ first = "50ms", factor = 1, most = "50ms", jitter = 0 }}
"""


def mixed(directory: Path, period: float) -> str:
    program = (sys.executable, "-IS", str(directory / "program.py"))
    return CONFIGURATION.format(
        queues=", ".join(json.dumps(queue) for queue in QUEUES),
        period=period,
        quota=QUOTA,
        quota_period=QUOTA_PERIOD,
        program=", ".join(json.dumps(word) for word in program),
    )
