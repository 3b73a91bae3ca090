"""``python -m tests.faults.mutations [NAME…]``: takes the store's guards out, one by one, and says what notices.

Each time on a copy: first the tests of the store that are nearest to what is taken out, then all of these, then the
state machine, all on the real server; where they pass, two short runs under faults and their checker. Two copies at a
time. At the end the tests that caught anything must pass with every guard in place, which may take as long again; and
where no NAME is given, which is part of a mutation's name, `covering` tries them together. Ends with 1 if a guard was
not missed.

``--quick`` tries the quick tests alone (tests/tiers.py), ``--any 10 --seed 7`` ten guards, drawn at random. The output
of the state machine, and of whatever fails with every guard in place, is kept: a failure may not come again.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.faults import covering
from tests.faults.mutation_table import MUTATIONS, Mutation, edited

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

ROOT = Path(__file__).parents[2]
AT_ONCE = 2
TESTS = ["-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-k", "not fakeredis"]
# Of what the scripts say, not of what they do.
SAYING = ["--deselect", "tests/store/test_rights.py::test_the_rights_of_a_role_are_the_commands_that_it_uses"]
MACHINE = [*TESTS, "tests/store/test_machine.py"]
STAGES = (
    [*TESTS, *SAYING, "tests/store"],
    MACHINE,
    ["-m", "tests.faults.mixed", "--seeds", "2", "--messages", "150", "--faults", "6"],
)
QUICK_STAGES = tuple(
    [*TESTS, *SAYING, "--quick", "--hypothesis-profile=checks", f"tests/{folder}"]
    for folder in ("store", "runtime", "core", "interface", "system")
)
NOTHING_FAILED = {0, 5}
"""Exit codes of pytest; the last where none of the tests is quick."""
LONGEST = 600.0
NEAREST_LONGEST = 90.0
"""Without a guard that removes, who goes on until nothing is left never ends."""
FAILED = re.compile(r"^(?:FAILED|ERROR) \S*?([^/\s]+::\S+)|^seed \d+: (\w+: .*)$", re.MULTILINE)

GARBAGE = "interface/test_garbage::test_garbage_that_was_found_ends_nothing"
NEAREST = {
    "acquire": ["leases", "moving", "rollback"],
    "announce": ["recovering", "recurring"],
    "arrive": ["batches"],
    "attempts": [
        "interface/test_codec",
        "interface/test_handler_pauses",
        "runtime/test_bulk_stops",
        "interface/test_bulk_handlers",
        "system/test_bulk_calls",
    ],
    "repair": ["newer_versions", "repairing"],
    "batches": [
        "batches",
        GARBAGE,
        "interface/test_batch_api",
        "interface/test_batch_producers",
        "interface/test_lost_members",
        "interface/test_inner_batches",
    ],
    "handler_batches": ["interface/test_batch_api", "interface/test_inner_batches"],
    "batches_due": ["batches"],
    "begin": ["at_most_once"],
    "break": ["leases"],
    "bulk": ["interface/test_bulk_handlers", "interface/test_skipping"],
    "bulk_calls": ["runtime/test_bulk_stops", "interface/test_bulk_handlers", "system/test_bulk_calls"],
    "cancel": ["ends", "rates", "too_late", "newer_versions"],
    "checkpoint": ["checkpoints"],
    "close": ["moving"],
    "close_batch": ["batches"],
    "consumer": ["interface/test_handler_pauses", GARBAGE],
    "cluster_wire": ["cluster", "rights"],
    "define": ["recurring", "putting"],
    "ended": ["order_keys", "batches", "ends", "stopping", "rates", "malformed", "totals", "too_late"],
    "change": ["changing", "rates", "too_late", "newer_versions", "order_keys"],
    "bookings": ["rates"],
    "changed": ["replacing", "changing", "rates", "order_keys"],
    "enqueue": [
        "enqueue",
        "longest_queue",
        "expiry",
        "conflicts",
        "id_memory",
        "outbox",
        "unique_keys",
        "replacing",
        "repeated_answers",
        "order_keys",
    ],
    "expire": ["expiry"],
    "enqueue_new": ["enqueue_new"],
    "fill": ["moving"],
    "hold": ["recurring"],
    "handler": ["interface/test_skipping"],
    "id_memory": ["id_memory", "conflicts"],
    "user_client": ["brought_client"],
    "reservations": ["recovering", "expiry"],
    "suitability": ["rollback"],
    "actions": ["rights", "acts", "message_steps", "interface/test_handler_pauses", "interface/test_rerunning"],
    "audit_log": ["rights"],
    "note": ["audit_log"],
    "once": ["acts"],
    "contexts": ["runtime/test_reporting"],
    "leases": ["rights", "rollback", "interface/test_handler_pauses"],
    "watermarks": ["rollback"],
    "occurrences": ["id_memory", "putting", "simulation/test_first_day"],
    "message_steps": ["message_steps"],
    "offer": ["newer_versions", "concurrency_keys"],
    "number_members": ["batches"],
    "open_batch": [
        "batches",
        "interface/test_batch_api",
        "interface/test_batch_producers",
        "interface/test_lost_members",
    ],
    "outbox": ["outbox", "id_memory", "later_versions", "batches", "interface/test_batch_api", "interface/test_calls"],
    "pause": ["limits", "interface/test_pausing"],
    "promote": ["promoting", "too_late"],
    "progress": ["logs"],
    "purge": ["message_steps", "too_late", "id_memory", "order_keys"],
    "put": ["putting"],
    "recover": ["recovering", "at_most_once", "newer_versions"],
    "recurrences": ["recurring", "putting", "rights", "interface/test_after_end"],
    "recur": ["id_memory", "recurring", "putting"],
    "recurrence": ["core/test_recurrence"],
    "recurrence_actions": ["recurring", "putting", "rights", "acts"],
    "journal": ["interface/test_steps_in_handlers", "interface/test_calls"],
    "demand": ["system/test_launches_on_demand"],
    "spool": ["runtime/test_spool", "runtime/test_spool_machine"],
    "producer": [
        "wire",
        "id_memory",
        "rights",
        "replacing",
        "repeated_answers",
        "interface/test_batch_api",
        "replicas",
    ],
    "redis_store": ["wire", "recovering"],
    "replace": ["replacing", "rates"],
    "records": ["later_versions"],
    "redrive": ["too_late", "unique_keys", "order_keys"],
    "register": ["rights"],
    "release": ["leases", "totals"],
    "totals": ["totals"],
    "renew": ["leases"],
    "reserve_one": ["reserve_one"],
    "rates": ["rates", GARBAGE],
    "reserve": ["rates", "settling", "limits", "concurrency_keys", "order_keys", "newer_versions", "foreign_ids"],
    "results": ["outbox"],
    "retire": ["recovering"],
    "retry": ["core/test_retry", "interface/test_putting_off"],
    "replies": ["rights"],
    "rights": ["rights"],
    "sentinel": ["sentinel"],
    "continuation": ["core/test_packed_message", "interface/test_batch_api", GARBAGE, "runtime/test_spool"],
    "quarantine": ["recurring"],
    "settle": [
        "rates",
        "settling",
        "expiry",
        "putting",
        "concurrency_keys",
        "order_keys",
        "unique_keys",
        "id_memory",
        "batches",
        "outbox",
        "message_steps",
        "ends",
        "later_versions",
    ],
    "rows": ["later_versions"],
    "settlements": ["interface/test_putting_off", "interface/test_batch_api"],
    "signal": ["message_steps"],
    "step": ["settling", "limits", "concurrency_keys", "rates"],
    "stops": ["ends", "stopping"],
    "heartbeat": ["interface/test_handler_pauses"],
    "trim": ["order_keys", "message_steps", "trimming", "id_memory", "outbox", "totals"],
    "trigger": ["putting"],
    "undefine": ["recurring", "acts"],
    "unique_keys": ["unique_keys"],
    "unreserve": ["rates", "recovering", "wire", "at_most_once"],
    "wire": ["malformed", "cluster", "rights", "acts", "replicas", "sentinel", "wire"],
    "maintenance": ["recovering", "rights", "runtime/test_queues_served", "interface/test_handler_pauses"],
    "users_code": ["runtime/test_own_threads", "system/test_code_of_users"],
    "start": ["system/test_embedded"],
    "mover": ["runtime/test_mover"],
    "exchange": ["runtime/test_exchange"],
    "numbers": ["foreign_ids"],
    "places": ["concurrency_keys", "order_keys", GARBAGE, "too_late"],
    "place_counts": ["concurrency_keys"],
    "withdraw": ["leases"],
    "launch_end": ["runtime/test_patience", "web/test_launch_starter"],
    "load": ["interface/test_config_search"],
    "owners": ["interface/test_writable", "interface/test_config_search"],
}
"""The files of tests/store, or of tests, that are likely to notice, or a test of one, by the script or module that
something is taken out of."""


class Noticed(NamedTuple):
    """By the first test or invariant that does, after so many ``stages``: none if the nearest tests do. ``by`` is None
    where none does."""

    by: str | None
    stages: int
    seconds: float


def copy_with(mutation: Mutation, place: Path) -> None:
    """All that the tests look at, and the package without its guards, in ``place``."""
    ignored = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT, place, ignore=ignored, dirs_exist_ok=True)
    for edit in mutation.edits:
        path = place / "pollconsumer" / "store" / edit.file
        path.write_text(edited(path.read_text(), edit))


def nearest(mutation: Mutation) -> list[str]:
    """The tests of a mutation, as pytest takes them."""
    stems = [Path(edit.file).stem for edit in mutation.edits]
    assert NEAREST.keys() >= {*stems}, f"add the tests nearest to these files to NEAREST: {', '.join(stems)}"
    names = dict.fromkeys(name for stem in stems for name in NEAREST[stem])
    parts = [name.partition("::") for name in names]
    paths = [f"tests/{name}.py" if "/" in name else f"tests/store/test_{name}.py" for name, _, _ in parts]
    return [path + between + test for path, (_, between, test) in zip(paths, parts, strict=True)]


def noticed(mutation: Mutation, stages: Sequence[list[str]] = STAGES) -> Noticed:
    quickly = stages is QUICK_STAGES
    began = time.monotonic()
    place = Path(tempfile.mkdtemp(prefix="pc-mutation-"))
    try:
        copy_with(mutation, place)
        near = [*TESTS, *SAYING, *(["--quick"] if quickly else []), *nearest(mutation)]
        if (by := _notices(near, place, NEAREST_LONGEST)) is not None:
            return Noticed(by, 0, time.monotonic() - began)
        for number, stage in enumerate(stages, 1):
            if (by := _notices(stage, place, keep=stage is MACHINE)) is not None:
                return Noticed(by, number, time.monotonic() - began)
        return Noticed(None, len(stages), time.monotonic() - began)
    finally:
        shutil.rmtree(place)


def objection(by_nearest: Collection[Mutation], stages: Sequence[list[str]]) -> str | None:
    """What fails with every guard in place: in the tests nearest to ``by_nearest``, and in ``stages``."""
    near = [*dict.fromkeys(test for each in by_nearest for test in nearest(each))]
    wanted = [*([[*TESTS, *SAYING, *near]] if near else []), *stages]
    with tempfile.TemporaryDirectory(prefix="pc-mutation-") as place:
        copy_with(Mutation("nothing", ()), Path(place))
        return next((by for stage in wanted if (by := _notices(stage, Path(place), keep=True)) is not None), None)


def _notices(stage: list[str], place: Path, longest: float = LONGEST, *, keep: bool = False) -> str | None:
    """The test of ``stage`` that fails; with ``keep``, and where all of its output is. This goes to a file: whoever
    reads a pipe to its end waits for what a test has left behind, too."""
    environment = os.environ | {"PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"}
    with tempfile.TemporaryFile("w+") as printed:
        process = subprocess.Popen(
            [sys.executable, *stage],
            cwd=place,
            env=environment,
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        late = False
        try:
            process.wait(longest)
        except subprocess.TimeoutExpired:
            late = True
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        printed.seek(0)
        output = printed.read()
    if process.returncode in NOTHING_FAILED and not late:
        return None
    found = FAILED.search(output)
    by = (found[1] or found[2])[:120] if found else f"{stage[-1]}: {output[-300:]}"
    if late:
        by = f"no end of {stage[-1]}"
    if keep:
        return f"{by} (output: {_kept(output)})"
    for directory in re.findall(r"kept in (/\S+)", output):
        shutil.rmtree(directory, ignore_errors=True)
    return by


def _kept(output: str) -> str:
    with tempfile.NamedTemporaryFile("w", prefix="pc-mutation-", suffix=".out", delete=False) as file:
        file.write(output)
        return file.name


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults.mutations", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="part of a guard's name; all by default")
    parser.add_argument("--quick", action="store_true", help="let the quick tests notice, and nothing else")
    parser.add_argument("--any", type=int, metavar="N", help="so many of them, drawn at random")
    parser.add_argument("--seed", type=int, default=1, help="of what is drawn")
    given = parser.parse_args(arguments)
    chosen = [each for each in MUTATIONS if not given.names or any(name in each.name for name in given.names)]
    if not chosen:
        print(f"no such mutation: {' '.join(given.names)}")
        return 2
    all_of_them = given.any is None and not given.names and not given.quick
    if given.any is not None:
        chosen = random.Random(given.seed).sample(chosen, min(given.any, len(chosen)))
    tried = QUICK_STAGES if given.quick else STAGES
    began = time.monotonic()
    survived = stages = 0
    by_nearest = list[Mutation]()
    width = max(len(each.name) for each in chosen)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running = {pool.submit(noticed, mutation, tried): mutation for mutation in chosen}
        for done in as_completed(running):
            found = done.result()
            survived += found.by is None
            stages = max(stages, found.stages)
            if not found.stages:
                by_nearest.append(running[done])
            print(f"{running[done].name:{width}} {found.seconds:5.0f} s  {found.by or 'SURVIVED'}", flush=True)
    print("now with every guard in place", flush=True)
    if (by := objection(by_nearest, tried[:stages])) is not None:
        print(f"with every guard in place: {by}")
        return 1
    differing = covering.main([]) if all_of_them else 0
    print(f"{len(chosen)} mutations, {survived} survived, {(time.monotonic() - began) / 60:.1f} minutes")
    return 1 if survived or differing else 0


if __name__ == "__main__":
    sys.exit(main())
