"""The page on `--json` says what the commands print: their keys, in order, and the type of each."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

import click
import pytest

from pollconsumer.interface.cli.group import group
from tests.interface.json_page import PRINTING, Key, declared, is_of_kind, keys_of, misfits, printed_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.site import Site

ELSEWHERE = {"store backup", "store import"}
"""What they print is what `store export` prints."""


@pytest.mark.ends_with(1)  # doctor finds dead letters
def test_what_commands_print_is_as_the_page_says(site: Site) -> None:
    found = {line: [*misfits(printed, keys_of(line))] for line, printed in printed_at(site)}
    assert {line: wrong for line, wrong in found.items() if wrong} == {}
    assert {line for line in found if keys_of(line)} == {*declared()}


def test_each_example_is_of_its_type() -> None:
    for line, keys in declared().items():
        for key in keys:
            if key.example:
                assert is_of_kind(json.loads(key.example), key.kind), (line, key)


def test_each_command_that_prints_json_is_on_the_page() -> None:
    shown = [shlex.split(line) for line in PRINTING]
    missing = [
        name
        for name in _printing_json(group, "")
        if [*name.split()] not in [each[: len(name.split())] for each in shown]
    ]
    assert {*missing} == ELSEWHERE


def _printing_json(command: click.Command, name: str) -> Iterator[str]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            assert found is not None
            yield from _printing_json(found, f"{name} {each}".strip())
    elif any("--json" in parameter.opts for parameter in command.params):
        yield name


@pytest.mark.parametrize(
    ("printed", "wrong"),
    [
        ({"a": 1, "b": {"c": "x"}}, []),
        ({"a": None, "b": None}, []),
        ({"a": "1", "b": None}, ["a: '1' is printed, whole number or null declared"]),
        ({"a": True, "b": None}, ["a: True is printed, whole number or null declared"]),
        ({"a": 1, "b": {"c": None}}, ["b.c: None is printed, text declared"]),
        ({"a": 1}, ["keys: ['a'] are printed, ['a', 'b'] declared"]),
        ([{"a": 1, "b": {"d": 1}}], ["b.: ['d'] are printed, ['c'] declared"]),
    ],
)
def test_what_is_printed_otherwise_is_found(printed: object, wrong: list[str]) -> None:
    keys = [
        Key("a", "whole number or null", "1", ""),
        Key("b", "object or null", "", ""),
        Key("b.c", "text", '"x"', ""),
    ]
    assert [*misfits(printed, keys)] == wrong
