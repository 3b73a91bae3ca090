"""Former names of settings are accepted, and warned of: by `check` each time, by launches as what repeats."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pollconsumer.interface.settings.load import former_names
from pollconsumer.interface.settings.model import declared_fields

if TYPE_CHECKING:
    from pathlib import Path

    from tests.site import Site

SHORT = ["--timeout", "1s", "--min-margin", "0s"]
WARNING = "pollconsumer: warning: {} is a former name, and goes with a later version: use {}\n"


def test_each_former_name_is_found_in_file_variables_and_flags(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    for section, keys in declared_fields().sections.items():
        for setting in keys.values():
            if setting.former:
                config.write_text(f"[{section}]\n{setting.former} = 9\n")
                variable = f"POLLCONSUMER_{section}__{setting.former}".upper()
                flag = f"--{setting.former.replace('_', '-')}"
                assert [former for former, _ in former_names(config, {variable: "9"}, ["move", f"{flag}=9"])] == [
                    f"{section}.{setting.former}",
                    variable,
                    flag,
                ]


@pytest.mark.parametrize("content", ["", "[mover]\npage_size = 9 # once batch_size\n", "[mover\nbatch_size", None])
def test_a_file_without_a_former_name_is_not_warned_of(tmp_path: Path, content: str | None) -> None:
    config = tmp_path / "config.toml"
    if content is not None:
        config.write_text(content)
    assert [*former_names(config, {"POLLCONSUMER_MOVER__BATCH_SIZE": ""}, ["move", "--page-size=9"])] == []


def test_check_says_it_each_time(site: Site) -> None:
    config = site.directory / "config.toml"
    config.write_text(f"{config.read_text()}[mover]\nbatch_size = 9\n")
    for _ in range(2):
        checked = site.command("check")
        assert (checked.returncode, checked.stderr) == (0, WARNING.format("mover.batch_size", "mover.page_size"))


def test_launches_say_it_as_what_repeats_and_not_each_time(site: Site) -> None:
    said = [site.command("move", "--batch-size", "9", *SHORT).stderr for _ in range(3)]
    assert said[0] == WARNING.format("--batch-size", "--page-size")
    assert "(2 launches in " in said[1]
    assert said[2] == ""


def test_a_variable_is_named_with_the_one_that_replaces_it(site: Site) -> None:
    environment = {"POLLCONSUMER_MOVER__BATCH_SIZE": "9"}
    expected = WARNING.format("POLLCONSUMER_MOVER__BATCH_SIZE", "POLLCONSUMER_MOVER__PAGE_SIZE")
    assert site.command("check", **environment).stderr == expected
