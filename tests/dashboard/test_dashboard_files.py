"""The pages as files: all links lead to one, nothing of others is touched, and no page is ever half written."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.errors import CannotCreate
from pollconsumer.dashboard import files
from pollconsumer.dashboard.files import LIST, write_pages
from pollconsumer.store.queues.redis_store import RedisStore
from tests.conftest import NAMESPACE
from tests.dashboard.pages import Document, reading
from tests.dashboard.scenes import Scene, usual
from tests.dashboard.test_dashboard import HOSTILE, attack
from tests.store.acting import HOUR, message

if TYPE_CHECKING:
    from pathlib import Path

    from pollconsumer.dashboard.page_reader import PageReader
    from pollconsumer.store.client.wire import Wire
    from tests.store.servers import Server


@pytest.fixture
def wire(valkey: Server) -> Wire:
    return valkey.wire()


@pytest.fixture
def read(wire: Wire) -> PageReader:
    return reading(wire)


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_every_link_leads_to_a_file_from_the_first_page_on(wire: Wire, read: PageReader, tmp_path: Path) -> None:
    usual(Scene(wire, NAMESPACE, share=0.01))
    attack(wire)
    write_pages(read, tmp_path / "a")
    written = names(tmp_path / "a")
    linked, ahead = set(), {"index.html"}
    while ahead:
        page = ahead.pop()
        linked.add(page)
        document = Document((tmp_path / "a" / page).read_text("utf-8"))
        assert document.all("form") == []
        ahead |= {link for link in document.links() if link != "#content"} - linked
    assert linked | {"style.css", "icon.svg", LIST} == written
    assert {name.partition("-")[0] for name in linked} == {"index.html", "message", "queue", "handler", "recurrence"}
    assert any("late" + HOSTILE[:8] in Document((tmp_path / "a" / page).read_text("utf-8")).text for page in linked)


def test_pages_of_what_is_gone_are_removed_and_files_of_others_stay(
    wire: Wire, read: PageReader, tmp_path: Path
) -> None:
    (tmp_path / "message-mine.html").write_text("mine")
    RedisStore(wire, NAMESPACE).enqueue([message("a", delay=HOUR)])
    write_pages(read, tmp_path)
    assert "message-mail~a.html" in names(tmp_path)
    wire.command("FLUSHALL")
    write_pages(read, tmp_path)
    assert names(tmp_path) == {"index.html", "style.css", "icon.svg", LIST, "message-mine.html"}
    assert (tmp_path / LIST).read_text() == "icon.svg\nindex.html\nstyle.css\n"


def test_a_file_of_the_same_name_that_is_not_ours_is_refused(read: PageReader, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("mine")
    with pytest.raises(
        CannotCreate, match=r"index\.html in: .*; it is not ours: remove it, or name an empty directory"
    ):
        write_pages(read, tmp_path)
    assert (tmp_path / "index.html").read_text() == "mine"
    assert names(tmp_path) == {"index.html"}


def test_a_list_that_names_files_elsewhere_removes_none_of_them(read: PageReader, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine")
    directory = tmp_path / "pages"
    directory.mkdir()
    (directory / LIST).write_text(f"../outside\n{outside}\n..\n.\n\n")
    write_pages(read, directory)
    assert outside.read_text() == "mine"


def test_pages_are_replaced_whole_the_first_one_last(
    wire: Wire, read: PageReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pages(read, tmp_path)
    before = (tmp_path / "index.html").read_bytes()
    RedisStore(wire, NAMESPACE).enqueue([message("a", delay=HOUR)])

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device", str(tmp_path))

    with monkeypatch.context() as patched:
        patched.setattr(files, "_note", fail)
        with pytest.raises(CannotCreate, match="No space left on device"):
            write_pages(read, tmp_path)
    assert (tmp_path / "index.html").read_bytes() == before
    assert names(tmp_path) == {"index.html", "style.css", "icon.svg", LIST}
    write_pages(read, tmp_path)
    assert "message-mail~a.html" in (tmp_path / "index.html").read_text()


def test_what_a_killed_writer_left_is_removed(read: PageReader, tmp_path: Path) -> None:
    left = tmp_path / f"{files.UNFINISHED}4711"
    left.mkdir()
    (left / "index.html").write_text("half of")
    write_pages(read, tmp_path)
    assert not left.exists()


def test_one_of_two_that_write_at_a_time_leaves_it_to_the_other(read: PageReader, tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    write_pages(read, tmp_path)
    assert names(tmp_path) == set()
    os.close(descriptor)
    write_pages(read, tmp_path)
    assert "index.html" in names(tmp_path)


def test_files_can_be_read_by_a_web_server(read: PageReader, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        write_pages(read, tmp_path / "pages")
    finally:
        os.umask(before)
    modes = {oct(path.stat().st_mode & 0o777) for path in (tmp_path / "pages").iterdir()}
    assert modes == {"0o644"}
