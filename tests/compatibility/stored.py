"""``python -m tests.compatibility.stored``: the export of a store with a message in every state, and in every kind of
waiting, in the folder ``stores``, under the number of this version.

Later versions read it: docs/reference/compatibility.md.
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

from pollconsumer.interface.settings.names import VERSION
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
STORES = Path(__file__).parent / "stores"


class Writer:
    """A user of this version."""

    def __init__(self) -> None:
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
        for handler in ("logged", "stepped", "approved", "caller"):
            self._enqueue(handler, handler)
        self._command("run", "--max-messages", "6")
        for handler in ("held", "held_once"):
            self._enqueue(handler, handler, "--concurrency-key", handler)
        self._kill_while("begin 1", 2)
        self._enqueue_the_rest()
        self._python("-c", "import kinds; kinds.enqueue_more()")
        self._command("signal", "approved", "other", '"kept until it is asked for"')
        self._command("handler", "pause", "together")
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
        for name in ("first-in-order", "next-in-order"):
            self._enqueue("record", name, "--order-key", "o", "--created-by", "ada")
        for name in ("bulk-1", "bulk-2"):
            self._enqueue("together", name)

    def _kill_while(self, noted: str, times: int) -> None:
        """A launch and its heartbeat, once its handlers have noted it so often."""
        words = [sys.executable, "-m", "pollconsumer", "run"]
        launch = subprocess.Popen(words, cwd=self.directory, env=self._environment, start_new_session=True)
        until = time.monotonic() + PATIENCE
        while (self.directory / "notes").read_text().count(noted) < times:
            assert time.monotonic() < until
            time.sleep(0.05)
        os.killpg(launch.pid, 9)
        launch.wait()

    def _enqueue(self, handler: str, name: str, *options: str, **payload: Any) -> None:
        self._command("enqueue", handler, json.dumps(payload), "--id", name, *options)

    def _command(self, *arguments: str) -> None:
        self._python("-m", "pollconsumer", *arguments)

    def _python(self, *words: str) -> None:
        subprocess.run([sys.executable, *words], cwd=self.directory, env=self._environment, check=True)

    def close(self) -> None:
        self._command("store", "stop")
        shutil.rmtree(self.directory)


def main() -> None:
    file = STORES / f"{VERSION}.ndjson"
    file.unlink(missing_ok=True)
    writer = Writer()
    try:
        writer.write(file)
    finally:
        writer.close()


if __name__ == "__main__":
    main()
