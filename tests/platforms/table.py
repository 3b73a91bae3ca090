"""A row's figures as a line of Markdown, and what must hold of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tests.cron.report import text

COLUMNS = (
    "Launcher, hand-off",
    "Launches",
    "Dropped",
    "Coverage",
    "Best possible",
    "Gap p50, max",
    "Longest silence",
    "Latency p50, p99, max",
    "Due messages late p50, p99, max",
    "Occurrences late p50, p99, max",
    "Lost, twice, early",
    "Overruns",
    "Start-up, exit",
)
HEADINGS = f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}"
NONE_OF = ("dropped", "lost", "twice", "early", "overruns", "left")


def line(name: str, result: dict[str, Any]) -> str:
    p50, _, most = result["gap"]
    cells = (
        name.replace("/", ", "),
        result["launches"],
        result["dropped"],
        f"{result['coverage']:.2%}",
        f"{result['best']:.2%}",
        _texts([p50, most]),
        text(result["silence"]),
        _texts(result["latency"]),
        _texts(result["due"]),
        _texts(result["occurrences"]),
        f"{result['lost']}, {result['twice']}, {result['early']}",
        result["overruns"],
        _texts([result["start_up"], result["exit"]]),
    )
    return f"| {' | '.join(map(str, cells))} |"


def failures(result: dict[str, Any]) -> Iterator[str]:
    for name in NONE_OF:
        if result[name]:
            yield f"{result[name]} {name}"
    if result["printed"]:
        yield f"launches printed: {result['printed']}"


def _texts(seconds: Sequence[float]) -> str:
    return ", ".join(map(text, seconds))
