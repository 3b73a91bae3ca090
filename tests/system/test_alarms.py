"""Launches and `doctor` tell people of findings, by a request and by mail, and keep the address to themselves."""

from __future__ import annotations

import json
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.core.launcher import UNLEARNED_EXIT
from tests.system.monitor import SECRET, Monitor

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.site import Site

PAGE = "https://example.org/queue"
DEAD = "pollconsumer: queue default has new dead letters"


@pytest.fixture
def monitor(site: Site) -> Iterator[Monitor]:
    monitor = Monitor()
    site.environment |= {"POLLCONSUMER_DOCTOR__URL": monitor.url, "POLLCONSUMER_DASHBOARD__URL": PAGE}
    yield monitor
    monitor.close()


@pytest.fixture
def sendmail(site: Site) -> Path:
    """A program `sendmail` that keeps what it is given, with its arguments and our variables."""
    programs, kept = site.directory / "programs", site.directory / "mails"
    programs.mkdir()
    program = programs / "sendmail"
    program.write_text(f'#!/bin/sh\n{{ echo "$@"; env | grep ^POLLCONSUMER; cat; }} >> {kept}\n')
    program.chmod(0o755)
    site.environment["PATH"] = f"{programs}:{site.environment['PATH']}"
    site.environment["POLLCONSUMER_DOCTOR__MAIL"] = "ops@example.org"
    return program


def heard(monitor: Monitor) -> list[Any]:
    """The bodies of the requests since the last call."""
    found = [json.loads(body) for _, _, body in monitor.told]
    monitor.told.clear()
    return found


def launch(site: Site, *arguments: str) -> str:
    """What a launch printed of alarms."""
    done = site.command(*(arguments or ("run", "--until-empty")))
    assert (done.returncode, done.stdout) == (0, "")
    assert SECRET not in done.stderr
    return "".join(line for line in done.stderr.splitlines(keepends=True) if ": warning: alarms" in line)


@pytest.mark.ends_with(1)
def test_a_finding_is_told_once_when_it_begins_and_once_when_it_ends_whoever_looks(
    site: Site, monitor: Monitor
) -> None:
    site.enqueue("fatal")
    assert launch(site) == ""
    (begun,) = heard(monitor)
    assert begun["text"].splitlines()[0].startswith(f"{DEAD}: 1 in the last 1h; ")
    assert begun["text"].splitlines()[1] == begun["page"] == PAGE
    assert (begun["state"], begun["name"], begun["subject"]) == ("began", "dead_letters", "default")
    launch(site)
    doctor = site.command("doctor")
    assert (doctor.returncode, doctor.stderr) == (1, "")
    assert heard(monitor) == []
    site.command("dead", "purge", "--all", "--yes")
    launch(site)
    launch(site)
    (ended,) = heard(monitor)
    assert (ended["state"], ended["since"], ended["value"]) == ("ended", begun["since"], None)
    assert ended["text"].startswith("pollconsumer: resolved: queue default has new dead letters (for ")
    assert monitor.paths == []


@pytest.mark.ends_with(1)
def test_doctor_tells_where_no_launch_comes(site: Site, monitor: Monitor) -> None:
    site.enqueue("record", name="a")
    done = site.command("doctor", "--quiet")
    assert done.returncode == 1
    assert done.stderr.startswith("pollconsumer: warning: no launch has run yet: 1 ready in queue default; ")
    assert [each["name"] for each in heard(monitor)] == ["queue_unserved"]
    assert launch(site) == ""
    assert [(each["name"], each["state"]) for each in heard(monitor)] == [("queue_unserved", "ended")]
    assert site.command("doctor").returncode == 0


def test_a_mover_tells_too(site: Site, monitor: Monitor) -> None:
    site.enqueue("record", name="a")
    launch(site, "move", "--timeout", "1s", "--min-margin", "0s")
    assert [each["name"] for each in heard(monitor)] == ["queue_unserved"]


