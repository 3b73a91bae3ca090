"""What commands tell a person at a terminal, and nobody else, beside their output."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

from tests.terminal import Screen

if TYPE_CHECKING:
    from tests.site import Site


def notices(site: Site, *arguments: str) -> list[str]:
    """The lines that a command writes to the terminal on which its errors are shown."""
    command = [sys.executable, "-m", "pollconsumer", *arguments]
    place: dict[str, Any] = {"cwd": site.directory, "env": site.environment}
    with Screen() as screen:
        subprocess.run(command, **place, stdout=subprocess.DEVNULL, stderr=screen.side, timeout=60)
        return screen.read_rest().splitlines()


def test_a_list_that_is_cut_says_so(site: Site) -> None:
    for _ in range(3):
        site.enqueue("record", name="a")
    for limit, said in ((2, ["pollconsumer: the first 2 are shown; --limit shows more"]), (3, [])):
        assert notices(site, "list", "--limit", str(limit)) == said
    assert site.command("list", "--limit", "2").stderr == ""


def test_a_signal_that_is_not_awaited_is_said_to_be_kept(site: Site) -> None:
    message = site.enqueue("record", "--in", "1h", name="a")
    said = f"pollconsumer: {message} waits for no signal now; approved is kept until it asks"
    assert notices(site, "signal", message, "approved") == [said]
    assert site.command("signal", message, "other").stderr == ""
