"""Since when a launch has been there, by a clock that is set meanwhile."""

from __future__ import annotations

import pytest

from pollconsumer.runtime.launch.launch import Attendance

MINUTE, HOUR = 60_000, 3_600_000
BEGAN = 1_000 * HOUR


def test_a_launch_behind_a_long_handler_has_been_there_all_the_time() -> None:
    attendance = Attendance(BEGAN, 10.0)
    assert attendance.since(BEGAN + 30 * MINUTE, 1809.9, 1810.2) == BEGAN
    assert attendance.since(BEGAN + 40 * MINUTE, 2409.9, 2410.0) == BEGAN


@pytest.mark.parametrize("step", [2_000, HOUR, 48 * HOUR])
def test_a_launch_was_not_there_in_the_time_that_a_clock_set_forward_left_out(step: int) -> None:
    attendance = Attendance(BEGAN, 10.0)
    attendance.since(BEGAN + 9 * MINUTE, 550.0, 550.0)
    now = BEGAN + 10 * MINUTE + step
    for queue in range(2):  # the second queue is looked at right after the first
        assert attendance.since(now + queue, 610.0, 610.0) == now - MINUTE
    assert attendance.since(now + 5 * MINUTE, 910.0, 910.0) == now - MINUTE


def test_a_launch_has_been_there_since_a_clock_was_set_back() -> None:
    attendance = Attendance(BEGAN, 10.0)
    attendance.since(BEGAN + MINUTE, 70.0, 70.0)
    now = BEGAN - HOUR
    assert attendance.since(now, 130.0, 130.0) == now - MINUTE


def test_a_delayed_reply_is_no_step() -> None:
    attendance = Attendance(BEGAN, 10.0)
    for seconds in range(1, 5):
        assert attendance.since(BEGAN + MINUTE * seconds, 60.0 * seconds + 1, 60.0 * seconds + 14) == BEGAN
