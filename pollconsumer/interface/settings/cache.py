"""A cache of settings across starts, in private files of the user's cache directory."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from pollconsumer.runtime.own_files import OwnFiles, cache_directory

REMEMBERED = 8
"""Maximum number of cached sets of values."""


def recall(key: str) -> Any:
    """The cached values of ``key``; None if there are none, or others may have written them."""
    directory = cache_directory()
    content = None if directory is None else OwnFiles([directory]).read(f"{key}.json")
    try:
        return None if content is None else json.loads(content)
    except ValueError:
        return None


def remember(key: str, values: dict[str, Any]) -> None:
    """Cache ``values``, which must be JSON, if possible."""
    directory = cache_directory()
    if directory is None or not OwnFiles([directory]).write(f"{key}.json", json.dumps(values).encode()):
        return
    with suppress(OSError):
        entries = sorted(directory.glob("*.json"), key=lambda entry: entry.stat().st_mtime_ns, reverse=True)
        for entry in entries[REMEMBERED:]:
            entry.unlink(missing_ok=True)