@pytest.mark.parametrize(
    ("status", "problem"),
    [(403, "it answers 403"), (503, "it answers 503"), (302, "it redirects (302): write the address that it leads to")],
)
def test_what_is_refused_is_a_warning_with_the_host_alone_and_is_told_by_the_next_launch(
    status: int, problem: str, site: Site, monitor: Monitor
) -> None:
    site.enqueue("fatal")
    monitor.status = status
    assert launch(site) == f"pollconsumer: warning: alarms: 127.0.0.1: {problem}\n"
    assert len(heard(monitor)) == 1
    monitor.status = 200
    assert launch(site) == ""
    assert [each["state"] for each in heard(monitor)] == ["began"]
    kept = [path for path in (site.directory / "state").rglob("*") if path.is_file()]
    assert kept
    assert not any(SECRET.encode() in path.read_bytes() for path in kept)


def test_a_host_that_does_not_answer_delays_the_exit_alone_and_no_launch(site: Site, monitor: Monitor) -> None:
    answers = threading.Event()
    monitor.holds[""] = answers.wait
    site.enqueue("fatal")
    done = site.command("run", "--until-empty")
    answers.set()
    assert done.returncode == 0
    assert "pollconsumer: warning: alarms: 127.0.0.1: no answer in time\n" in done.stderr
    assert "too long" not in done.stderr
    (entry,) = site.json("launches")
    assert (entry["stop_reason"], entry["exit_code"]) == ("empty", 0)
    assert entry["exit_seconds"] < UNLEARNED_EXIT / 2  # the next launches keep no time free for such a host


def test_mail_goes_to_sendmail_with_no_address_on_its_command_line_and_no_secret_beside_it(
    site: Site, monitor: Monitor, sendmail: Path
) -> None:
    site.enqueue("fatal")
    assert launch(site) == ""
    mail = (site.directory / "mails").read_text()
    words, *lines = mail.splitlines()
    assert words == "-i -t"
    assert lines[:3] == ["To: ops@example.org", f"Subject: {DEAD}", "Auto-Submitted: auto-generated"]
    assert SECRET not in mail
    assert len(heard(monitor)) == 1
    site.command("dead", "purge", "--all", "--yes")
    launch(site)
    more = (site.directory / "mails").read_text().removeprefix(mail).splitlines()
    assert more[2] == "Subject: pollconsumer: resolved: queue default has new dead letters"
    assert sendmail.exists()


@pytest.mark.ends_with(1)
def test_mail_that_is_not_taken_is_a_warning_and_is_tried_again(site: Site, sendmail: Path) -> None:
    written = sendmail.read_text()
    sendmail.write_text("#!/bin/sh\nexit 75\n")
    site.enqueue("fatal")
    assert launch(site) == f"pollconsumer: warning: alarms: mail: {sendmail} ended with 75\n"
    sendmail.write_text(written)
    doctor = site.command("doctor", "--quiet")
    assert (doctor.returncode, doctor.stderr.count("\n")) == (1, 1)
    assert (site.directory / "mails").read_text().count("Subject: ") == 1


def test_messages_beyond_the_alarms_of_their_handler_are_told(site: Site, monitor: Monitor) -> None:
    site.environment["POLLCONSUMER_ALARMS__HANDLERS"] = json.dumps(
        {"record": {"slower_than": "1h", "faster_than": "30s"}, "fatal": {"faster_than": "30s"}}
    )
    site.enqueue("fatal")
    message = site.enqueue("record", name="b")
    launch(site)
    died, told = heard(monitor)  # nothing of the one that failed: it is not completed
    assert (died["name"], told["what"]) == ("dead_letters", "handler record takes less than 30s")
    assert told["value"].startswith(f"message {message} took ")


