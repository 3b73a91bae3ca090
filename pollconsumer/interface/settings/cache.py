"""What launches keep of the scripts in the user's cache directory: JSON that only the user can have written."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pollconsumer.core.notation.digests import sha256
from pollconsumer.interface.settings.names import VERSION
from pollconsumer.runtime.system.own_files import CarriedFiles, OwnFiles, cache_directory

REMEMBERED = 8
"""Maximum number of what is kept under one name."""


def key_of(name: str, *depends: object) -> str:
    """The file for what depends on this version and on ``depends``."""
    return f"{name}-{sha256(repr((VERSION, sys.version, *depends)).encode())}.json"


def stamps_of(files: Iterable[Path | os.DirEntry[str]]) -> list[tuple[str, int, int]]:
    """What tells each of ``files`` from an earlier one, as Python compares what it compiled."""
    found = [(file.name, file.stat()) for file in files]
    return sorted((name, int(each.st_mtime), each.st_size) for name, each in found)


def recalled(key: str | None) -> Any:
    """What was kept; None if nothing was, or others may have written it."""
    directory = cache_directory()
    content = None if directory is None or key is None else CarriedFiles([directory]).read(key)
    digest, _, kept = (content or b"").partition(b"\n")
    try:
        return json.loads(kept) if digest == _digest(key, kept) else None
    except (ValueError, RecursionError):
        return None


def is_kept() -> bool:
    """Whether `remember` can write."""
    directory = cache_directory()
    return directory is not None and OwnFiles([directory]).place() is not None


def remember(key: str | None, value: Any) -> None:
    """Keep ``value``, if possible, and the last ones beside it."""
    directory = cache_directory()
    kept = json.dumps(value).encode()
    content = b"%b\n%b" % (_digest(key, kept), kept)
    if directory is None or key is None or not OwnFiles([directory]).write(key, content):
        return
    with suppress(OSError):
        alike = directory.glob(f"{key.partition('-')[0]}-*.json")
        entries = sorted(alike, key=lambda entry: entry.stat().st_mtime_ns, reverse=True)
        for entry in entries[REMEMBERED:]:
            entry.unlink(missing_ok=True)


def _digest(key: str | None, kept: bytes) -> bytes:
    return sha256(b"%b\n%b" % (str(key).encode(), kept)).encode()
