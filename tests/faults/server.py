"""A server of the test's own, behind a password, that keeps all it has acknowledged."""

from __future__ import annotations

import signal
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from redis import Redis, exceptions

from pollconsumer.runtime.embedded.start import find_program
from pollconsumer.store.client.patience import Budget
from pollconsumer.store.client.wire import Wire

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE = 60.0


class Server:
    def __init__(self, directory: Path, password: str, *, slow_loading: bool, appendfsync: str = "always") -> None:
        self.socket = directory / "s"
        self._directory, self._password, self._slow_loading = directory, password, slow_loading
        self._appendfsync = appendfsync
        self._log = (directory / "server.log").open("ab")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and do not wait: while it reads its file it answers LOADING."""
        options = {
            "port": "0",
            "unixsocket": str(self.socket),
            "dir": str(self._directory),
            "requirepass": self._password,
            "save": "",
            "appendonly": "yes",
            "appendfsync": self._appendfsync,
            "enable-debug-command": "no",
            "busy-reply-threshold": "100",
        }
        if self._slow_loading:
            # So that reading a small file takes a while, and clients are answered meanwhile.
            options |= {"loading-process-events-interval-bytes": "1024", "key-load-delay": "2000"}
        arguments = [word for name, value in options.items() for word in (f"--{name}", value)]
        self._process = subprocess.Popen([find_program(), *arguments], stdout=self._log, stderr=self._log)

    def client(self) -> Redis:
        """Straight to it. To be closed by the caller."""
        return Redis(unix_socket_path=str(self.socket), password=self._password, socket_timeout=5)

    def wire(self) -> Wire:
        """As the store's readers want it. To be closed by the caller."""
        return Wire(f"unix://{self.socket}?password={self._password}", lambda: Budget(10))

    def await_ready(self) -> None:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                with self.client() as client:
                    client.ping()
            except (exceptions.RedisError, OSError):
                assert time.monotonic() < until, "the server does not answer"
                time.sleep(0.02)
            else:
                return

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """As a person would."""
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()

    def close(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self.signal(signal.SIGCONT)
            self.kill()
        self._log.close()
