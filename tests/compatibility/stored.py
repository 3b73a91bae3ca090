"""``python -m tests.compatibility.stored FILE [PYTHON]``: the export of a store with a message in every state.

PYTHON is the interpreter of an environment with the version that writes the file, this one by default. The next version
reads it: docs/reference/compatibility.md.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.short_directory import short_directory

CONFIGURATION = """
handlers = ["kinds"]

[consumer]
queues = ["default", "limited"]
concurrency = 4
estimated_duration = "1ms"

[queues.default]
keep_completed = "10000"

[queues.limited]
quota = "100/1s"
max_in_flight = 2

[recurrences.nightly]
handler = "record"
cron = "30 2 * * *"
missed = "once"
"""
PATIENCE = 60.0


class Writer:
    """A user of the version whose interpreter is ``python``."""

    def __init__(self, python: str) -> None:
        self._python = python
        self.directory = short_directory()
        self._environment = {
            "HOME": str(self.directory),
            "PATH": os.defpath,
            **{f"XDG_{kind}_HOME": str(self.directory / kind.lower()) for kind in ("DATA", "STATE", "CACHE")},
        }
        (self.directory / "config.toml").write_text(CONFIGURATION)
        shutil.copy(Path(__file__).with_name("kinds.py"), self.directory)

    def write(self, file: Path) -> None:
        """First what is to end, then what is not."""
        self._enqueue("record", "completed")
        self._enqueue("record", "completed-large", text="x" * 3000)
        self._enqueue("result", "with-a-result")
        self._enqueue("fatal", "dead", "--key", "dead")
        self._enqueue("parent", "parent")
        self._enqueue("record", "expired", "--expires", "1ms")
        self._command("run", "--until-empty")
        self._enqueue("record", "cancelled")
        self._command("cancel", "cancelled")
        self._enqueue("retried", "retried")
        self._enqueue("resumed", "resumed")
        self._command("run", "--max-messages", "2")
        for handler in ("held", "held_once"):
            self._enqueue(handler, handler, "--concurrency-key", handler)
        self._kill_while("begin 1", 2)
        self._enqueue_the_rest()
        self._command("queue", "pause", "limited")
        self._command("store", "export", str(file))

    def _enqueue_the_rest(self) -> None:
        self._enqueue("record", "ready")
        self._enqueue("record", "large", text="x" * 3000)
        self._enqueue("record", "urgent", "--priority", "-5")
        self._enqueue("record", "background", "--priority", "5")
        self._enqueue("record", "keyed", "--key", "k")
        self._enqueue("record", "with-headers", "--header", "customer=7")
        self._enqueue("record", "limited", "--queue", "limited")
        self._enqueue("record", "soon", "--in", "1s")
        self._enqueue("record", "far", "--at", "2100-01-01T00:00:00Z")
        self._enqueue("record", "to-expire", "--expires", "1s")
        for name in ("place", "waits-for-a-place"):
            self._enqueue("record", name, "--concurrency-key", "c")

    def _kill_while(self, noted: str, times: int) -> None:
        """A launch and its heartbeat, once its handlers have noted it so often."""
        launch = subprocess.Popen(self._words("run"), cwd=self.directory, env=self._environment, start_new_session=True)
        until = time.monotonic() + PATIENCE
        while (self.directory / "notes").read_text().count(noted) < times:
            assert time.monotonic() < until
            time.sleep(0.05)
        os.killpg(launch.pid, 9)
        launch.wait()

    def _enqueue(self, handler: str, name: str, *options: str, **payload: Any) -> None:
        self._command("enqueue", handler, json.dumps(payload), "--id", name, *options)

    def _command(self, *arguments: str) -> None:
        subprocess.run(self._words(*arguments), cwd=self.directory, env=self._environment, check=True)

    def _words(self, *arguments: str) -> list[str]:
        return [self._python, "-m", "pollconsumer", *arguments]

    def close(self) -> None:
        self._command("store", "stop")
        shutil.rmtree(self.directory)


def main() -> None:
    file = Path(sys.argv[1]).resolve()
    writer = Writer(sys.argv[2] if len(sys.argv) > 2 else sys.executable)
    try:
        writer.write(file)
    finally:
        writer.close()


if __name__ == "__main__":
    main()
