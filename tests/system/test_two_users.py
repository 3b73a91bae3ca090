"""A web server and a crontab of different users, with one configuration and one embedded server: real processes of real
users, each with a umask of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.runtime.embedded.directory import LOCK
from tests.leaving_out import long
from tests.short_directory import short_directory
from tests.system.test_embedded import kill, wait_for
from tests.terminal import Screen
from tests.users import APP, UIDS, Users

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HANDLERS = """
import getpass
from pollconsumer import PollConsumer
app = PollConsumer()
@app.handler("hello")
def hello(name: str) -> str:
    return name
"""
DRAIN = ("run", "--until-empty", "--timeout", "20s")


class Shared:
    """A site in ``/srv`` of root's, and its directory of data."""

    def __init__(self, place: Path) -> None:
        self.users, self.data, self.config = Users(place), place / "data", place / "config.toml"
        self.config.write_text('namespace = "site"\nhandlers = ["hello"]\ndata = "data"\n')
        (place / "hello.py").write_text(HANDLERS)
        self.give("web")

    def give(self, user: str, mode: int = 0o2770, group: int = APP) -> None:
        self.data.mkdir(exist_ok=True)
        os.chown(self.data, UIDS.get(user, 0), group)
        self.data.chmod(mode)

    def run(self, user: str, *arguments: str, umask: str = "022") -> str:
        done = self.users.run(user, *arguments, umask=umask, config=self.config)
        assert (done.returncode, done.stderr) == (0, ""), (user, arguments, done)
        return done.stdout

    def server(self, user: str) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.run(user, "store", "status", "--json"))
        return found

    def completed(self, user: str) -> int:
        return sum(queue["completed"] for queue in json.loads(self.run(user, "status", "--json"))["queues"])


@pytest.fixture
def shared() -> Iterator[Shared]:
    place = short_directory()
    place.chmod(0o755)
    try:
        yield Shared(place)
    finally:
        for lock in list(place.rglob(LOCK)):
            kill(lock.parent)
        shutil.rmtree(place)


@pytest.mark.parametrize("umask", ["000", long("022"), long("027"), "077"])
def test_what_the_web_server_enqueues_the_crontabs_user_handles_whatever_the_umask(shared: Shared, umask: str) -> None:
    shared.run("web", "enqueue", "hello", '{"name": "a"}', umask=umask)
    shared.run("ada", *DRAIN, umask=umask)
    assert shared.completed("web") == 1
    assert shared.server("web")["pid"] == shared.server("ada")["pid"]


def test_each_user_in_turn_starts_the_server_and_goes_on_with_what_the_other_left(shared: Shared) -> None:
    """A stopped and a killed server, whose socket stays behind: what the one has written the other appends to."""
    for at, user in enumerate(["web", "ada", "web", "ada", "root", "web"]):
        other = "ada" if user == "web" else "web"
        shared.run(user, "enqueue", "hello", '{"name": "a"}', umask="077")
        shared.run(other, *DRAIN, umask="027")
        assert shared.completed(other) == at + 1
        if at % 2:
            shared.run(other, "store", "stop")
        else:
            pid = int(str(shared.server(user)["pid"]))
            os.kill(pid, signal.SIGKILL)
            wait_for(lambda pid=pid: not _is_alive(pid), "the end of a killed server")  # type: ignore[misc]


def test_right_after_a_reboot_both_start_at_once_and_share_one_server(shared: Shared) -> None:
    with ThreadPoolExecutor(8) as pool:
        users = ["web", "ada"] * 4
        list(pool.map(lambda user: shared.run(user, "enqueue", "hello", '{"name": "a"}', umask="077"), users))
    shared.run("ada", *DRAIN)
    assert shared.completed("web") == 8
    assert (shared.data / "server.log").read_text().count("Ready to accept connections") == 1


