"""Tests in several processes: each is run once and told of, and what ends a process fails a test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CONFTEST = """
from tests.side_by_side import SideBySide
def pytest_configure(config):
    config.pluginmanager.register(SideBySide(2))
"""
TESTS = """
import os, pytest
from pathlib import Path
@pytest.mark.parametrize("n", range(50))
def test_each(n):
    with Path("done").open("a") as done:
        done.write(f"{n}\\n")
def test_fails():
    print("what it printed")
    assert not "why"
@pytest.mark.skip
def test_is_skipped(): ...
def test_dies():
    os._exit(7)
"""


def test_each_test_is_run_once_and_told_of_though_a_process_dies(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_all.py").write_text(TESTS)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_all.py"]
    environment = {"PYTHONPATH": str(Path(__file__).parents[1]), "PATH": "/usr/bin:/bin", "COLUMNS": "200"}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert sorted(map(int, (tmp_path / "done").read_text().split())) == [*range(50)]
    *_, fails, dies, summary = done.stdout.splitlines()
    assert fails.endswith("test_all.py::test_fails - AssertionError: assert not 'why'")
    assert dies == "FAILED test_all.py::test_dies - its process ended with 7, and runs none of the next tests"
    assert summary.startswith("2 failed, 50 passed, 1 skipped in ")
    assert "what it printed" in done.stdout
