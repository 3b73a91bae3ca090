"""The rows of the table: each launcher, with what is real of it, under both hand-offs."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from itertools import product
from typing import NamedTuple

from pollconsumer.core.choices import HandOff, LauncherRule

REAPED_LATE = 10.0
"""busybox's crond reaps each ten seconds."""


class Platform(NamedTuple):
    """``init``: the platform for which `pollconsumer init` prints the command of its launches. ``daemon``: the cron, if
    it is a real one; ``wrapper``: what its crontab puts before the command. ``variables``: the environment that the
    launcher gives to a launch, by its tick. ``parent``: the name of the process that starts it. ``launcher``:
    the rule that a comment in the output of `init` gives. ``pod``: whether a container is started first."""

    rule: LauncherRule
    init: str = "cron"
    daemon: str = ""
    wrapper: str = ""
    reaped_late: float = 0.0
    variables: Callable[[float], Mapping[str, str]] = lambda _: {}
    parent: str = ""
    launcher: str = ""
    pod: bool = False


class Row(NamedTuple):
    name: str
    handoff: HandOff

    @property
    def platform(self) -> Platform:
        return PLATFORMS[self.name]

    def __str__(self) -> str:
        return f"{self.name}/{self.handoff}"


def _kudu(tick: float) -> dict[str, str]:
    return {"WEBJOBS_RUN_ID": f"{tick:.0f}", "WEBJOBS_NAME": "pollconsumer", "WEBJOBS_TYPE": "triggered"}


def _systemd(tick: float) -> dict[str, str]:
    trigger = {"TRIGGER_UNIT": "pollconsumer.timer", "TRIGGER_TIMER_REALTIME_USEC": f"{tick * 1e6:.0f}"}
    return {"INVOCATION_ID": uuid.uuid4().hex, **trigger}


def _kubernetes(tick: float) -> dict[str, str]:
    return {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_NAME": f"pollconsumer-{tick / 60:.0f}"}


PLATFORMS = {
    "debian-cron": Platform(LauncherRule.PARALLEL, daemon="cron"),
    "cronie": Platform(LauncherRule.PARALLEL, parent="crond"),
    "busybox": Platform(LauncherRule.DROP, daemon="crond", reaped_late=REAPED_LATE),
    "flock": Platform(LauncherRule.DROP, daemon="cron", wrapper="flock -n "),
    "supercronic": Platform(LauncherRule.DROP, parent="supercronic"),
    "kudu": Platform(LauncherRule.DROP, init="azure", variables=_kudu),
    "systemd": Platform(LauncherRule.QUEUE, init="systemd", variables=_systemd),
    "kubernetes-allow": Platform(LauncherRule.PARALLEL, init="kubernetes", variables=_kubernetes, pod=True),
    "kubernetes-forbid": Platform(
        LauncherRule.QUEUE, init="kubernetes", variables=_kubernetes, launcher="queue", pod=True
    ),
}
"""By their names in a forecast, which has the rules that the stand-ins follow."""
ROWS = {str(row): row for row in (Row(name, handoff) for name, handoff in product(PLATFORMS, HandOff))}