@pytest.mark.parametrize("umask", ["000", long("077")])
def test_what_the_web_server_spools_the_crontabs_user_takes_in_and_no_stranger_reads(
    shared: Shared, umask: str
) -> None:
    with shared.config.open("a") as config:
        config.write('spool = "data/spool"\n')

    def spool(user: str) -> subprocess.CompletedProcess[str]:
        away = ("--store", f"unix://{shared.data}/away")
        return shared.users.run(user, *away, "enqueue", "hello", '{"name": "a"}', umask=umask, config=shared.config)

    assert spool("web").returncode == 0
    assert {stat.S_IMODE(each.stat().st_mode) for each in (shared.data / "spool").iterdir()} == {0o660}
    refused = spool("eve")
    assert (refused.returncode, refused.stderr.count("\n")) == (69, 1)
    assert "; not spooled: " in refused.stderr
    assert refused.stderr.endswith("makes one that the users of a group share\n")
    shared.run("ada", *DRAIN, umask=umask)
    shared.run("web", *DRAIN, umask=umask)
    assert shared.completed("ada") == 1


def test_strangers_are_refused_and_cannot_connect(shared: Shared) -> None:
    shared.run("web", "store", "start", umask="000")
    refused = shared.users.run("eve", "status", config=shared.config)
    assert refused.returncode == 77
    assert f"belongs to group id {APP}, and user id {UIDS['eve']} is not in that group" in refused.stderr
    for path in (shared.data, *shared.data.rglob("*")):
        found = path.lstat()
        assert not found.st_mode & (stat.S_IWOTH | (0 if path == shared.data else stat.S_IROTH)), path
        assert found.st_gid == APP, path


@pytest.mark.parametrize(
    ("owner", "mode", "problem"),
    [
        ("web", 0o2777, "has mode 2777, not 2770"),
        ("web", 0o0770, "has mode 0770, not 2770"),
        ("web", 0o0700, f"belongs to user id {UIDS['web']} alone"),
        ("ada", 0o0770, "has mode 0770, not 2770"),
        ("ada", 0o0757, "has mode 0757, not 2770"),
        ("web", 0o3770, "has mode 3770, not 2770"),
        ("web", 0o2750, "has mode 2750, not 2770"),
        ("eve", 0o2770, f"belongs to user id {UIDS['eve']}, who is no member of its group, id {APP}"),
    ],
)
def test_a_directory_that_others_could_use_or_not_all_of_the_group_is_refused(
    shared: Shared, owner: str, mode: int, problem: str
) -> None:
    shared.give(owner, mode)
    for command in (["enqueue", "hello", '{"name": "a"}'], ["run", "--until-empty"], ["store", "start"], ["check"]):
        refused = shared.users.run("ada", *command, config=shared.config)
        assert refused.returncode == 77, command
        assert refused.stderr == (
            f"pollconsumer: error: data directory {problem}: {shared.data}; "
            "install -d -o USER -m 700 makes one of your own, "
            "install -d -o USER -g GROUP -m 2770 makes one that the users of a group share\n"
        )
    assert not list(shared.data.iterdir())


@pytest.mark.parametrize("name", ["server.log", "server.pid", "appendonlydir", "server.sock"])
def test_a_link_that_one_of_the_group_puts_there_leads_nobody_elsewhere(shared: Shared, name: str) -> None:
    target = shared.users.place / "ada" / "precious"
    target.write_text("kept")
    os.chown(target, UIDS["ada"], UIDS["ada"])
    (shared.data / name).symlink_to(target)
    for user in ("ada", "root"):
        refused = shared.users.run(user, "store", "start", config=shared.config)
        assert (refused.returncode, target.read_text()) == (77, "kept"), (user, refused)
        assert "link in the data directory" in refused.stderr


def test_a_start_that_came_to_nothing_leaves_the_other_user_a_directory_to_go_on_with(shared: Shared) -> None:
    (shared.data / "server.log").symlink_to(shared.users.place)
    refused = shared.users.run("web", "store", "start", umask="077", config=shared.config)
    assert refused.returncode == 77, refused
    (shared.data / "server.log").unlink()
    shared.run("ada", "store", "start", umask="077")


