"""Users of a test's own, without a change of the machine: a mount namespace has another /etc/passwd and /etc/group.

``web`` and ``ada`` are members of the group ``app``, ``eve`` is not. Where Python or this repository is in a directory
that is closed to others, such as /root, that directory has another, open one over it, in which nothing else is. Nothing
is mounted in the directory of a test, so that whoever removes it removes nothing else.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forks import FORKS, User

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
REPOSITORY = Path(__file__).parents[1]
AS = """
user=$1; mask=$2; shift 2
umask $mask
[ $user = root ] && exec "$@"
exec setpriv --reuid $user --regid $user --init-groups --inh-caps=-all --bounding-set=-all "$@"
"""


class Users:
    def __init__(self, place: Path) -> None:
        """``place``: a directory that everybody may enter. Skips the test where it cannot be done."""
        skip_without_users()
        self.place, self._script = place, place / "enter"
        # The first line of a name is the one that counts: the machine may have users of the same names.
        (place / "passwd").write_text(PASSWD.format(homes=place) + Path("/etc/passwd").read_text())
        (place / "group").write_text(GROUPS + Path("/etc/group").read_text())
        self._script.write_text(self._enter() + AS)
        for name, uid in {**UIDS, "www-data": 33}.items():
            (place / name).mkdir(0o700)
            os.chown(place / name, uid, uid)

    def mount(self) -> None:
        """For this process and those that it starts from now on, which is in a namespace of its own."""
        subprocess.run(["sh", "-c", self._enter()], check=True)
        self._script.write_text(AS)

    def _enter(self) -> str:
        return ENTER.format(place=self.place) + opening()

    def words(self, user: str, *words: str, umask: str = "022") -> list[str]:
        """A command line, by its user."""
        return ["unshare", "--mount", "sh", str(self._script), user, umask, *words]

    def run(
        self, user: str, *arguments: str, umask: str = "022", config: Path | None = None, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """A pollconsumer command by a user with that umask."""
        named = ["--config", str(config)] if config else []
        environment = {"HOME": str(self.place / user), "PATH": "/usr/bin:/bin"} | variables
        words = ("-m", "pollconsumer", *named, *arguments)
        fork = FORKS.start(words, self.place, environment, {}, User(self._enter(), user, int(umask, 8)))
        output, errors = fork.communicate(90)
        assert fork.returncode is not None
        return subprocess.CompletedProcess(words, fork.returncode, output, errors)


def skip_without_users() -> None:
    missing = [each for each in ("unshare", "setpriv", "mount") if shutil.which(each) is None]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"needs root{''.join(f' and {each}' for each in missing)}, for processes of other users")
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs mount namespaces, for users of its own: CAP_SYS_ADMIN in a container")


def opening() -> str:
    """A script that lets every user run Python and import this repository, in a mount namespace of its own."""
    closed = {path: _closed(path) for path in (REPOSITORY, Path(sys.prefix), Path(sys.base_prefix))}
    needed = {path: number for number, path in enumerate(closed, 3) if closed[path]}
    lines = [f"exec {number}<{path}" for path, number in needed.items()]
    lines += [f"mount -t tmpfs -o mode=755 none {each}" for each in sorted({closed[path] for path in needed})]
    for path, number in needed.items():
        lines += [f"mkdir -p {path}", f"mount --no-canonicalize --bind /proc/self/fd/{number} {path}"]
    return "\n".join(["set -e", "(", *lines, ":)", ""])


def _closed(path: Path) -> str:
    """The first directory above that not everybody may enter; empty if there is none."""
    return next((str(each) for each in reversed(path.parents) if not each.stat().st_mode & 0o001), "")
