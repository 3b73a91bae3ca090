"""docs/reference/ has every finding of `doctor` and every metric, and no other; docs/alarm.md what to do at each."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING

from pollconsumer.store.reading.inspector import Inspector
from pollconsumer.watching import examiner, findings
from pollconsumer.watching.findings import ENDS
from pollconsumer.watching.metrics import metrics_of
from tests.conftest import NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pollconsumer.store.client.wire import Wire

DOCS = Path(__file__).parents[2] / "docs"
REFERENCE = DOCS / "reference"


def listed(page: str) -> set[str]:
    """Names in the first column of a page's table."""
    rows = re.findall(r"^\| (`[^|]*) \|", (REFERENCE / page).read_text("utf-8"), re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def made() -> Iterator[str]:
    """What the code names its findings, at the calls that make them; those of ends by force stand in a table."""
    yield from (name for name, *_ in ENDS.values())
    for module in (findings, examiner):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Finding":
                named = (each for argument in node.args[:1] for each in ast.walk(argument))
                yield from (str(each.value) for each in named if isinstance(each, ast.Constant))


def texts() -> Iterator[str]:
    """What findings say is wrong, with ``…`` for what varies: the third argument of the calls that make them, or what
    the code calls ``what`` before."""
    yield from (what for _, what, _ in ENDS.values())
    for module in (findings, examiner):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("Finding", "_unserved"):
                said = node.args[2]
            elif isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "what":
                said = node.value
            else:
                continue
            if isinstance(said, ast.Constant):
                yield str(said.value)
            elif isinstance(said, ast.JoinedStr):
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in said.values)


def test_the_page_for_an_alarm_says_what_to_do_at_every_finding() -> None:
    heads = re.findall(r"^- (`[^:]*`)(?:, .*)?:", (DOCS / "alarm.md").read_text("utf-8"), re.MULTILINE)
    phrases = [re.escape(each).replace("…", ".*") for head in heads for each in re.findall("`([^`]+)`", head)]
    said = {*texts()} - {"launches of the … … (…)"}  # which has one of ENDS
    assert len(said) > 35
    assert [text for text in said if not any(re.search(phrase, text) for phrase in phrases)] == []


def test_every_finding_has_a_row() -> None:
    assert listed("findings.md") == {*made()}


def test_every_metric_has_a_row(wire: Wire) -> None:
    assert listed("metrics.md") == {each.name for each in metrics_of(Inspector(wire, NAMESPACE))}
