"""Where the log goes, what it looks like, and that each record of a handler names its message."""

from __future__ import annotations

import json
import logging
import socket
from logging.handlers import SysLogHandler
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.interface.assembly.log_outputs import journal_line
from tests.site import PATIENCE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.site import Site

HANDLERS = """
import asyncio, logging, threading
from pollconsumer import PollConsumer
app = PollConsumer()
log = logging.getLogger("myapp")

@app.handler
def says(name: str) -> None:
    log.info("hello %s", name)
    log.warning("careful, %s", name, extra={"handler": "mine", "attempt": "mine"})

@app.handler
def meets(name: str) -> None:
    together.wait(90)
    log.warning("careful, %s", name)

together = threading.Barrier(2)

@app.handler
async def turns(name: str) -> None:
    await asyncio.sleep(0)
    log.warning("careful, %s", name)

@app.handler
def leaves(name: str) -> None:
    thread = threading.Thread(target=log.warning, args=("careful, %s", name))
    thread.start()
    thread.join()

@app.handler(isolation="process")
def alone(name: str) -> None:
    log.warning("careful, %s", name)

@app.handler(max_attempts=1)
def fails() -> None:
    try:
        raise ValueError("no")
    except ValueError:
        log.exception("failed")
        raise
"""
FAILING_HOOK = """
@app.before
def looks(context) -> None:
    raise OSError("no such tenant")
"""


@pytest.fixture(autouse=True)
def _handlers(site: Site) -> None:
    (site.directory / "handlers.py").write_text(HANDLERS)


def as_objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def drained(site: Site, *options: str, **variables: str) -> str:
    done = site.command(*options, "run", "--until-empty", **variables)
    assert (done.returncode, done.stdout) == (0, "")
    return done.stderr


def test_a_handlers_own_records_are_shown_from_warnings_up_and_with_v_from_info(site: Site) -> None:
    message = site.enqueue("says", name="a")
    about = f"(message {message}, says, attempt 1)"
    assert drained(site) == f"pollconsumer: warning: careful, a {about}\n"
    again = site.enqueue("says", name="b")
    assert f"pollconsumer: info: hello b (message {again}, says, attempt 1)\n" in drained(site, "-v")


@pytest.mark.parametrize(
    ("handler", "slots"),
    [("says", 1), ("turns", 1), ("turns", 2), ("meets", 2), ("leaves", 1), ("alone", 1), ("alone", 2)],
)
def test_each_record_within_a_handler_names_its_message(site: Site, handler: str, slots: int) -> None:
    variables = {"POLLCONSUMER_LOGS__FORMAT": "json", "POLLCONSUMER_CONSUMER__CONCURRENCY": str(slots)}
    ids = {name: site.enqueue(handler, name=name) for name in "ab"}
    said = as_objects(drained(site, **variables))
    assert {each["message"]: each["message_id"] for each in said} == {f"careful, {name}": ids[name] for name in "ab"}
    assert {(each["handler"], each["attempt"], each["logger"], each["level"]) for each in said} == {
        (handler, 1, "myapp", "warning")
    }
    (launch,) = {each["launch_id"] for each in said}
    assert launch == site.json("launches")[0]["launch_id"]


def test_the_platforms_name_of_the_run_is_on_each_record(site: Site) -> None:
    site.enqueue("says", name="a")
    (said,) = as_objects(drained(site, POLLCONSUMER_LOGS__FORMAT="json", INVOCATION_ID="r1"))
    assert said["run_id"] == "r1"


@pytest.mark.ends_with(traceback=True)
def test_a_failure_has_its_traceback_where_a_program_reads(site: Site) -> None:
    site.enqueue("fails")
    said = as_objects(drained(site, POLLCONSUMER_LOGS__FORMAT="json"))
    assert [each["logger"] for each in said] == ["myapp", "pollconsumer"]
    assert said[0]["traceback"].endswith("ValueError: no\n")


def test_a_launch_has_one_line_of_summary(site: Site) -> None:
    site.enqueue("says", name="a")
    said = as_objects(drained(site, "-v", POLLCONSUMER_LOGS__FORMAT="json"))
    (summary,) = [each for each in said if each.get("event") == "launch_ended"]
    assert (summary["role"], summary["stop_reason"], summary["handled"], summary["failed"]) == (
        "consumer",
        "empty",
        1,
        0,
    )


def test_a_launch_asks_for_the_handler_that_an_unknown_name_resembles(site: Site) -> None:
    site.enqueue("sayz", "--queue", "default", name="a")
    assert drained(site).endswith("another name now; did you mean says?\n")


def test_a_file_has_everything_with_times_and_cron_still_mails_what_is_wrong(site: Site) -> None:
    message = site.enqueue("says", name="a")
    for _ in range(3):  # the warning about the unknown handler is damped on standard error only
        site.enqueue("unheard-of", "--queue", "default", name="a")
    warned = drained(site, POLLCONSUMER_LOGS__TARGET="launch.log")
    assert warned == (
        "pollconsumer: warning: no handler named unheard-of: its messages are kept, tried again every 1m; add its "
        'module to handlers, or aliases=["unheard-of"] to the handler that has another name now\n'
    )
    lines = (site.directory / "launch.log").read_text().splitlines()
    assert [line.partition(" ")[2] for line in lines if "hello" in line or "careful" in line] == [
        f"pollconsumer: {level}: {text} (message {message}, says, attempt 1)"
        for level, text in (("info", "hello a"), ("warning", "careful, a"))
    ]
    assert all(line[:4].isdigit() and line[23] == "Z" for line in lines)
    assert "ended after" in lines[-1]


