"""The example that the README's first command runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.short_directory import short_directory

UNHURRIED = {"POLLCONSUMER_CONSUMER__TIMEOUT": "60s", "POLLCONSUMER_CONSUMER__IDLE_TIME": "6s"}
"""On a busy machine what is enqueued meanwhile comes late."""
EXAMPLE = Path(__file__).parents[2] / "examples" / "first_launch.sh"


def test_the_first_example_of_the_readme_handles_what_it_enqueues() -> None:
    home = short_directory()
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", EXAMPLE],
        cwd=EXAMPLE.parents[1],
        env={"PATH": path, "HOME": str(home), **UNHURRIED},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "error" not in done.stderr
    assert "hello Grace, 3 seconds later\n" in done.stdout + done.stderr
    listed = done.stdout.split("$ pollconsumer list\n", 1)[1]
    assert [line.split()[3] for line in listed.splitlines()[1:]] == ["completed"] * 5