def test_the_lock_that_another_user_is_about_to_make_stops_no_start(shared: Shared) -> None:
    """Two at once make a file each, of which one becomes the lock: first its maker's alone, then with a second name."""
    mine = shared.data / "server.lock.4711-0a0b0c0d"
    mine.write_text("")
    os.chown(mine, UIDS["web"], APP)
    mine.chmod(0o600)
    another = shared.data / "server.lock.4712-0a0b0c0d"
    another.hardlink_to(mine)
    shared.run("ada", "store", "start", umask="077")


def test_the_server_that_root_starts_is_the_directorys_owners(shared: Shared) -> None:
    shared.run("root", "enqueue", "hello", '{"name": "a"}')
    pid = shared.server("root")["pid"]
    assert os.stat(f"/proc/{pid}").st_uid == UIDS["web"]  # noqa: PTH116
    shared.run("ada", *DRAIN)
    assert shared.completed("web") == 1


@pytest.mark.parametrize("mode", [0o700, 0o750, 0o755, None])
def test_a_directory_that_its_user_alone_may_write_is_private(shared: Shared, mode: int | None) -> None:
    """``None``: it is not there yet."""
    if mode is None:
        shared.data.rmdir()
        os.chown(shared.users.place, UIDS["ada"], APP)
    else:
        shared.give("ada", mode)
    with shared.config.open("a") as config:
        config.write('spool = "data/spool"\n')
    shared.run("ada", "enqueue", "hello", '{"name": "a"}', umask="000")
    shared.run("ada", *DRAIN)
    assert shared.completed("ada") == 1
    away = ("--store", f"unix://{shared.data}/away")
    spooled = shared.users.run("ada", *away, "enqueue", "hello", '{"name": "b"}', config=shared.config)
    assert (spooled.returncode, (shared.data / "spool").is_dir()) == (0, True)
    for path in shared.data.rglob("*"):
        assert not path.lstat().st_mode & 0o077, path
    if mode is None:
        assert stat.S_IMODE(shared.data.stat().st_mode) == 0o700
        return
    refused = shared.users.run("web", "status", config=shared.config)
    assert (refused.returncode, f"belongs to user id {UIDS['ada']} alone" in refused.stderr) == (77, True)


def test_a_directory_that_cannot_be_made_is_named_as_it_is_set(shared: Shared) -> None:
    shared.data.rmdir()
    for mode in (0o755, 0o2755):
        shared.users.place.chmod(mode)
        refused = shared.users.run("ada", "status", config=shared.config)
        assert (refused.returncode, refused.stderr) == (
            73,
            f"pollconsumer: error: cannot create {shared.data}: Permission denied; install -d -o USER -m 700 makes one "
            "of your own, install -d -o USER -g GROUP -m 2770 makes one that the users of a group share\n",
        )


def test_the_first_user_makes_the_directory_if_it_may(shared: Shared) -> None:
    above = shared.users.place / "var"
    above.mkdir()
    os.chown(above, UIDS["web"], APP)
    above.chmod(0o2775)
    shared.data = above / "data"
    shared.config.write_text(shared.config.read_text().replace('"data"', '"var/data"'))
    shared.run("web", "enqueue", "hello", '{"name": "a"}', umask="077")
    shared.run("ada", *DRAIN)
    assert shared.completed("ada") == 1
    assert stat.S_IMODE(shared.data.stat().st_mode) == 0o2770


