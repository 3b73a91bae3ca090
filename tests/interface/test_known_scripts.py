"""What processes know of scripts from an earlier one: they link the text of one that the server does not know."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pollconsumer
from pollconsumer.core.notation.digests import sha1
from pollconsumer.interface.configured_store import known_scripts
from pollconsumer.store import linker
from pollconsumer.store.client.patience import Budget
from pollconsumer.store.client.server_wire import ServerWire
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.scripts import Scripts, all_known
from tests.conftest import NAMESPACE
from tests.store.acting import Launch, message, names

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.site import Site
    from tests.store.servers import Server


@pytest.fixture
def linked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of scripts, as they are linked."""
    found: list[str] = []
    original = linker.linked

    def link(name: str, *, shebang: bool) -> tuple[tuple[str, ...], bytes]:
        found.append(name)
        return original(name, shebang=shebang)

    monkeypatch.setattr(linker, "linked", link)
    return found


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "pollconsumer"


def kept(cache: Path) -> Path:
    (file,) = cache.glob("scripts-*")
    return file


def test_the_second_process_links_nothing(cache: Path, linked: list[str]) -> None:
    first = known_scripts()
    assert set(linked) == set(first)
    linked.clear()
    before = kept(cache).stat()
    assert known_scripts() == first
    assert (linked, kept(cache).stat()) == ([], before)
    assert Scripts(first)["step"].keys == Scripts()["step"].keys


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"",
        lambda content: content.replace(b"step", b"stop"),
        lambda content: content[:-9],
        lambda _: b"[]",
        lambda _: b'{"step": 1}',
        lambda _: b'{"step": [["a"], 1]}',
    ],
)
def test_damaged_scripts_are_linked_anew(cache: Path, linked: list[str], damage: Callable[[bytes], bytes]) -> None:
    first = known_scripts()
    file, linked[:] = kept(cache), []
    content = damage(file.read_bytes())
    if content[:1] in (b"[", b"{"):
        content = hashlib.sha256(b"%b\n%b" % (file.name.encode(), content)).hexdigest().encode() + b"\n" + content
    file.write_bytes(content)
    assert known_scripts() == first
    assert set(linked) == set(first)


def test_where_nothing_can_be_kept_a_process_links_what_it_needs(cache: Path, linked: list[str]) -> None:
    cache.parent.write_text("a file where the directory should be")
    assert Scripts(known_scripts())["nudge"].sha == all_known()["nudge"][1]
    assert linked[0] == "nudge"


def test_an_edited_script_is_linked_anew(tmp_path: Path) -> None:
    shutil.copytree(Path(pollconsumer.__file__).parent, tmp_path / "pollconsumer")
    code = """
import sys
from pollconsumer.interface.configured_store import Scripts, known_scripts
print(Scripts(known_scripts())["nudge"].sha, "pollconsumer.store.linker" in sys.modules)
"""

    def printed() -> str:
        environment = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
        command = [sys.executable, "-c", code]
        return subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True).stdout

    (sha, by_linker), again = printed().rsplit(maxsplit=1), printed()
    assert (by_linker, again) == ("True", f"{sha} False\n")
    with (tmp_path / "pollconsumer" / "store" / "lua" / "parts" / "markers.lua").open("a") as part:
        part.write("\nlocal edited = 1\n")
    assert printed() not in (again, f"{sha} True\n")
    assert printed().endswith("False\n")


def test_a_script_whose_known_digest_is_wrong_is_loaded_and_run_by_the_right_one(valkey: Server) -> None:
    known = {name: (words, sha1(name.encode()).encode()) for name, (words, _) in all_known().items()}
    wire = ServerWire(valkey.url, lambda: Budget(10), scripts=Scripts(known))
    store = RedisStore(wire, NAMESPACE)
    store.enqueue([message("a"), message("b")])
    keys = [*map(store.keys.control, ("durations", "durations_before", "histograms"))]
    command = wire.script("learn", keys, [9, 9, 0])
    wire.scripts.loads = 0
    assert wire.once([command, command]) == [1, 1]
    assert wire.once([command]) == [1]
    launch = Launch(store)
    assert names(launch.reserve()) == ["a"]
    loads = wire.scripts.loads
    assert names(launch.reserve()) == ["b"]
    assert wire.scripts.loads == loads
    wire.close()


def test_a_launch_that_knows_its_scripts_links_none_until_the_server_forgets_them(site: Site) -> None:
    def launched() -> str:
        program = [sys.executable, "-X", "importtime", "-m", "pollconsumer", "run", "--until-empty"]
        process = site.start_program(program)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        return errors

    site.enqueue("record", name="first")
    launched()
    assert "pollconsumer.store.linker" not in launched()
    site.enqueue("record", name="second")
    server = ServerWire(f"unix://{site.socket}", lambda: Budget(10))
    server.command("SCRIPT", "FLUSH")
    server.close()
    assert "pollconsumer.store.linker" in launched()
    assert site.notes() == ["first", "second"]
