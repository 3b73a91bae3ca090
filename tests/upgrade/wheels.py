"""Wheels of a commit and of this tree, each installed into an environment of its own."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]


def built(commit: str, place: Path) -> Path:
    """The wheel of a commit, made in ``place``; of this tree, with what is not committed, if ``commit`` is empty."""
    source = ROOT
    if commit:
        source = place / commit
        source.mkdir(parents=True)
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, stdout=subprocess.PIPE)
        subprocess.run(["tar", "x", "-C", source], input=archive.stdout, check=True)
    made = place / f"wheel-{commit or 'here'}"
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", made, source], check=True)
    return next(made.glob("*.whl"))


def installed(wheel: str | Path, place: Path) -> str:
    """The interpreter of a new environment in ``place`` with the wheel, a file or a requirement, and what it needs."""
    venv.create(place, with_pip=True)
    python = str(place / "bin" / "python")
    command = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", str(wheel)]
    subprocess.run(command, check=True)
    return python
