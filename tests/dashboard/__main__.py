"""The dashboard in a headless Chromium (Debian's package), on stores that look like an hour of launches.

    python -m tests.dashboard [--scenes usual bad_hour ... shop] [--pictures DIRECTORY]

Takes pictures of each scene: light, dark, narrow, served and opened as a file; of every kind of page, and of each form,
also refused. Checks in the browser's own document that no script of a message's runs, that each page fits its screen,
and how soon the first byte comes. Exit code 1 when a check fails, 2 without Chromium.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pollconsumer.store.audit_log import acting_as
from pollconsumer.store.client.patience import Budget
from tests.conftest import real_server
from tests.dashboard.batch_scene import a_batch
from tests.dashboard.chromium import BEYOND, MISSING, Chromium
from tests.dashboard.scenes import SCENES, Scene
from tests.dashboard.shop import PAGES as SHOP_PAGES
from tests.dashboard.shop import REPORT, open_shop
from tests.store.batching import HOME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.store.servers import Server


class Look(NamedTuple):
    width: int
    dark: bool = False


LOOKS = {"light": Look(1280), "dark": Look(1280, dark=True), "narrow": Look(390)}
MOST_TO_FIRST_BYTE = 1.0
"""Seconds, on a busy machine."""
SHOP = "shop"
PAGES = {
    "bad_hour": {
        "dead": "dead?queue=mail",
        "message": "message?queue=mail&id=dead-1",
        "handler": "handler?name=mail.send",
        "search": "search?header=customer%3D1",
        "day": "past?of=day",
        "week": "past?of=week",
        "audit": "audit",
        "batch": f"batch?queue={HOME}&id=b",
        "batches": f"batches?queue={HOME}",
        "problem": "message?queue=mail&id=nobody",
    },
    SHOP: SHOP_PAGES,
}
"""Further pages of a scene, beside its first one."""
PRESSED = {
    "enqueue-refused": ("enqueue?handler=order.place", "form.fields"),
    "add-refused": ("put", "form.fields"),
    "enqueued": ("enqueue?handler=other", "form.fields"),
    "queue-paused": ("queue?name=reports", ".actions form"),
    "handler-pressed": (f"handler?name={REPORT}", ".actions form"),
}
"""Pages of the shop, and the form there that is sent: a picture is taken of the page which it leads to."""
OPENED = "document.querySelectorAll('details').forEach(each => each.open = true)"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.dashboard", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scenes", nargs="*", choices=[*SCENES, SHOP], default=[*SCENES, SHOP])
    parser.add_argument("--pictures", type=Path, default=Path(tempfile.mkdtemp(prefix="pictures-")))
    given = parser.parse_args()
    if MISSING:
        sys.stderr.write(f"tests.dashboard: no {MISSING}: apt-get install chromium chromium-driver\n")
        return 2
    given.pictures.mkdir(parents=True, exist_ok=True)
    problems = []
    with real_server() as server, tempfile.TemporaryDirectory(prefix="pc-") as home, Chromium() as chromium:
        server.wire().command("CONFIG", "SET", "appendonly", "yes")  # or it would be a finding on every page
        for name in given.scenes:
            command = _set(name, server, Path(home))
            with _served([*command, *(["--allow-actions"] if name in PAGES else [])], home) as address:
                found = _looked_at(chromium, name, address, given.pictures)
                problems += [f"{name}: {problem}" for problem in found]
            files = Path(home) / name
            subprocess.run([*command, "--static", str(files)], check=True, env=_environment(home))
            chromium.open((files / "index.html").as_uri())
            chromium.picture(given.pictures / f"{name}-file.png")
            server.clear()
    for line in (*problems, f"pictures: {given.pictures}"):
        sys.stdout.write(f"{line}\n")
    return 1 if problems else 0


def _set(name: str, server: Server, home: Path) -> list[str]:
    """Set a scene. Returns the command that shows it."""
    if name == SHOP:
        return [*open_shop(home, server.url, _environment(str(home))), "dashboard"]
    namespace = name.replace("_", "-")
    with acting_as("ada"):
        SCENES[name](scene := Scene(server.wire(lambda: Budget(60)), namespace))
    if name == "bad_hour":
        a_batch(scene.wire, namespace)
    program = [sys.executable, "-m", "pollconsumer"]
    return [*program, "--store", server.url, "--namespace", namespace, "dashboard"]


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
    return {"HOME": home, "PATH": os.environ["PATH"], "USER": "ada", "LOGNAME": "ada"}


def _looked_at(chromium: Chromium, name: str, address: str, pictures: Path) -> Iterator[str]:
    """Take the pictures of a scene. Yields what is wrong."""
    chromium.open(address)
    bare = chromium.address
    for look, (width, dark) in LOOKS.items():
        with chromium.screen(width, 844, dark=dark):
            for page, path in {"": "", **PAGES.get(name, {})}.items():
                chromium.open(bare + path)
                file = "-".join(filter(None, (name, page, look)))
                chromium.picture(pictures / f"{file}.png")
                yield from _problems(chromium, file, width)
                if chromium.all("main details"):
                    chromium.run(OPENED)
                    chromium.picture(pictures / f"{file}-open.png")
                    yield from _problems(chromium, f"{file}-open", width)
            for page, (path, form) in PRESSED.items() if name == SHOP else ():
                chromium.open(bare + path)
                chromium.send(form, queue="other")
                file = f"{name}-{page}-{look}"
                chromium.picture(pictures / f"{file}.png")
                yield from _problems(chromium, file, width)
    yield from _waits(name, address)


def _problems(chromium: Chromium, name: str, width: int) -> Iterator[str]:
    document = chromium.run("return document.documentElement.outerHTML")
    if "<h1" not in document:
        yield f"{name}: no page"
    if re.search(r"<script|\son\w+=|javascript:", document):
        yield f"{name}: a script came through"
    if beyond := chromium.run(BEYOND, width):
        yield f"{name}: wider than the screen: {beyond[:3]}"


def _waits(name: str, address: str) -> Iterator[str]:
    """Print how soon the first byte comes. Yields what is wrong."""
    waits, client = [], urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    client.open(address, timeout=30).close()  # which gives the cookie, where the address has a token
    for _ in range(5):
        began = time.perf_counter()
        with client.open(address.partition("?")[0], timeout=30) as answer:
            answer.read(1)
            waits.append(time.perf_counter() - began)
    sys.stdout.write(f"{name}: first byte after {1000 * min(waits):.0f} ms at best, {1000 * max(waits):.0f} at worst\n")
    if min(waits) > MOST_TO_FIRST_BYTE:
        yield "the first byte comes late"


if __name__ == "__main__":
    sys.exit(main())
