"""What /proc and the file system hide from a process is unknown to it, never an error."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.launcher import Ancestor
from pollconsumer.runtime.system import process
from pollconsumer.runtime.system.own_files import OwnFiles
from pollconsumer.runtime.system.signals import StopRequest

if TYPE_CHECKING:
    from collections.abc import Callable

NOBODY = 65534


def holds_for_others(look: Callable[[], bool]) -> bool:
    """Whether it holds in a process of a user who may not look into directories of this one."""
    pid = os.fork()
    if pid == 0:
        held = False
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setresgid(NOBODY, NOBODY, NOBODY)
                os.setresuid(NOBODY, NOBODY, NOBODY)
            held = look()
        finally:
            os._exit(0 if held else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.fixture
def hidden(tmp_path: Path) -> Path:
    """A path below a directory that nobody may search but root."""
    private = tmp_path / "private"
    private.mkdir(0o000)
    return private / "daemon"


@pytest.mark.parametrize(("parent", "found"), [(1, [Ancestor("launchd", ("/sbin/launchd",))]), (4711, [])])
def test_on_macos_launchd_is_known_by_its_number(
    monkeypatch: pytest.MonkeyPatch, parent: int, found: list[Ancestor]
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(os, "getppid", lambda: parent)
    monkeypatch.setattr(process, "_stat", lambda _: None)  # no /proc
    assert [*process.ancestors()] == found


def test_a_parent_of_a_relative_name_is_known_by_it_where_the_current_directory_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "release"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    monkeypatch.setattr(process, "_stat", lambda _: [b"S", b"0", *[b"1"] * 30])
    monkeypatch.setattr(process, "_command", lambda _: ("bin/daemon", "serve"))

    def no_link(_: Path) -> Path:
        raise PermissionError

    monkeypatch.setattr(Path, "readlink", no_link)
    assert [*process.ancestors()] == [Ancestor("daemon", ("bin/daemon", "serve"))]


def test_a_parent_whose_program_is_hidden_has_the_name_by_which_it_was_called(
    hidden: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = os.getppid()
    fields = [b"S", b"0", *[b"1"] * 30]
    monkeypatch.setattr(process, "_stat", lambda _: fields)
    monkeypatch.setattr(process, "_command", lambda _: (str(hidden), "serve"))

    def no_link(_: Path) -> Path:
        raise PermissionError

    monkeypatch.setattr(Path, "readlink", no_link)
    assert holds_for_others(lambda: [*process.ancestors()] == [Ancestor("daemon", (str(hidden), "serve"))])
    assert parent == os.getppid()


def test_what_an_imitation_of_proc_leaves_out_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_bytes", lambda _: b"1 (python) S 1")
    assert process.started_at() > 0
    assert (process.birth(1), process.is_stopped(1), [*process.ancestors()]) == (None, False, [])
    monkeypatch.setattr(Path, "read_bytes", lambda _: b"")
    assert process.resident_bytes() == 0


def test_files_in_a_home_that_is_hidden_have_no_place_there(hidden: Path) -> None:
    assert holds_for_others(lambda: OwnFiles([hidden]).writable_directory() is None)


def test_a_shutdown_file_in_a_hidden_directory_does_not_exist(hidden: Path) -> None:
    assert holds_for_others(lambda: not StopRequest(str(hidden)))
