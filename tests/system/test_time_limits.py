"""From its first line to its end a launch stands under a limit, whatever hangs, and ends with a documented code."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests import users
from tests.exits import PATCHED
from tests.site import PATIENCE, Site

if TYPE_CHECKING:
    from collections.abc import Iterator

BEGINNING = """
import time
import pollconsumer.__main__ as command
from pollconsumer.interface.cli import group
from pollconsumer.runtime.system import watchdog
watchdog.START_WITHIN = SECONDS
group.END_WITHIN = WINDOW
def sleep(*_):
    time.sleep(600)
def keep(*_):
    import ctypes
    mutex = ctypes.create_string_buffer(128)
    for _ in range(2):
        ctypes.PyDLL(None).pthread_mutex_lock(mutex)
"""
WINDOW = ["--min-margin", "500ms", "--estimated-duration", "1ms", "--grace", "1s"]


class Phase(NamedTuple):
    """Code before a command begins, or of its module; its limits, in seconds; its code, if Python can end it."""

    before: str = ""
    module: str = ""
    start: float = 60.0
    window: float = 60.0
    code: int = 124
    command: tuple[str, ...] = ()
    """A launch, if empty."""


READING = "from pollconsumer.interface.settings import load; load._content = HANG"
PHASES = {
    "reading the configuration": Phase(READING, start=3.0),
    "opening the log": Phase("import pollconsumer.interface.assembly.log_outputs as to; to._opened = HANG", start=3.0),
    "importing the user's modules": Phase(module="import time\ntime.sleep(600)\n", window=3.0),
    "standing down": Phase(
        "from pollconsumer.runtime.launch.heartbeat import Heartbeat as H; H.stop = HANG", code=1
    ),
    "functions of atexit": Phase(module="import atexit, time\natexit.register(time.sleep, 600)\n", code=0),
    "list reads": Phase(READING, start=3.0, command=("list",)),
    "doctor reads": Phase(READING, start=3.0, command=("doctor", "--quiet")),
    "doctor examines": Phase(
        "from pollconsumer.watching.examiner import Examiner as E; E.facts = HANG",
        window=3.0, command=("doctor", "--quiet"),
    ),
    "check finds its state": Phase(
        "from pollconsumer.interface.cli.installation.check import OnlyRead as O; O.writable_directory = HANG",
        window=3.0, command=("check",),
    ),
    "enqueue imports": Phase(module="open('pipe')\n", window=3.0, command=("enqueue", "say")),
}  # fmt: skip
"""Where a launch, or a short command, hangs. What keeps the interpreter's lock is ended by faulthandler's thread, with
1. On a busy machine its limit may be over before it hangs."""


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site('[logs]\ntarget = "launch.log"\n', forks_launches=False)
    yield site
    site.close()


def launched(site: Site, name: str, phase: Phase, hang: str) -> subprocess.Popen[str]:
    script = BEGINNING.replace("SECONDS", str(phase.start)).replace("WINDOW", str(phase.window))
    script += phase.before.replace("HANG", hang)
    launch = ["run", "--until-empty", "--queue", name.split()[0], "--timeout", f"{phase.window:g}s", *WINDOW]
    script += f"\nimport sys; sys.argv[1:] = {[*phase.command] or launch!r}\n"
    place = site.directory / name.replace(" ", "-") / hang
    place.mkdir(parents=True)
    os.mkfifo(place / "pipe")
    (place / "config.toml").write_text('handlers = ["handlers"]\n[logs]\ntarget = "launch.log"\n')
    (place / "handlers.py").write_text(f"from pollconsumer import PollConsumer\napp = PollConsumer()\n{phase.module}")
    (place / PATCHED).write_text(f"{script}command.main()\n")
    return subprocess.Popen(
        [sys.executable, str(place / PATCHED)], cwd=place, env=site.environment, text=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


@pytest.mark.ends_with(1)
def test_a_launch_or_a_short_command_that_hangs_in_any_phase_ends_with_a_documented_code(site: Site) -> None:
    running = {(name, "sleep"): launched(site, name, phase, "sleep") for name, phase in PHASES.items()}
    running |= {(name, "keep"): launched(site, name, phase, "keep") for name, phase in PHASES.items() if phase.before}
    said = {each: process.communicate(timeout=2 * PATIENCE)[1] for each, process in running.items()}
    codes = {each: process.returncode for each, process in running.items()}
    wanted = {(name, hang): (PHASES[name].code,) if hang == "sleep" else (1, 124) for name, hang in running}
    assert {each: code for each, code in codes.items() if code not in wanted[each]} == {}, said
    assert all("most recent call first" in said[each] for each, code in codes.items() if code)


OTHERS = """
import os
def refuse(path, *arguments, opened=os.open, **keywords):
    if path == "/proc/self/fd/2":
        raise PermissionError(path)
    return opened(path, *arguments, **keywords)
