"""Two short runs under faults, at one time: every invariant holds after each."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tests.faults.mixed import run

FAULTS = {
    1: ["kill launch", "lose replies", "kill isolated process", "kill server", "suspend launch", "endless script"],
    5: ["kill launch and heartbeat", "reset connections", "full memory", "terminate launch", "suspend heartbeat"],
}
"""By seed: 1 has launches of one slot, 5 two groups of launches of four slots."""
MESSAGES = 25


def test_every_promise_holds_under_faults() -> None:
    with ThreadPoolExecutor() as pool:
        reports = list(pool.map(lambda seed: run(seed, MESSAGES, FAULTS[seed]), FAULTS))
    assert [report for report in reports if report.violations] == []
