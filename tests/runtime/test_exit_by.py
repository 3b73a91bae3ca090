"""When a launch's process has to have ended."""

from __future__ import annotations

import pytest

from pollconsumer.core.choices import HandOff, LauncherRule
from pollconsumer.core.launcher import Found
from pollconsumer.runtime.launch.launch import Host, Launch, LaunchPlan
from pollconsumer.runtime.store_opener import StoreOpener
from pollconsumer.runtime.system.own_files import OwnFiles
from pollconsumer.runtime.system.signals import StopRequest
from pollconsumer.runtime.system.watchdog import EXIT_WITHIN
from pollconsumer.store.records.reservations import CommonFields, Reservation

TICK = 60.0


class StandingStill(Host):
    """Its clock says what it is told to."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    started_at = monotonic

    def catch_signals(self) -> StopRequest:
        return StopRequest(None)


@pytest.mark.parametrize(
    ("rule", "now", "expected"),
    [
        (LauncherRule.PARALLEL, 20.0, 20.0 + EXIT_WITHIN),
        (LauncherRule.PARALLEL, 59.0, 59.0 + EXIT_WITHIN),
        (LauncherRule.PARALLEL, 68.0, 70.0),
        (LauncherRule.QUEUE, 59.0, 59.0 + EXIT_WITHIN),
        (LauncherRule.DROP, 20.0, 20.0 + EXIT_WITHIN),
        (LauncherRule.DROP, 57.0, 59.0),
        (LauncherRule.PARALLEL, 170.0, 170.0 + EXIT_WITHIN),  # a message took long
        (LauncherRule.DROP, 170.0, 170.0 + EXIT_WITHIN),
        (LauncherRule.DROP, 178.0, 179.0),
    ],
)
def test_a_launch_exits_in_its_time_before_its_hard_end_and_before_a_tick_that_would_be_dropped(
    rule: LauncherRule, now: float, expected: float
) -> None:
    def ignore(_: object) -> None: ...

    host = StandingStill()
    plan = LaunchPlan(60.0, 10.0, HandOff.DEADLINE, (TICK, 2 * TICK), launcher=Found("", rule, reaped_late=0.5))
    launch = Launch(plan, StoreOpener("redis://nowhere.invalid", "n", ignore, OwnFiles([])), ignore, host)
    host.now = now
    if now > 2 * TICK:
        message = Reservation(CommonFields("mail", bytes(62), "send", b"", 0, 0, 0.0), b"m", b"{}")
        launch.progress.flight.enter(message, last=False)
        launch.progress.flight.end(message, now)
    assert launch.exit_by() == expected
