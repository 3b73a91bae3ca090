"""`check --compat`: what it prints, how it ends, and that nothing of it is left."""

from __future__ import annotations

import select
import signal
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from tests.site import PATIENCE
from tests.store.relay import Listening
from tests.store.servers import snapshot
from tests.system.test_managed import PASSWORD, managed

if TYPE_CHECKING:
    from tests.site import Site
    from tests.store.servers import Server


def test_a_server_that_lacks_nothing_is_ok_and_no_handler_is_imported(site: Site) -> None:
    (site.directory / "handlers.py").write_text("raise ValueError('not imported')")
    done = site.command("check", "--compat")
    assert (done.returncode, done.stdout, done.stderr) == (0, "ok\n", "")
    assert site.json("check", "--compat") == {"ok": True, "lacks": []}


@pytest.mark.ends_with(77)
def test_a_server_that_disables_a_command_is_told_in_a_line(site: Site) -> None:
    with managed("LPOS") as address:
        done = site.command("--store", f"redis://launch:{PASSWORD}@{address}", "check", "--compat")
    assert (done.returncode, done.stderr) == (77, "")
    refused = "commands: refused: LPOS; grant it to the store's user, or have the server enable it"
    assert refused in done.stdout.splitlines()
    assert PASSWORD not in done.stdout


class Gate:
    """Passes everything on to the server behind ``target``, but for what holds ``word``, which waits until it is
    closed."""

    def __init__(self, target: str, word: bytes) -> None:
        self._target, self._word = target.removeprefix("unix://"), word
        self.reached, self._closed = threading.Event(), threading.Event()
        self._listening = Listening(self._pass_on)
        self.url = self._listening.url

    def close(self) -> None:
        self._closed.set()
        self._listening.close()

    def _pass_on(self, client: socket.socket) -> None:
        with socket.socket(socket.AF_UNIX) as server:
            server.connect(self._target)
            while True:
                for readable in select.select([client, server], [], [])[0]:
                    data = readable.recv(1 << 20)
                    if self._word in data and not self.reached.is_set():
                        self.reached.set()
                        self._closed.wait()
                        return
                    if not data:
                        return
                    (server if readable is client else client).sendall(data)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_no_key_is_left_by_a_signal(site: Site, valkey: Server, number: int, code: int) -> None:
    gate = Gate(valkey.url, b"use-up-rate")
    process = site.start("--store", gate.url, "check", "--compat")
    assert gate.reached.wait(PATIENCE)
    process.send_signal(number)
    process.communicate()
    gate.close()
    assert (process.returncode, snapshot(valkey.wire())) == (code, {})