os.open = refuse
"""
"""Standard error is as a pipe of another user's, as that of a crontab's line is root's."""
FAIL = """
from pollconsumer.interface import cli
from pollconsumer.interface.logs import logs
def fail(*_):
    raise MemoryError
def fail_to_report(*_):
    raise RuntimeError
def fail_again(*_):
    logs.write_traceback = fail_to_report
    raise ValueError
cli.main = HOW
command.main()
"""


@pytest.mark.ends_with(1)
@pytest.mark.parametrize("others", [False, True], ids=["own pipe", "another user's pipe"])
@pytest.mark.parametrize(("how", "code"), [("sleep", 124), ("keep", 1), ("fail", 78), ("fail_again", 1)])
def test_a_process_ends_whose_standard_error_is_full_and_not_read(
    site: Site, how: str, code: int, *, others: bool
) -> None:
    script = BEGINNING.replace("SECONDS", "5").replace("WINDOW", "60") + OTHERS * others + FAIL.replace("HOW", how)
    (site.directory / PATCHED).write_text(script)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writing, b"x" * 4096)
    os.set_blocking(writing, True)
    words = [sys.executable, str(site.directory / PATCHED), "run"]
    process = subprocess.Popen(words, cwd=site.directory, env=site.environment, stderr=writing)
    os.close(writing)
    try:
        assert process.wait(PATIENCE) == code
    finally:
        process.kill()
        process.wait()
        os.close(reading)


