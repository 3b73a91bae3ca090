"""Values kept from one start to the next, in files of the user's cache directory that nobody else can have written."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from pollconsumer.runtime.own_files import OwnFiles, cache_directory

REMEMBERED = 8
"""Most sets of values that are kept at one time."""


def recall(key: str) -> Any:
    """What was remembered under ``key``; None where there is nothing that nobody else can have written."""
    directory = cache_directory()
    content = None if directory is None else OwnFiles([directory]).read(f"{key}.json")
    try:
        return None if content is None else json.loads(content)
    except ValueError:
        return None


def remember(key: str, values: dict[str, Any]) -> None:
    """Keep ``values``, which JSON must be able to hold, for the next start, where that is possible."""
    directory = cache_directory()
    if directory is None or not OwnFiles([directory]).write(f"{key}.json", json.dumps(values).encode()):
        return
    with suppress(OSError):
        entries = sorted(directory.glob("*.json"), key=lambda entry: entry.stat().st_mtime_ns, reverse=True)
        for entry in entries[REMEMBERED:]:
            entry.unlink(missing_ok=True)
