"""Whether file modes are meaningful on a file system."""

from __future__ import annotations

import os
import re
from pathlib import Path

WITHOUT_MODES = re.compile(
    r"cifs|smb3|smbfs|vfat|msdos|exfat|ntfs3?|fuseblk|vboxsf|prl_fs|drvfs|fuse\.(blobfuse2?|gcsfuse|s3fs|rclone|mount-s3)"
)
"""File systems where a mount option sets the mode of every file, as of Azure's /home."""
MOUNTS = Path("/proc/self/mountinfo")


def modes_mean_nothing(path: Path) -> bool:
    """Whether the mode of ``path`` is a mount option, or it is mounted read-only, as Kubernetes mounts a ConfigMap.
    False if unknown."""
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
