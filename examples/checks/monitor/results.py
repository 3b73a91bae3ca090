"""The table of results: one row for each check and each instant at which it was due."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from .probes import Seen

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TABLE = """
CREATE TABLE IF NOT EXISTS results (
    name TEXT NOT NULL,
    occurrence TEXT NOT NULL,                              -- when it was due, in UTC
    ok INTEGER NOT NULL,
    detail TEXT NOT NULL,
    seconds REAL NOT NULL,
    PRIMARY KEY (name, occurrence)
) STRICT, WITHOUT ROWID
"""
ADD = "INSERT INTO results VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
FIND = "SELECT ok, detail, seconds FROM results WHERE name = ? AND occurrence = ?"
FORGET = "DELETE FROM results WHERE occurrence < datetime('now', ?)"
LOCKED_FOR = 10.0
"""Seconds to wait while another thread or launch writes."""


class Results:
    """A connection for each call: handlers run on several threads, and launches in several processes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, name: str, occurrence: str, seen: Seen) -> None:
        """Keep the first row of each check and instant."""
        with self._open() as connection:
            connection.execute(ADD, (name, occurrence, *seen))

    def find(self, name: str, occurrence: str) -> Seen | None:
        with self._open() as connection:
            row = connection.execute(FIND, (name, occurrence)).fetchone()
        return None if row is None else Seen(bool(row[0]), *row[1:])

    def forget(self, days: int) -> None:
        with self._open() as connection:
            connection.execute(FORGET, (f"-{days} days",))

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path, timeout=LOCKED_FOR)) as connection, connection:
            connection.execute(TABLE)
            yield connection
