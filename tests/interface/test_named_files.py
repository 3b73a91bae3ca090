"""Whatever stands where a user names a file: one clear line and a documented code; nothing hangs, nothing is lost."""

from __future__ import annotations

import os
import re
import shutil
import socket
import stat
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pollconsumer.interface.named_files import replacement
from pollconsumer.runtime.embedded.directory import LOCK
from tests.leaving_out import long
from tests.short_directory import short_directory
from tests.system.test_embedded import kill
from tests.users import UIDS, Users

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.site import Site


def listen_at(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))


PLACES: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a socket": listen_at,
    "a directory": lambda path: path.mkdir(),
    "a link to nothing": lambda path: path.symlink_to("nowhere/at/all"),
    "nothing": lambda _: None,
}
"""What stands at a path."""


class Named(NamedTuple):
    """A command that is given a path: as ``{}`` in an option, or by a variable."""

    arguments: tuple[str, ...]
    variable: str = ""
    refuses: frozenset[str] = frozenset(PLACES) - {"nothing"}
    code: frozenset[int] = frozenset({73, 78})


ALL = frozenset(PLACES)
NAMED = {
    "--config": Named(("--config", "{}", "status"), refuses=ALL),
    "POLLCONSUMER_CONFIG": Named(("status",), "POLLCONSUMER_CONFIG", refuses=ALL),
    "a launch's --config": Named(("run", "--until-empty", "--config", "{}"), refuses=ALL),
    "logs.target": Named(("run", "--until-empty"), "POLLCONSUMER_LOGS__TARGET"),
    "logs.target of check": Named(("check",), "POLLCONSUMER_LOGS__TARGET"),
    "ssl_ca_certs": Named(
        ("--store", "rediss://127.0.0.1:1?ssl_ca_certs={}", "status"), refuses=ALL, code=frozenset({69, 78})
    ),
    "--textfile": Named(("metrics", "--textfile", "{}")),
    "dashboard --static": Named(("dashboard", "--static", "{}"), refuses=ALL - {"nothing", "a directory"}),
    "init --write": Named(("init", "cron", "--write", "{}"), refuses=ALL - {"nothing", "a directory"}),
    "--ndjson": Named(("enqueue", "--ndjson", "{}"), refuses=ALL - {"a pipe", "a device"}, code=frozenset({2, 65})),
    "store import": Named(("store", "import", "{}"), refuses=ALL - {"a pipe", "a device"}, code=frozenset({65})),
    "store export": Named(("store", "export", "{}"), refuses=ALL - {"nothing", "a device"}, code=frozenset({73})),
    "state": Named(("run", "--until-empty"), "POLLCONSUMER_STATE", refuses=ALL - {"nothing", "a directory"}),
    "dashboard.static": Named(
        ("run", "--until-empty"), "POLLCONSUMER_DASHBOARD__STATIC",
        refuses=ALL - {"nothing", "a directory"}, code=frozenset({0}),
    ),
}  # fmt: skip
"""Where the code is 0, a launch warns, and goes on."""


AS_OTHERS = {"POLLCONSUMER_CONFIG", "logs.target of check"}
"""Read by what reads ``--config`` and ``logs.target``."""


@pytest.mark.parametrize("name", [long(name) if name in AS_OTHERS else name for name in NAMED])
def test_whatever_stands_at_a_path_is_refused_in_one_line_and_nothing_hangs(site: Site, name: str) -> None:
    named = NAMED[name]
    for kind in sorted(named.refuses):
        path = site.directory / kind.replace(" ", "-")
        PLACES[kind](path)
        variables = {named.variable: str(path)} if named.variable else {}
        if name == "dashboard.static":
            variables["POLLCONSUMER_STATE"] = "none"  # nothing is damped
        done = site.command(*(word.replace("{}", str(path)) for word in named.arguments), **variables)
        assert done.returncode in named.code, (kind, done)
        assert done.stderr.startswith(f"pollconsumer: {'error' if done.returncode else 'warning'}: "), (kind, done)
        assert done.stderr.count("\n") == 1, (kind, done.stderr)
    assert site.command("status").returncode == 0


