"""Work that takes days, in real launches: in functions, coroutines and processes of their own."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pollconsumer.runtime.system.process import birth
from tests.faults.proxy import Proxy
from tests.site import wait_until

if TYPE_CHECKING:
    from tests.site import Site


def add(site: Site, code: str) -> None:
    with (site.directory / "handlers.py").open("a") as module:
        module.write(code)


FLOWS = """
from pollconsumer import Context

def charge(name):
    note(f"charge {name}")
    return {"receipt": name}

async def charge_soon(name):
    return charge(name)

def flow(name: str, context: Context):
    receipt = context.step("charge", charge, name)
    context.sleep("50ms")
    approved = context.wait_for("approved", timeout="1h")
    context.step("ship", note, f"ship {name}")
    return [context.attempt, receipt, approved]

app.handler("function")(flow)
app.handler("process", isolation="process")(flow)

@app.handler("coroutine")
async def flow_soon(name: str, context: Context):
    receipt = await context.step_async("charge", charge_soon, name)
    context.sleep("50ms")
    approved = context.wait_for("approved", timeout="1h")
    await context.step_async("ship", note, f"ship {name}")
    return [context.attempt, receipt, approved]
"""


@pytest.mark.parametrize("kind", ["function", "coroutine", "process"])
def test_a_flow_sleeps_waits_and_goes_on(site: Site, kind: str) -> None:
    with (site.directory / "handlers.py").open("a") as handlers:
        handlers.write(FLOWS)
    message = site.enqueue(kind, name="a")
    done = site.drain("--linger", "1s")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    waiting = site.json("status", message)
    assert (waiting["state"], waiting["attempts"], waiting["awaits"]) == ("scheduled", 0, "approved")
    assert [step["name"] for step in waiting["steps"]] == ["charge", "sleep", "approved"]
    assert (waiting["steps"][0]["result"], waiting["steps"][0]["until"]) == ({"receipt": "a"}, None)
    assert "signal approved" in site.command("status", message).stdout
    assert site.command("signal", message, "approved", '{"by":"ann"}').returncode == 0
    assert site.drain().returncode == 0
    ended = site.json("status", message)
    assert (ended["state"], ended["result"]) == ("completed", [1, {"receipt": "a"}, {"by": "ann"}])
    assert (ended["steps"], ended["signals"]) == ([], [])
    assert site.notes() == ["charge a", "ship a"]


def test_a_signal_is_refused_that_cannot_be_taken(site: Site) -> None:
    message = site.enqueue("record", "--in", "1h", name="a")
    assert site.command("signal", message, "approved").returncode == 0
    (sent,) = site.json("status", message)["signals"]
    assert (sent["name"], sent["value"]) == ("approved", True)
    for arguments, code, said in (
        ((message, "approved", "2"), 65, "signal sent before: approved; the first value counts"),
        ((message, "other", "{"), 65, "VALUE: {; JSON, as in"),
        ((message, "a#2"), 65, "signal name: 'a#2'"),
        (("nobody", "approved"), 66, "no such message: nobody"),
    ):
        done = site.command("signal", *arguments)
        assert (done.returncode, done.stdout) == (code, "")
        assert f"pollconsumer: error: {said}" in done.stderr
    assert site.command("cancel", message).returncode == 0
    done = site.command("signal", message, "late")
    assert (done.returncode, "it is cancelled already" in done.stderr) == (65, True)


WINDOW = ["--timeout", "2s", "--min-margin", "200ms", "--estimated-duration", "1ms", "--idle-time", "100ms"]
LONG = """
from itertools import repeat

@app.handler(timeout="30s")
def declared(seconds: float) -> None:
    time.sleep(seconds)
    note("declared")

@app.handler
def undeclared(seconds: float) -> None:
    for _ in range(int(seconds * 50)):
        time.sleep(0.02)
    note("undeclared")

@app.handler
async def awaiting(seconds: float) -> None:
    import asyncio
    await asyncio.sleep(seconds)
    note("awaiting")

@app.handler(isolation="process")
def isolated(seconds: float) -> None:
    time.sleep(seconds)
    note("isolated")

@app.handler(timeout="3s")
def deaf() -> None:
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass

@app.handler(timeout="3s")
def holds_the_interpreter() -> None:
    sum(repeat(1))
