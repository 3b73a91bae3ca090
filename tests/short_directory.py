"""Where sockets of tests are: a unix socket's path holds 107 bytes at most, fewer than pytest's own directories, or
those for temporary files that somebody chose, may take."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

LONGEST = 40
"""Bytes. What tests put below leads to a socket 60 bytes further on."""


def short_directory() -> Path:
    """A new directory of a test's own, which it removes."""
    usual = tempfile.gettempdir()
    return Path(tempfile.mkdtemp(prefix="pc-", dir=usual if len(os.fsencode(usual)) <= LONGEST else "/tmp"))
