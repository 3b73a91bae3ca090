"""What it costs to wait for replicas: single enqueues and a drain, on a server with none, one and two of them.

Without ``durability = "strict"``, and with it for all replicas; beside each figure of the latter that of the former.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import tempfile
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from benchmarks.place import (
    Figure,
    enqueue_messages,
    info,
    marks,
    place,
    plain_wire,
    run,
    server_program,
    share_one_core,
    tcp_server,
)
from pollconsumer.runtime.new_messages import new_message

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SINGLE, MESSAGES = 3_000, 20_000
MOST_REPLICAS = 2


def measure() -> list[Figure]:
    share_one_core()
    figures = []
    for count in range(MOST_REPLICAS + 1):
        with tcp_server() as url, _replicas(url, count), place(url) as directory:
            name = f"{count} replica{'' if count == 1 else 's'}"
            plain = _measure(url, directory)
            with _strict(count):
                strict = _measure(url, directory)
        for what, one, other in zip(("single enqueue", "drain"), plain, strict, strict=True):
            figures.append(Figure(f"{what}, {name}", one, "/s"))
            figures.append(Figure(f"{what}, {name}, strict", other, "/s", one))
    return figures


def _measure(url: str, directory: Path) -> tuple[float, float]:
    """Single enqueues, and messages of a drain, per second."""
    from pollconsumer import PollConsumer

    app = PollConsumer()  # with the settings of now
    app.enqueue("plain", {"n": 1})
    began = time.perf_counter()
    for _ in range(SINGLE):
        app.enqueue("plain", {"n": 1})
    single = SINGLE / (time.perf_counter() - began)
    run("run", "--until-empty")
    messages = [new_message("plain", {"n": n}) for n in (*range(MESSAGES - 1), -1)]
    enqueue_messages(messages)
    _await_replicas(url)
    run("run", "--until-empty")
    return single, MESSAGES / marks(directory)[0]


@contextlib.contextmanager
def _strict(replicas: int) -> Iterator[None]:
    given = {"POLLCONSUMER_DURABILITY": "strict"}
    if replicas:
        given["POLLCONSUMER_STRICT__REPLICAS"] = str(replicas)
    os.environ.update(given)
    try:
        yield
    finally:
        for name in given:
            del os.environ[name]


@contextlib.contextmanager
def _replicas(url: str, count: int) -> Iterator[None]:
    port, processes = urlsplit(url).port, list[subprocess.Popen[bytes]]()
    with tempfile.TemporaryDirectory(prefix="pc-replicas-") as directory:
        for at in range(count):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                own = free.getsockname()[1]
            options = {"port": own, "bind": "127.0.0.1", "replicaof": f"127.0.0.1 {port}", "save": "''"}
            options |= {"dir": directory, "dbfilename": f"{at}.rdb", "appendonly": "no"}
            words = [word for name, value in options.items() for word in (f"--{name}", *str(value).split())]
            processes.append(subprocess.Popen([server_program(), *words], stdout=subprocess.DEVNULL))
        while sum("state=online" in str(each) for each in info(plain_wire(url), "replication").values()) < count:
            time.sleep(0.05)
        try:
            yield
        finally:
            for process in processes:
                process.kill()
                process.wait()


def _await_replicas(url: str) -> None:
    """Until they have all that was written."""
    while True:
        found = info(plain_wire(url), "replication")
        replicas = [value for name, value in found.items() if name.startswith("slave")]
        if all(f"offset={found['master_repl_offset']}," in each for each in replicas):
            return
        time.sleep(0.01)
