"""Nothing that a version has promised is gone or changed in the next one: docs/reference/compatibility.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Required, TypedDict

from tests.compatibility.__main__ import PROMISED, printed_metrics
from tests.compatibility.promised_lines import may_go, names, newly_required, promised_lines
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


def test_each_kind_of_what_the_page_promises_has_lines() -> None:
    kinds = {line.split()[0] for line in PROMISED.read_text("utf-8").splitlines()}
    assert kinds == {"#", "command", "option", "exit", "setting", "name", "json", "key", "right", "metric", "ping"}
