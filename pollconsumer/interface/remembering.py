"""Values kept from one start to the next, in files of the user's cache directory that nobody else can have written."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

REMEMBERED = 8
"""Most sets of values that are kept at one time."""


def _cache_directory() -> Path | None:
    """Where settings are remembered; None for a user without a home."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not cache.is_absolute():
        home = Path(os.environ.get("HOME", ""))
        if not home.is_absolute():
            import pwd

            try:
                home = Path(pwd.getpwuid(os.geteuid()).pw_dir)
            except KeyError:
                return None
        cache = home / ".cache"
    return cache / "pollconsumer"


def _only_ours(directory: Path) -> bool:
    state = directory.stat()
    return state.st_uid == os.geteuid() and not state.st_mode & 0o022


def recall(key: str) -> Any:
    """What was remembered under ``key``; None where there is nothing that nobody else can have written."""
    directory = _cache_directory()
    if directory is None:
        return None
    try:
        if not _only_ours(directory):
            return None
        descriptor = os.open(directory / f"{key}.json", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, encoding="utf-8") as file:
            state = os.fstat(descriptor)
            if state.st_uid != os.geteuid() or state.st_mode != stat.S_IFREG | 0o600:
                return None
            return json.load(file)
    except (OSError, ValueError):
        return None


def remember(key: str, values: dict[str, Any]) -> None:
    """Keep ``values``, which JSON must be able to hold, for the next start, where that is possible."""
    directory = _cache_directory()
    if directory is None:
        return
    import tempfile

    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _only_ours(directory):
            return
        descriptor, name = tempfile.mkstemp(dir=directory, prefix=key, suffix=".json")  # 0600
        unfinished = Path(name)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(values, file)
            unfinished.replace(directory / f"{key}.json")
        finally:
            unfinished.unlink(missing_ok=True)
        entries = sorted(directory.glob("*.json"), key=lambda entry: entry.stat().st_mtime_ns, reverse=True)
        for entry in entries[REMEMBERED:]:
            entry.unlink(missing_ok=True)
    except OSError:
        return
