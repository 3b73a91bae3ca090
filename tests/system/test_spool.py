"""A spool, as launches, `doctor` and `check` see it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.messages.message import NewMessage
from pollconsumer.runtime.spool import Spool

if TYPE_CHECKING:
    from pathlib import Path

    from tests.site import Site


@pytest.fixture
def spooled(site: Site) -> Path:
    """A file that has waited for years."""
    with (site.directory / "config.toml").open("a") as config:
        config.write('spool = "spool"\n')
    spool = Spool(site.directory / "spool", "pollconsumer")
    spool.put([NewMessage("a", "default", "record", b'{"name":"a"}')])
    (file,) = spool.directory.iterdir()
    return file.rename(file.with_name(f"pollconsumer@1234567890123456{file.name[-17:]}"))


def test_a_launch_handles_what_was_spooled_before_it_calls_a_queue_empty(site: Site, spooled: Path) -> None:
    done = site.drain()
    assert (done.returncode, done.stderr, site.notes()) == (0, "", ["a"])
    assert not list(spooled.parent.glob("*@1*"))


def test_a_launch_handles_all_of_many_files_before_it_calls_a_queue_empty(site: Site, spooled: Path) -> None:
    spool, names = Spool(spooled.parent, "pollconsumer"), [f"m{n:02}" for n in range(40)]
    for name in names:
        spool.put([NewMessage(name, "default", "record", json.dumps({"name": name}).encode())])
    done = site.drain()
    assert (done.returncode, done.stderr, site.notes()) == (0, "", ["a", *names])
    assert not spool.waits()


def test_a_mover_takes_in_what_comes_while_it_lives(site: Site, spooled: Path) -> None:
    site.command("move", "--timeout", "1s")
    assert (site.state("a"), spooled.exists()) == ("ready", False)


@pytest.mark.ends_with(1)
def test_doctor_tells_of_files_that_wait_and_of_those_set_aside(site: Site, spooled: Path) -> None:
    spooled.with_name(f"{spooled.name}.refused").write_text("")
    done = site.command("doctor", "--json")
    found = {each["name"]: each["value"] for each in json.loads(done.stdout)["findings"]}
    assert done.returncode == 1
    assert found["spool_waits"].startswith(f"1 file in {spooled.parent}, the oldest for ")
    assert found["spool_refused"] == f"1 file in {spooled.parent}"


@pytest.mark.ends_with(77)
def test_check_shows_the_directory_and_refuses_one_that_others_may_write(site: Site, spooled: Path) -> None:
    assert site.json("check")["spool"] == str(spooled.parent)
    spooled.parent.chmod(0o777)
    done = site.command("check")
    assert (done.returncode, done.stderr.count("\n")) == (77, 1)
    assert "spool is writable by others" in done.stderr
