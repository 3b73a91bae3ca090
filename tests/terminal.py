"""A person's terminal, in which commands run: what they show there is read whole, in however many parts it comes."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import termios
from typing import TYPE_CHECKING, Any

from tests.site import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.site import Site


class Screen:
    """What a terminal shows. ``side`` is the descriptor that processes have of it."""

    def __init__(self, columns: int | None = None) -> None:
        self._mine, self.side = os.openpty()
        self._handed_over = False
        if columns is not None:
            termios.tcsetwinsize(self.side, (24, columns))

    def __enter__(self) -> Screen:
        return self

    def __exit__(self, *_: object) -> None:
        self.hand_over()
        os.close(self._mine)

    def hand_over(self) -> None:
        """Leave the terminal to the processes that have it open."""
        if not self._handed_over:
            os.close(self.side)
            self._handed_over = True

    def type(self, keys: str) -> None:
        os.write(self._mine, keys.encode())

    def read_to(self, end: str) -> str:
        shown = self._read_until(lambda shown: shown.endswith(end.encode()), 1)
        assert shown.endswith(end.replace("\r\n", "\n")), shown
        return shown

    def read_rest(self) -> str:
        """What is shown until no process has the terminal open."""
        self.hand_over()
        return self._read_until(lambda _: False, 4096)

    def _read_until(self, ends: Callable[[bytes], bool], most: int) -> str:
        """``most``: bytes that are read at once. One read may return a part of what was written at once."""
        shown = b""
        while not ends(shown):
            assert select.select([self._mine], [], [], PATIENCE)[0], shown
            try:
                part = os.read(self._mine, most)
            except OSError:  # no process has it open
                part = b""
            if not part:
                break
            shown += part
        return shown.decode().replace("\r\n", "\n")


class Terminal(Screen):
    """With a launch that drains the site's queues, or another ``command``, after ``options`` of pollconsumer."""

    def __init__(
        self, site: Site, *options: str, command: tuple[str, ...] = ("run", "--until-empty"), columns: int | None = None
    ) -> None:
        """``columns``: the width, where standard output is the terminal, too."""
        super().__init__(columns)
        words = [sys.executable, "-m", "pollconsumer", *options, *command]
        streams: dict[str, Any] = {"stdin": self.side, "stderr": self.side}
        if columns is not None:
            streams["stdout"] = self.side
        self._launch = subprocess.Popen(words, cwd=site.directory, env=site.environment, **streams)
        self.hand_over()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self._launch.kill()
        self._launch.wait()
        super().__exit__()

    def interrupt(self) -> None:
        self._launch.send_signal(signal.SIGINT)

    def read_to_the_end(self) -> str:
        """What is shown until the command has ended, which must be with 0."""
        shown = self.read_rest()
        assert self._launch.wait(PATIENCE) == 0
        return shown
