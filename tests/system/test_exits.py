"""How processes end: with every documented exit code, with no other, at once, and whatever modules of the user left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from pollconsumer.runtime.launch.launch_end import REMEDY
from tests.exits import PATCHED
from tests.site import Site, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

SHORT = ["--timeout", "4s", "--min-margin", "500ms", "--estimated-duration", "1ms", "--grace", "1s"]


@pytest.fixture
def site() -> Iterator[Site]:
    """Its launches are started as users start them: a fork might end otherwise."""
    site = Site(forks_launches=False)
    yield site
    site.close()


def add(site: Site, code: str, file: str = "handlers.py") -> None:
    with (site.directory / file).open("a") as module:
        module.write(code)


def patched(site: Site, code: str, *arguments: str) -> subprocess.Popen[str]:
    """The command ``arguments`` in a process in which ``code`` ran before."""
    script = f"{code}\nimport sys; sys.argv[1:] = {list(arguments)!r}\nfrom pollconsumer.__main__ import main; main()"
    (site.directory / PATCHED).write_text(script)
    return site.start_program([sys.executable, str(site.directory / PATCHED)])


# Every code


@pytest.mark.crossing
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["run", "--until-empty"], 0),
        (["run", "--timeout", "0"], 2),
        (["enqueue", "record", "{"], 65),
        (["status", "nobody"], 66),
        (["--store", "unix:///nowhere", "run", "--timeout", "1s", "--min-margin", "1ms"], 69),
        (["--config", "none.toml", "run"], 78),
    ],
)
def test_commands_end_with_the_code_that_is_documented(site: Site, arguments: list[str], code: int) -> None:
    assert site.command_from_the_start(*arguments).returncode == code


def test_a_directory_that_cannot_be_created_is_73(site: Site) -> None:
    refused = site.command("run", XDG_DATA_HOME="/proc/nope")
    assert (refused.returncode, refused.stderr.count("\n")) == (73, 1)


def test_a_directory_that_others_may_write_is_77(site: Site) -> None:
    data = site.directory / "elsewhere" / "pollconsumer"
    data.mkdir(parents=True)
    data.chmod(0o777)
    assert site.command("run", XDG_DATA_HOME=str(data.parent)).returncode == 77


@pytest.mark.crossing
def test_a_launch_that_outlives_its_window_and_grace_is_124(site: Site) -> None:
    message = site.enqueue("hang")
    done = site.outlast("hang")
    assert done.returncode == 124
    (line,) = [each for each in done.stderr.splitlines() if "its stacks follow" in each]
    said = f"killed: hang did not stop within 2s after its limit of 1s (message {message})"
    assert line == f"pollconsumer: error: {said}; {REMEDY}; its stacks follow"
    assert site.json("launches")[0]["stop_reason"] == "watchdog"


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)],
    ids=lambda value: str(value),
)
def test_a_second_signal_is_130_or_143(site: Site, number: signal.Signals, code: int) -> None:
    site.enqueue("hold", name="a")
    launch = site.start("run")
    site.await_note("begin a")

    def ended() -> bool:
        launch.send_signal(number)
        return launch.poll() is not None

    wait_until(ended, "the end")
    assert launch.returncode == code


BUG = """
import threading
from pollconsumer.runtime.launch import launch
def run_launch(*args, **keywords):
    threading.Thread(target=threading.Event().wait).start()
    raise RuntimeError("ours")
