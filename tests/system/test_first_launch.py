"""The example that the README's first command runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import server_stand_in
from tests.short_directory import short_directory
from tests.site import PATIENCE, wait_until

UNHURRIED = {"POLLCONSUMER_CONSUMER__TIMEOUT": "60s", "POLLCONSUMER_CONSUMER__IDLE_TIME": "6s"}
"""On a busy machine what is enqueued meanwhile comes late."""
EXAMPLE = Path(__file__).parents[2] / "examples" / "first_launch.sh"
SAID = (
    "hello Ada\n",
    "hello Grace, 3 seconds later\n",
    "flaky worked at its second attempt\n",
    "hello from another process\n",
    "hello from there again, ",
)
"""By the launch, which then has nothing more to do."""


def launch_of(script: int) -> int | None:
    """The process that the shell ``script`` has started to run."""
    for child in Path(f"/proc/{script}/task/{script}/children").read_text().split():
        if b"\0run\0" in Path(f"/proc/{child}/cmdline").read_bytes():
            return int(child)
    return None


@pytest.mark.crossing
def test_the_first_example_of_the_readme_handles_what_it_enqueues(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {"PATH": path, "HOME": str(short_directory()), **server_stand_in.ENVIRONMENT}
    printed = tmp_path / "printed"
    with printed.open("w") as errors:
        script = subprocess.Popen(
            ["sh", EXAMPLE],
            cwd=EXAMPLE.parents[1],
            env=environment | UNHURRIED,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    wait_until(lambda: script.poll() is not None or all(each in printed.read_text() for each in SAID), "the last one")
    if (launch := launch_of(script.pid)) is not None:
        os.kill(launch, signal.SIGTERM)
    shown, _ = script.communicate(timeout=PATIENCE)
    said = printed.read_text()
    assert script.returncode == 0, said
    assert "error" not in said
    assert all(each in said for each in SAID)
    listed = shown.split("$ pollconsumer list\n", 1)[1]
    assert [line.split()[3] for line in listed.splitlines()[1:]] == ["completed"] * 5
