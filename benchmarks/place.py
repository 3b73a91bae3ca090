"""A place to measure in: a server, a separate store, handlers that record when they start, and a summary."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pollconsumer.core.messages.message import NewMessage
    from pollconsumer.interface.api.handler_function import HandlerFunction
    from pollconsumer.store.client.wire import Wire

SERVER = "BENCHMARKS_SERVER"
"""The environment variable that names another server program than an embedded store's."""

HANDLERS = '''
import os, time
from pathlib import Path
from pollconsumer import Context, PollConsumer

app = PollConsumer()
notes = os.open(Path(__file__).with_name("notes"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

def mark(n: int) -> None:
    """Of the first and the last of a drain or a block: 0 and -1."""
    if n <= 0:
        os.write(notes, f"{time.perf_counter()} {time.process_time()}\\n".encode())

@app.handler
def plain(n: int) -> None:
    mark(n)

@app.handler
def result(n: int) -> int:
    mark(n)
    return n

@app.handler(result_ttl=0)
def no_result(n: int) -> int:
    mark(n)
    return n

@app.handler
def context(n: int, context: Context) -> None:
    mark(n)

@app.handler(timeout="30s")
def timeout(n: int) -> None:
    mark(n)

@app.handler
async def coroutine(n: int) -> None:
    mark(n)

@app.handler(delivery="at_most_once")
def at_most_once(n: int) -> None:
    mark(n)

@app.handler
def sleep(n: int, seconds: float) -> None:
    mark(n)
    time.sleep(seconds)

@app.handler
async def asleep(n: int, seconds: float) -> None:
    import asyncio

    mark(n)
    await asyncio.sleep(seconds)

@app.handler
def text(text: str) -> None:
    pass

@app.handler
def hang(context: Context) -> None:
    """In its first attempt; each begins with a record of the time."""
    os.write(notes, f"{time.time()}\\n".encode())
    if context.attempt == 1:
        time.sleep(600)

@app.handler
def note(since: float) -> None:
    """Milliseconds between ``since`` and the handler's start, both of this host's clock."""
    os.write(notes, f"{(time.time() - since) * 1000:.4f}\\n".encode())
'''


class Figure(NamedTuple):
    """``floor``: the same by the least code that does it, in the same run. Of figures per second more is better, of
    all others less."""

    name: str
    value: float
    unit: str
    floor: float | None = None


@contextlib.contextmanager
def place(store: str = "embedded") -> Iterator[Path]:
    """A directory with a configuration, and this process's environment pointing into it."""
    directory = Path(tempfile.mkdtemp(prefix="pc-"))
    move_to(directory)
    (directory / "config.toml").write_text(f'handlers = ["handlers"]\nstore = "{store}"\n')
    (directory / "handlers.py").write_text(HANDLERS)
    sys.path.insert(0, str(directory))
    sys.modules.pop("handlers", None)  # loaded from another place
    try:
        yield directory
    finally:
        sys.path.remove(str(directory))
        if store == "embedded":
            run("store", "stop")
        shutil.rmtree(directory)


def move_to(directory: Path) -> None:
    """Let the environment of this process point into another `place`."""
    for kind in ("DATA", "STATE", "CACHE"):
        os.environ[f"XDG_{kind}_HOME"] = str(directory)
    os.environ["POLLCONSUMER_CONFIG"] = str(directory / "config.toml")


def server_program() -> str:
    """The one that was asked for, else that of an embedded store."""
    from pollconsumer.runtime.embedded.start import find_program

    return os.environ.get(SERVER) or find_program()


@contextlib.contextmanager
def tcp_server() -> Iterator[str]:
    """URL of a server on loopback without persistence."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [server_program(), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"],
        stdout=subprocess.DEVNULL,
    )
    try:
        while True:
            with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.01)
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.terminate()
        process.wait()


def share_one_core() -> None:
    """For this process, and the server and launches that it starts: waking another core takes a different time at each
    try, and on one core rates measure the processor time of all."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def handler(name: str) -> HandlerFunction[..., ..., None, None]:
    import handlers  # type: ignore[import-not-found]  # written by `place`

    found: HandlerFunction[..., ..., None, None] = getattr(handlers, name)
    return found


def enqueue_messages(messages: Iterable[NewMessage]) -> None:
    """Enqueue prepared messages as an application does: that of ``handlers``, of this version or an earlier one."""
    own = vars(handler("plain"))
    own["_calls" if "_calls" in own else "app"].enqueue_messages([*messages])


def start(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "pollconsumer", *arguments])


def run(*arguments: str) -> None:
    if start(*arguments).wait() != 0:
        raise SystemExit(f"pollconsumer {' '.join(arguments)} failed")


def notes(directory: Path, count: int) -> list[float]:
    """The first number of each of the handlers' records, once there are ``count``."""
    path = directory / "notes"
    while not path.exists() or len(path.read_text().splitlines()) < count:
        time.sleep(0.05)
    return [float(line.split()[0]) for line in path.read_text().splitlines()]


def marks(directory: Path) -> tuple[float, float]:
    """Seconds between the first and the last message of a drain, and the launch's processor time in them."""
    [marked] = spans(directory)
    return marked


def spans(directory: Path) -> list[tuple[float, float]]:
    """The same from each message that is marked to the next."""
    seen = [[float(each) for each in line.split()] for line in (directory / "notes").read_text().splitlines()]
    (directory / "notes").write_text("")
    return [(then[0] - before[0], then[1] - before[1]) for before, then in pairwise(seen)]


def info(wire: Wire, section: str) -> dict[str, Any]:
    """A section of the server's INFO."""
    answer: Any = wire.command("INFO", section)
    if isinstance(answer, dict):
        return answer
    return dict(line.split(":", 1) for line in answer.decode().splitlines() if ":" in line)


def server_seconds(wire: Wire) -> float:
    """The server's processor time."""
    cpu = info(wire, "cpu")
    return float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])


def plain_wire(url: str) -> Wire:
    from pollconsumer.store.client.patience import Budget
    from pollconsumer.store.client.wire import Wire

    return Wire(url, lambda: Budget(10.0))


def at(values: Sequence[float], share: float) -> float:
    """The percentile."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]