SLOW = """
import time
from pollconsumer import Context, PollConsumer, RetryIn
app = PollConsumer()
def slow(**options): return lambda function: app.handler(function.__name__, max_attempts=1, **options)(function)

@slow()
def dies(context: Context) -> None: time.sleep(0.02); raise ValueError
@slow(timeout="20ms")
def outlasts(context: Context) -> None:
    while True: time.sleep(0.001)
@slow()
def stops(context: Context) -> None:
    time.sleep(0.02)
    app.message(context.id).cancel()
    while True: time.sleep(0.001)
@app.handler
def retries(context: Context) -> None:
    time.sleep(0.02)
    if context.attempt == 1: raise RetryIn("1h")
@app.handler
def defers(context: Context) -> None: time.sleep(0.02); raise RetryIn("1h", charged=False)
@slow()
def passes(context: Context) -> None: raise ValueError
"""


def test_an_attempt_that_takes_too_long_is_told_however_it_ends(site: Site, monitor: Monitor) -> None:
    (site.directory / "handlers.py").write_text(SLOW)
    slow = {"dies", "outlasts", "stops", "retries", "defers"}
    limits = {name: {"slower_than": "15ms", "faster_than": "10ms"} for name in slow}
    site.environment["POLLCONSUMER_ALARMS__HANDLERS"] = json.dumps({**limits, "passes": {"slower_than": "1h"}})
    sent = {name: site.enqueue(name) for name in (*slow, "passes")}
    launch(site, "run", "--until-empty", "--linger", "10ms")
    told = {each["subject"]: each for each in heard(monitor) if each["name"].startswith("handler_")}
    assert {each["name"] for each in told.values()} == {"handler_slow"}
    assert told.keys() == slow
    assert all(each["value"].startswith(f"message {sent[name]} took ") for name, each in told.items())


@pytest.mark.ends_with(1)
def test_a_ready_message_waits_too_long_by_the_alarm_of_its_queue(site: Site, monitor: Monitor) -> None:
    site.environment["POLLCONSUMER_QUEUES__DEFAULT__WAIT_ALARM"] = "1ms"
    site.drain()
    site.enqueue("record", name="a")
    assert site.command("doctor").stdout.startswith("queue default is behind: its oldest ready message has waited ")
    assert [each["name"] for each in heard(monitor)] == ["oldest_ready"]
    launch(site)
    assert [each["state"] for each in heard(monitor)] == ["ended"]


def test_check_shows_who_is_told_without_the_secret_and_an_alarm_of_no_handler(site: Site, monitor: Monitor) -> None:
    site.environment["POLLCONSUMER_ALARMS__HANDLERS"] = '{"recrod": {"slower_than": "1m"}}'
    site.environment["POLLCONSUMER_DOCTOR__MAIL"] = "ops@example.org"
    done = site.command("check", "--json")
    address = monitor.url.removesuffix(SECRET)
    assert json.loads(done.stdout)["alarms"] == [f"{address}***, json", "ops@example.org"]
    assert "pollconsumer: warning: alarms.handlers.recrod: did you mean record?\n" in done.stderr
    assert SECRET not in done.stdout + done.stderr


@pytest.mark.parametrize("is_told", [False, True])
def test_nothing_of_http_is_imported_where_nothing_is_to_be_told(is_told: bool, site: Site, monitor: Monitor) -> None:
    if not is_told:
        site.environment.pop("POLLCONSUMER_DOCTOR__URL")
    site.drain()
    names = "[name for name in ('http.client', 'pollconsumer.watching.alarms') if name in sys.modules]"
    script = f"import atexit, sys; atexit.register(lambda: print({names})); sys.argv[1:] = ['run', '--until-empty']; "
    process = site.start_program([sys.executable, "-c", f"{script}from pollconsumer.__main__ import main; main()"])
    output, _ = process.communicate(timeout=90)
    assert output == ("['pollconsumer.watching.alarms']\n" if is_told else "[]\n")
    assert heard(monitor) == []
