"""The files for GitHub: each is YAML, each action is pinned by its digest, and no job may do more than it says."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FILES = [*sorted((ROOT / ".github").rglob("*.yml")), ROOT / ".pre-commit-config.yaml"]
PINNED = re.compile(r"uses: (\./|[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$)")


def parsed(path: Path) -> Any:
    return import_module("yaml").safe_load(path.read_text("utf-8"))


@pytest.fixture(autouse=True)
def yaml() -> None:
    pytest.importorskip("yaml")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_it_is_yaml(path: Path) -> None:
    assert parsed(path)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_each_action_is_pinned_and_each_job_has_its_rights_and_its_time(path: Path) -> None:
    uses = [line.strip().removeprefix("- ") for line in path.read_text("utf-8").splitlines() if "uses:" in line]
    assert [each for each in uses if not PINNED.match(each)] == []
    workflow = parsed(path)
    assert workflow["permissions"] == {}
    for job in workflow["jobs"].values():
        assert "permissions" in job
        assert "timeout-minutes" in job or "uses" in job


def test_the_pythons_are_those_of_the_classifiers() -> None:
    [checks] = [parsed(path) for path in WORKFLOWS if path.stem == "checks"]
    pythons = checks["jobs"]["python"]["strategy"]["matrix"]["python"]
    classified = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text("utf-8"))
    assert pythons == classified


def test_the_commands_of_the_nightly_are_modules_that_there_are() -> None:
    [nightly] = [parsed(path) for path in WORKFLOWS if path.stem == "nightly"]
    modules = [each["command"].split()[0] for each in nightly["jobs"]["run"]["strategy"]["matrix"]["include"]]
    places = [ROOT / name.replace(".", "/") for name in modules if name.startswith("tests.")]
    assert all(place.with_suffix(".py").exists() or (place / "__main__.py").exists() for place in places)