"""


@pytest.mark.parametrize("kind", ["declared", "undeclared", "awaiting", "isolated"])
def test_a_message_of_three_windows_is_completed_at_its_first_attempt(site: Site, kind: str) -> None:
    add(site, LONG)
    message = site.enqueue(kind, seconds=6)
    done = site.command("run", *WINDOW, "--grace", "1s")
    assert (done.returncode, done.stderr) == (0, "")
    shown = site.json("status", message)
    assert (shown["state"], shown["attempts"], site.notes()) == ("completed", 1, [kind])
    assert site.json("launches")[0]["stop_reason"] == "no_time_to_handle"


@pytest.mark.parametrize("kind", ["undeclared", "awaiting", "isolated"])
@pytest.mark.parametrize("slots", [1, 2])
def test_a_message_without_a_timeout_is_interrupted_at_the_limit_and_the_launch_lives(
    site: Site, kind: str, slots: int
) -> None:
    add(site, LONG)
    message = site.enqueue(kind, seconds=600)
    done = site.command("run", *WINDOW, "--handler-limit", "3s", "--concurrency", str(slots))
    assert done.returncode == 0
    shown = site.json("status", message)
    assert (shown["state"], shown["attempts"], site.notes()) == ("scheduled", 1, [])
    assert shown["last_error"].startswith("HandlerTimeout: ran longer than its limit of 3s, from ")
    assert "consumer.handler_limit" in shown["last_error"]
    if kind != "isolated":
        assert "timeout= if it needs longer" in shown["last_error"]
        assert shown["traceback"].splitlines()[-1].endswith(shown["last_error"])


@pytest.mark.crossing
@pytest.mark.ends_with(-signal.SIGABRT)
@pytest.mark.parametrize(("kind", "code"), [("deaf", 124), ("holds_the_interpreter", -signal.SIGABRT)])
def test_what_resists_is_ended_at_its_limit_and_grace_whatever_is_left_of_the_window(
    site: Site, kind: str, code: int
) -> None:
    add(site, LONG)
    message = site.enqueue(kind)
    window = ["--timeout", "3s", "--min-margin", "200ms", "--estimated-duration", "1ms"]  # a busy machine starts slowly
    done = site.command("run", *window, "--grace", "1s")
    assert done.returncode == code
    assert kind in done.stderr
    assert site.json("launches")[0]["stop_reason"] == "watchdog"
    assert site.json("status", message)["state"] == "ready"


BESIDE = """
import subprocess

(HERE / "notes").touch()

def after_the_other():
    while "lasts" not in (HERE / "notes").read_text() or not all(map(is_noted, (HERE / "state").rglob("programs/*/*"))):
        time.sleep(0.005)

def is_noted(note):  # whose process the program is: without that nobody could end it
    return note.read_bytes().count(10) > 1

@app.handler(timeout="4s")
def deaf_beside() -> None:
    after_the_other()
    while True:
        try:
            while True:
                time.sleep(0.01)
        except BaseException:
            pass

@app.handler(timeout="4s")
def keeps_the_interpreter_beside() -> None:
    after_the_other()
    keep_interpreter()

@app.handler(timeout="4s", isolation="process")
def lasts_apart() -> None:
    child = subprocess.Popen(["sleep", "600"])
    note(f"lasts {os.getpid()} {child.pid}")
    time.sleep(600)

@app.handler(isolation="process")
def leaves_a_child() -> None:
    child = subprocess.Popen(["sleep", "600"])
    note(f"lasts {os.getpid()} {child.pid}")
"""
PROGRAM = """
[commands.lasts]
command = ["sh", "-c", "sleep 600 & echo lasts $$ $! >> notes; wait"]
timeout = "4s"
"""


@pytest.mark.ends_with(-signal.SIGABRT)
@pytest.mark.parametrize(("kind", "code"), [("deaf_beside", 124), ("keeps_the_interpreter_beside", -signal.SIGABRT)])
@pytest.mark.parametrize(("beside", "slots"), [("lasts", 2), ("lasts_apart", 2), ("leaves_a_child", 1)])
def test_what_resists_leaves_no_process_behind_when_it_is_ended(
    site: Site, kind: str, code: int, beside: str, slots: int
) -> None:
    add(site, BESIDE)
    with (site.directory / "config.toml").open("a") as config:
        config.write(PROGRAM)
    site.enqueue(beside)
    resists = site.enqueue(kind)
    # With one slot the second begins after the first, which may take a while, as does the start on a busy machine.
    done = site.command("run", "--timeout", "8s", *WINDOW[2:], "--grace", "1s", "--concurrency", str(slots))
    assert done.returncode == code
    assert site.json("launches")[0]["stop_reason"] == "watchdog"
    assert site.state(resists) == "ready"
    (pids,) = (note.split()[1:] for note in site.notes() if note.startswith("lasts"))
    for pid in pids:
        wait_until(lambda pid=pid: birth(int(pid)) is None, f"end of {pid}")  # type: ignore[misc]


RESISTS = """
@app.handler(max_attempts=8, retry=Backoff("1ms", 1, "1ms"))
def resists(name: str) -> None:
    note(f"begin {name}")
    try:
        while True:
            time.sleep(0.01)
    except BaseException:
        note(f"told {name}")
        while not (HERE / "gate").exists():
            try:
                time.sleep(0.01)
            except BaseException:
                pass
        raise

