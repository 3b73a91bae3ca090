"""Files of the user's own: where they are kept, and whom they are kept from."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from unittest import mock

import pytest

from pollconsumer.core.errors import CannotCreate
from pollconsumer.runtime.system import own_files
from pollconsumer.runtime.system.own_files import (
    OwnFiles,
    data_directory,
    modes_mean_nothing,
    state_directories,
)

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


def test_each_kind_of_directory_follows_its_variable_and_else_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    assert data_directory() == Path("/home/ada/.local/share/pollconsumer")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state_directories() == [tmp_path / "pollconsumer", data_directory(), Path("/home/ada/.cache/pollconsumer")]


def test_a_user_without_a_home_has_only_the_directories_that_variables_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", mock.Mock(side_effect=KeyError))
    assert state_directories() == []
    with pytest.raises(CannotCreate):
        data_directory()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert state_directories() == [data_directory()]


def test_what_is_written_is_read_again_and_removed(tmp_path: Path) -> None:
    files = OwnFiles([tmp_path / "a" / "b"])
    assert files.read("stores/one") is None
    assert files.write("stores/one", b"first")
    assert files.write("stores/one", b"second")
    assert files.read("stores/one") == b"second"
    path = tmp_path / "a" / "b" / "stores" / "one"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert {stat.S_IMODE(parent.stat().st_mode) for parent in list(path.parents)[:3]} == {0o700}
    assert [entry.name for entry in path.parent.iterdir()] == ["one"]
    files.remove("stores/one")
    assert files.read("stores/one") is None


def test_where_the_first_directory_cannot_be_written_the_next_one_is(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    files = OwnFiles([tmp_path / "file" / "below", tmp_path / "next"])
    assert files.write("one", b"kept")
    assert files.read("one") == b"kept"
    assert files.writable_directory() == tmp_path / "next"


@pytest.mark.parametrize("taken", ["link", "others", "file"])
def test_a_spare_directory_that_is_not_the_users_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: str
) -> None:
    monkeypatch.setattr(own_files, "TEMPORARY", tmp_path)
    spare = own_files.spare_directory()
    assert spare is not None
    if taken == "file":
        spare.touch()
    elif taken == "link":
        (tmp_path / "mine").mkdir(0o700)
        spare.symlink_to(tmp_path / "mine")
    else:
        spare.mkdir()
        spare.chmod(0o777)
    assert own_files.spare_directory() is None


def test_where_nothing_can_be_written_nothing_is_kept_and_nothing_raised(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for files in (OwnFiles([]), OwnFiles([tmp_path / "file" / "below"])):
        assert not files.write("one", b"lost")
        assert files.read("one") is None
        assert files.writable_directory() is None
        files.remove("one")


def test_an_older_file_in_a_better_directory_does_not_outlast_a_newer_one(tmp_path: Path) -> None:
    better, worse = tmp_path / "better", tmp_path / "worse"
    assert OwnFiles([better]).write("one", b"old")
    better.chmod(0o777)  # of no use from now on
    files = OwnFiles([better, worse])
    assert files.write("one", b"new")
    better.chmod(0o700)
    assert files.read("one") == b"new"


@pytest.mark.parametrize("tampering", ["mode", "link", "place", "pipe"])
def test_what_others_may_have_written_is_not_read(tmp_path: Path, tampering: str) -> None:
    files = OwnFiles([tmp_path / "own"])
    assert files.write("one", b"ours")
    path = tmp_path / "own" / "one"
    if tampering == "mode":
        path.chmod(0o666)
    elif tampering == "link":
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    elif tampering == "place":
        path.parent.chmod(0o777)
    else:
        path.unlink()
        os.mkfifo(path, 0o600)
    assert files.read("one") is None


@ROOT_ONLY
def test_what_belongs_to_another_user_is_not_read(tmp_path: Path) -> None:
    files = OwnFiles([tmp_path / "own"])
    assert files.write("one", b"ours")
    os.chown(tmp_path / "own" / "one", 12345, -1)
    assert files.read("one") is None


@pytest.mark.parametrize(
    ("mount", "nothing"),
    [
        ("cifs //account.file.core.windows.net/share rw,file_mode=0777", True),
        ("vfat /dev/sdb1 rw,umask=000", True),
        ("9p C: rw,aname=drvfs;path=C:", True),
        ("9p root rw,trans=fd", False),
        ("ext4 /dev/sda1 rw", False),
    ],
)
def test_modes_mean_something_where_the_file_system_keeps_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mount: str, nothing: bool
) -> None:
    device = tmp_path.stat().st_dev
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "20 1 254:99 / / rw - cifs //other rw\n"
        f"36 20 {os.major(device)}:{os.minor(device)} / /a\\040place rw,noatime master:1 - {mount}\n"
    )
    monkeypatch.setattr(own_files, "MOUNTS", mounts)
    assert modes_mean_nothing(tmp_path) is nothing


def test_modes_mean_nothing_on_a_read_only_mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _path: mock.Mock(f_flag=os.ST_RDONLY))
    assert modes_mean_nothing(tmp_path)


def test_where_the_system_lists_no_mounts_modes_are_taken_seriously(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_files, "MOUNTS", tmp_path / "none")
    assert not modes_mean_nothing(tmp_path)
