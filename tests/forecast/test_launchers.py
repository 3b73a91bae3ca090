"""Each launcher does at a tick what was measured of it, or what its source says."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from itertools import islice
from zoneinfo import ZoneInfo

import pytest

from tests.forecast.launchers import (
    Allow,
    BusyboxCrond,
    CloudRun,
    CronDaemon,
    Decision,
    Forbid,
    Kudu,
    LaunchedProcess,
    Launcher,
    Outage,
    Replace,
    SystemdTimer,
    TickDropper,
    looks,
    ticks,
)
from tests.simulation.platforms import PLATFORMS

RUNNING = LaunchedProcess(1.0)
GONE = LaunchedProcess(1.0, 50.0)


def launched(launcher: Launcher, lasting: float, minutes: int = 8) -> tuple[list[float], int]:
    """The instants at which it starts launches that last so many seconds, and how many ticks it drops."""
    launches, starts, dropped = list[LaunchedProcess](), list[float](), 0

    def apply(decision: Decision) -> None:
        nonlocal dropped
        dropped += decision.dropped
        for at in decision.starts:
            starts.append(at)
            launches.append(LaunchedProcess(at))

    def end(until: float) -> None:
        for at, each in enumerate(launches):
            if each.ended is None and each.started + lasting <= until:
                launches[at] = LaunchedProcess(each.started, each.started + lasting)
                apply(launcher.ended(each.started + lasting, launches))

    for now, due in looks([60.0 * n for n in range(minutes)], launcher.offset):
        end(now)
        apply(launcher.look(now, due, launches))
    return starts, dropped


@pytest.mark.parametrize("lasting", [45.0, 58.0, 61.0, 90.0])
@pytest.mark.parametrize("launcher", [CronDaemon(1.8), Allow(1.0), CloudRun(random.Random(1), duplicates=0.0)])
def test_a_parallel_launcher_starts_one_at_each_tick_whatever_still_runs(launcher: Launcher, lasting: float) -> None:
    assert launched(launcher, lasting) == ([60.0 * n + launcher.offset for n in range(8)], 0)


@pytest.mark.parametrize(
    ("lasting", "every"), [(45.0, 60.0), (49.9, 60.0), (51.0, 120.0), (55.0, 120.0), (61.0, 120.0)]
)
def test_busybox_reaps_late_and_launches_each_second_minute_if_a_launch_lasts_past_50(
    lasting: float, every: float
) -> None:
    starts, dropped = launched(BusyboxCrond(0.3), lasting)
    assert starts == [n * every + 0.3 for n in range(len(starts))]
    assert dropped == 8 - len(starts)


@pytest.mark.parametrize("launcher", [TickDropper(), TickDropper(1.8), Kudu()])
def test_a_dropping_launcher_loses_the_tick_of_a_launch_that_lives_and_none_otherwise(launcher: Launcher) -> None:
    assert launched(launcher, 59.9)[1] == 0
    assert launched(launcher, 60.1) == ([120.0 * n + launcher.offset for n in range(4)], 4)


def test_systemd_restarts_a_unit_the_moment_it_ends_if_its_timer_elapsed_meanwhile() -> None:
    assert launched(SystemdTimer(0.1), 59.0) == ([60.0 * n + 0.1 for n in range(8)], 0)
    starts, dropped = launched(SystemdTimer(0.0), 75.0)
    assert starts[:4] == [0.0, 75.0, 150.0, 225.0]
    assert dropped < 2


def test_systemd_restarts_it_once_for_several_elapses() -> None:
    timer = SystemdTimer()
    assert timer.look(60.0, [60.0], [RUNNING]) == Decision()
    assert timer.look(120.0, [120.0], [RUNNING]) == Decision(dropped=1)
    assert timer.ended(130.0, [LaunchedProcess(1.0, 130.0)]) == Decision((130.0,))
    assert timer.ended(190.0, [LaunchedProcess(130.0, 190.0)]) == Decision()


def test_forbid_starts_an_unmet_tick_as_soon_as_the_launch_ends_within_the_deadline() -> None:
    job = Forbid(1.0, starting_deadline=120.0)
    assert job.look(61.0, [60.0], [RUNNING]) == Decision()
    assert job.ended(70.0, [LaunchedProcess(1.0, 70.0)]) == Decision((70.0,))


def test_forbid_drops_a_tick_whose_deadline_has_passed_when_the_launch_ends() -> None:
    job = Forbid(1.0, starting_deadline=30.0)
    assert job.look(61.0, [60.0], [RUNNING]) == Decision()
    assert job.ended(100.0, [LaunchedProcess(1.0, 100.0)]) == Decision(dropped=1)


def test_forbid_starts_only_the_latest_of_several_unmet_ticks() -> None:
    job = Forbid(1.0)
    for tick in (60.0, 120.0, 180.0):
        assert job.look(tick + 1, [tick], [RUNNING]) == Decision()
    assert job.ended(190.0, [LaunchedProcess(1.0, 190.0)]) == Decision((190.0,), dropped=2)


def test_replace_kills_the_launch_that_lives() -> None:
    assert Replace(1.0).look(61.0, [60.0], [RUNNING]) == Decision((61.0,), kills=True)
    assert Replace(1.0).look(61.0, [60.0], [GONE]) == Decision((61.0,))


def test_a_cron_job_that_was_not_looked_at_for_longer_than_its_deadline_drops_the_ticks() -> None:
    assert Allow(1.0).look(400.0, [60.0, 120.0, 180.0], []) == Decision(dropped=3)
    assert Allow(1.0).look(200.0, [60.0, 120.0, 180.0], []) == Decision((200.0,), dropped=2)


def test_kudu_kills_each_launch_while_its_lock_is_broken_until_a_tick_finds_none() -> None:
    kudu = Kudu(lock_broken=True)
    assert kudu.look(60.0, [60.0], [RUNNING]) == Decision((60.0,), kills=True)
    assert kudu.look(120.0, [120.0], [RUNNING]) == Decision((120.0,), kills=True)
    assert kudu.look(180.0, [180.0], [GONE]) == Decision((180.0,))
    assert kudu.look(240.0, [240.0], [RUNNING]) == Decision(dropped=1)


def test_cloud_run_starts_a_launch_twice_now_and_then() -> None:
    job = CloudRun(random.Random(1), duplicates=0.1)
    starts = [len(job.look(0.0, [0.0], []).starts) for _ in range(1000)]
    assert set(starts) == {1, 2}
    assert starts.count(2) == pytest.approx(100, rel=0.4)


def test_cron_launches_every_missed_minute_of_a_short_stall_ten_seconds_apart_and_one_after_a_longer_one() -> None:
    cron = CronDaemon(1.0)
    assert cron.look(310.0, [60.0 * n for n in range(5)], []).starts == (310.0, 320.0, 330.0, 340.0, 350.0)
    assert cron.look(3610.0, [60.0 * n for n in range(60)], []) == Decision((3610.0,), dropped=59)


def test_a_stalled_launcher_sees_the_missed_ticks_afterwards_and_a_restarted_one_never() -> None:
    due = [60.0 * n for n in range(1, 8)]
    outages = [Outage(100.0, 200.0), Outage(290.0, 370.0, restarted=True)]
    assert list(looks(due, 1.0, outages)) == [
        (61.0, (60.0,)),
        (200.0, (120.0, 180.0)),
        (241.0, (240.0,)),
        (421.0, (420.0,)),
    ]


@pytest.mark.parametrize("day", [(2030, 3, 31), (2030, 10, 27)])
def test_a_change_of_the_clock_leaves_a_line_for_every_minute_alone(day: tuple[int, int, int]) -> None:
    begin = datetime(*day, tzinfo=UTC).timestamp()
    found = list(islice(ticks("* * * * *", begin, ZoneInfo("Europe/Berlin")), 180))
    assert found == [begin + 60.0 * n for n in range(1, 181)]


def test_a_daily_line_moves_with_the_clock_of_its_host() -> None:
    begin = datetime(2030, 3, 30, tzinfo=UTC).timestamp()
    first, second = islice(ticks("0 6 * * *", begin, ZoneInfo("Europe/Berlin")), 2)
    assert second - first == 23 * 3600


@pytest.mark.parametrize("name", PLATFORMS)
def test_a_platform_draws_the_same_launcher_from_the_same_seed(name: str) -> None:
    platform = PLATFORMS[name]
    offsets = {platform.launcher(random.Random(7)).offset for _ in range(3)}
    assert len(offsets) == 1
    assert offsets.pop() < 2.0
    assert platform.period == (900.0 if name == "cpanel-15m" else 60.0)
    assert 0 < platform.exit.quantile(0.5) < platform.start_up.quantile(0.5) < 30.0