@pytest.mark.ends_with(1)  # doctor has a finding
def test_a_configuration_of_another_user_than_the_store_is_said_with_the_remedies(shared: Shared) -> None:
    """Once by what runs each minute, always by what a person asks."""
    shared.config.write_text(shared.config.read_text().replace('data = "data"\n', ""))
    commands = [("enqueue", "hello", '{"name": "a"}'), ("run", "--until-empty"), ("check",), ("doctor", "--quiet")]
    for user in ("web", "ada"):
        shown = json.loads(shared.users.run(user, "check", "--json", config=shared.config).stdout)
        assert shown["data"] == str(shared.users.place / user / ".local/share/pollconsumer"), "check names each's own"
    os.chown(shared.config, UIDS["web"], APP)
    for command in commands:
        said = [shared.users.run("ada", *command, config=shared.config).stderr for _ in range(3)]
        assert "config.toml is web's, but you are ada and " in said[0], (command, said)
        assert f"{shared.users.place}/ada/.local/share/pollconsumer" in said[0], command
        assert "web's launches never read" in said[0], command
        assert said[0].endswith("; set data= or store= to share one (documentation: embedded-server.md)\n"), command
        assert ("is web's" in said[2]) == (command[0] in ("check", "doctor")), (command, said)


@pytest.mark.ends_with(1)  # doctor has a finding
def test_roots_configuration_tells_either_user_that_the_store_is_theirs_alone(shared: Shared) -> None:
    """What the web server enqueues, the launches of the crontab's user do not see."""
    shared.config.write_text(shared.config.read_text().replace('data = "data"\n', ""))
    shared.users.run("web", "enqueue", "hello", '{"name": "a"}', config=shared.config)
    shared.users.run("ada", *DRAIN, config=shared.config)
    for user in ("web", "ada"):
        place = shared.users.place / user / ".local/share/pollconsumer"
        said = shared.users.run(user, "check", config=shared.config)
        assert f"this store is {user}'s alone: {place}; launches of another user of " in said.stdout
        assert (said.returncode, said.stderr) == (0, ""), "one user may be all there is: it is no warning"
        said = shared.users.run(user, "doctor", config=shared.config)
        told = "another user than web do not read this store: set" if user == "web" else "; the store is ada's alone"
        assert (said.returncode, told in said.stdout, said.stderr) == (user == "web", True, "")
        assert "alone" not in shared.users.run(user, "run", "--until-empty", config=shared.config).stderr
    quiet = shared.users.run("ada", "doctor", "--quiet", config=shared.config)
    assert (quiet.returncode, quiet.stderr) == (0, ""), "one user may be all there is: it is no alarm"


@pytest.mark.ends_with(1)  # doctor has a finding
def test_doctor_of_a_user_without_launches_says_that_those_of_others_do_not_read_here(shared: Shared) -> None:
    shared.config.write_text(shared.config.read_text().replace('data = "data"\n', ""))
    shared.users.run("web", "enqueue", "hello", '{"name": "a"}', config=shared.config)
    found = shared.users.run("web", "doctor", "--quiet", config=shared.config)
    assert found.returncode == 1
    said = (
        "no launch has run yet: 1 ready in queue default; 'pollconsumer init cron --install' has cron start one each "
        "minute; launches of another user than web do not read this store: set data= or store= to share one"
    )
    assert said in found.stderr


@pytest.mark.parametrize(
    ("owner", "mode", "closed", "said"),
    [
        ("root", 0o644, False, True),
        ("ada", 0o644, False, True),
        ("ada", 0o640, False, True),
        ("ada", 0o600, False, False),
        ("ada", 0o644, True, False),
    ],
)
def test_a_store_is_said_to_be_ones_own_only_where_others_can_read_the_configuration(
    shared: Shared, owner: str, mode: int, closed: bool, said: bool
) -> None:
    shared.config.write_text(shared.config.read_text().replace('data = "data"\n', ""))
    os.chown(shared.config, UIDS.get(owner, 0), APP)
    shared.config.chmod(mode)
    if closed:
        os.chown(shared.users.place, UIDS["ada"], UIDS["ada"])
        shared.users.place.chmod(0o700)
    done = shared.users.run("ada", "check", config=shared.config)
    assert (done.returncode, done.stderr, "this store is ada's alone" in done.stdout) == (0, "", said), done


