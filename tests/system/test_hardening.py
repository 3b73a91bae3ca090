"""What once went wrong: launches that stood still, leaked, or ended for the wrong reason."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.leaving_out import long
from tests.site import Site, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

SHORT = ["run", "--timeout", "3s", "--min-margin", "500ms", "--estimated-duration", "1ms", "--grace", "1s"]


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    with (site.directory / "handlers.py").open("a") as handlers:
        handlers.write(
            """
@app.handler
def nap(seconds: float) -> None:
    time.sleep(seconds)
    note(f"nap {seconds}")

@app.handler
def fork() -> None:
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
        os._exit(0)
    note(f"forked {pid}")
    time.sleep(30)

@app.handler
def close_all(first: int, last: int) -> None:
    os.closerange(first, last)
    note("closed")

kept = []

@app.handler(max_attempts=2, retry=Backoff(first="1h", most="1h"))
def leak(quietly: bool) -> None:
    try:
        while True:
            kept.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        if not quietly:
            raise

@app.handler
def split() -> str:
    pid = os.fork()
    if pid == 0:
        return "child"
    note(f"child {pid}")
    return "parent"

@app.handler(isolation="process")
def split_apart() -> str:
    return split()

@app.handler(max_attempts=1)
def unspeakable(how: str) -> None:
    class Silent(Exception):
        def __str__(self) -> str:
            raise SystemExit(3) if how == "exit" else ValueError("no text")
    if how == "surrogate":
        raise FileNotFoundError(os.fsdecode(b"caf\\xe9"))
    if how == "forever":
        raise RetryIn("4000000d")
    raise Silent

class Changing(list):
    def __init__(self, error):
        super().__init__([1])
        self.error = error
    def __iter__(self):
        raise self.error

@app.handler
def changing(leave: bool):
    return Changing(SystemExit(3) if leave else RuntimeError("changed during iteration"))

@app.handler
def far() -> None:
    raise RetryIn("4000000d")
