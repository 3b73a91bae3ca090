"""A person's terminal, in which a command of a site runs."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import termios
from typing import TYPE_CHECKING, Any

from tests.site import PATIENCE

if TYPE_CHECKING:
    from tests.site import Site


class Terminal:
    """With a launch that drains the site's queues, or another ``command``, after ``options`` of pollconsumer."""

    def __init__(
        self, site: Site, *options: str, command: tuple[str, ...] = ("run", "--until-empty"), columns: int | None = None
    ) -> None:
        """``columns``: the width, where standard output is the terminal, too."""
        self._mine, theirs = pty.openpty()
        words = [sys.executable, "-m", "pollconsumer", *options, *command]
        streams: dict[str, Any] = {"stdin": theirs, "stderr": theirs}
        if columns is not None:
            termios.tcsetwinsize(theirs, (24, columns))
            streams["stdout"] = theirs
        self._launch = subprocess.Popen(words, cwd=site.directory, env=site.environment, **streams)
        os.close(theirs)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self._launch.kill()
        self._launch.wait()
        os.close(self._mine)

    def interrupt(self) -> None:
        self._launch.send_signal(signal.SIGINT)

    def read_to(self, end: str) -> str:
        shown = b""
        while not shown.endswith(end.encode()):
            shown += self._read(1)
        return shown.decode().replace("\r\n", "\n")

    def read_to_the_end(self) -> str:
        """What is shown until the command has ended, which must be with 0."""
        shown = b""
        while data := self._read(4096):
            shown += data
        assert self._launch.wait(PATIENCE) == 0
        return shown.decode().replace("\r\n", "\n")

    def _read(self, most: int) -> bytes:
        """What is shown next, ``most`` bytes at most; empty once no process has the terminal open."""
        assert select.select([self._mine], [], [], PATIENCE)[0]
        try:
            return os.read(self._mine, most)
        except OSError:
            return b""
