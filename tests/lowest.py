"""``python -m tests.lowest``: the fast tests, with the lowest versions of the dependencies that are declared.

They are installed into an environment that is thrown away. What the tests themselves need is as new as it gets.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
FAST = (
    "tests/store",
    "tests/interface/test_cli_frame.py",
    "tests/system/test_embedded.py",
    "tests/interface/test_message_commands.py",
    "tests/runtime/test_loop.py",
    "tests/system/test_recurrences.py",
    "tests/interface/test_settings.py",
    "tests/interface/test_testing.py",
)
TESTS_NEED = ("hypothesis", "pytest", "trustme")
EXTRAS = "dashboard,testing"
"""Those whose modules `tests.forks` imports."""


def lowest(requirements: list[str]) -> list[str]:
    """Each requirement at its lower bound. ValueError for one without."""
    pinned = []
    for requirement in requirements:
        bounds = re.fullmatch(r"([\w.-]+)>=([\w.]+)(?:,<[\w.]+)?(;.*)?", requirement)
        if bounds is None:
            raise ValueError(f"{requirement}: needs a lower bound, as in name>=1.2")
        pinned.append(f"{bounds[1]}=={bounds[2]}{bounds[3] or ''}")
    return pinned


def declared() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    dependencies: list[str] = project["dependencies"]
    return dependencies


def main(arguments: list[str]) -> int:
    pinned = lowest(declared())
    with tempfile.TemporaryDirectory(prefix="pc-lowest-") as place:
        venv.create(place, with_pip=True)
        python = str(Path(place) / "bin" / "python")
        print(" ".join(pinned), flush=True)  # noqa: T201  what is run is what it says
        wanted = [*pinned, *TESTS_NEED, "-e", f"{ROOT}[{EXTRAS}]"]
        subprocess.run([python, "-m", "pip", "install", "-q", *wanted], check=True)
        return subprocess.run([python, "-m", "pytest", *(arguments or FAST)], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