@pytest.mark.ends_with(1)
def test_a_failure_beyond_reporting_is_said_in_one_line(site: Site) -> None:
    begin = "from pollconsumer import __main__ as command\n"
    (site.directory / PATCHED).write_text(begin + FAIL.replace("HOW", "fail_again"))
    words = [sys.executable, str(site.directory / PATCHED), "run"]
    done = subprocess.run(words, cwd=site.directory, env=site.environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith("pollconsumer: error: a failure could not be reported; ")


@pytest.mark.ends_with(1, -signal.SIGABRT)
def test_the_heartbeat_prints_the_stacks_of_a_launch_that_writes_to_another_users_pipe() -> None:
    site = Site(forks_launches=False)
    try:
        site.enqueue("hang_with_the_lock")
        (site.directory / PATCHED).write_text(f"{OTHERS}from pollconsumer.__main__ import main; main()")
        for seconds in ("1s", "5s", "30s"):
            launch = [sys.executable, str(site.directory / PATCHED), "run", "--timeout", seconds, *WINDOW]
            process = site.start_program([*launch, "--handler-limit", "1s"])
            _, errors = process.communicate(timeout=PATIENCE)
            if site.notes():
                break
        assert process.returncode in (1, -signal.SIGABRT)
        assert "in hang_with_the_lock" in errors
    finally:
        site.close()


NO_THREAD = {
    "refused": "def no(*_):\n    raise MemoryError\n_thread.start_new_thread = threading._start_new_thread = no",
    "dead before it runs": "threading.Thread._bootstrap = lambda _: None\nown_threads.START_WITHIN = 1",
}


@pytest.mark.parametrize("how", NO_THREAD)
def test_a_launch_without_memory_for_a_thread_says_so_and_charges_no_message(site: Site, how: str) -> None:
    message = site.enqueue("record", name="a")
    begin = "import _thread, threading\nfrom pollconsumer.runtime.system import own_threads\n"
    (site.directory / PATCHED).write_text(f"{begin}{NO_THREAD[how]}\nfrom pollconsumer.__main__ import main; main()")
    launch = [sys.executable, str(site.directory / PATCHED), "run", "--until-empty", "--concurrency", "4"]
    process = site.start_program(launch)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 78
    assert "can't start new thread" in (site.directory / "launch.log").read_text()
    status = site.json("status", message)
    assert (status["state"], status["attempts"]) == ("ready", 0)
    launch_entry = site.json("launches")[0]
    assert (launch_entry["stop_reason"], launch_entry["exit_code"]) == ("failed", 78)


def test_a_launch_whose_memory_is_used_up_ends(site: Site) -> None:
    (site.directory / "handlers.py").write_text(
        "import resource\nfrom pathlib import Path\nfrom pollconsumer import PollConsumer\napp = PollConsumer()\n"
        "@app.handler\n"
        "def use_up():\n"
        "    pages = int(Path('/proc/self/statm').read_text().split()[0])\n"
        "    resource.setrlimit(resource.RLIMIT_AS, ((pages + LEFT) * 4096, resource.RLIM_INFINITY))\n"
        "    kept = []\n"
        "    try:\n"
        "        while True:\n"
        "            kept.append(bytearray(4096))\n"
        "    except MemoryError:\n"
        "        app.kept = kept\n"
    )
    module = (site.directory / "handlers.py").read_text()
    for left in (0, 16, 64, 256):
        (site.directory / "handlers.py").write_text(module.replace("LEFT", str(left)))
        site.enqueue("use_up")
        done = site.command("run", "--max-messages", "1", "--concurrency", "4", "--timeout", "5s", *WINDOW)
        assert done.returncode in (0, 1, 69, 75, 78, 124), (left, done)


UID = 61_500
"""A user of whom nothing else runs, plus the number of this process below 400."""


def test_a_limit_of_processes_is_charged_to_no_message(site: Site) -> None:
    users.skip_without_users()  # root has no such limit
    (site.directory / "handlers.py").write_text(
        "from pollconsumer import PollConsumer\napp = PollConsumer()\n"
        "@app.handler(isolation='process', max_attempts=1)\ndef apart() -> None: ...\n"
        "@app.handler\ndef here() -> None: ...\n"
    )
    (site.directory / "several").write_text('{"handler": "apart"}\n{"handler": "here"}\n')
    uid = str(UID + os.getpid() % 400)
    for path in (site.directory, *site.directory.rglob("*")):  # what is kept of settings, too
        shutil.chown(path, int(uid), int(uid))
    command = f"{sys.executable} -m pollconsumer"

    def by_user(script: str) -> subprocess.CompletedProcess[str]:
        user = ["setpriv", "--reuid", uid, "--regid", uid, "--clear-groups", "bash", "-c", script]
        words = ["unshare", "--mount", "sh", "-c", f'{users.opening()}exec "$@"', "sh", *user]
        return subprocess.run(
            words, cwd=site.directory, env=site.environment, text=True, capture_output=True, check=False
        )

    assert by_user(f"{command} store start").returncode == 0
    ends = []
    try:
        for most in (7, 9, 10, 11, 14, 20):  # six threads are the server's
            enqueued = by_user(f"{command} enqueue --ndjson several")
            assert enqueued.returncode == 0, enqueued.stderr
            done = by_user(f"rm -rf state; ulimit -u {most}; exec {command} run --until-empty")
            ends.append((done.returncode, f"ulimit -u {most}" in done.stderr))
            assert "Traceback" not in done.stderr, done.stderr
            assert "launch died" not in done.stderr, done.stderr
            if ends[-1] == (0, False):
                break
        listed = json.loads(by_user(f"{command} list --json").stdout)
    finally:
        by_user(f"{command} store stop")
    found = {(each["handler"], each["state"], each["attempts"]) for each in listed}
    assert found - {("apart", "scheduled", 0), ("here", "completed", 1)} == {("apart", "completed", 1)}
    assert {*ends} == {(78, True), (0, True), (0, False)}


def test_a_log_that_is_not_read_ends_no_launch_and_blames_no_message(site: Site) -> None:
    (site.directory / "config.toml").write_text('handlers = ["handlers"]\n')
    (site.directory / "handlers.py").write_text(
        "import logging\nfrom pollconsumer import PollConsumer\napp = PollConsumer()\n"
        "@app.handler\ndef say():\n    for _ in range(200):\n        logging.warning('x' * 1000)\n"
    )
    message = site.enqueue("say")
    command = [sys.executable, "-m", "pollconsumer", "run", "--until-empty"]
    launch = subprocess.Popen(
        command, cwd=site.directory, env=site.environment, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
    )
    assert launch.wait(PATIENCE) == 0  # nobody reads what it says
    assert launch.stderr is not None
    launch.stderr.close()
    status = site.json("status", message)
    assert (status["state"], status["attempts"]) == ("completed", 1)


@pytest.mark.parametrize("kilobytes", [*range(20_000, 60_000, 5_000), *range(24_000, 28_000, 500)])
def test_however_little_memory_is_allowed_a_launch_says_so_in_a_line(site: Site, kilobytes: int) -> None:
    run = f"ulimit -v {kilobytes}; exec {sys.executable} -m pollconsumer --store redis://127.0.0.1:1 run --timeout 1s"
    done = site.start_program(["sh", "-c", run])
    _, said = done.communicate(timeout=PATIENCE)
    assert (done.returncode, len(said.splitlines())) in [(69, 1), (78, 1)], said
    assert said.startswith("pollconsumer: error: ")


def test_a_launch_says_in_a_line_that_no_memory_at_all_is_left(site: Site) -> None:
    (site.directory / "exhausted.py").write_text(
        "import resource, sys\n"
        "import pollconsumer.__main__ as command\n"
        "held = [None] * 400_000\n"
        "class Exhausting:\n"
        "    def __getattr__(self, name):\n"
        "        index = 0\n"
        "        for make in (lambda: bytes(4096), lambda: bytes(400), lambda: bytes(16), object):\n"
        "            try:\n"
        "                while True:\n"
        "                    held[index] = make()\n"
        "                    index += 1\n"
        "            except MemoryError:\n"
        "                pass\n"
        "        raise MemoryError\n"
        "sys.modules['pollconsumer.interface.command_line'] = Exhausting()\n"
        "with open('/proc/self/statm') as pages:\n"
        "    taken = int(pages.read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (taken + (6 << 20), resource.RLIM_INFINITY))\n"
        "command.main()\n"
    )
    done = site.start_program([sys.executable, "exhausted.py", "run"])
    _, said = done.communicate(timeout=PATIENCE)
    assert (done.returncode, said.count("\n")) == (78, 1), said
    assert said.startswith("pollconsumer: error: out of memory")