@app.handler(max_attempts=8, timeout="3s")
def declares(name: str) -> None:
    resists(name)
"""


def _launch_ended_by_force(site: Site) -> str:
    """Its first line, which cron mails as such."""
    done = site.command("run", *WINDOW, "--grace", "1s", "--handler-limit", "3s")
    assert done.returncode == 124
    first, *stacks = done.stderr.splitlines()
    assert any("most recent call first" in each for each in stacks)
    return first.removeprefix("pollconsumer: error: ")


def test_a_message_that_resists_says_so_and_has_a_window_from_then_on_unless_it_declares_a_timeout(site: Site) -> None:
    add(site, RESISTS)
    for handler, limits in (("resists", ["3s", "2s", "2s"]), ("declares", ["3s", "3s", "3s"])):
        message = site.enqueue(handler, name="a")
        for deaths, limit in enumerate(limits, 1):
            killed = f"killed: {handler} did not stop within 1s after its limit of {limit} (message {message}); "
            assert _launch_ended_by_force(site).startswith(killed)
            shown = site.json("status", message)
            assert (shown["state"], shown["attempts"]) == ("ready", deaths)
            assert shown["last_error"].startswith(killed)
            assert "give it isolation" in shown["last_error"]
        site.drain()
        shown = site.json("status", message)
        assert (shown["state"], shown["attempts"]) == ("dead", 3)
        assert shown["last_error"].startswith(killed)
        assert shown["last_error"].endswith("; launch killed 3 times while running it")
        assert killed in site.command("dead", "show", message).stdout.replace("\n", " ")


def test_the_attempts_after_that_are_limited_too_and_those_of_no_other_message(site: Site) -> None:
    add(site, RESISTS)
    add(site, LONG)
    message = site.enqueue("resists", name="a")
    _launch_ended_by_force(site)
    site.open_gate()
    for attempts in (2, 3):
        done = site.command("run", *WINDOW, "--max-messages", "1", "--handler-limit", "60s")
        assert done.returncode == 0
        shown = site.json("status", message)
        assert shown["attempts"] == attempts
        assert shown["last_error"] == (
            "HandlerTimeout: ran longer than its limit of 2s, from timeout= or consumer.handler_limit; "
            "limited to one window: it resisted before"
        )
    site.command("cancel", message)
    other = site.enqueue("undeclared", seconds=2.5)  # longer than the window
    assert site.command("run", *WINDOW, "--max-messages", "1", "--handler-limit", "60s").returncode == 0
    assert site.state(other) == "completed"


def _waits(site: Site) -> bool:
    return "next:consumer:default" in site.control_keys()


@pytest.mark.parametrize(("slots", "handoff"), [("1", "deadline"), ("1", "baton"), ("2", "deadline"), ("2", "baton")])
def test_a_successor_waits_for_a_handler_beyond_the_window_and_takes_over_at_its_end(
    site: Site, slots: str, handoff: str
) -> None:
    options, window = ["--handoff", handoff], ["--timeout", "4s", *WINDOW[2:]]  # a busy machine starts slowly
    message = site.enqueue("hold", name="a")
    first = site.start("run", *window, *options, "--concurrency", slots)
    site.await_note("begin a")
    passed = site.command("run", *window, *options)  # it waits for its window, so the first one is beyond its own
    assert (passed.returncode, passed.stdout, passed.stderr) == (0, "", "")
    second = site.start("run", "--until-empty", *options)
    wait_until(lambda: second.poll() is not None or _waits(site), "a successor")
    third = site.command("run", *options)
    assert (third.returncode, third.stdout, third.stderr) == (0, "", "")
    assert (first.poll(), second.poll()) == (None, None)
    ready = site.enqueue("record", name="b")
    if slots == "2":
        site.await_note("b")
    site.open_gate()
    for launch in (first, second):
        output, errors = launch.communicate(timeout=90)
        assert (launch.returncode, output, errors) == (0, "", "")
    assert site.notes() == (["begin a", "b", "end a"] if slots == "2" else ["begin a", "end a", "b"])
    assert [site.json("status", each)["attempts"] for each in (message, ready)] == [1, 1]
    assert [site.state(each) for each in (message, ready)] == ["completed", "completed"]
    assert len(site.json("launches")) == 2


@pytest.mark.crossing
def test_a_launch_beyond_its_window_says_everywhere_what_it_works_on(site: Site) -> None:
    message = site.enqueue("hold", name="a")
    launch = site.start("run", *WINDOW)
    site.await_note("begin a")
    wait_until(lambda: site.json("lease", "show")[0]["working_on"], "a launch beyond its window")
    (work,) = site.json("lease", "show")[0]["working_on"]
    assert (work["handler"], work["queue"], work["id"]) == ("hold", "default", message)
    assert work["since"] == site.json("status", message)["timestamps"]["started_at"] < work["until"]
    overview = site.json("status")
    for shown in (site.json("launches"), overview["launches"], overview["leases"]):
        assert [each["working_on"] for each in shown] == [[work]]
    line = r"working on hold since \d\d:\d\d:\d\d, at most until \d\d:\d\d:\d\d"
    for command in ("lease show", "launches", "launches --ago", "status"):
        assert len(re.findall(f"^{line}$", site.command(*command.split()).stdout, re.MULTILINE)) == 1, command
    assert site.command("dashboard", "--static", "pages").returncode == 0
    assert re.search(f"<p>consumer default: {line}</p>", (site.directory / "pages/index.html").read_text())
    site.open_gate()
    assert launch.wait(90) == 0
    assert (site.json("lease", "show"), [each["working_on"] for each in site.json("launches")]) == ([], [[]])
    assert not re.search(line, site.command("launches").stdout)


@pytest.mark.parametrize("fault", ["silent", "away", "slow"])
@pytest.mark.parametrize("slots", ["1", "2"])
def test_the_outcome_of_a_handler_of_three_windows_is_settled_where_the_store_is_away_or_slow_when_it_returns(
    site: Site, fault: str, slots: str
) -> None:
    """Away for 3 s, or 200 ms late; the next launch, which waits for the lease, begins nothing again."""
    message = site.enqueue("hold", name="a")
    proxy = Proxy(Path(site.json("store", "path")["socket"]))
    try:
        store = {"POLLCONSUMER_STORE": f"redis://127.0.0.1:{proxy.port}"}
        first = site.start("run", *WINDOW, "--concurrency", slots, **store)
        site.await_note("begin a")
        begun = time.monotonic()
        wait_until(lambda: time.monotonic() > begun + 6.0, "three windows")
        second = site.start("run", "--until-empty", "--timeout", "90s")
        wait_until(lambda: _waits(site), "a successor")
        proxy.silent, proxy.delay = fault == "silent", 0.2 if fault == "slow" else 0.0
        if fault == "away":
            proxy.away = True
            proxy.cut()
        site.open_gate()
        site.await_note("end a")
        ended = time.monotonic()
        wait_until(lambda: time.monotonic() > ended + 3.0, "the store's return")
        proxy.silent = proxy.away = False
        assert [first.wait(90), second.wait(90)] == [0, 0]
    finally:
        proxy.close()
    shown = site.json("status", message)
    assert (shown["state"], shown["attempts"], shown["last_error"]) == ("completed", 1, None)
    assert site.notes() == ["begin a", "end a"]
    assert [each["stop_reason"] for each in site.json("launches")] == ["empty", "no_time_to_handle"]


TOLD = """
from pollconsumer import Context

