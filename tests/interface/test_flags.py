"""The quick reading of a launch's command line: what it reads, click reads in the same way."""

from __future__ import annotations

from typing import Any
from unittest import mock

import click
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pollconsumer.core.choices import HandOff
from pollconsumer.core.errors import PollConsumerError
from pollconsumer.interface.cli import flags as flags_module
from pollconsumer.interface.cli import group, kinds, launch_command
from pollconsumer.interface.cli.flags import SECTIONS, Flag, Given, common_flags, flags_of, read
from pollconsumer.interface.cli.types import declared
from pollconsumer.interface.settings.fields import DeclaredField, declared_fields
from pollconsumer.interface.settings.load import with_flags
from pollconsumer.interface.settings.model import Settings, changed

VALUES = {
    "name": st.sampled_from(["default", "mail", "a b", "", "x" * 65]),
    "duration": st.sampled_from(["5s", "1m30s", "0", "2", "-1s", "500 ms", "1e3", "nan", ""]),
    "cron": st.sampled_from(["* * * * *", "*/5 * * * *", "61 * * * *", "never"]),
    "size": st.sampled_from(["64MiB", "1000", "0", "lots"]),
}
NUMBERS = st.sampled_from(
    ["0", "1", "64", "65", "256", "257", "500", " 7 ", "1_0", "٣", "1.5", "1e3", "inf", "-1", "x"]
)
WORDS = st.sampled_from(["deadline", "baton", "auto", "queue", "drop", "woken", "article", "Baton", ""])
ANY = st.sampled_from(["config.toml", "redis://db/1", "run", "move", "-v", "--store", "-", "--", "a=b", ""])
JUNK = st.sampled_from(
    ["-v", "-vv", "-q", "-vq", "--", "-", "--help", "--version", "run", "move", "extra", "--zzz", ""]
)


def _values(flag: Flag) -> st.SearchStrategy[str]:
    return VALUES.get(getattr(flag.kind, "name", ""), NUMBERS) | WORDS | NUMBERS | ANY


@st.composite
def given_flags(draw: st.DrawFn, flags: tuple[Flag, ...]) -> list[str]:
    words: list[str] = []
    for flag in draw(st.lists(st.sampled_from(flags), max_size=4)):
        value = None if flag.kind is None and draw(st.booleans()) else draw(_values(flag))
        form = draw(
            st.sampled_from(
                ["apart", "equals", "alone"] if value is None else ["apart"] * 4 + ["equals"] * 4 + ["alone"]
            )
        )
        if value is None or form == "alone":
            words.append(flag.flag)
        elif form == "equals":
            words.append(f"{flag.flag}={value}")
        else:
            words += [flag.flag, value]
    return words


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    command = draw(st.sampled_from([*SECTIONS]))
    before, after = draw(given_flags(common_flags())), draw(given_flags((*common_flags(), *flags_of(command))))
    words = [*draw(st.lists(st.sampled_from(["-v", "-q"]), max_size=1)), *before, command, *after]
    if draw(st.integers(0, 4)) == 0:
        words.insert(draw(st.integers(0, len(words))), draw(JUNK))
    return words


class Common(dict[str, Any]):
    """Flags before a command, in the place of settings."""

    config = nowhere = None


def by_click(arguments: list[str]) -> Given | None:
    """What click reads; None for help and errors."""
    found: list[Given] = []

    def taking(command: str) -> Any:
        return lambda common, **own: found.append(Given(command, *verbosity, common, own))

    verbosity: tuple[int, bool] = (0, False)

    def set_verbosity(times: int, *, quiet: bool) -> None:
        nonlocal verbosity
        verbosity = times, quiet

    def settings_of(config: str | None, store: str | None, namespace: str | None) -> Any:
        return Common(config=config, store=store, namespace=namespace)

    with (
        mock.patch.multiple(group, settings_of=settings_of, set_verbosity=set_verbosity),
        mock.patch.multiple(launch_command, run=taking("run"), move=taking("move")),
    ):
        try:
            group.invoke(arguments)
        except PollConsumerError:
            return None
    return found[0] if found else None


def _described(line: Given) -> list[tuple[str, type]]:
    """Order and types, which equality does not compare."""
    return [(name, type(value)) for name, value in line.own.items()]


@given(arguments=command_lines())
@example(
    arguments=[
        "-q",
        "--config=c.toml",
        "run",
        "--queue",
        "a",
        "--queue=b",
        "--until-empty",
        "--linger",
        "2s",
        "--store",
        "x",
    ]
)
def test_what_is_read_quickly_is_what_click_reads(arguments: list[str]) -> None:
    quickly = read(arguments)
    if quickly is not None:
        clicked = by_click(arguments)
        assert clicked is not None
        assert quickly == clicked
        assert _described(quickly) == _described(clicked)


