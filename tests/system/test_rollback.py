"""A launch on a store that was restored from an earlier state."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.site import Site


def restored(site: Site) -> None:
    """The embedded server's data are those of before a launch that handled a message."""
    data = site.socket.parent
    before = data.with_name("before")
    site.drain()
    site.command("store", "stop")
    shutil.copytree(data, before, ignore=shutil.ignore_patterns("*.sock"))
    site.enqueue("record", name="a")
    site.drain()
    site.command("store", "stop")
    shutil.rmtree(data)
    before.rename(data)


def test_a_restored_store_is_noticed_in_one_line_by_the_next_launch_which_goes_on(site: Site) -> None:
    restored(site)
    found = site.drain()
    (line,) = found.stderr.splitlines()
    assert line.startswith("pollconsumer: warning: store rolled back: it had reached ")
    assert found.returncode == 0
    assert site.drain().stderr == ""


@pytest.mark.crossing
def test_a_restored_store_is_refused_where_that_is_asked_for_until_it_is_accepted(site: Site) -> None:
    restored(site)
    refusing = {"POLLCONSUMER_STRICT__ON_ROLLBACK": "refuse"}
    for _ in range(2):
        found = site.command("run", "--until-empty", **refusing)
        (line,) = found.stderr.splitlines()
        assert line.startswith("pollconsumer: error: store rolled back: it had reached ")
        assert "; see what is missing, then accept it: pollconsumer store adopt" in line
        assert found.returncode == 78
    assert site.command("store", "adopt").returncode == 0
    assert site.command("run", "--until-empty", **refusing).returncode == 0
