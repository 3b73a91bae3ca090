"""``python -m tests.matrix server PROGRAM...`` and ``python PROGRAM...``: rows of docs/evidence/matrix.md, as run.

A server runs the tests of the store and some whole launches; a Python installs the project with what it needs, and runs
the tests of the layers. A row of the same version is replaced.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "evidence" / "matrix.md"
SERVER_TESTS = (
    ("tests/store",),
    ("tests/system/test_first_launch.py", "tests/system/test_launches.py", "tests/system/test_embedded.py"),
)
PYTHON_TESTS = ("--quick", "--hypothesis-profile=checks", "-m", "not long")
COUNTED = re.compile(r"(\d+) (passed|failed|errors?|skipped)")
PASSED = re.compile(r"[\d,]+ passed(, [\d,]+ skipped)?")


class Row(NamedTuple):
    name: str
    results: list[str]

    def __str__(self) -> str:
        return f"| {' | '.join([self.name, *self.results])} |"


def server_row(program: str) -> Row:
    """What becomes of the tests on the server ``program``."""
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"[Ss]erver v=([\d.]+)", said)
    name = f"{'Valkey' if 'valkey' in Path(program).name else 'Redis'} {version[1] if version else said.strip()}"
    results = [_tested([sys.executable], tests, f"--server={program}", "-k", "not fakeredis") for tests in SERVER_TESTS]
    return Row(name, results)


def python_row(program: str) -> Row:
    """What becomes of the tests on the interpreter ``program``, in an environment that is thrown away."""
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    with tempfile.TemporaryDirectory(prefix="pc-matrix-") as place:
        subprocess.run([program, "-m", "venv", place], check=True)
        python = str(Path(place, "bin", "python"))
        subprocess.run([python, "-m", "pip", "install", "-q", "-e", f"{ROOT}[dev]"], check=True)
        return Row(said.strip(), [_tested([python], PYTHON_TESTS)])


def _tested(python: list[str], tests: tuple[str, ...], *options: str) -> str:
    """What pytest counts, in its words."""
    command = [*python, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider", *options, *tests]
    environment = os.environ | {"PATH": f"{Path(python[0]).parent}:{os.environ['PATH']}"}
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout[-20_000:], flush=True)  # noqa: T201  which test failed, and why
    counted = COUNTED.findall(done.stdout.rstrip().rpartition("\n")[2])
    return ", ".join(f"{int(number):,} {what}" for number, what in counted) or f"ended with {done.returncode}"


def with_row(page: str, kind: str, row: Row) -> str:
    """The page with a row in the table whose heading begins with ``kind``, sorted by version."""
    table = re.search(rf"^\| {kind} \|.*\n\|[-| ]+\|\n((?:\|.*\n)*)", page, re.MULTILINE)
    assert table is not None, kind
    rows = [line for line in table[1].splitlines() if not line.startswith(f"| {row.name} |")]
    ordered = sorted([*rows, str(row)], key=_order)
    return page[: table.start(1)] + "".join(f"{line}\n" for line in ordered) + page[table.end(1) :]


def _order(line: str) -> tuple[str, list[int]]:
    name, _, version = line.split("|")[1].strip().rpartition(" ")
    return name, [int(number) for number in re.findall(r"\d+", version)]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kind", choices=["server", "python"])
    parser.add_argument("programs", nargs="+", metavar="PROGRAM")
    given = parser.parse_args()
    passed = True
    for program in given.programs:
        row = server_row(program) if given.kind == "server" else python_row(program)
        PAGE.write_text(with_row(PAGE.read_text("utf-8"), given.kind.capitalize(), row), "utf-8")
        passed = passed and all(PASSED.fullmatch(result) for result in row.results)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