def test_a_project_below_its_users_home_is_that_users(shared: Shared) -> None:
    home = shared.users.place / "ada"
    home.chmod(0o755)
    config = home / "config.toml"
    config.write_text('namespace = "mine"\n')
    os.chown(config, UIDS["ada"], UIDS["ada"])
    done = shared.users.run("ada", "check", config=config)
    assert (done.stderr, "alone" in done.stdout) == ("", False)


@pytest.mark.parametrize(("owner", "times"), [("root", 1), ("ada", 0)])
def test_a_person_at_a_terminal_who_enqueues_by_roots_configuration_is_told_once_whose_store_it_is(
    shared: Shared, owner: str, times: int
) -> None:
    shared.config.write_text(shared.config.read_text().replace('data = "data"\n', ""))
    os.chown(shared.config, UIDS.get(owner, 0), APP)
    enqueue = (sys.executable, "-m", "pollconsumer", "--config", str(shared.config), "enqueue", "hello")
    words = shared.users.words("ada", *enqueue, '{"name": "a"}')
    environment = {"HOME": str(shared.users.place / "ada"), "PATH": "/usr/bin:/bin"}
    with Screen() as screen:
        place: dict[str, Any] = {"env": environment, "stdout": subprocess.DEVNULL, "stderr": screen.side}
        for _ in range(3):
            subprocess.run(words, **place, timeout=90, check=True)
        assert screen.read_rest().count("this store is ada's alone: ") == times
    assert b"alone" not in subprocess.run(words, env=environment, capture_output=True, timeout=90, check=True).stderr


def test_an_application_says_it_once_through_logging_and_its_processes_now_and_then(shared: Shared) -> None:
    shared.config.write_text(shared.config.read_text().replace('data = "data"\n', ""))
    os.chown(shared.config, UIDS["web"], APP)
    program = (
        "import logging, sys, pollconsumer\nlogging.basicConfig(format='theirs: %(message)s')\n"
        "app = pollconsumer.PollConsumer(config=sys.argv[1])\n"
        "for each in 'ab': app.enqueue('hello', {'name': each})\n"
    )
    words = shared.users.words("ada", sys.executable, "-c", program, str(shared.config))
    environment = {"HOME": str(shared.users.place / "ada"), "PATH": "/usr/bin:/bin"}
    said = [
        subprocess.run(words, env=environment, stderr=subprocess.PIPE, text=True, timeout=90, check=True).stderr
        for _ in range(3)
    ]
    assert said[0].count("\n") == said[1].count("\n") == 1
    assert said[0].startswith("theirs: config.toml is web's, but you are ada and would use your own server in ")
    assert said[2] == ""


def test_a_configuration_of_others_that_nobody_named_is_refused(shared: Shared) -> None:
    os.chown(shared.config, UIDS["web"], APP)
    for user in ("ada", "root"):
        refused = shared.users.run(user, "check")
        assert refused.returncode == 78, user
        assert f"configuration that was found is another user's: {shared.config}; name it" in refused.stderr
    assert shared.users.run("web", "check").returncode == 0
    assert shared.users.run("ada", "check", config=shared.config).returncode == 0
    assert shared.users.run("ada", "check", POLLCONSUMER_CONFIG=str(shared.config)).returncode == 0


def test_root_alone_runs_no_module_of_others_and_all_others_see_whose_it_is(shared: Shared) -> None:
    module = shared.users.place / "hello.py"
    os.chown(module, UIDS["web"], APP)
    refused = shared.users.run("root", "check", config=shared.config)
    assert refused.returncode == 78
    assert f"handlers' module is writable by others: {module}; it belongs to user id {UIDS['web']}" in refused.stderr
    trusting = shared.users.run("root", "check", config=shared.config, POLLCONSUMER_TRUST_WRITABLE="true")
    assert trusting.returncode == 0
    seen = json.loads(shared.run("ada", "check", "--json"))
    assert (seen["owners"][str(module)], seen["data"]) == ("web", str(shared.data))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
