"""The flags of launches, which are made of the declared settings."""

from __future__ import annotations

from typing import Any
from unittest import mock

import click
import pytest

from pollconsumer.interface.cli import group, launch_commands
from pollconsumer.interface.cli import types as flags_module
from pollconsumer.interface.cli.types import settings_of_section
from pollconsumer.interface.settings.load import with_flags
from pollconsumer.interface.settings.model import READ_DURATION, DeclaredField, Settings, changed, declared_fields

SECTIONS = {"run": "consumer", "move": "mover"}


class HasRead(Exception):
    """The launch would begin."""


def flags_read(*arguments: str) -> dict[str, Any]:
    """The settings that a launch's command line gives, by name."""
    reading = mock.Mock(side_effect=HasRead)
    with (
        mock.patch.multiple(
            launch_commands, _settings_of_launch=reading, refuse_nowhere=mock.DEFAULT, outlast_readers=mock.DEFAULT
        ),
        pytest.raises(HasRead),
    ):
        group.invoke(["--namespace", "n", *arguments])
    return dict(reading.call_args.args[2])


def example(setting: DeclaredField) -> str:
    texts = {"queues": "news", "schedule": "2 * * * *", "memory_limit": "256MiB"}
    if setting.reads == READ_DURATION:
        return "7s"
    if setting.words:
        return setting.words[-1]
    return texts.get(setting.key) or ("0.5" if setting.kind == "float" else str(int(setting.least or 0) + 2))


@pytest.mark.parametrize("command", SECTIONS)
def test_what_the_file_says_stands_where_no_flag_is_given(command: str) -> None:
    given = flags_read(command)
    assert set(given.values()) <= {None, ()}
    settings = Settings()
    assert with_flags(settings, SECTIONS[command], given) is settings  # type: ignore[arg-type]


@pytest.mark.parametrize("command", SECTIONS)
def test_each_flag_overrules_its_setting_and_no_other(command: str) -> None:
    section, settings = SECTIONS[command], Settings()
    named = [each for each in declared_fields().section(section).values() if each.flag is not None]
    assert len(named) > 6
    for setting in named:
        value = setting.accepted(setting.decoded(text := example(setting)))
        for spelled in filter(None, (setting.flag, setting.former and f"--{setting.former.replace('_', '-')}")):
            given = flags_read(command, spelled, text)
            assert {name: each for name, each in given.items() if each not in (None, ())} == {setting.key: value}
            flagged = with_flags(settings, section, given)  # type: ignore[arg-type]
            assert getattr(flagged, section) == changed(getattr(settings, section), **{setting.key: value})


SWITCH = DeclaredField("greeting", "bool", False, flag="--greeting", help="Log a line when a launch begins.")


@pytest.mark.parametrize(
    ("words", "greeting"),
    [([], None), (["--greeting"], True), (["--no-greeting"], False), (["--greeting", "--no-greeting"], False)],
)
def test_a_switch_among_the_settings_has_a_flag_for_either_side(
    words: list[str], greeting: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = declared_fields()
    sections = {**table.sections, "consumer": {SWITCH.key: SWITCH}}
    monkeypatch.setattr(flags_module, "declared_fields", lambda: table._replace(sections=sections))
    found: list[bool | None] = []
    click.command(settings_of_section("consumer")(lambda greeting: found.append(greeting))).main(
        words, standalone_mode=False
    )
    assert found == [greeting]
