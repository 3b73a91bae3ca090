"""The streaks of warnings and failures of one crontab line, across launches: see ``core/news/repeats.py``.

They are stored in a small file of the user's, one for each configuration file, store, namespace, role and set of
queues, as arguments and environment name them, since the configuration may be invalid. Two concurrent launches may
overwrite each other's counts, and then print a line more or less. Where no file can be written, nothing is damped;
so that a full disk of the user's does not have that effect, a spare file is in ``/tmp``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from pollconsumer.core.notation.digests import sha256
from pollconsumer.core.notation.text import redacted
from pollconsumer.core.window import StopReason
from pollconsumer.interface.command_line import values_of
from pollconsumer.runtime.system.own_files import OwnFiles, spare_directory

if TYPE_CHECKING:
    from pollconsumer.core.news.repeats import Streaks

DIRECTORY = "streaks"
WITHOUT_WORK = (
    StopReason.LEASE_HELD,
    StopReason.LEASE_LOST,
    StopReason.STORE_UNREACHABLE,
    StopReason.FAILED,
    StopReason.WATCHDOG,
    StopReason.DIED,
)
"""Stop reasons after which a launch cannot know whether a warning is over."""
_VARIABLES = {"--config": "CONFIG", "--store": "STORE", "--namespace": "NAMESPACE", "--queue": "CONSUMER__QUEUES"}


class LaunchStreaks:
    """The streaks that one launch meets or ends."""

    def __init__(
        self, name: str, files: OwnFiles, now: Callable[[], float] = time.time, launch: str | None = None
    ) -> None:
        """``launch``: the launch to which this process belongs; by default it is one itself."""
        self.files, self.name, self.launch = files, name, launch or os.urandom(8).hex()
        self._file, self._now = f"{DIRECTORY}/{name}", now
        self._stopped: str | None = None

    def meet(self, kind: str, name: str, text: str) -> str | None:
        """The line to print for ``text``, or None if it is damped."""
        streaks, now = self._read(), self._now()
        before = streaks.encode(now)
        shown = streaks.meet(name, kind, text, self.launch, now)
        changed = streaks.encode(now) != before
        return text if changed and not self._write(streaks, now) else shown

    def stopped(self, reason: str) -> None:
        """The launch got as far as the lease, and this is why it ends."""
        self._stopped = reason

    def close(self, code: int) -> list[str]:
        """The launch ends with this exit code. Returns lines for streaks that are over."""
        if code or self._stopped is None or self._places().read(self._file) is None:
            return []
        streaks, now = self._read(), self._now()
        lines = streaks.end(self.launch, now, worked=self._stopped not in WITHOUT_WORK)
        return lines if self._write(streaks, now) else []

    def _read(self) -> Streaks:
        from pollconsumer.core.news.repeats import Streaks

        return Streaks.decode(self._places().read(self._file))

    def _write(self, streaks: Streaks, now: float) -> bool:
        content = streaks.encode(now)
        if content:
            return self._places().write(self._file, content)
        self._places().remove(self._file)
        return True

    def _places(self) -> OwnFiles:
        """``files``, and a spare directory, unless the settings say that nothing is kept."""
        directories = self.files.directories
        spare = spare_directory() if directories else None
        return OwnFiles([*directories, *([spare] if spare else [])])


def name_of(role: str, arguments: Sequence[str], variables: Mapping[str, str], prefix: str) -> str:
    """A name for the launches with this role and the configuration that ``arguments`` and environment choose."""
    import json

    given = {
        option: sorted(values_of(option, arguments)) or [variables.get(prefix + variable, "")]
        for option, variable in _VARIABLES.items()
    }
    given["--config"] = [os.path.abspath(path or "config.toml") for path in given["--config"]]  # noqa: PTH100  # as written, links included
    given["--store"] = [redacted(url) for url in given["--store"]]
    return sha256(json.dumps([role, given]).encode("utf-8", "surrogateescape"))[:32]
