"""What is installed: every file of the package."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from shutil import copyfile, copytree, ignore_patterns
from typing import TYPE_CHECKING

import pytest

from pollconsumer.interface.settings.names import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).parents[1]
BUILD = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of the package, built from a copy of it: a build leaves files in the directory that it reads."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        copyfile(ROOT / name, source / name)
    copytree(ROOT / "pollconsumer", source / "pollconsumer", ignore=ignore_patterns("__pycache__"))
    target = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-c", BUILD, str(target)], cwd=source, check=True, capture_output=True)
    [built] = target.iterdir()
    return built


def files(names: Iterable[str]) -> set[str]:
    return {name for name in names if name.startswith("pollconsumer/") and "__pycache__" not in name}


def test_the_wheel_has_the_version_that_commands_print(wheel: Path) -> None:
    assert wheel.name.startswith(f"pollconsumer-{VERSION}-")


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    here = (path.relative_to(ROOT).as_posix() for path in (ROOT / "pollconsumer").rglob("*") if path.is_file())
    with zipfile.ZipFile(wheel) as archive:
        assert files(archive.namelist()) == files(here)
