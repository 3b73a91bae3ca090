"""Nothing that a version has promised is gone or changed in the next one: docs/reference/compatibility.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Required, TypedDict

import click
import pytest

from pollconsumer.store.reading.messages import Message
from tests.compatibility.__main__ import PROMISED, printed_metrics
from tests.compatibility.promised_lines import (
    IS_REQUIRED,
    command_arguments,
    may_go,
    names,
    newly_required,
    promised_lines,
)
from tests.compatibility.promised_types import alternatives, http_lines, types_of
from tests.interface.api_page import section

if TYPE_CHECKING:
    from tests.site import Site

WHAT_TO_DO = (
    "gone or changed: keep each for a minor version, with a DeprecationWarning (docs/reference/compatibility.md). What "
    "no version has promised yet goes from tests/compatibility/promised.txt"
)


def test_what_the_last_version_promised_is_still_so(site: Site) -> None:
    promised = PROMISED.read_text("utf-8").splitlines()[1:]
    now = promised_lines(printed_metrics(site))
    gone = [
        *({line for line in promised if not may_go(line)} - {*now}),
        *(f"{line}, which is required" for line in newly_required(now, promised)),
    ]
    assert gone == [], f"{', '.join(sorted(gone))}: {WHAT_TO_DO}"


def test_an_argument_or_a_right_that_is_needed_now_is_found() -> None:
    promised = ["name A", "name A.b", "name A.b: c"]
    added = ["name A.b: d=None", "name A.b: **options", "name A.new", "name A.new: e", "name A.b: f", "right of b +get"]
    assert newly_required([*promised, *added], promised) == ["name A.b: f", "right of b +get"]


class Before(TypedDict, total=False):
    gone: Required[str]
    needed_now: str
    needed: Required[str]


class After(TypedDict, total=False):
    needed_now: Required[str]
    needed: Required[str]
    new: str
    new_and_needed: Required[str]


def test_an_option_that_is_needed_now_is_found_whether_it_is_new_or_was_optional() -> None:
    before, after = ([*names(section("f: options", kind))] for kind in (Before, After))
    assert newly_required(after, before) == [
        "name f: options.needed_now is required",
        "name f: options.new_and_needed is required",
    ]
    assert newly_required(after, []) == []
    assert [line for line in before if line not in after and not may_go(line)] == ["name f: options.gone"]


@pytest.mark.parametrize(
    ("now", "gone"),
    [
        ("(self, b: int, a: int | str) -> str", ["argument 1 is a", "argument 2 is b"]),
        ("(self, a: int, b: int) -> str", ["a takes str"]),
        ("(self, a: int | str, b: int | float) -> str", []),
        ("(self, a: int | str, b: int, c: int = 0) -> str", []),
        ("(self, a: int | str, b: int) -> str | None", ["gives str"]),
        ("(self, a: int | str, b: int) -> int", ["gives str"]),
    ],
)
def test_a_change_of_a_type_or_of_an_arguments_place_is_found_and_a_wider_argument_is_none(
    now: str, gone: list[str]
) -> None:
    before, after = ({*types_of("A", class_of(each))} for each in ("(self, a: int | str, b: int) -> str", now))
    assert sorted(before - after) == [f"type A.f: {each}" for each in gone]


def class_of(signature: str) -> type:
    """One with a method ``f``, as if our package had it."""
    made: dict[str, Any] = {"__name__": "pollconsumer.made"}
    exec(f"from __future__ import annotations\nclass A:\n    def f{signature}: ...", made)
    found = made["A"]
    assert isinstance(found, type)
    return found


def test_a_change_of_an_attributes_type_or_of_a_choice_is_found() -> None:
    before = {*types_of("handle.status()", Message)}
    assert "type handle.status().expires_at: gives datetime | None" in before
    assert alternatives("Literal['a', 'b'] | int | list[str | None]") == ["'a'", "'b'", "int", "list[str | None]"]


def test_what_goes_from_a_request_or_an_answer_is_found_and_what_a_request_must_have_now() -> None:
    def lines(sent: dict[str, Any], required: list[str], given: dict[str, Any]) -> list[str]:
        body = {"content": {"application/json": {"schema": {"properties": sent, "required": required}}}}
        answer = {"content": {"application/json": {"schema": {"$ref": "#/schemas/A"}}}}
        operation = {"requestBody": body, "responses": {"200": answer, "401": {}}}
        return [
            *http_lines({"paths": {"/a": {"post": operation}}, "schemas": {"A": {"properties": given}}}, IS_REQUIRED)
        ]

    one, text = {"type": ["integer", "null"]}, {"type": "string"}
    before = lines({"x": one, "y": text}, ["x"], {"z": {"properties": {"w": one}}})
    assert set(before) - {*lines({"x": text}, [], {"z": {"properties": {"w": text}}})} == {
        "http POST /a: x takes integer", "http POST /a: x takes null", "http POST /a: x is required",
        "http POST /a: y takes string", "http POST /a answers 200: z.w is integer or null",
    }  # fmt: skip
    after = lines({"x": one, "y": text}, ["x", "y"], {"z": {"properties": {"w": one}}})
    assert newly_required(after, before) == ["http POST /a: y is required"]


def test_an_argument_of_a_command_that_goes_or_is_needed_now_is_found() -> None:
    def lines(*arguments: click.Argument) -> list[str]:
        return ["command p", *command_arguments(click.Command("p", params=[*arguments]), "p")]

    word = click.Choice(["a", "b"])
    before = lines(click.Argument(["x"], type=word), click.Argument(["y"], nargs=-1))
    assert {*before} - {*lines(click.Argument(["x"], type=click.Choice(["a"])))} == {
        "argument p: 1 may be b", "argument p: 2", "argument p: 2 may be several",
    }  # fmt: skip
    after = lines(click.Argument(["x"], type=word), click.Argument(["y"], nargs=-1, required=True))
    assert newly_required(after, before) == ["argument p: 2 is required"]


def test_each_kind_of_what_the_page_promises_has_lines() -> None:
    kinds = {line.split()[0] for line in PROMISED.read_text("utf-8").splitlines()}
    assert kinds == {
        "#", "alarm", "argument", "command", "exit", "http", "json", "key", "metric", "name", "option", "ping",
        "program", "right", "setting", "type",
    }  # fmt: skip
