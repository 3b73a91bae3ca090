"""Whether a file can be run as a program."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def why_not_run(path: Path) -> int:
    """The errno with which running ``path`` would fail, or 0."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        return error.errno or errno.EIO
    if stat.S_ISDIR(mode):
        return errno.EISDIR
    return 0 if stat.S_ISREG(mode) and os.access(path, os.X_OK) else errno.EACCES
