"""``python -m tests.moving --messages 1000000``: moves an embedded store while producers and launches go on.

It has a queue that is paused, with so many messages, and one whose messages two producers enqueue and launches handle.
``--to URL`` names where it moves to, an empty store, ``--cluster`` a cluster of three nodes; by default it is another
embedded server. In the end every message that was accepted must have been handled once. Prints figures as one object of
JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

from pollconsumer.runtime.embedded.server import EmbeddedServer
from tests.cluster.nodes import Cluster
from tests.short_directory import short_directory

CONFIGURATION = """
handlers = ["handlers"]
[consumer]
queues = ["default", "bulk"]
timeout = "4s"
"""
PERIOD = 2.0
"""Seconds between launches."""
BEFORE = 6.0
"""Seconds for which producers and launches go on before the move."""
PRODUCERS = 2


class Trial:
    def __init__(self, messages: int, target: str | None) -> None:
        self.messages = messages
        self.directory = short_directory()
        self.servers = [EmbeddedServer(self.directory / name / "pollconsumer") for name in ("a", "b")]
        self.source = self.servers[0].url
        self.target = target or self.servers[1].url
        self.environment = {
            "HOME": str(self.directory),
            "PATH": os.defpath,
            "PYTHONPATH": str(Path(__file__).parents[2]),
            **{f"XDG_{kind}_HOME": str(self.directory / kind.lower()) for kind in ("DATA", "STATE", "CACHE")},
        }
        (self.directory / "config.toml").write_text(CONFIGURATION)
        shutil.copy(Path(__file__).with_name("handlers.py"), self.directory)
        self.over = threading.Event()
        self.launches: list[subprocess.Popen[str]] = []

    def run(self) -> dict[str, Any]:
        for server in self.servers:
            server.directory.parent.mkdir(exist_ok=True)
            server.ensure_running()
        self._use(self.source)
        with (self.directory / "bulk").open("w") as lines:
            for n in range(self.messages):
                lines.write(f'{{"handler": "count", "queue": "bulk", "payload": {{"n": {n}}}}}\n')
        self._command("queue", "pause", "bulk")
        self._command("enqueue", "--ndjson", "bulk")
        producers = [self._producer(number) for number in range(PRODUCERS)]
        launching = threading.Thread(target=self._launch)
        launching.start()
        time.sleep(BEFORE)
        before = self._executed().total()
        exported, export_seconds, export_memory = self._measured("--store", self.source, "store", "export", "moved")
        imported, import_seconds, import_memory = self._measured("--store", self.target, "store", "import", "moved")
        self._use(self.target)
        self._command("--store", self.target, "queue", "resume", "bulk")
        time.sleep(BEFORE)
        (self.directory / "stop").touch()
        reports = [json.loads(producer.communicate()[0]) for producer in producers]
        expected = self.messages + sum(report["accepted"] for report in reports)
        while len(self._executed()) < expected and self._ready() > 0:
            time.sleep(1.0)
        self.over.set()
        launching.join()
        executed = self._executed()
        return {
            "bulk": self.messages,
            "handled_before": before,
            "producers": reports,
            "exported": exported,
            "same": exported == imported,
            "export_seconds": export_seconds,
            "export_megabytes": export_memory,
            "import_seconds": import_seconds,
            "import_megabytes": import_memory,
            "file_megabytes": (self.directory / "moved").stat().st_size // 1_000_000,
            "lost": expected - len(executed),
            "twice": sum(times > 1 for times in executed.values()),
            "exit_codes": Counter(launch.returncode for launch in self.launches),
        }

    def close(self) -> None:
        self.over.set()
        (self.directory / "stop").touch()
        for server in self.servers:
            server.stop()
        shutil.rmtree(self.directory)

    def _use(self, url: str) -> None:
        part = self.directory / "store.part"
        part.write_text(url)
        part.replace(self.directory / "store")

    def _start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *words],
            cwd=self.directory,
            env=self.environment | {"POLLCONSUMER_STORE": (self.directory / "store").read_text()},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def _command(self, *arguments: str) -> str:
        process = self._start("-m", "pollconsumer", *arguments)
        output, _ = process.communicate()
        assert process.returncode == 0, arguments
        return output

    def _measured(self, *arguments: str) -> tuple[Any, float, int]:
        """What it says, seconds, and megabytes of memory at most."""
        began = time.monotonic()
        process = self._start("-m", "pollconsumer", *arguments, "--json")
        most = 0
        while process.poll() is None:
            with suppress(OSError, IndexError):
                status = Path(f"/proc/{process.pid}/status").read_text()
                most = int(status.partition("VmHWM:")[2].split()[0])
            time.sleep(0.05)
        assert process.returncode == 0, arguments
        assert process.stdout is not None
        return json.loads(process.stdout.read()), round(time.monotonic() - began, 1), round(most * 1024 / 1_000_000)

    def _producer(self, number: int) -> subprocess.Popen[str]:
        return self._start("-m", "tests.moving.producer", str(self.messages + number), str(PRODUCERS))

    def _launch(self) -> None:
        while not self.over.is_set():
            self.launches.append(self._start("-m", "pollconsumer", "-q", "run"))
            self.over.wait(PERIOD)
        for launch in self.launches:
            launch.communicate()

    def _executed(self) -> Counter[int]:
        content = b""
        with suppress(FileNotFoundError):
            content = (self.directory / "executed").read_bytes()
        return Counter(int.from_bytes(content[at : at + 4], "big") for at in range(0, len(content), 4))

    def _ready(self) -> int:
        """Messages that are not finished."""
        queues = json.loads(self._command("--store", self.target, "status", "--json"))["queues"]
        return sum(queue["ready"] + queue["reserved"] + queue["scheduled"] for queue in queues)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--to", metavar="URL")
    parser.add_argument("--cluster", action="store_true")
    given = parser.parse_args()
    with ExitStack() as stack:
        if given.cluster:
            given.to = stack.enter_context(closing(Cluster())).url
        trial = stack.enter_context(closing(Trial(given.messages, given.to)))
        found = trial.run()
    print(json.dumps(found, indent=2))
    return 0 if found["same"] and found["lost"] == found["twice"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