@pytest.mark.parametrize(
    "words",
    [
        ["metrics", "--textfile"], ["dashboard", "--static"], ["init", "cron", "--write"],
        ["enqueue", "--ndjson"], ["store", "export"], ["store", "import"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_an_empty_path_is_refused(site: Site, words: list[str]) -> None:
    done = site.command(*words, "")
    assert (done.returncode, done.stdout) == (2, "")
    assert re.match(f"pollconsumer: error: ({words[-1]}|FILE): ", done.stderr), done


@pytest.mark.parametrize("setting", ["logs.target", "state", "dashboard.static"])
def test_an_empty_path_in_the_configuration_is_refused(site: Site, setting: str) -> None:
    table, _, key = setting.rpartition(".")
    (site.directory / "config.toml").write_text(f"[{table}]\n{key} = ''\n" if table else f"{key} = ''\n")
    done = site.command("run", "--until-empty")
    assert (done.returncode, done.stdout) == (78, "")
    assert done.stderr.startswith("pollconsumer: error: ")


@pytest.mark.parametrize("target", ["new.log", "link", "old.log", "missing/new.log", "closed/new.log"])
def test_check_refuses_the_log_that_a_launch_refuses_and_creates_none(site: Site, target: str) -> None:
    (site.directory / "old.log").write_text("old\n")
    (site.directory / "link").symlink_to("led-to.log")
    (site.directory / "closed").write_text("")
    before = {*site.directory.iterdir()}
    checked = site.command("check", POLLCONSUMER_LOGS__TARGET=target)
    assert {path.name for path in {*site.directory.iterdir()} - before} <= {"data", "state", "cache", "__pycache__"}
    assert (site.directory / "old.log").read_text() == "old\n"
    launched = site.command("run", "--until-empty", POLLCONSUMER_LOGS__TARGET=target)
    assert (checked.returncode, checked.stderr) == (launched.returncode, launched.stderr)
    assert checked.returncode == (73 if "/" in target else 0)


@pytest.mark.parametrize("mask", [0o077, 0o000])
def test_files_of_ours_have_the_mode_that_is_promised_whatever_the_umask(site: Site, mask: int) -> None:
    before = os.umask(mask)
    try:
        launched = site.command_from_the_start("run", "--until-empty", POLLCONSUMER_LOGS__TARGET="launch.log")
        again = site.command_from_the_start("run", "--until-empty", POLLCONSUMER_LOGS__TARGET="launch.log")
        written = site.command_from_the_start("metrics", "--textfile", "queue.prom")
    finally:
        os.umask(before)
    assert [each.returncode for each in (launched, again, written)] == [0, 0, 0], again.stderr
    modes = {name: stat.S_IMODE((site.directory / name).stat().st_mode) for name in ("queue.prom", "launch.log")}
    assert modes == {"queue.prom": 0o644, "launch.log": 0o644 & ~mask}
    compiled = [stat.S_IMODE(each.stat().st_mode) for each in (site.directory / "__pycache__").rglob("*")]
    assert all(not mode & stat.S_IWOTH for mode in compiled)


def test_a_text_file_that_is_a_link_keeps_what_it_leads_to(site: Site) -> None:
    (site.directory / "kept").write_text("kept")
    (site.directory / "queue.prom").symlink_to("kept")
    done = site.command("metrics", "--textfile", "queue.prom")
    assert done.returncode == 73
    assert "is a link, not a plain file" in done.stderr
    assert (site.directory / "kept").read_text() == "kept"


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory in which every user may make files."""
    place = short_directory()
    place.chmod(0o755)
    try:
        yield place
    finally:
        for lock in list(place.rglob(LOCK)):
            kill(lock.parent)
        shutil.rmtree(place)


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_another_users_file_is_read_where_that_user_lets_others_and_never_changed(shared: Path, mode: int) -> None:
    users = Users(shared)
    for name, others in (("read", 0o755), ("written", 0o1777)):  # as /etc, and as /tmp
        (shared / name).mkdir()
        (shared / name).chmod(others)
    content = 'namespace = "ada"\n'
    for name, named in NAMED.items():
        configures = "config" in name.lower()
        path = shared / ("read" if configures else "written") / name.replace(" ", "-").strip("-")
        path.write_text(content)
        os.chown(path, UIDS["ada"], UIDS["ada"])
        path.chmod(mode)
        variables = {"POLLCONSUMER_NAMESPACE": "web"} | ({named.variable: str(path)} if named.variable else {})
        done = users.run("web", *(word.replace("{}", str(path)) for word in named.arguments), config=None, **variables)
        read = configures and mode == 0o644
        assert done.returncode in ({0} if read else named.code | {73, 77, 78}), (name, done)
        assert "Traceback" not in done.stderr
        if done.returncode:
            assert done.stderr.count("\n") == 1, (name, done)
        else:
            assert read or "warning: static pages: " in done.stderr
        assert (path.read_text(), path.stat().st_uid) == (content, UIDS["ada"])


def test_a_signal_that_comes_as_soon_as_a_new_file_is_there_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = os.open

    def create_and_interrupt(*given: Any, **named: Any) -> None:
        os.close(create(*given, **named))
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "open", create_and_interrupt)
    with pytest.raises(KeyboardInterrupt), replacement(tmp_path / "kept"):
        pass
    assert [*tmp_path.iterdir()] == []
