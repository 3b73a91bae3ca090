"""Platforms: launchers with the offsets, start-up and exit times that were measured under them."""

from __future__ import annotations

from collections.abc import Callable

from pollconsumer.core.choices import LauncherRule
from pollconsumer.core.launcher import REAPED_LATE, Found
from tests.forecast.distributions import Chance, draw, lognormal_between
from tests.forecast.launchers import (
    Allow,
    BusyboxCrond,
    CloudRun,
    CronDaemon,
    Forbid,
    Kudu,
    Launcher,
    Platform,
    Replace,
    SystemdTimer,
    TickDropper,
)
from tests.simulation.workloads import Uniform

QUEUE, DROP = (Found("", rule) for rule in (LauncherRule.QUEUE, LauncherRule.DROP))
POD_START_UP = lognormal_between(2.0, 30.0)


def _offset(low: float, high: float, launcher: Callable[[float], Launcher]) -> Callable[[Chance], Launcher]:
    return lambda chance: launcher(draw(Uniform(low, high), chance))


PLATFORMS = {
    "debian-cron": Platform(_offset(1.0, 2.0, CronDaemon)),
    "cronie": Platform(_offset(0.0, 2.0, CronDaemon)),
    "busybox": Platform(_offset(0.3, 0.3, BusyboxCrond), found=DROP._replace(reaped_late=REAPED_LATE)),
    "supercronic": Platform(_offset(0.0, 0.05, TickDropper), found=DROP),
    "flock": Platform(_offset(1.0, 2.0, TickDropper), found=DROP),
    "systemd": Platform(_offset(0.0, 0.1, SystemdTimer), found=QUEUE, kill_after=45.0),
    "kubernetes-allow": Platform(_offset(0.5, 1.5, Allow), POD_START_UP, kill_after=45.0),
    "kubernetes-forbid": Platform(_offset(0.5, 1.5, Forbid), POD_START_UP, found=QUEUE, kill_after=45.0),
    "kubernetes-replace": Platform(_offset(0.5, 1.5, Replace), POD_START_UP, kill_after=45.0),
    "kudu": Platform(_offset(0.0, 0.1, Kudu), found=DROP, kill_after=75.0),
    "nomad": Platform(_offset(0.0, 0.1, TickDropper), found=DROP),
    "cloud-run": Platform(lambda chance: CloudRun(chance, draw(Uniform(0.0, 0.1), chance)), POD_START_UP),
    "cpanel-15m": Platform(_offset(1.0, 2.0, CronDaemon), schedule="*/15 * * * *"),
}
"""systemd with ``AccuracySec=100ms``; its default of one minute is an offset of up to a minute."""
