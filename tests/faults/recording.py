"""How executions and operations are recorded: a line each, with instants and digests that can be compared."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

RECORD = struct.Struct("<IHH")
"""A call, where there are too many for lines: message, attempt, the last 16 bits of the process's number."""


def append(path: Path, entry: dict[str, Any]) -> None:
    """One line in one write, so that lines of several processes do not mix."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, json.dumps(entry).encode() + b"\n")
    finally:
        os.close(descriptor)


def digest(payload: dict[str, Any]) -> str:
    """Of a payload, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(payload, sort_keys=True).encode()).hexdigest()[:16]


def now() -> int:
    """Epoch µs. The server is on this machine: its clock is the same."""
    return time.time_ns() // 1000