"""
        )
    yield site
    site.close()


def test_a_handler_slower_than_the_margin_allows_is_still_handled_once_a_launch(site: Site) -> None:
    for _ in range(2):
        site.enqueue("nap", seconds=2)

    def launched() -> bool:
        assert site.command(*SHORT).returncode == 0
        return bool(site.notes())

    wait_until(launched, "a launch whose window the imports do not take")
    assert site.notes() == ["nap 2"]
    wait_until(lambda: launched() and len(site.notes()) > 1, "another")
    assert site.notes() == ["nap 2", "nap 2"]


def test_what_was_learned_of_handlers_that_are_not_here_does_not_count(site: Site) -> None:
    site.enqueue("nap", seconds=1)
    site.command(*SHORT)
    (site.directory / "handlers.py").write_text("from pollconsumer import PollConsumer\napp = PollConsumer()\n")
    assert site.command(*SHORT).returncode == 0
    assert site.json("launches")[0]["margin_seconds"] == 0.5


def test_a_window_in_which_nothing_fits_is_worth_a_warning(site: Site) -> None:
    done = site.command("run", "--timeout", "8s", "--min-margin", "7999ms")
    assert done.returncode == 0
    assert done.stderr.startswith(
        "pollconsumer: warning: this launch had no time to take a message: it stops 8s before its end, and only "
    )


@pytest.mark.parametrize("left", ["x", "", "-1", "1", "2", "63", "9" * 30])
def test_what_an_earlier_request_left_in_the_environment_changes_no_launch(site: Site, left: str) -> None:
    done = site.command("run", "--until-empty", _POLLCONSUMER_OUTCOME=left)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_launch_that_waited_long_for_its_store_says_so_and_advises_nothing(site: Site) -> None:
    socket = site.json("store", "path")["socket"]
    site.constants = {"LONG_WAIT": 0.001}
    launch = site.start("--store", f"unix://{socket}", "run", "--timeout", "60s", "--min-margin", "59990ms")
    children = Path(f"/proc/{launch.pid}/task/{launch.pid}/children")
    wait_until(lambda: children.read_text() != "", "the heartbeat, which is forked before the launch asks the store")
    assert site.command("store", "start").returncode == 0
    done = site._completed(launch)  # noqa: SLF001
    assert done.returncode == 0
    [line] = done.stderr.splitlines()
    assert line.startswith("pollconsumer: warning: no answer from the store since ")
    assert f"unix://{socket}; it says: " in line


def test_the_heartbeat_leaves_the_output_while_it_waits_for_the_store(site: Site) -> None:
    site.enqueue("hold", name="a")
    store = f"unix://{site.json('store', 'path')['socket']}"
    bounds = ["--timeout", "4s", "--min-margin", "500ms", "--estimated-duration", "1ms", "--grace", "60s"]
    launch = site.start("--store", store, "run", *bounds)
    site.await_note("begin a")
    heartbeat = site.heartbeat_of(launch.pid)
    os.kill(site.json("store", "status")["pid"], signal.SIGKILL)
    site.open_gate()
    done = site._completed(launch)  # noqa: SLF001  it reads until the output's end
    assert done.returncode == 69
    os.kill(heartbeat, signal.SIGKILL)  # it is there still


def test_a_lease_that_was_given_back_stays_given_back(site: Site) -> None:
    for _ in range(6):
        assert site.drain().returncode == 0
        assert site.json("lease", "show") == []
    assert {entry["stop_reason"] for entry in site.json("launches")} == {"empty"}


def test_a_process_that_a_handler_forked_does_not_keep_the_lease(site: Site) -> None:
    site.enqueue("fork")
    launch = site.start("run")
    wait_until(lambda: bool(site.notes()), "the fork")
    launch.kill()
    site.await_release()
    os.kill(int(site.notes()[0].split()[1]), signal.SIGKILL)


@pytest.mark.parametrize(("first", "last"), [(3, 100), (0, 1024), (3, 4096)])
def test_a_handler_that_closes_every_file_costs_the_launch_nothing_but_a_connection(
    site: Site, first: int, last: int
) -> None:
    if os.sysconf("SC_OPEN_MAX") < last + 16:
        pytest.skip("no more files may be open here")
    site.enqueue("close_all", first=first, last=last)
    site.enqueue("record", name="next")
    done = site.drain()
    assert (done.returncode, done.stderr) == (0, "")
    assert site.notes() == ["closed", "next"]
    assert site.json("lease", "show") == []


def run_with_few_descriptors(site: Site, *options: str) -> subprocess.CompletedProcess[str]:
    limit = (
        "import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256));"
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    command = [sys.executable, "-c", limit, "-m", "pollconsumer", "run", "--until-empty", *options]
    launch = site.start_program(command)
    output, errors = launch.communicate(timeout=90)
    return subprocess.CompletedProcess(command, launch.returncode, output, errors)


@pytest.mark.parametrize(("quietly", "concurrency"), [(True, "1"), long(True, "2"), long(False, "1"), (False, "2")])
def test_a_handler_that_leaves_no_descriptor_costs_the_launch_its_rest_and_no_other_message(
    site: Site, quietly: bool, concurrency: str
) -> None:
    leaking = site.enqueue("leak", quietly=quietly)
    done = run_with_few_descriptors(site, "--concurrency", concurrency)
    assert done.returncode == 0, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("pollconsumer: warning: too many open files after ")
    assert f"{leaking} (leak)" in line
    assert site.json("launches")[0]["stop_reason"] == "descriptors"
    assert site.state(leaking) == ("completed" if quietly else "scheduled")


def test_what_is_ready_behind_a_handler_that_leaves_no_descriptor_is_handled_by_the_next_launch(site: Site) -> None:
    site.enqueue("leak", quietly=True)
    after = site.enqueue("record", name="next")
    assert run_with_few_descriptors(site).returncode == 0
    assert (site.state(after), site.json("status", after)["attempts"]) == ("ready", 0)
    assert site.drain().returncode == 0
    assert site.notes() == ["next"]


def test_a_module_that_leaves_no_descriptor_is_named(site: Site) -> None:
    with (site.directory / "handlers.py").open("a") as handlers:
        handlers.write("\nopened = []\nwhile True:\n    opened.append(os.open(os.devnull, os.O_RDONLY))\n")
    done = run_with_few_descriptors(site)
    assert done.returncode == 78
    (line,) = done.stderr.splitlines()
    assert "handlers; importing it raised OSError: [Errno 24] Too many open files" in line


def test_where_no_descriptor_is_left_for_us_a_command_ends_with_one_line() -> None:
    program = (
        "import errno; from pollconsumer.interface import cli; from pollconsumer.__main__ import main\n"
        "def leaking(_): raise OSError(errno.EMFILE, 'Too many open files')\n"
        "cli.invoke = leaking; main()"
    )
    done = subprocess.run([sys.executable, "-c", program, "run"], capture_output=True, text=True, check=False)
    (line,) = done.stderr.splitlines()
    assert line.startswith("pollconsumer: error: too many open files: ")
    assert done.returncode == 73


@pytest.mark.parametrize("leave", [True, False])
def test_a_result_that_raises_when_it_is_written_down_is_dropped(site: Site, leave: bool) -> None:
    message = site.enqueue("changing", leave=leave)
    site.enqueue("record", name="next")
    done = site.drain()
    assert done.returncode == 0
    assert "its result is not kept: it is no JSON" in done.stderr
    assert site.notes() == ["next"]
    assert site.state(message) == "completed"


@pytest.mark.parametrize(
    ("handler", "concurrency"), [("split", "1"), long("split", "2"), long("split_apart", "1"), ("split_apart", "2")]
)
def test_a_process_that_a_handler_forked_and_that_returns_ends_there(
    site: Site, handler: str, concurrency: str
) -> None:
    split = site.enqueue(handler)
    for name in ("a", "b"):
        site.enqueue("record", name=name)
    again = site.enqueue(handler)
    launch = site.start("run", "--until-empty", "--concurrency", concurrency)
    assert launch.communicate(timeout=90) == ("", "")  # nobody holds them any more
    assert sorted(note for note in site.notes() if len(note) == 1) == ["a", "b"]
    assert sum(note.startswith("child") for note in site.notes()) == 2
    assert [site.json("status", message)["result"] for message in (split, again)] == ["parent"] * 2


@pytest.mark.parametrize("how", ["surrogate", "silent", "exit"])
def test_a_failure_that_cannot_be_put_into_words_is_a_failure_all_the_same(site: Site, how: str) -> None:
    message = site.enqueue("unspeakable", how=how)
    site.enqueue("record", name="next")
    assert site.drain().returncode == 0
    assert site.notes() == ["next"]
    assert site.state(message) == "dead"


def test_a_retry_beyond_all_time_is_kept_in_the_schedule(site: Site) -> None:
    message = site.enqueue("far")
    assert site.drain().returncode == 0
    assert site.state(message) == "scheduled"


def test_unknown_handlers_do_not_hide_what_stands_behind_them(site: Site) -> None:
    for _ in range(3):
        site.enqueue("nobody", "--queue", "default")
    site.enqueue("record", name="behind")
    assert site.drain().returncode == 0
    assert site.notes() == ["behind"]


def test_a_full_server_can_be_drained(site: Site) -> None:
    from redis import Redis

    message = site.enqueue("record", name="a")
    with Redis(unix_socket_path=site.json("store", "path")["socket"]) as client:
        client.config_set("maxmemory", 1)
        assert site.drain().returncode == 0
        refused = site.command("enqueue", "record", '{"name": "b"}')
        client.config_set("maxmemory", 0)
    assert refused.returncode == 69
    assert site.state(message) == "completed"


def test_ignored_child_signals_do_not_confuse_a_launch(site: Site) -> None:
    site.enqueue("record", name="a")
    shell = f"trap '' CHLD; exec {sys.executable} -m pollconsumer run --until-empty"
    done = subprocess.run(["/bin/sh", "-c", shell], cwd=site.directory, env=site.environment, check=False)
    assert done.returncode == 0
    assert site.notes() == ["a"]


@pytest.mark.crossing
@pytest.mark.usefixtures("quick_leases")
def test_a_launch_whose_heartbeat_hangs_gives_up_the_lease(site: Site) -> None:
    launch = site.start("run")
    site.await_holder(launch.pid)
    os.kill(site.heartbeat_of(launch.pid), signal.SIGSTOP)
    assert launch.wait(25) == 75


def test_the_order_of_queues_makes_no_other_lease(site: Site) -> None:
    launch = site.start("run", "--queue", "a", "--queue", "b")
    site.await_holder(launch.pid)
    other = site.start("run", "--queue", "b", "--queue", "a", "--until-empty")
    wait_until(lambda: any(key.startswith("next:") for key in site.control_keys()), "a successor")
    assert other.poll() is None


def test_a_shortest_idle_time_is_not_taken_for_endless(site: Site) -> None:
    assert site.command(*SHORT, "--idle-time", "0.4ms").returncode == 0


def test_a_grace_in_which_nothing_can_end_is_refused(site: Site) -> None:
    assert site.command("run", "--grace", "0").returncode == 2


def test_every_line_is_enqueued_though_nobody_reads_the_ids_to_the_end(site: Site) -> None:
    (site.directory / "lines").write_text('{"handler": "record", "payload": {"name": "x"}}\n' * 3000)
    command = f"{sys.executable} -m pollconsumer enqueue --ndjson lines | head -1"
    subprocess.run(
        ["/bin/sh", "-c", command], cwd=site.directory, env=site.environment, check=True, capture_output=True
    )
    assert site.json("status")["queues"][0]["ready"] == 3000


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b'{"handler": "\\ud800"}', 65),
        (b'{"handler": "a", "key": "\\ud800"}', 65),
        (b'{"handler": "caf\xe9"}', 65),
        (b'{"handler": "a", "in": ' + b"9" * 400 + b"}", 65),
        (b'{"handler": "a", "in": true}', 65),
        (b'{"handler": "a", "at": "soon"}', 65),
        (b'["a"]', 65),
        (b"{bad", 65),
    ],
)
def test_a_line_that_is_no_message_is_named_in_one_line(site: Site, line: bytes, code: int) -> None:
    (site.directory / "lines").write_bytes(line + b"\n")
    done = site.command("enqueue", "--ndjson", "lines")
    assert (done.returncode, done.stderr.count("\n")) == (code, 1)
    assert "Traceback" not in done.stderr
    assert site.json("status")["queues"] == []


@pytest.mark.crossing
def test_what_a_launch_could_not_settle_is_offered_again_with_its_attempt_charged_when_the_store_returns(
    site: Site,
) -> None:
    message = site.enqueue("hold", name="a")
    store = f"unix://{site.json('store', 'path')['socket']}"  # which no launch may start
    bounds = ["--timeout", "4s", "--min-margin", "500ms", "--estimated-duration", "1ms", "--grace", "2s"]
    launch = site.start("--store", store, "run", *bounds)
    site.await_note("begin a")
    os.kill(site.json("store", "status")["pid"], signal.SIGKILL)
    site.open_gate()
    assert launch.wait(90) == 69
    assert site.command("store", "start").returncode == 0
    wait_until(lambda: site.state(message) == "ready", "the heartbeat's goodbye")
    assert site.json("status", message)["attempts"] == 1
    site.await_release()
    assert site.json("launches")[0]["stop_reason"] == "store_unreachable"
