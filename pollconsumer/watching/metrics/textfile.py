"""Writes metrics to a file, for a collector on this machine."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from pollconsumer.core.errors import CannotCreate, PermissionDenied
from pollconsumer.interface.named_files import refuse_to_replace

READABLE = 0o644
"""The file's mode: its collector is another user."""


def write_textfile(path: Path, text: str) -> None:
    """Replace the file: a collector reads it whole, before or after. CannotCreate, PermissionDenied."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        refuse_to_replace(path)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, READABLE)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                os.fchmod(descriptor, READABLE)  # whatever the umask
                file.write(text)
            draft.replace(path)
        except BaseException:
            with suppress(OSError):
                draft.unlink()
            raise
    except PermissionError:
        raise PermissionDenied("text file", path, "permission denied: let this user write its directory") from None
    except OSError as error:
        raise CannotCreate("text file", path, f"{error.strerror}: name a file in a directory that exists") from None
