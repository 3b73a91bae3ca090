"""Users of a test's own, without a change of the machine: a mount namespace has another /etc/passwd and /etc/group.

``web`` and ``ada`` are members of the group ``app``, ``eve`` is not. Nothing but these two files is mounted, so that
whoever removes the directory of a test removes nothing else.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PASSWD = "".join(
    f"{name}:*:{uid}:{uid}::{{homes}}/{name}:/bin/sh\n"
    for name, uid in (("web", 61001), ("ada", 61002), ("eve", 61003))
)
GROUPS = "web:x:61001:\nada:x:61002:\neve:x:61003:\napp:x:61009:web,ada,www-data\n"
APP = 61009
UIDS = {"web": 61001, "ada": 61002, "eve": 61003}
ENTER = """
set -e
mount --bind {place}/passwd /etc/passwd
mount --bind {place}/group /etc/group
"""
AS = """
user=$1; mask=$2; shift 2
umask $mask
[ $user = root ] && exec "$@"
exec setpriv --reuid $user --regid $user --init-groups --inh-caps=-all --bounding-set=-all "$@"
"""


class Users:
    def __init__(self, place: Path) -> None:
        """``place``: a directory that everybody may enter. Skips the test where it cannot be done."""
        missing = [each for each in ("unshare", "setpriv", "mount") if shutil.which(each) is None]
        if os.geteuid() != 0 or missing:
            pytest.skip(f"needs root{''.join(f' and {each}' for each in missing)}, for processes of other users")
        if place_hidden := hidden():
            pytest.skip(f"needs a Python that other users can run: {place_hidden} is closed to them")
        if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
            pytest.skip("needs mount namespaces, for users of its own: CAP_SYS_ADMIN in a container")
        self.place, self._script = place, place / "enter"
        (place / "passwd").write_text(Path("/etc/passwd").read_text() + PASSWD.format(homes=place))
        (place / "group").write_text(Path("/etc/group").read_text() + GROUPS)
        self._script.write_text(ENTER.format(place=place) + AS)
        for name, uid in {**UIDS, "www-data": 33}.items():
            (place / name).mkdir(0o700)
            os.chown(place / name, uid, uid)

    def mount(self) -> None:
        """For this process and those that it starts from now on, which is in a namespace of its own."""
        subprocess.run(["sh", "-c", ENTER.format(place=self.place)], check=True)
        self._script.write_text(AS)

    def words(self, user: str, *words: str, umask: str = "022") -> list[str]:
        """A command line, by its user."""
        return ["unshare", "--mount", "sh", str(self._script), user, umask, *words]

    def run(
        self, user: str, *arguments: str, umask: str = "022", config: Path | None = None, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """A pollconsumer command by a user with that umask."""
        named = ["--config", str(config)] if config else []
        words = self.words(user, sys.executable, "-m", "pollconsumer", *named, *arguments, umask=umask)
        return subprocess.run(
            words,
            env={"HOME": str(self.place / user), "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"} | variables,
            cwd=self.place,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )


def hidden() -> str:
    """The first directory above Python's that not everybody may enter; empty if there is none."""
    above = reversed((Path(sys.base_prefix) / "bin").parents)
    return next((str(each) for each in above if not each.stat().st_mode & 0o001), "")
