"""Which tests are quick, and what is written of their durations."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from tests import tiers

if TYPE_CHECKING:
    from pathlib import Path

HERE = "tests/test_tiers.py"


def item(test: str, marker: str | None) -> pytest.Item:
    """One of that node id, and with that marker."""
    file, _, name = test.partition("::")

    def get_closest_marker(asked: str) -> bool | None:
        return True if asked == marker else None

    made = SimpleNamespace(name=name, nodeid=test, path=tiers.HERE.parent / file, get_closest_marker=get_closest_marker)
    return cast("pytest.Item", made)


@pytest.mark.parametrize(
    ("test", "marked", "is_quick"),
    [
        (f"{HERE}::test_a", False, True),
        (f"{HERE}::test_slow", False, False),
        (f"{HERE}::test_slow", True, True),
        (f"{HERE}::test_a[fakeredis]", True, False),
        ("tests/simulation/test_a.py::test_a", True, False),
    ],
)
def test_a_test_is_quick_that_is_no_double_tests_the_product_and_was_not_slow_or_must_run(
    monkeypatch: pytest.MonkeyPatch, test: str, marked: bool, is_quick: bool
) -> None:
    monkeypatch.setattr(tiers, "recorded", lambda: {HERE: {"test_slow": 3.5}})
    assert len(tiers.quick([item(test, "crossing" if marked else None)])) == is_quick


def test_of_a_matrix_one_row_in_a_few_is_quick_and_of_two_with_the_same_rows_others() -> None:
    values = [f"[{number}]" for number in range(4 * tiers.ROWS)]
    rows = [
        {
            each.nodeid.partition("[")[2]
            for each in tiers.quick([item(f"{HERE}::{test}{value}", "matrix") for value in values])
        }
        for test in ("test_a", "test_b", "test_c", "test_d")
    ]
    assert {len(each) for each in rows} == {4}
    assert len({frozenset(each) for each in rows}) > 1


def test_what_ran_takes_the_place_of_what_was_recorded_of_its_file_and_files_that_are_gone_are_dropped() -> None:
    before = {
        HERE: {"test_a": 2.0, "test_b": 1.5},
        "tests/test_house.py": {"test_c": 4.0},
        "tests/gone.py": {"test_d": 9.0},
    }
    merged = tiers.merged(before, {f"{HERE}::test_a": 1.26, f"{HERE}::test_b": 0.3})
    assert merged == {HERE: {"test_a": 1.3}, "tests/test_house.py": {"test_c": 4.0}}


def test_a_tests_duration_is_that_of_all_its_phases(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tiers, "RECORDED", tmp_path / "durations.json")
    tiers.RECORDED.write_text("{}", "utf-8")
    recorder = tiers.DurationRecorder()
    for seconds in (0.5, 0.75, 0.25):
        report = SimpleNamespace(nodeid=f"{HERE}::test_a", duration=seconds)
        recorder.pytest_runtest_logreport(cast("pytest.TestReport", report))
    recorder.pytest_sessionfinish()
    assert tiers.recorded() == {HERE: {"test_a": 1.5}}