def test_a_file_that_was_rotated_is_made_again(site: Site) -> None:
    log = site.directory / "launch.log"
    (site.directory / "handlers.py").write_text(
        HANDLERS + "\nimport os\n@app.handler\ndef rotates() -> None:\n"
        f"    log.info('before')\n    os.rename({str(log)!r}, {str(log) + '.1'!r})\n    log.info('after')\n"
    )
    site.enqueue("rotates")
    assert drained(site, POLLCONSUMER_LOGS__TARGET=str(log)) == ""
    assert "before" in (site.directory / "launch.log.1").read_text()
    assert "after" in log.read_text()
    assert "before" not in log.read_text()


def test_a_file_that_cannot_be_opened_is_an_error_of_a_line(site: Site) -> None:
    done = site.command("run", POLLCONSUMER_LOGS__TARGET="nowhere/launch.log")
    assert done.returncode == 73
    assert done.stderr.startswith("pollconsumer: error: logs.target: ")
    assert done.stderr.count("\n") == 1
    assert site.command("run", POLLCONSUMER_LOGS__FORMAT="xml").returncode == 78


def test_a_file_that_cannot_be_written_is_a_warning_that_is_damped_and_no_failure(site: Site) -> None:
    said, log = [], site.directory / "launch.log"
    log.write_bytes(b"\n" * 60_000)
    with (site.directory / "handlers.py").open("a") as module:
        module.write("import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))\n")
    for _ in range(3):
        done = site.command("run", "--until-empty", POLLCONSUMER_LOGS__TARGET="launch.log")
        assert done.returncode == 0
        said += done.stderr.splitlines()
    assert said[0] == f"pollconsumer: warning: logs.target: {log}; File too large: lines are lost"
    assert [line.startswith(f"{said[0]} (2 launches in ") for line in said[1:]] == [True]


def test_errors_are_in_the_file_and_on_standard_error(site: Site) -> None:
    variables = {"POLLCONSUMER_LOGS__TARGET": "launch.log", "POLLCONSUMER_LOGS__FORMAT": "json"}
    done = site.command("run", "--timeout", "1s", POLLCONSUMER_STORE=f"unix://{site.directory}/none", **variables)
    assert done.returncode == 69
    assert done.stderr.startswith("pollconsumer: error: store unreachable: ")
    said = as_objects((site.directory / "launch.log").read_text())
    assert (said[-1]["level"], said[-1]["message"].partition(":")[0]) == ("error", "store unreachable")


def test_a_failing_import_has_its_traceback_in_the_file_and_on_standard_error_with_v_alone(site: Site) -> None:
    variables = {"POLLCONSUMER_LOGS__TARGET": "launch.log", "POLLCONSUMER_LOGS__FORMAT": "json"}
    (site.directory / "handlers.py").write_text("1 / 0\n")
    for options, is_traced in (((), False), (("-v",), True)):
        done = site.command(*options, "run", **variables)
        assert (done.returncode, "Traceback" in done.stderr) == (78, is_traced)
        said = as_objects((site.directory / "launch.log").read_text())
        assert said[-1]["traceback"].endswith("ZeroDivisionError: division by zero\n")


def test_with_q_only_errors_are_printed_though_a_file_has_everything_of_isolated_handlers_too(site: Site) -> None:
    assert site.command("run", POLLCONSUMER_LOGS__FORMAT="xml").returncode == 78
    with (site.directory / "handlers.py").open("a") as module:
        module.write(FAILING_HOOK)
    site.enqueue("alone", name="a")
    assert drained(site, "-q", POLLCONSUMER_LOGS__TARGET="launch.log") == ""
    said = (site.directory / "launch.log").read_text()
    assert "warning: hook before looks raised OSError: no such tenant" in said
    assert "ended after" in said


def test_the_journal_gets_priorities_where_it_reads_and_where_it_is_told_to(site: Site) -> None:
    site.enqueue("says", name="a")
    assert drained(site, POLLCONSUMER_LOGS__FORMAT="journal").startswith("<4>pollconsumer: warning: careful, a ")
    site.enqueue("says", name="a")
    assert drained(site, JOURNAL_STREAM="8:1").startswith("pollconsumer: warning: ")
    assert journal_line("error", "x", {}) == "<3>pollconsumer: error: x"


def test_syslog_gets_lines_with_their_level(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pollconsumer.interface.assembly import log_outputs
    from pollconsumer.interface.logs import logs
    from pollconsumer.interface.settings.model import LogsSettings, Settings

    del site
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as syslog:
        monkeypatch.chdir(tmp_path)
        syslog.bind("log")
        monkeypatch.setattr(log_outputs, "SYSLOG", "log")
        logs.configure()
        log_outputs.direct_log(Settings(logs=LogsSettings(target="syslog"), directory=tmp_path))
        try:
            logs.log.warning("careful")
        finally:
            made = [each for each in logging._handlerList if isinstance(each(), SysLogHandler)]  # type: ignore[attr-defined]  # noqa: SLF001
            logging.shutdown(made)
            logs.direct(None, None)
            logs.configure()
        syslog.settimeout(PATIENCE)
        assert syslog.recv(999).rstrip(b"\0") == b"<12>pollconsumer: warning: careful"
