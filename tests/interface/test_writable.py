"""Configurations and modules that others may write."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.errors import ConfigurationError, shown
from pollconsumer.interface.settings import owners
from pollconsumer.interface.settings.load import load_settings
from pollconsumer.interface.settings.owners import refuse_writable_modules

if TYPE_CHECKING:
    from pathlib import Path

    from tests.site import Site


@pytest.fixture
def config(tmp_path: Path) -> Path:
    place = tmp_path / "place"
    place.mkdir(mode=0o755)
    config = place / "config.toml"
    config.write_text("trust_writable = true")  # which counts for nothing where others may have written it
    config.chmod(0o644)
    return config


def test_a_configuration_that_others_may_write_is_refused(config: Path) -> None:
    assert load_settings(config)
    config.chmod(0o646)
    with pytest.raises(ConfigurationError, match=r"configuration file is writable by others.*chmod o-w it, or set"):
        load_settings(config)


def test_a_configuration_that_others_may_replace_is_refused(config: Path) -> None:
    config.parent.chmod(0o757)
    with pytest.raises(ConfigurationError, match="configuration's directory is writable by others"):
        load_settings(config)


def test_a_configuration_of_ours_in_a_sticky_directory_is_used(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.parent.chmod(0o1777)
    assert load_settings(config)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    if config.stat().st_uid != 0:
        with pytest.raises(ConfigurationError):
            load_settings(config)


def test_modules_in_a_directory_that_others_may_write_are_refused_sticky_or_not(tmp_path: Path) -> None:
    for mode in (0o757, 0o1777):
        tmp_path.chmod(mode)
        with pytest.raises(ConfigurationError, match="handlers' directory is writable by others"):
            refuse_writable_modules(tmp_path)
    tmp_path.chmod(0o775)
    refuse_writable_modules(tmp_path)


def test_a_link_to_a_configuration_that_others_may_replace_is_refused(config: Path, tmp_path: Path) -> None:
    link = tmp_path / "config.toml"
    link.symlink_to(config)
    assert load_settings(link)
    config.parent.chmod(0o757)
    named = re.escape(shown(config.parent))
    with pytest.raises(ConfigurationError, match=f"configuration's directory is writable by others: {named};"):
        load_settings(link)


@pytest.mark.parametrize("path", ["single.py", "package", "package/__init__.py", "package/inner.py"])
def test_modules_that_others_may_write_are_refused(tmp_path: Path, path: str) -> None:
    (tmp_path / "package").mkdir(mode=0o755)
    for name in ("single.py", "package/__init__.py", "package/inner.py"):
        (tmp_path / name).touch(0o644)
    modules = ["elsewhere.absent", "single", "package.inner"]
    refuse_writable_modules(tmp_path, modules)
    (tmp_path / path).chmod(0o777)
    with pytest.raises(ConfigurationError, match="handlers' module is writable by others"):
        refuse_writable_modules(tmp_path, modules)


@pytest.mark.parametrize(
    "path",
    ["beside.py", "bare.pyc", "__pycache__", "__pycache__/single.pyc", "package/__pycache__", "package/beside.py"],
)
def test_what_a_module_may_import_from_beside_it_is_refused_too(tmp_path: Path, path: str) -> None:
    for place in (tmp_path, tmp_path / "package"):
        (place / "__pycache__").mkdir(mode=0o755, parents=True)
        for name in ("__init__.py", "single.py", "beside.py", "bare.pyc", "__pycache__/single.pyc", "notes.txt"):
            (place / name).touch(0o644)
        (place / "notes.txt").chmod(0o666)
    (tmp_path / "dangling.py").symlink_to(tmp_path / "absent.py")
    refuse_writable_modules(tmp_path, ["single", "package.single"])
    (tmp_path / path).chmod(0o777)
    with pytest.raises(ConfigurationError, match=f"handlers' module is writable by others: {shown(tmp_path / path)};"):
        refuse_writable_modules(tmp_path, ["single", "package.single"])


@pytest.mark.parametrize("mode", [0o777, 0o755])
def test_a_module_that_is_a_link_into_a_directory_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    place, elsewhere = tmp_path / "place", tmp_path / "elsewhere"
    place.mkdir(mode=0o755)
    elsewhere.mkdir()
    elsewhere.chmod(mode)
    (elsewhere / "handlers.py").touch(0o644)
    (place / "handlers.py").symlink_to(elsewhere / "handlers.py")
    if mode == 0o755:
        refuse_writable_modules(place, ["handlers"])
        return
    with pytest.raises(ConfigurationError, match=f"handlers' module is writable by others: {shown(elsewhere)};"):
        refuse_writable_modules(place, ["handlers"])


def test_a_directory_of_pythonpath_that_others_may_write_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, mode in (("place", 0o755), ("path", 0o757)):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(mode)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'absent'}:{tmp_path / 'path'}")
    with pytest.raises(ConfigurationError, match="directory of PYTHONPATH is writable by others: "):
        refuse_writable_modules(tmp_path / "place")


def test_a_program_that_others_may_write_or_replace_is_refused(site: Site) -> None:
    place = site.directory / "programs"
    place.mkdir()
    place.chmod(0o755)
    program = place / "backup"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    with (site.directory / "config.toml").open("a") as config:
        config.write('[commands.backup]\ncommand = ["programs/backup"]\n')
    assert site.command("check").returncode == 0
    place.chmod(0o757)
    assert "command's program is writable by others" in site.command("check").stderr
    place.chmod(0o755)
    program.chmod(0o757)
    assert site.command("check").returncode == 78
    assert site.command("check", POLLCONSUMER_TRUST_WRITABLE="true").returncode == 0


def test_a_launch_refuses_a_module_that_others_may_write(site: Site) -> None:
    (site.directory / "handlers.py").chmod(0o666)
    assert site.command("run", "--until-empty").returncode == 78


def test_where_modes_mean_nothing_they_are_not_looked_at(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owners, "modes_mean_nothing", lambda _: True)
    config.parent.chmod(0o777)
    config.chmod(0o777)
    assert load_settings(config)
    refuse_writable_modules(config.parent)


def test_launches_refuse_what_others_may_write_unless_the_environment_trusts_it(site: Site) -> None:
    site.directory.chmod(0o777)
    (site.directory / "config.toml").chmod(0o666)
    refused = site.command("run", "--until-empty")
    assert (refused.returncode, refused.stderr.count("\n")) == (78, 1)
    trusting = {"POLLCONSUMER_TRUST_WRITABLE": "true"}
    assert site.command("run", "--until-empty", **trusting).returncode == 0
    site.directory.chmod(0o700)
    assert site.command("run", "--until-empty").returncode == 78
    (site.directory / "config.toml").chmod(0o600)
    assert site.drain().returncode == 0


def test_modules_that_others_may_add_to_are_refused_though_no_file_is_configured(site: Site) -> None:
    (site.directory / "config.toml").unlink()
    site.directory.chmod(0o1777)
    named = {"POLLCONSUMER_HANDLERS": "handlers"}
    assert site.command("run", "--until-empty", **named).returncode == 78
    assert site.command("--namespace", "pollconsumer", "enqueue", "record", '{"name": "a"}').returncode == 0
    site.directory.chmod(0o755)
    assert site.command("run", "--until-empty", **named).returncode == 0


def test_what_lies_below_a_directory_that_others_may_write_is_refused(config: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    named = re.escape(shown(tmp_path))
    with pytest.raises(ConfigurationError, match=f"configuration's directory is writable by others: {named};"):
        load_settings(config)
    with pytest.raises(ConfigurationError, match=f"handlers' directory is writable by others: {named};"):
        refuse_writable_modules(config.parent)
    tmp_path.chmod(0o1777)
    assert load_settings(config)
    refuse_writable_modules(config.parent)
    os.chown(config.parent, 12345, -1)
    with pytest.raises(
        ConfigurationError, match=r"configuration's directory is writable by others: .*/place; it belongs"
    ):
        load_settings(config)


def test_a_device_in_place_of_a_configuration_is_not_called_writable_by_a_group(site: Site) -> None:
    assert site.json("--config", os.devnull, "check")["group_writable"] == []


def test_check_creates_no_directory_for_state(site: Site) -> None:
    config = site.directory / "config.toml"
    config.write_text(f'state = "kept"\n{config.read_text()}[commands.x]\ncommand = ["true"]\n')
    before = {path.name for path in site.directory.iterdir()}
    assert site.json("check")["state"] == str(site.directory / "kept")
    assert {path.name for path in site.directory.iterdir()} - before <= {"data", "cache", "__pycache__"}


def test_check_names_what_a_group_may_write(site: Site) -> None:
    (site.directory / "config.toml").chmod(0o664)
    assert site.json("check")["group_writable"] == [str(site.directory / "config.toml")]
    assert "group-writable" in site.command("check").stdout
