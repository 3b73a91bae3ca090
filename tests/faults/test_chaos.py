"""Short runs under faults: every invariant holds after each."""

from __future__ import annotations

import pytest

from tests.faults.mixed import run
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