def beyond(context):
    begun = time.monotonic()
    while time.monotonic() < begun + 2:  # the whole window, which began earlier
        assert not context.cancelled
        yield
    note("beyond")
    while not context.cancelled:
        yield
    note("told")
    while not (HERE / "gate").exists():
        yield
    note("ended")

def told(context: Context) -> None:
    for _ in beyond(context):
        time.sleep(0.005)

app.handler("function")(told)
app.handler("with_timeout", timeout="5m")(told)
app.handler("process", isolation="process")(told)

@app.handler("coroutine")
async def told_soon(context: Context) -> None:
    import asyncio
    for _ in beyond(context):
        await asyncio.sleep(0.005)
"""


@pytest.mark.parametrize("kind", ["function", "with_timeout", "process", "coroutine"])
@pytest.mark.parametrize("slots", ["1", "2"])
def test_a_handler_beyond_the_window_is_told_to_stop_and_completes_and_nothing_more_begins(
    site: Site, kind: str, slots: str
) -> None:
    add(site, TOLD)
    message = site.enqueue(kind)
    launch = site.start("run", *WINDOW, "--grace", "1s", "--concurrency", slots)
    site.await_note("beyond")
    launch.terminate()
    site.await_note("told")
    later = site.enqueue("record", name="later")
    site.open_gate()
    assert launch.wait(90) == 0
    assert site.notes() == ["beyond", "told", "ended"]
    shown = site.json("status", message)
    assert (shown["state"], shown["attempts"], site.state(later)) == ("completed", 1, "ready")
    assert site.json("launches")[0]["stop_reason"] == "interrupted"
