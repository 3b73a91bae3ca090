"""Real work on Debian: one message for each installed package, whose handler compares its files with their checksums.

Enqueue them, let launches handle them, read the verdicts::

    export POLLCONSUMER_HANDLERS=examples.verify_packages
    python -m examples.verify_packages
    pollconsumer run --until-empty
    python -c "from examples.verify_packages import summary; print(summary())"

Verdicts go to the SQLite file named by ``VERIFY_PACKAGES_DB``, else ``~/verify_packages.sqlite3``. ``times_handled``
counts how often the handler got as far as a verdict: 1 unless a launch was killed between writing it and settling.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pollconsumer import Fatal, PollConsumer

if TYPE_CHECKING:
    from collections.abc import Iterator

CHECKSUMS = Path("/var/lib/dpkg/info")
ROOT = Path("/")
LOCKED_FOR = 10.0
"""Seconds to wait for another writer of the SQLite file."""

TABLE = """
CREATE TABLE IF NOT EXISTS verdicts (
    package TEXT PRIMARY KEY,
    ok INTEGER NOT NULL,
    changed INTEGER NOT NULL,
    missing INTEGER NOT NULL,
    seconds REAL NOT NULL,
    times_handled INTEGER NOT NULL,
    finished_at REAL NOT NULL
) STRICT
"""
RECORD = """
INSERT INTO verdicts VALUES (?, ?, ?, ?, ?, 1, ?)
ON CONFLICT (package) DO UPDATE SET
    ok = excluded.ok, changed = excluded.changed, missing = excluded.missing, seconds = excluded.seconds,
    times_handled = times_handled + 1, finished_at = excluded.finished_at
"""
SUMMARY = """
SELECT count(*), total(ok), total(changed), total(missing), total(seconds), coalesce(max(times_handled), 0)
FROM verdicts
"""

app = PollConsumer()


class Verdict(NamedTuple):
    """Numbers of a package's files: unchanged, changed, unreadable."""

    ok: int
    changed: int
    missing: int


class Summary(NamedTuple):
    """Totals. ``seconds`` is the sum over packages: more than elapsed time with several slots."""

    packages: int
    ok: int
    changed: int
    missing: int
    seconds: float
    most_times_handled: int


@app.handler("packages.verify")
def verify(package: str) -> None:
    """Compare the files of ``package`` with their checksums, and record the verdict.

    Fatal where no such package is installed. An OSError or a locked SQLite file is worth another attempt.
    """
    began = time.perf_counter()
    verdict = compare(package)
    with closing(opened()) as verdicts, verdicts:
        verdicts.execute(RECORD, (package, *verdict, time.perf_counter() - began, time.time()))


def compare(package: str) -> Verdict:
    """Read every file that ``package`` has a checksum of. Fatal if it is not installed."""
    ok = changed = missing = 0
    for digest, path in checksums(package):
        try:
            with path.open("rb") as file:
                found = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
        except OSError:
            missing += 1
            continue
        if found == digest:
            ok += 1
        else:
            changed += 1
    return Verdict(ok, changed, missing)


def checksums(package: str) -> Iterator[tuple[str, Path]]:
    """MD5 digest and path of each file; empty for a package without files. Fatal if it is not installed."""
    try:
        lines = (CHECKSUMS / f"{package}.md5sums").read_text("utf-8", "surrogateescape").splitlines()
    except FileNotFoundError:
        if not (CHECKSUMS / f"{package}.list").exists():
            raise Fatal(f"package not installed: {package}") from None
        return
    for line in lines:
        digest, _, name = line.partition("  ")
        yield digest, ROOT / name


def installed_packages() -> list[str]:
    """Names as dpkg's own files have them, with the architecture where several may be installed side by side.

    FileNotFoundError where there is no dpkg, CalledProcessError where it fails.
    """
    query = ["dpkg-query", "-W", "-f", "${db:Status-Status} ${binary:Package}\\n"]
    lines = subprocess.run(query, check=True, capture_output=True, text=True).stdout.splitlines()
    return [name for status, _, name in (line.partition(" ") for line in lines) if status == "installed"]


def database() -> Path:
    """The SQLite file with the verdicts."""
    named = os.environ.get("VERIFY_PACKAGES_DB")
    return Path(named) if named else Path.home() / "verify_packages.sqlite3"


def opened() -> sqlite3.Connection:
    """A connection for one thread; creates the file and its table if missing."""
    connection = sqlite3.connect(database(), timeout=LOCKED_FOR)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(TABLE)
    return connection


def summary() -> Summary:
    """All verdicts so far."""
    with closing(opened()) as verdicts:
        packages, ok, changed, missing, seconds, most = verdicts.execute(SUMMARY).fetchone()
    return Summary(packages, int(ok), int(changed), int(missing), seconds, most)


def main() -> None:
    """Enqueue a message for every installed package."""
    enqueued = verify.enqueue_many([{"package": package} for package in installed_packages()])
    print(f"{len(enqueued)} packages enqueued; their verdicts go to {database()}")  # noqa: T201  what it is run for


if __name__ == "__main__":
    main()
