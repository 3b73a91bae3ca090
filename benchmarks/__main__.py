"""``python -m benchmarks [MEASURE …]``: every measure, beside its floor, an earlier commit, and peers.

Versions take turns in each repeat, since machines drift. Compare figures of one run only.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import peers
from benchmarks.place import Figure

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
MEASURES = ("drain", "slots", "enqueue", "wake", "startup", "lateness", "kills", "size", "backlog", "million")


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks")
    parser.add_argument("measures", nargs="*", metavar="MEASURE", help=f"of {', '.join(MEASURES)}; all by default")
    parser.add_argument(
        "--against", default="HEAD^", metavar="COMMIT", help="to compare with, HEAD^ by default; '' for none"
    )
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument(
        "--peers", type=Path, metavar="DIRECTORY", help="a harness that runs peers, see benchmarks/peers.py"
    )
    given = parser.parse_args()
    if unknown := set(given.measures) - set(MEASURES):
        parser.error(f"unknown measure: {', '.join(sorted(unknown))}")
    chosen = given.measures or MEASURES
    with _earlier(given.against) as earlier:
        for measure in chosen:
            turns = [(_run(measure, ROOT), _run(measure, earlier) if earlier else {}) for _ in range(given.repeat)]
            _print(measure, turns)
    if given.peers:
        peers.compare(given.peers, chosen, given.repeat)


@contextlib.contextmanager
def _earlier(commit: str) -> Iterator[Path | None]:
    """Its package, in a directory."""
    if not commit:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="pc-before-") as directory:
        archive = subprocess.run(
            ["git", "archive", commit, "pollconsumer"], cwd=ROOT, check=True, stdout=subprocess.PIPE
        )
        subprocess.run(["tar", "x", "-C", directory], input=archive.stdout, check=True)
        yield Path(directory)


def _run(measure: str, version: Path) -> dict[str, Figure]:
    """By name; in a process of its own, with this commit's measures and the package of ``version``."""
    environment = os.environ | {"PYTHONPATH": f"{version}{os.pathsep}{ROOT}", "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-m", "benchmarks.one", measure]
    output = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout
    return {name: Figure(name, *more) for name, *more in json.loads(output)}


def _print(measure: str, turns: list[tuple[dict[str, Figure], dict[str, Figure]]]) -> None:
    """Medians and extremes; of ratios, each of two figures of one turn."""
    print(f"\n| {measure} | | of the floor | of the commit before |\n|-|-|-|-|")
    for name, first in turns[0][0].items():
        now = [turn[name] for turn, _ in turns]
        floors = [each.value / each.floor for each in now if each.floor]
        before = [each.value / turn[name].value for each, (_, turn) in zip(now, turns, strict=True) if name in turn]
        print(
            f"| {name} | {_spread([each.value for each in now])} {first.unit} | {_spread(floors)} | {_spread(before)} |"
        )
    sys.stdout.flush()


def _spread(values: list[float]) -> str:
    if not values:
        return "–"
    return f"{statistics.median(values):,.4g} ({min(values):,.3g}–{max(values):,.3g})"


if __name__ == "__main__":
    main()
