"""The crontab of this user, and in it the lines of each configuration, between two comments that name its file."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from pollconsumer.core.errors import CannotCreate, ConfigurationError, PermissionDenied

PATIENCE = 30.0
"""Seconds for one call of ``crontab``."""
BLOCK = re.compile(
    rb"^# pollconsumer begin: (?P<path>[^\r\n\0]*)\r?\n"
    rb"(?:(?!# pollconsumer (?:begin|end): )[^\n]*\n)*"
    rb"# pollconsumer end: (?P=path)\r?(?:\n|\Z)",
    re.MULTILINE,
)
MARK = re.compile(rb"^# pollconsumer (?:begin|end): ([^\r\n\0]*)", re.MULTILINE)
ABSENT = re.compile(r"no crontab for |can't open .*: No such file")
"""What Debian's cron, cronie and macOS, and what busybox say where there is none."""


def block_of(config: Path, lines: Iterable[str]) -> bytes:
    between = [f"# pollconsumer begin: {config}", *lines, f"# pollconsumer end: {config}"]
    return b"".join(os.fsencode(line) + b"\n" for line in between)


def with_block(content: bytes, config: Path, block: bytes) -> tuple[bytes, bytes]:
    """``content`` with ``block`` in the place of the lines of ``config``, at the end if it has none; and those lines.
    All others stay as they are, byte for byte. ConfigurationError if one of their two comments is missing."""
    former: list[bytes] = []

    def instead(found: re.Match[bytes]) -> bytes:
        if not _is_same(found["path"], config):
            return found[0]
        former.append(found[0])
        return block if len(former) == 1 else b""

    changed = BLOCK.sub(instead, content)
    if any(_is_same(path, config) for path in MARK.findall(BLOCK.sub(b"", content))):
        fix = "there is a begin or an end without the other: mend the comments with crontab -e"
        raise ConfigurationError("crontab: lines of", config, fix)
    if not former:
        changed += (b"\n" if block and changed and not changed.endswith(b"\n") else b"") + block
    return changed, b"".join(former)


def _is_same(path: bytes, config: Path) -> bool:
    """Whether ``path`` names the same file as ``config``, however the two are written."""
    return os.path.realpath(path.strip()) == os.fsencode(os.path.realpath(config))


class UsersCrontab:
    """A user's crontab, read and replaced by the command ``crontab``, the only one that may. CannotCreate if there is
    no such command, or it fails; PermissionDenied if it refuses this user."""

    def __init__(self) -> None:
        program = shutil.which("crontab")
        if program is None:
            raise CannotCreate("crontab", "no such command", "install cron, or put what 'init cron' prints elsewhere")
        self._program = program

    def read(self) -> bytes:
        """The content of the crontab; empty if there is none."""
        done = self._run("-l")
        if done.returncode and ABSENT.search(done.stderr.decode("utf-8", "replace")):
            return b""
        self._refuse_failed(done)
        return done.stdout

    def replace(self, content: bytes) -> None:
        """Replace the crontab, or remove it if ``content`` is empty: so it was before there were lines. Read it again,
        since not every ``crontab`` tells by its exit code that it has changed nothing."""
        self._refuse_failed(self._run("-", content=content) if content else self._run("-r"))
        found = self.read()
        if not found.endswith(content) or bool(found) != bool(content):  # some commands put a comment before it
            raise CannotCreate("crontab", "is not what was written", "look at it with crontab -l")

    def _run(self, argument: str, content: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        words, environment = [self._program, argument], os.environ | {"LC_ALL": "C"}
        try:
            return subprocess.run(
                words, input=content, capture_output=True, timeout=PATIENCE, check=False, env=environment
            )
        except subprocess.TimeoutExpired:
            raise CannotCreate("crontab", f"has not ended within {PATIENCE:g}s", "try crontab -l") from None
        except OSError as error:
            raise CannotCreate(self._program, error.strerror, "try crontab -l") from None

    def _refuse_failed(self, done: subprocess.CompletedProcess[bytes]) -> None:
        if done.returncode == 0:
            return
        said = done.stderr.decode("utf-8", "replace").strip().partition("\n")[0].removeprefix("crontab: ")
        if "not allowed" in said:
            raise PermissionDenied("crontab", said, "see cron.allow and cron.deny") from None
        raise CannotCreate("crontab", said or f"ended with {done.returncode}", "try crontab -l and crontab -e")
