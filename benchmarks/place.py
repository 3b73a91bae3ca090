"""A place to measure in: a separate store, handlers that record their start, and a summary."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pollconsumer.interface.api.app import HandlerFunction

HANDLERS = '''
import os, time
from pathlib import Path
from pollconsumer import PollConsumer

app = PollConsumer()
notes = os.open(Path(__file__).with_name("notes"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

@app.handler
def noop(n: int) -> None:
    pass

@app.handler
def note(since: float) -> None:
    """Milliseconds between ``since`` and the handler's start, both of this host's clock."""
    os.write(notes, f"{(time.time() - since) * 1000:.4f}\\n".encode())

@app.handler
def sleep(seconds: float) -> None:
    time.sleep(seconds)
'''


@contextlib.contextmanager
def place(store: str = "embedded") -> Iterator[Path]:
    """A directory with a configuration, and this process's environment pointing into it."""
    directory = Path(tempfile.mkdtemp(prefix="pc-"))
    for kind in ("DATA", "STATE", "CACHE"):
        os.environ[f"XDG_{kind}_HOME"] = str(directory)
    os.environ["POLLCONSUMER_CONFIG"] = str(directory / "config.toml")
    (directory / "config.toml").write_text(f'handlers = ["handlers"]\nstore = "{store}"\n')
    (directory / "handlers.py").write_text(HANDLERS)
    sys.path.insert(0, str(directory))
    sys.modules.pop("handlers", None)  # loaded from another place
    try:
        yield directory
    finally:
        sys.path.remove(str(directory))
        run("store", "stop")
        shutil.rmtree(directory)


@contextlib.contextmanager
def tcp_server() -> Iterator[str]:
    """URL of a server on loopback without persistence."""
    from pollconsumer.runtime.embedded.start import find_program

    port = 16379
    process = subprocess.Popen(
        [find_program(), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"],
        stdout=subprocess.DEVNULL,
    )
    try:
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.terminate()
        process.wait()


def handler(name: str) -> HandlerFunction[..., ..., None]:
    import handlers  # type: ignore[import-not-found]  # written by `place`

    found: HandlerFunction[..., ..., None] = getattr(handlers, name)
    return found


def start(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "pollconsumer", *arguments])


def run(*arguments: str) -> None:
    if start(*arguments).wait() != 0:
        raise SystemExit(f"pollconsumer {' '.join(arguments)} failed")


def notes(directory: Path, count: int) -> list[float]:
    """The handlers' records, once there are ``count``."""
    path = directory / "notes"
    while not path.exists() or len(path.read_text().splitlines()) < count:
        time.sleep(0.05)
    return [float(line) for line in path.read_text().splitlines()]


def summary(values: Sequence[float], unit: str = "ms") -> str:
    """p50, p90, p99 and the extremes."""
    ordered = sorted(values)
    at = {share: ordered[min(len(ordered) - 1, int(len(ordered) * share))] for share in (0.5, 0.9, 0.99)}
    shown = "  ".join(f"p{share * 100:.0f} {value:.3f}" for share, value in at.items())
    return f"{shown}  min {ordered[0]:.3f}  max {ordered[-1]:.3f} {unit} ({len(ordered)})"
