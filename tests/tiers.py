"""Divides the tests: `.ci/check` runs the quick ones, which every change passes; `.ci/check full` runs all of them.

A test is quick unless one of these holds:

- It repeats on fakeredis what it does on Valkey.
- It tests the apparatus of long runs, such as the simulation.
- It took `SLOW` seconds or more when durations were last recorded. A test marked ``crossing`` is quick all the same:
  it shows what only real processes or long histories show, such as a killed launch.
- It is a row of a matrix: every argument, setting or key, each with many values. Of a test marked ``matrix``, one row
  in `ROWS` is quick, and of two tests with the same rows, others.

``pytest -n 6 --record-durations`` writes `durations.json` anew for each file that ran.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

if TYPE_CHECKING:
    import pytest

HERE = Path(__file__).parent
RECORDED = HERE / "durations.json"
SLOW = 0.5
"""Seconds, with all processes of the machine busy."""
ROWS = 4
"""Of a matrix of which one is quick."""
APPARATUS = {
    *("clock", "cluster", "failovers", "faults", "forecast", "interruptions"),
    *("partition", "platforms", "simulation", "upgrade"),
}
"""Folders whose tests test what tests the product."""

Durations = dict[str, dict[str, float]]
"""Seconds by file and test."""


def recorded() -> Durations:
    """The slow tests."""
    durations: Durations = json.loads(RECORDED.read_text("utf-8"))
    return durations


def quick(items: list[pytest.Item]) -> list[pytest.Item]:
    slow = {f"{file}::{test}" for file, tests in recorded().items() for test in tests}
    rows = Counter[str]()
    return [each for each in items if _is_quick(each, slow) and _is_row_to_try(each, rows)]


def _is_quick(item: pytest.Item, slow: set[str]) -> bool:
    if "fakeredis" in item.name or not APPARATUS.isdisjoint(item.path.parts):
        return False
    return item.nodeid not in slow or item.get_closest_marker("crossing") is not None


def _is_row_to_try(item: pytest.Item, rows: Counter[str]) -> bool:
    """``rows``: of each matrix, those that were looked at."""
    if item.get_closest_marker("matrix") is None:
        return True
    matrix = item.nodeid.partition("[")[0]
    rows[matrix] += 1
    return (rows[matrix] + crc32(matrix.encode())) % ROWS == 0


class DurationRecorder:
    """Sums up what each test took with its fixtures."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        RECORDED.write_text(json.dumps(merged(recorded(), self._seconds), indent=0, sort_keys=True) + "\n", "utf-8")


def merged(before: Durations, seconds: dict[str, float]) -> Durations:
    """``seconds``: of each test that ran. Files that did not run keep what was recorded, unless they are gone."""
    ran: Durations = {}
    for nodeid, took in seconds.items():
        file, _, test = nodeid.partition("::")
        tests = ran.setdefault(file, {})
        if took >= SLOW:
            tests[test] = round(took, 1)
    kept = {file: tests for file, tests in before.items() if file not in ran and (HERE.parent / file).exists()}
    return {file: tests for file, tests in sorted({**kept, **ran}.items()) if tests}
