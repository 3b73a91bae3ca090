"""The declared dependencies: between bounds, the lower of which `python -m tests.lowest` tries."""

from __future__ import annotations

import pytest

from tests.lowest import declared, lowest


def test_every_dependency_is_declared_with_a_lower_and_an_upper_bound() -> None:
    assert len(lowest(declared())) == len(declared()) > 0


def test_the_lowest_version_of_each_is_tried() -> None:
    assert lowest(["redis>=8.0,<9", "pydantic-settings>=2.7,<3"]) == ["redis==8.0", "pydantic-settings==2.7"]


@pytest.mark.parametrize("requirement", ["redis", "redis>=8.0", "redis<9", "redis==8.0"])
def test_one_without_both_bounds_is_refused(requirement: str) -> None:
    with pytest.raises(ValueError, match="needs a lower and an upper bound"):
        lowest([requirement])
