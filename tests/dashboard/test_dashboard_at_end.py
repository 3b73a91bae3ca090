"""A launch that writes the pages at its end."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

import pytest

from pollconsumer.dashboard import at_end, files
from pollconsumer.interface.settings.model import Settings, changed
from tests.dashboard.pages import Document

if TYPE_CHECKING:
    from pathlib import Path

    from tests.site import Site

PATIENT = {"PAGES_WITHIN": 60.0}
"""For a busy machine."""
STATIC = {"POLLCONSUMER_DASHBOARD__STATIC": "pages"}


def test_a_launch_writes_the_pages_after_it_gave_the_lease_back_and_says_nothing(site: Site) -> None:
    site.constants |= PATIENT
    site.enqueue("fatal")
    done = site.drain()
    assert not (site.directory / "pages").exists()
    site.enqueue("record", name="a")
    done = site.command("run", "--until-empty", **STATIC)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    page = Document((site.directory / "pages" / "index.html").read_text())
    assert "1 completed" in page.text
    assert "never again" in page.text
    stopped = page.text[page.text.index("The same as a table") :]
    assert "running" not in stopped.partition("Queues")[0]


def test_a_launch_that_does_not_get_the_lease_leaves_the_pages_alone(site: Site) -> None:
    site.enqueue("hold", name="a")
    holder = site.start("run", "--until-empty")
    site.await_note("begin a")
    done = site.command("run", "--timeout", "1s", "--min-margin", "0s", **STATIC)
    assert done.returncode == 0
    assert not (site.directory / "pages").exists()
    site.open_gate()
    holder.communicate()


def test_a_directory_that_cannot_be_written_is_a_warning_that_is_damped_and_no_failure(site: Site) -> None:
    site.constants |= PATIENT
    (site.directory / "pages").write_text("a file")
    said = []
    for _ in range(3):
        done = site.command("run", "--until-empty", **STATIC)
        assert done.returncode == 0
        said += [line for line in done.stderr.splitlines() if "static pages: " in line]
    assert said[0].startswith("pollconsumer: warning: static pages: ")
    assert len(said) == 2


def test_without_the_extra_it_is_a_warning(site: Site) -> None:
    script = "import sys; sys.modules['jinja2'] = None; sys.argv[1:] = ['run', '--until-empty']; "
    script += "from pollconsumer.dashboard import at_end; at_end.PAGES_WITHIN = 60; "
    process = site.start_program(
        [sys.executable, "-c", f"{script}from pollconsumer.__main__ import main; main()"], **STATIC
    )
    _, errors = process.communicate(timeout=90)
    assert process.returncode == 0
    assert "pip install 'pollconsumer[dashboard]'" in errors


def test_what_takes_too_long_is_left_to_the_next_launch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    go_on = threading.Event()
    monkeypatch.setattr(files, "write_pages", lambda *_: go_on.wait(90))
    monkeypatch.setattr(at_end, "PAGES_WITHIN", 0.01)
    wait = at_end.write_at_end(changed(Settings(), store="redis://nowhere.invalid", directory=tmp_path), "pages")
    wait(lambda: 60.0)
    go_on.set()
    assert "static pages: not written within 0.01s" in caplog.text


def test_nothing_of_it_is_imported_where_it_is_not_asked_for(site: Site) -> None:
    names = "[name for name in sys.modules if 'jinja2' in name or 'dashboard' in name or 'starlette' in name]"
    script = f"import atexit, sys; atexit.register(lambda: print({names})); sys.argv[1:] = ['run', '--until-empty']; "
    process = site.start_program([sys.executable, "-c", f"{script}from pollconsumer.__main__ import main; main()"])
    output, _ = process.communicate(timeout=90)
    assert output == "[]\n"
