"""Figures as text: a table of ours, a bar for each peer, and a page's section that has them."""

from __future__ import annotations

import re
import statistics
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from benchmarks.place import Figure

    Turn = tuple[Mapping[str, Figure], Mapping[str, Figure]]
    """One repeat: of this commit and, if any, of an earlier one."""

LONGEST_BAR = 40
HEADING = "## Figures\n"


def table(measure: str, turns: Sequence[Turn]) -> list[str]:
    """Medians and extremes; of ratios, each of two figures of one turn."""
    lines = [f"| {measure} | | of the floor | of the commit before |", "|-|-|-|-|"]
    for name, first in turns[0][0].items():
        now = [turn[name] for turn, _ in turns]
        floors = [each.value / each.floor for each in now if each.floor]
        before = [each.value / turn[name].value for each, (_, turn) in zip(now, turns, strict=True) if name in turn]
        values = f"{_spread([each.value for each in now])} {first.unit}"
        lines.append(f"| {name} | {values} | {_spread(floors)} | {_spread(before)} |")
    return lines


def bars(title: str, values: Mapping[str, float], *, more_is_better: bool) -> list[str]:
    """A line for each name, the best first, as long as its value is great."""
    widest, greatest = max(map(len, values)), max(values.values())
    lines = ["```", f"{title}, {'more' if more_is_better else 'less'} is better", ""]
    for name in sorted(values, key=values.__getitem__, reverse=more_is_better):
        length = max(1, round(LONGEST_BAR * values[name] / greatest))
        lines.append(f"{name:<{widest}}  {'█' * length} {number(values[name])}")
    return [*lines, "```"]


def write(page: Path, lines: Sequence[str]) -> None:
    """Replace what stands under ``HEADING``, up to the next heading; add it at the end if there is none."""
    section, text = HEADING + "\n" + "\n".join(lines) + "\n", page.read_text()
    found = re.search(rf"^{HEADING}.*?(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    if found is None:
        page.write_text(f"{text}\n{section}")
    else:
        rest = text[found.end() :]
        page.write_text(text[: found.start()] + section + ("\n" + rest if rest else ""))


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _spread(values: list[float]) -> str:
    return f"{number(statistics.median(values))} ({number(min(values))}–{number(max(values))})" if values else "–"
