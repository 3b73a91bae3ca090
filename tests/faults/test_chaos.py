"""Short runs under faults: every invariant holds after each."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.faults.mixed import run
from tests.faults.nemesis import Nemesis
from tests.faults.recording import now
from tests.leaving_out import long

ONE_SLOT, FOUR_SLOTS = 1, 5
"""Seeds: of the second, there are two groups of launches."""
MESSAGES = 25


@pytest.mark.parametrize(
    ("seed", "faults"),
    [
        (
            ONE_SLOT,
            ["kill launch", "lose replies", "kill isolated process", "kill server", "suspend launch", "endless script"],
        ),
        long(
            FOUR_SLOTS,
            ["kill launch and heartbeat", "reset connections", "full memory", "terminate launch", "suspend heartbeat"],
        ),
    ],
)
def test_every_promise_holds_under_faults(seed: int, faults: list[str]) -> None:
    assert run(seed, MESSAGES, faults).violations == []


def test_a_pause_for_a_time_counts_until_its_queue_is_resumed() -> None:
    nemesis = Nemesis(1, cast("Any", None), cast("Any", None))
    began = now() // 1000
    later = began + 60_000
    nemesis.pauses = [("default", began - 5000, later), ("second", began - 5000, later)]
    nemesis.end_pauses("default")
    assert [until < later for _, _, until in nemesis.pauses] == [True, False]
