"""``python -m tests.faults.mutations [NAME…]``: takes the store's guards out, one by one, and says what notices.

Each time on a copy: first the store's tests, then the state machine, both on the real server; where they pass, two
short runs under faults and their checker. Two copies at a time. Ends with 1 if a guard was not missed. NAME is part of
a mutation's name.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.faults.mutation_table import MUTATIONS, PAIRS, Edit, Mutation

ROOT = Path(__file__).parents[2]
AT_ONCE = 2
TESTS = ["-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-k", "not fakeredis"]
STAGES = (
    [*TESTS, "tests/store"],
    [*TESTS, "tests/test_store_machine.py"],
    ["-m", "tests.faults.mixed", "--seeds", "2", "--messages", "150", "--faults", "6"],
)
LONGEST = 600.0
FAILED = re.compile(r"^(?:FAILED|ERROR) \S*?([^/\s]+::\S+)|^seed \d+: (\w+: .*)$", re.MULTILINE)


def edited(text: str, edit: Edit) -> str:
    """ValueError where the text to be taken out does not stand there exactly once."""
    if text.count(edit.old) != 1:
        raise ValueError(f"{edit.file} holds {text.count(edit.old)} times: {edit.old}")
    return text.replace(edit.old, edit.new)


def copy_with(mutation: Mutation, place: Path) -> None:
    """All that the tests look at, and the package without its guards, in ``place``."""
    ignored = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT, place, ignore=ignored, dirs_exist_ok=True)
    for edit in mutation.edits:
        path = place / "pollconsumer" / "store" / edit.file
        path.write_text(edited(path.read_text(), edit))


def caught_by(mutation: Mutation) -> str | None:
    """The first test or invariant that notices; None where none does."""
    place = Path(tempfile.mkdtemp(prefix="pc-mutation-"))
    try:
        copy_with(mutation, place)
        for stage in STAGES:
            if (found := _notices(stage, place)) is not None:
                return found
        return None
    finally:
        shutil.rmtree(place)


def _notices(stage: list[str], place: Path) -> str | None:
    environment = os.environ | {"PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(
        [sys.executable, *stage],
        cwd=place,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=LONGEST)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return f"no end of {stage[-1]}"
    for directory in re.findall(r"kept in (/\S+)", output):
        shutil.rmtree(directory, ignore_errors=True)
    if process.returncode == 0:
        return None
    found = FAILED.search(output)
    return (found[1] or found[2])[:120] if found else f"{stage[-1]}: {output[-300:]}"


def main(names: list[str]) -> int:
    chosen = [each for each in (*MUTATIONS, *PAIRS) if not names or any(name in each.name for name in names)]
    if (found := caught_by(Mutation("nothing", ()))) is not None:
        print(f"with every guard in place: {found}")
        return 1
    survived = 0
    width = max(len(each.name) for each in chosen)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for mutation, found in zip(chosen, pool.map(caught_by, chosen), strict=True):
            survived += found is None
            print(f"{mutation.name:{width}}  {found or 'SURVIVED'}", flush=True)
    print(f"{len(chosen)} mutations, {survived} survived")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
