"""`pollconsumer dashboard`, as it is started and ended."""

from __future__ import annotations

import signal
import socket
import sys
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import pytest

from pollconsumer.dashboard import dashboard_command as dashboard
from tests.dashboard.pages import Document

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from tests.site import Site


def served(site: Site, *arguments: str, **environment: str) -> tuple[subprocess.Popen[str], str]:
    """The process, and the address that it prints."""
    program = [sys.executable, "-m", "pollconsumer", "dashboard", "--port", "0", *arguments]
    process = site.start_program(program, **environment)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_it_prints_its_address_serves_it_and_ends_quietly_at_a_signal(site: Site, end: signal.Signals) -> None:
    site.enqueue("record", name="a")
    site.drain()
    process, address = served(site)
    assert address.startswith("http://127.0.0.1:")
    with urllib.request.urlopen(address) as answer:
        page = Document(answer.read().decode())
    assert "1 completed" in page.text
    process.send_signal(end)
    output, errors = process.communicate(timeout=90)
    assert (process.returncode, output, errors) == (0, "", "")


def test_with_actions_the_address_has_a_token_that_changes_with_each_start(site: Site) -> None:
    tokens = set()
    for _ in range(2):
        process, address = served(site, "--allow-actions")
        bare, _, token = address.partition("?token=")
        tokens.add(token)
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(bare)
        process.terminate()
        process.communicate(timeout=90)
    assert len(tokens) == 2
    assert all(len(token) > 20 for token in tokens)


def test_a_token_of_the_environment_is_needed_and_not_printed(site: Site) -> None:
    token = {"POLLCONSUMER_DASHBOARD__TOKEN": "of-the-environment"}
    process, address = served(site, **token)
    assert "token" not in address
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(address)
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with opener.open(f"{address}?token=of-the-environment") as answer:
        assert answer.status == 200
    process.terminate()
    process.communicate(timeout=90)
    short = site.command("dashboard", POLLCONSUMER_DASHBOARD__TOKEN="short")
    assert short.returncode == 78
    assert "POLLCONSUMER_DASHBOARD__TOKEN: ***; must be 16 or more" in short.stderr


def test_a_port_that_is_taken_is_an_error_in_a_line(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = site.command("dashboard", "--port", port)
    assert done.returncode == 73
    assert done.stderr == (
        f"pollconsumer: error: cannot listen: 127.0.0.1:{port}; Address already in use: give another --port or --host\n"
    )
    assert len(done.stderr.splitlines()) == 1


def test_without_the_extra_it_says_what_to_install(
    run: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dashboard, "find_spec", lambda name: None if name == "jinja2" else object())
    for arguments in ([], ["--static", "pages"]):
        code, out, err = run("dashboard", *arguments)
        assert (code, out) == (78, "")
        assert err == "pollconsumer: error: dashboard needs: jinja2; pip install 'pollconsumer[dashboard]'\n"


def test_files_cannot_act(run: Callable[..., tuple[int, str, str]]) -> None:
    code, _, err = run("dashboard", "--static", "pages", "--allow-actions")
    assert code == 2
    assert "files cannot act" in err


@pytest.mark.parametrize("given", [("--host", "127.0.0.1"), ("--port", "0")])
def test_files_have_no_address(run: Callable[..., tuple[int, str, str]], given: tuple[str, str]) -> None:
    code, _, err = run("dashboard", "--static", "pages", *given)
    assert (code, err) == (2, "pollconsumer: error: --host and --port; files are not served: leave out --static\n")


def test_pages_are_written_without_a_word_and_without_a_web_server(site: Site) -> None:
    site.enqueue("fatal")
    site.drain()
    script = "import sys; sys.modules['wsgiref'] = None; "
    script += "sys.argv[1:] = ['dashboard', '--static', 'p']; from pollconsumer.__main__ import main; main()"
    process = site.start_program([sys.executable, "-c", script])
    output, errors = process.communicate(timeout=90)
    assert (process.returncode, output, errors) == (0, "", "")
    page = Document((site.directory / "p" / "index.html").read_text())
    assert "never again" in page.text
    (site.directory / "q").write_text("a file")
    done = site.command("dashboard", "--static", "q")
    assert done.returncode == 73
    assert len(done.stderr.splitlines()) == 1