@pytest.mark.parametrize(
    ("arguments", "own"),
    [
        (["run"], {}),
        (["-v", "run", "--until-empty"], {"until_empty": True}),
        (["--config", "a.toml", "run", "--timeout=50s", "--concurrency", "4"], {"timeout": 50.0, "concurrency": 4}),
        (["run", "--queue", "a", "--queue", "b", "--handoff=baton"], {"queues": ("a", "b"), "handoff": HandOff.BATON}),
        (
            ["run", "--schedule", "* * * * *", "--memory-limit", "1MiB"],
            {"schedule": "* * * * *", "memory_limit": 1024**2},
        ),
        (["move", "--page-size", "9", "--store", "redis://db"], {"page_size": 9}),
        (["move", "--batch-size=9"], {"page_size": 9}),
    ],
)
def test_a_plain_command_line_of_a_launch_is_read_quickly(arguments: list[str], own: dict[str, Any]) -> None:
    found = read(arguments)
    assert found is not None
    assert {name: value for name, value in found.own.items() if value not in (None, (), False)} == own
    assert found == by_click(arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["status"],
        ["run", "--help"],
        ["run", "extra"],
        ["run", "--timeout"],
        ["run", "--timeout", "-5s"],
        ["run", "--timeout", "1s", "--timeout", "1s"],
        ["move", "--page-size", "9", "--batch-size", "9"],
        ["run", "--until-empty=1"],
        ["-q", "-v", "run"],
        ["-vv", "run"],
        ["run", "-v"],
        ["run", "--", "--until-empty"],
        ["run", "--instances", "65"],
    ],
)
def test_help_errors_and_other_spellings_are_left_to_click(arguments: list[str]) -> None:
    assert read(arguments) is None


SWITCH = DeclaredField("greeting", "bool", False, flag="--greeting", help="Log a line when a launch begins.")


@pytest.mark.parametrize(
    ("words", "greeting"),
    [([], None), (["--greeting"], True), (["--no-greeting"], False), (["--greeting", "--no-greeting"], False)],
)
def test_a_switch_among_the_settings_has_a_flag_for_either_side(
    words: list[str], greeting: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = declared_fields()
    sections = {**table.sections, "consumer": {**table.section("consumer"), SWITCH.key: SWITCH}}
    monkeypatch.setattr(flags_module, "declared_fields", lambda: table._replace(sections=sections))
    monkeypatch.setattr(flags_module, "flags_of", flags_of.__wrapped__)
    quick = read(["run", *words])
    assert quick is not None
    assert quick.own["greeting"] is greeting
    found: list[bool | None] = []

    @declared([flag for flag in flags_of.__wrapped__("run") if flag.name == "greeting"])
    def take(greeting: bool | None) -> None:
        found.append(greeting)

    click.command(take).main(words, standalone_mode=False)
    assert found == [greeting]


def values_of(flag: Flag) -> tuple[Any, Any]:
    """One for the file, and another for the command line, as the setting has them."""
    match flag.kind:
        case None:
            return True, True  # a switch cannot say no: what the file says must stand without it
        case kinds.Whole(least):
            return least + 1, least + 2
        case kinds.WordKind(words):
            return list(words)[-1], next(iter(words))
        case kinds.PlainKind():
            return 0.25, 0.5
        case _:
            texts: dict[str, tuple[Any, Any]] = {
                "queues": (("mail",), ("news",)),
                "timeout": (60.0, 90.0),
                "schedule": ("1 * * * *", "2 * * * *"),
                "memory_limit": (1 << 27, 1 << 28),
            }
            return texts.get(flag.name, (3.0, 7.0))


@pytest.mark.parametrize(("command", "section"), [("run", "consumer"), ("move", "mover")])
def test_what_the_file_says_stands_where_no_flag_is_given_and_a_flag_overrules_it(command: str, section: Any) -> None:
    own = vars(getattr(Settings(), section))
    flags = [flag for flag in flags_of(command) if flag.name in own]
    assert len(flags) == len(flags_of(command)) - 4 * (command == "run")
    of_file = {flag.name: values_of(flag)[0] for flag in flags}
    settings = changed(Settings(), **{section: changed(getattr(Settings(), section), **of_file)})
    quick = read([command])
    for plain in (quick, by_click([command])):
        assert plain is not None
        assert set(plain.own.values()) <= {None, ()}
        assert with_flags(settings, section, plain.own) == settings
    for flag in flags:
        wanted = values_of(flag)[1]
        flagged = with_flags(settings, section, {**quick.own, flag.name: wanted})  # type: ignore[union-attr]
        assert getattr(flagged, section) == changed(getattr(settings, section), **{flag.name: wanted})
