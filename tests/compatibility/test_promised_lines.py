"""Nothing that a version has promised is gone or changed in the next one: docs/compatibility.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.compatibility.__main__ import PROMISED, printed_metrics
from tests.compatibility.promised_lines import newly_required, promised_lines

if TYPE_CHECKING:
    from tests.site import Site

WHAT_TO_DO = (
    "gone or changed: keep each for a minor version, with a DeprecationWarning (docs/compatibility.md). What no "
    "version has promised yet goes from tests/compatibility/promised.txt"
)


def test_what_the_last_version_promised_is_still_so(site: Site) -> None:
    promised = PROMISED.read_text("utf-8").splitlines()[1:]
    now = promised_lines(printed_metrics(site))
    kept = {line for line in promised if not line.startswith("right ")}  # of which fewer will do
    gone = [*(kept - {*now}), *(f"{line}, which is required" for line in newly_required(now, promised))]
    assert gone == [], f"{', '.join(sorted(gone))}: {WHAT_TO_DO}"


def test_an_argument_or_a_right_that_is_needed_now_is_found() -> None:
    promised = ["name A", "name A.b", "name A.b: c"]
    added = ["name A.b: d=None", "name A.b: **options", "name A.new", "name A.new: e", "name A.b: f", "right of b +get"]
    assert newly_required([*promised, *added], promised) == ["name A.b: f", "right of b +get"]


def test_each_kind_of_what_the_page_promises_has_lines() -> None:
    kinds = {line.split()[0] for line in PROMISED.read_text("utf-8").splitlines()}
    assert kinds == {"#", "command", "option", "exit", "setting", "name", "json", "key", "right", "metric", "ping"}
