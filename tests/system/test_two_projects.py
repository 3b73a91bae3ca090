"""Two projects of one user whose configurations name no namespace, and so share one."""

from __future__ import annotations

import json
import re
import shutil
import sys
from typing import TYPE_CHECKING

import pytest
from redis import Redis

from tests.site import PATIENCE, wait_until

if TYPE_CHECKING:
    from subprocess import CompletedProcess

    from tests.site import Launch, Site

HANDLERS = "from pollconsumer import PollConsumer\napp = PollConsumer()\n@app.handler\ndef other() -> None: pass\n"
SHORT = ("run", "--timeout", "500ms", "--min-margin", "1ms")


class Other:
    """A second project, in a directory below that of the first, whose launch holds the lease."""

    def __init__(self, site: Site) -> None:
        self.site, self.directory = site, site.directory / "other"
        self.directory.mkdir()
        (self.directory / "config.toml").write_text('handlers = ["others"]\n')
        (self.directory / "others.py").write_text(HANDLERS)
        self.line = (
            f"pollconsumer: warning: a launch of another project is running here: {site.directory / 'config.toml'}; "
            "both take messages from the same queues: give each a namespace of its own in its configuration"
        )

    def hold(self) -> Launch:
        """By a launch of the first project."""
        holder = self.site.start("run", "--timeout", "10m")
        self.site.await_holder(holder.pid)
        return holder

    def start(self, *arguments: str) -> Launch:
        return self.site.start("--config", str(self.directory / "config.toml"), *arguments)

    def run(self, *arguments: str) -> CompletedProcess[str]:
        return self.site.command("--config", str(self.directory / "config.toml"), *arguments)


@pytest.fixture
def other(site: Site) -> Other:
    return Other(site)


def test_a_launch_that_finds_another_projects_launch_in_its_place_says_so_damped_and_its_end(other: Other) -> None:
    holder = other.hold()
    said = [other.run(*SHORT).stderr for _ in range(4)]
    assert said[0] == f"{other.line}\n"
    assert re.fullmatch(rf"{re.escape(other.line)} \(2 launches in .*\)\n", said[1])
    assert said[2:] == ["", ""]
    holder.terminate()
    assert holder.wait(PATIENCE) == 0
    over = other.run("run", "--until-empty").stderr
    assert over.startswith("pollconsumer: info: resolved: ")
    assert f": a launch of another project is running here: {other.site.directory}" in over


def test_so_does_one_that_is_turned_away_since_another_launch_waits_already(other: Other, site: Site) -> None:
    holder = other.hold()
    waiting = other.start("run", "--until-empty", "--timeout", "10m")
    wait_until(lambda: "next:consumer:default" in site.control_keys(), "a successor")
    assert other.run("run").stderr.startswith(other.line)
    assert holder.poll() is waiting.poll() is None


@pytest.mark.parametrize("what", ["configuration", "handlers", "namespace", "host"])
def test_a_launch_of_the_same_project_in_another_version_or_place_and_one_apart_say_nothing(
    other: Other, site: Site, what: str
) -> None:
    directory = other.directory
    command: tuple[str, ...] = SHORT
    other.hold()
    if what == "configuration":
        shutil.copy(site.directory / "handlers.py", directory / "others.py")
    elif what == "handlers":
        directory = site.directory
        (directory / "handlers.py").write_text(HANDLERS)
    elif what == "namespace":
        (directory / "config.toml").write_text('handlers = ["others"]\nnamespace = "other"\n')
        command = ("run", "--until-empty")
    else:
        move_holder(site)
    done = site.command("--config", str(directory / "config.toml"), *command)
    assert (done.returncode, done.stderr) == (0, "")


def move_holder(site: Site) -> None:
    """As if it ran on another host."""
    lease = "{pollconsumer}:lease:consumer:default:0"
    with Redis(unix_socket_path=str(site.socket)) as client:
        client.hset(lease, "holder", json.dumps(json.loads(client.hget(lease, "holder")) | {"host": "elsewhere"}))


@pytest.mark.ends_with(1)  # doctor has a finding
def test_doctor_finds_both_projects_once_their_launches_came_in_turn(other: Other, site: Site) -> None:
    for launch in (site.command, other.run, site.command):
        assert launch("run", "--until-empty").returncode == 0
    done = other.run("doctor")
    paths = f"{site.directory / 'config.toml'}, {other.directory / 'config.toml'}"
    assert done.returncode == 1
    finding = f"projects share one namespace, and take each other's messages (default): {paths}; "
    assert f"{finding}give each a namespace of its own in its configuration" in done.stdout.splitlines()


def test_a_launch_through_a_link_is_one_of_the_project_there_wherever_the_link_leads(site: Site) -> None:
    """As of a deployment, whose versions have directories of their own."""
    releases = [site.directory / f"release{at}" for at in range(2)]
    for at, release in enumerate(releases):
        release.mkdir()
        (release / "config.toml").write_text(f'handlers = ["handlers{at}"]\n')
        (release / f"handlers{at}.py").write_text(HANDLERS.replace("other", f"handler{at}"))
    link = site.directory / "current"
    for release in releases:
        link.unlink(missing_ok=True)
        link.symlink_to(release)
        launch = f"cd {link} && exec {sys.executable} -m pollconsumer run --until-empty"
        assert site.start_program(["sh", "-c", launch]).wait(PATIENCE) == 0
    assert [entry["config"] for entry in site.json("launches")] == [f"{link}/config.toml"] * 2
