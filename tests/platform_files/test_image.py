"""What ``init docker`` builds into an image, without docker: the commands of its Dockerfile, run in a directory."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pollconsumer import PollConsumer
from pollconsumer.interface.settings.load import read_settings
from pollconsumer.platform_files.init_command import PLATFORMS
from pollconsumer.platform_files.installation import Installation
from tests.short_directory import short_directory
from tests.users import opening, skip_without_users

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.store.servers import Server

HANDLERS = """
import os
from pollconsumer import PollConsumer
app = PollConsumer()

@app.handler("who")
def who() -> list[int]:
    return [os.getuid(), os.getgid()]
"""
BY_ANYBODY = 'exec setpriv --reuid 51234 --regid 0 --clear-groups --inh-caps=-all --bounding-set=-all "$@"'


class Image:
    """``root``: the image's file system, owned by whoever builds it; ``variables`` that its Dockerfile sets."""

    def __init__(self, root: Path) -> None:
        self.app = root / "app"
        self.app.mkdir(parents=True)
        self.config = self.app / "config.toml"
        self.config.write_text('namespace = "built"\nhandlers = ["handlers"]\n[consumer]\nconcurrency = 3\n')
        (self.app / "handlers.py").write_text(HANDLERS)
        files = PLATFORMS["docker"](Installation(read_settings(self.config), ("pollconsumer",), "ada"))
        text = next(file.text for file in files if file.name == "Dockerfile")
        self.variables = dict(re.findall(r"^ENV (\w+)=(\S+)$", text, re.MULTILINE))
        self.variables = {name: f"{root}{path}" for name, path in self.variables.items()}
        (root / "tmp").mkdir()
        (root / "tmp").chmod(0o1777)
        compiles = re.search(r"^RUN (.* -m compileall .*)$", text, re.MULTILINE)
        assert compiles is not None
        line = compiles[1].replace("/opt/pollconsumer/bin", str(Path(sys.executable).parent))
        subprocess.run(["/bin/sh", "-c", line.replace("/app", str(self.app))], check=True)
        [self.user] = re.findall(r"^USER (\S+)$", text, re.MULTILINE)


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    directory = short_directory()
    directory.chmod(0o755)
    yield Image(directory)
    shutil.rmtree(directory)


@pytest.fixture
def open_to_all(valkey: Server) -> Iterator[str]:
    """The URL of the server, whose socket anybody may use meanwhile."""
    socket = Path(valkey.url.removeprefix("unix://"))
    modes = {path: path.stat().st_mode & 0o7777 for path in (socket.parent, socket)}
    for path in modes:
        path.chmod(0o777)
    yield valkey.url
    for path, mode in modes.items():
        path.chmod(mode)


def test_any_user_of_group_0_can_run_the_image_and_has_its_modules_compiled(image: Image, open_to_all: str) -> None:
    skip_without_users()
    surroundings = {**image.variables, "PATH": os.environ["PATH"], "POLLCONSUMER_STORE": open_to_all}

    def as_anybody(*words: str) -> str:
        command = ["unshare", "--mount", "sh", "-c", opening() + BY_ANYBODY, "sh", sys.executable, *words]
        done = subprocess.run(command, env=surroundings, cwd=image.app, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    assert image.user.endswith(":0")
    assert [*image.app.glob("__pycache__/handlers.*.pyc")] != []
    producer = PollConsumer(store=open_to_all, namespace="built")
    asked = producer.enqueue("who", {})
    as_anybody("-m", "pollconsumer", "run", "--config", str(image.config), "--until-empty")
    assert producer.message(asked.id).status().result == [51234, 0]
