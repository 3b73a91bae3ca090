"""The dashboard in a headless Chromium (Debian's package), on stores that look like an hour of launches.

    python -m tests.dashboard [--scenes usual bad_hour ...] [--pictures DIRECTORY]

Takes pictures of each scene: light, dark, narrow, served and opened as a file; and checks in the browser's own document
that no script of a message's runs, that the page fits a narrow screen, and how soon the first byte comes. Exit code 1
when a check fails, 2 without Chromium.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pollconsumer.store.audit_log import acting_as
from pollconsumer.store.client.patience import Budget
from tests.conftest import real_server
from tests.dashboard.batch_scene import a_batch
from tests.dashboard.chromium import FLAGS
from tests.dashboard.scenes import SCENES, Scene
from tests.store.batching import HOME

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZES = {"light": "1280,1900", "dark": "1280,1900", "narrow": "390,3200"}
MOST_TO_FIRST_BYTE = 1.0
"""Seconds, on a busy machine."""
PAGES = {
    "dead": "queue?name=mail&state=dead",
    "message": "message?queue=mail&id=dead-1",
    "handler": "handler?name=mail.send",
    "search": "search?header=customer%3D1",
    "day": "past?of=day",
    "week": "past?of=week",
    "audit": "audit",
    "batch": f"batch?queue={HOME}&id=b",
}
"""Further pages of the bad hour."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.dashboard", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scenes", nargs="*", choices=SCENES, default=[*SCENES])
    parser.add_argument("--pictures", type=Path, default=Path(tempfile.mkdtemp(prefix="pictures-")))
    given = parser.parse_args()
    if (chromium := shutil.which("chromium")) is None:
        sys.stderr.write("tests.dashboard: no chromium: apt-get install chromium\n")
        return 2
    given.pictures.mkdir(parents=True, exist_ok=True)
    problems = []
    with real_server() as server, tempfile.TemporaryDirectory(prefix="pc-") as home:
        server.wire().command("CONFIG", "SET", "appendonly", "yes")  # or it would be a finding on every page
        for name in given.scenes:
            namespace = name.replace("_", "-")
            with acting_as("ada"):
                SCENES[name](scene := Scene(server.wire(lambda: Budget(60)), namespace))
            if name == "bad_hour":
                a_batch(scene.wire, namespace)
            command = [
                sys.executable,
                "-m",
                "pollconsumer",
                "--store",
                server.url,
                "--namespace",
                namespace,
                "dashboard",
            ]
            with _served(command, home) as address:
                problems += [f"{name}: {problem}" for problem in _looked_at(chromium, name, address, given.pictures)]
            files = Path(home) / name
            subprocess.run([*command, "--static", str(files)], check=True, env=_environment(home))
            _picture(chromium, (files / "index.html").as_uri(), given.pictures / f"{name}-file.png", "light")
            server.clear()
    for line in (*problems, f"pictures: {given.pictures}"):
        sys.stdout.write(f"{line}\n")
    return 1 if problems else 0


@contextmanager
def _served(command: list[str], home: str) -> Iterator[str]:
    with subprocess.Popen(
        [*command, "--port", "0"], stdout=subprocess.PIPE, text=True, env=_environment(home)
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def _environment(home: str) -> dict[str, str]:
    return {"HOME": home, "PATH": os.environ["PATH"]}


def _looked_at(chromium: str, name: str, address: str, pictures: Path) -> Iterator[str]:
    """Take the pictures of a scene. Yields what is wrong."""
    for look in SIZES:
        _picture(chromium, address, pictures / f"{name}-{look}.png", look)
    for page, path in PAGES.items() if name == "bad_hour" else ():
        for look in SIZES:
            _picture(chromium, address + path, pictures / f"{name}-{page}-{look}.png", look)
        yield from _problems(chromium, address + path)
    yield from _problems(chromium, address)
    waits = []
    for _ in range(5):
        began = time.perf_counter()
        with urllib.request.urlopen(address, timeout=30) as answer:
            answer.read(1)
            waits.append(time.perf_counter() - began)
    sys.stdout.write(f"{name}: first byte after {1000 * min(waits):.0f} ms at best, {1000 * max(waits):.0f} at worst\n")
    if min(waits) > MOST_TO_FIRST_BYTE:
        yield "the first byte comes late"


def _problems(chromium: str, address: str) -> Iterator[str]:
    document = _run(chromium, "--dump-dom", "--virtual-time-budget=2000", address)
    if "<h1" not in document:
        yield f"{address}: no page"
    if re.search(r"<script|\son\w+=|javascript:", document):
        yield f"{address}: a script came through"


def _picture(chromium: str, address: str, file: Path, look: str) -> None:
    dark = (
        ["--blink-settings=preferredColorScheme=0"] if look == "dark" else ["--blink-settings=preferredColorScheme=1"]
    )
    _run(chromium, *dark, f"--window-size={SIZES[look]}", f"--screenshot={file}", address)


def _run(chromium: str, *arguments: str) -> str:
    with tempfile.TemporaryDirectory(prefix="chromium-") as profile:
        command = [chromium, *FLAGS, f"--user-data-dir={profile}", *arguments]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
