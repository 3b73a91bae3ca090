"""Writes metrics to a file, for a collector on this machine."""

from __future__ import annotations

from pathlib import Path

from pollconsumer.core.errors import CannotCreate, PermissionDenied
from pollconsumer.interface.named_files import refuse_to_replace, replacement

READABLE = 0o644
"""The file's mode: its collector is another user."""


def write_textfile(path: Path, text: str) -> None:
    """Replace the file: a collector reads it whole, before or after. CannotCreate, PermissionDenied."""
    try:
        refuse_to_replace(path)
        with replacement(path, READABLE) as file:
            file.write(text.encode())
    except PermissionError:
        raise PermissionDenied("text file", path, "permission denied: let this user write its directory") from None
    except OSError as error:
        raise CannotCreate("text file", path, f"{error.strerror}: name a file in a directory that exists") from None
