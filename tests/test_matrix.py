"""The page of what was tested: one row for each version, in the order of versions."""

from __future__ import annotations

import pytest

from tests.matrix import Row, with_row
from tests.server_stand_in import stand_in

PAGE = """# Title

| Server | Store | Launches |
|---|---|---|
| Redis 7.0.15 | 9 passed | 1 passed |
| Valkey 8.1.1 | 9 passed | 1 passed |

| Python | Tests |
|---|---|
"""


def test_a_row_of_a_new_version_stands_in_the_order_of_versions() -> None:
    page = with_row(PAGE, "Server", Row("Redis 7.0.9", ["8 passed", "2 passed"]))
    page = with_row(page, "Server", Row("Redis 10.0.1", ["7 passed", "3 passed"]))
    names = [line.split(" | ")[0] for line in page.splitlines() if "passed" in line]
    assert names == ["| Redis 7.0.9", "| Redis 7.0.15", "| Redis 10.0.1", "| Valkey 8.1.1"]


def test_a_row_of_a_version_that_has_one_takes_its_place() -> None:
    page = with_row(PAGE, "Server", Row("Valkey 8.1.1", ["1 failed", "1 passed"]))
    assert page == PAGE.replace("| Valkey 8.1.1 | 9 passed", "| Valkey 8.1.1 | 1 failed")


def test_the_first_row_of_a_table_stands_below_its_heading() -> None:
    page = with_row(PAGE, "Python", Row("Python 3.11.7", ["5 passed"]))
    assert page == PAGE + "| Python 3.11.7 | 5 passed |\n"


@pytest.mark.parametrize("given", ["absent", "."])
def test_a_server_that_is_no_program_is_refused(given: str) -> None:
    with pytest.raises(pytest.UsageError, match="--server: no program"):
        stand_in(given)
