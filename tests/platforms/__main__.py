"""The table of launchers, in real minutes: docs/evidence/cron.md.

Run as root in the repository, with cron and busybox installed::

    python -m tests.platforms [--minutes 10] [--rows debian-cron/baton systemd …] [--at-once N] [--keep]

Prints Markdown. Exit code 1 when a tick was dropped, a message lost, handled twice or early, or a launch overran or
printed; 2 when this machine cannot run it; 130 when interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from tests.cron.place import show
from tests.platforms.rows import PLATFORMS, ROWS
from tests.platforms.table import HEADINGS, failures, line


def main() -> int:
    given = arguments()
    rows = [name for name in ROWS if not given.rows or name in given.rows or name.partition("/")[0] in given.rows]
    # Short, as a unix socket's path is limited to 107 bytes.
    directory = Path(tempfile.mkdtemp(prefix="pcrows-", dir="/tmp"))
    processes: list[subprocess.Popen[bytes]] = []
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.stderr.write(f"{len(rows)} rows, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    pool = ThreadPoolExecutor(given.at_once)
    try:
        results = [*pool.map(partial(_measured, given.minutes, directory, processes, given.keep), rows)]
    except KeyboardInterrupt:
        sys.stderr.write("tests.platforms: interrupted\n")
        pool.shutdown(wait=False, cancel_futures=True)
        return 130
    finally:
        for process in processes:
            process.kill()
        if given.keep:
            sys.stderr.write(f"kept: {directory}\n")
        else:
            shutil.rmtree(directory, ignore_errors=True)
    return report(rows, results)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.platforms", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=int, default=10, help="of each row; it takes two more")
    parser.add_argument(
        "--rows", nargs="+", choices=[*PLATFORMS, *ROWS], default=[], metavar="ROW", help=", ".join(ROWS)
    )
    parser.add_argument(
        "--at-once",
        type=int,
        default=2 * (os.cpu_count() or 1),
        metavar="N",
        help="rows at a time; two per core by default",
    )
    parser.add_argument("--keep", action="store_true", help="leave notes, stores and results behind")
    given = parser.parse_args()
    if given.minutes < 1:
        parser.error("--minutes: one at least")
    return given


def report(rows: Sequence[str], results: Sequence[dict[str, Any] | int]) -> int:
    """The table, and what failed. Returns the exit code."""
    show(HEADINGS)
    failed = [
        f"{name}: exit code {result}" for name, result in zip(rows, results, strict=True) if isinstance(result, int)
    ]
    for name, result in zip(rows, results, strict=True):
        if not isinstance(result, int):
            show(line(name, result))
            failed += [f"{name}: {what}" for what in failures(result)]
    sys.stderr.write(f"load {os.getloadavg()[0]:.1f}\n" + "".join(f"FAILED: {what}\n" for what in failed))
    return 2 if 2 in results else int(bool(failed))


def _measured(
    minutes: int, directory: Path, processes: list[subprocess.Popen[bytes]], keep: bool, name: str
) -> dict[str, Any] | int:
    """The row's figures, or the exit code of the process that measured it."""
    result = directory / f"{name.replace('/', '-')}.json"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.platforms.row", name, str(minutes), str(directory), str(result), *["keep"] * keep]
    )
    processes.append(process)
    code = process.wait()
    figures: dict[str, Any] = json.loads(result.read_text()) if code == 0 else {}
    return code or figures


if __name__ == "__main__":
    sys.exit(main())
