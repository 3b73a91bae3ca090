"""What the file system that a file lies on makes of its mode."""

from __future__ import annotations

import os
import re
from pathlib import Path

WITHOUT_MODES = re.compile(
    r"cifs|smb3|smbfs|vfat|msdos|exfat|ntfs3?|fuseblk|vboxsf|prl_fs|drvfs|fuse\.(blobfuse2?|gcsfuse|s3fs|rclone|mount-s3)"
)
"""File systems where a mount option gives every file the same mode: Azure's /home is one."""
MOUNTS = Path("/proc/self/mountinfo")


def modes_mean_nothing(path: Path) -> bool:
    """Whether nobody gave ``path`` its mode, or nobody can make use of it: no modes there, or mounted read-only, as
    Kubernetes mounts a ConfigMap. False where that cannot be told."""
    try:
        if os.statvfs(path).f_flag & os.ST_RDONLY:
            return True
        device = path.stat().st_dev
        mounts = MOUNTS.read_text("utf-8", "surrogateescape")
    except OSError:
        return False
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts.splitlines():
        # 36 35 98:0 /root /mount/point options... - type source options
        before, _, after = line.partition(" - ")
        kind, _, options = after.partition(" ")
        if before.split()[2:3] == [number]:
            return bool(WITHOUT_MODES.fullmatch(kind)) or (kind == "9p" and "aname=drvfs" in options)
    return False