launch.run_launch = run_launch
"""


@pytest.mark.ends_with(1, traceback=True)
def test_a_bug_of_ours_is_1_with_its_traceback_and_ends_the_process_all_the_same(site: Site) -> None:
    launch = patched(site, BUG, "run")
    _, errors = launch.communicate(timeout=90)
    assert launch.returncode == 1
    assert errors.rstrip().endswith("RuntimeError: ours")


# At once, and with its own code


def test_a_thread_that_a_handler_left_behind_is_not_waited_for(site: Site) -> None:
    add(site, "\n@app.handler\ndef leave_thread():\n    threading.Thread(target=threading.Event().wait).start()\n")
    site.enqueue("leave_thread")
    done = site.drain()
    assert (done.returncode, done.stderr) == (0, "")
    assert site.json("launches")[0]["stop_reason"] == "empty"


@pytest.mark.parametrize("command", ["run", "check"])
def test_a_thread_that_a_module_left_behind_is_not_waited_for(site: Site, command: str) -> None:
    add(site, "\nthreading.Thread(target=threading.Event().wait).start()\n")
    add(site, "fail(", "broken.py")
    (site.directory / "config.toml").write_text('handlers = ["handlers", "broken"]')
    assert site.command(command).returncode == 78


def test_functions_registered_with_atexit_are_run_and_what_they_print_is_kept(site: Site) -> None:
    add(site, "\nimport atexit\natexit.register(note, 'goodbye')\natexit.register(print, 'printed')\n")
    done = site.drain()
    assert (done.returncode, done.stdout, done.stderr) == (0, "printed\n", "")
    assert site.notes() == ["goodbye"]


def drained_in_short(site: Site) -> subprocess.CompletedProcess[str]:
    """A launch that found its queues empty, in the shortest window in which this machine, however busy, lets it."""
    for seconds in (2, 8, 32):
        window = ["--timeout", f"{seconds}s", "--min-margin", "500ms", "--estimated-duration", "1ms"]
        done = site.command("run", *window, "--grace", f"{250 * seconds}ms", "--until-empty")
        if [each["stop_reason"] for each in site.json("launches")[:1]] == ["empty"]:
            return done
    raise AssertionError("no launch had time enough")


def test_a_function_registered_with_atexit_that_hangs_delays_the_end_until_the_hard_end_at_most(site: Site) -> None:
    add(site, "\nimport atexit\natexit.register(threading.Event().wait)\n")
    site.enqueue("record", name="a")
    done = drained_in_short(site)
    assert done.returncode == 0
    assert done.stderr.endswith("functions registered with atexit took too long; they were cut off\n")
    assert site.json("launches")[0]["exit_seconds"] >= 0.2


@pytest.mark.ends_with(1, -signal.SIGABRT)
def test_a_function_registered_with_atexit_that_keeps_the_interpreters_lock_is_cut_off_too(site: Site) -> None:
    add(site, "\nimport atexit\natexit.register(keep_interpreter)\n")
    done = drained_in_short(site)
    assert done.returncode in (1, -signal.SIGABRT)
    assert "most recent call first" in done.stderr


STAND_DOWN = """
import time
from pollconsumer.runtime.system.watchdog import WATCHDOG, watch
until = time.monotonic() + 0.2
watch(lambda: until, lambda: "struck")
WATCHDOG.lift()
time.sleep(1.5)
"""


def test_a_watchdog_that_stood_down_does_not_strike() -> None:
    done = subprocess.run([sys.executable, "-c", STAND_DOWN], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [("--ndjson lines >&-", 0), ("--ndjson lines >&- 2>&-", 0), ("--ndjson - <&-", 65), ("record - <&-", 65)],
)
def test_a_standard_stream_that_is_closed_when_lines_are_enqueued_does_no_harm(
    site: Site, arguments: str, code: int
) -> None:
    (site.directory / "lines").write_text('{"handler": "record", "payload": {"name": "a"}}\n')
    script = f"exec '{sys.executable}' -m pollconsumer enqueue {arguments}"
    process = site.start_program(["sh", "-c", script])
    errors = process.communicate(timeout=90)[1]
    assert process.returncode == code
    assert "Traceback" not in errors
    assert len(site.json("list")) == (code == 0)


@pytest.mark.parametrize("command", ["run", "move", "status"])
def test_a_reader_who_left_changes_no_code(site: Site, command: str) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    site.command("store", "start")
    options = {"run": ["--until-empty"], "move": ["--timeout", "2s"]}.get(command, [])
    words = [sys.executable, "-m", "pollconsumer", command, *options]
    done = subprocess.run(words, cwd=site.directory, env=site.environment, stdout=write_end, stderr=2, check=False)
    os.close(write_end)
    assert done.returncode == 0


# The heartbeat, the lease, the store


def test_a_heartbeat_that_dies_while_modules_are_imported_costs_one_line_and_no_lease(site: Site) -> None:
    add(site, "\nnote('importing')\nwhile not (HERE / 'gate').exists():\n    time.sleep(0.005)\n")
    launch = site.start("run")
    site.await_note("importing")
    os.kill(site.heartbeat_of(launch.pid), signal.SIGKILL)
    site.open_gate()
    _, errors = launch.communicate(timeout=90)
    assert launch.returncode == 75
    assert errors == "pollconsumer: error: lease not renewed; the heartbeat process is gone; the next launch goes on\n"
    assert site.json("lease", "show") == []
    assert site.json("launches")[0]["stop_reason"] == "lease_lost"


def test_a_store_that_is_emptied_under_a_launch_is_named_as_the_reason(site: Site) -> None:
    from redis import Redis

    launch = site.start("run", "--idle-time", "200ms")
    site.await_holder(launch.pid)
    with Redis(unix_socket_path=site.json("store", "path")["socket"]) as client:
        client.flushall()
    _, errors = launch.communicate(timeout=90)
    assert launch.returncode == 78
    assert errors == (
        "pollconsumer: error: store emptied while it was used; "
        "restore its data, or accept it: pollconsumer store adopt\n"
    )


def test_fences_in_which_somebody_else_wrote_are_78(site: Site) -> None:
    from redis import Redis

    site.drain()
    with Redis(unix_socket_path=site.json("store", "path")["socket"]) as client:
        client.hset("{pollconsumer}:fences", "last", "garbage")
    for command in ("run", "move"):
        refused = site.command(command)
        assert refused.returncode == 78
        assert refused.stderr.startswith("pollconsumer: error: key of another program: {pollconsumer}:fences; ")


# Modules of the user

IMPATIENT = "from pollconsumer.interface.cli.installation import check; check.IMPORT_WITHIN = 0.5"


def test_a_module_whose_import_hangs_ends_check(site: Site) -> None:
    add(site, "\nthreading.Event().wait()\n")
    check = patched(site, IMPATIENT, "check")
    _, errors = check.communicate(timeout=90)
    assert check.returncode == 124
    assert errors.startswith(
        "pollconsumer: error: handlers: handlers: import took longer than 0.5s; its stacks follow\n"
    )
    assert "handlers.py" in errors


def test_a_module_whose_import_hangs_ends_run_at_its_hard_end(site: Site) -> None:
    add(site, "\nthreading.Event().wait()\n")
    done = site.command("run", *SHORT)
    assert done.returncode == 124
    assert "handlers.py" in done.stderr


def test_the_reason_of_a_failed_import_is_cut(site: Site) -> None:
    add(site, "\nraise ValueError('long' * 1000 + chr(27))\n")
    for command in ("run", "check"):
        refused = site.command(command)
        assert refused.returncode == 78
        line = refused.stderr.splitlines()[-1]
        assert line.startswith(
            "pollconsumer: error: config.toml: handlers: handlers; importing it raised ValueError: longlong"
        )
        assert len(line) < 750
        assert chr(27) not in refused.stderr


def test_a_launch_whose_starter_blocked_its_signals_ends_handlers_in_time_and_stops_when_asked(site: Site) -> None:
    with (site.directory / "handlers.py").open("a") as handlers:
        handlers.write('\n@app.handler(timeout="100ms", max_attempts=1)\ndef nap() -> None:\n    time.sleep(300)\n')
    slow = site.enqueue("nap")
    site.enqueue("record", name="next")
    block = (
        "import os, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals());"
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    launch = site.start_program([sys.executable, "-c", block, "-m", "pollconsumer", "run", "--timeout", "60s"])
    site.await_note("next")
    launch.send_signal(signal.SIGTERM)
    launch.communicate(timeout=90)
    assert launch.returncode == 0
    assert site.state(slow) == "dead"
