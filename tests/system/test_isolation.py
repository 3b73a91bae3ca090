"""Handlers in processes of their own: killed with all they started, and otherwise as in the launch's."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from redis import Redis

from pollconsumer import Yield
from pollconsumer.core.errors import LeaseLost
from pollconsumer.core.retry import NotBegun, Stopped
from pollconsumer.interface.api.registry import registry
from pollconsumer.interface.assembly.child import Handed
from pollconsumer.interface.assembly.handlers import load_handlers
from pollconsumer.interface.assembly.launch_roles import isolating
from pollconsumer.interface.settings.load import load_settings
from pollconsumer.runtime.handling.context import LaunchContext
from pollconsumer.runtime.handling.delivery import Delivery, Situation
from pollconsumer.runtime.handling.handler import Outcome, trace, why_dropped
from pollconsumer.runtime.handling.slot_waits import IN_SLOT
from pollconsumer.runtime.new_messages import Defaults
from tests.site import PATIENCE, Site, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pollconsumer.runtime.handling.handler import Handler

HANDLERS = '''
import asyncio, ctypes, os, re, signal, subprocess, sys, time
from pathlib import Path
from pollconsumer import Backoff, Fatal, HandlerTimeout, PollConsumer, RetryIn, Yield
from pollconsumer.runtime.handling.context import Context, LaunchContext

app = PollConsumer()
HERE = Path(__file__).parent

def note(what):
    descriptor = os.open(HERE / "notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{what}\\n".encode())
    os.close(descriptor)

def isolated(**options):
    options = {"retry": Backoff(first="1h", most="1h")} | options
    return app.handler(isolation="process", **options)

@isolated()
def pid() -> None:
    note(f"{os.getpid()} {os.getppid()}")

@isolated(timeout="300ms")
def stuck() -> None:
    """Holds the interpreter's lock, so that nothing in it can be told anything; with a child of its own."""
    child = subprocess.Popen(["sleep", "600"])
    note(f"stuck {os.getpid()} {child.pid}")
    ctypes.PyDLL(None).sleep(600)

@isolated()
def stuck_for_ever() -> None:
    stuck()

@app.handler
def fork_here() -> None:
    pid = os.fork()
    if pid == 0:
        for n in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), n)
        time.sleep(600)
        os._exit(0)
    note(f"fork {pid}")

@isolated()
def linger() -> None:
    child = subprocess.Popen(["sleep", "600"])
    note(f"linger {os.getpid()} {child.pid}")

@isolated()
def hold() -> None:
    note(f"hold {os.getpid()}")
    while not (HERE / "gate").exists():
        time.sleep(0.005)
    note("held")

@isolated()
def die(how: str) -> None:
    if how == "segv":
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "exit":
        os._exit(9)
    os.closerange(3, 100)

@isolated(fatal=(LookupError,))
def fail(how: str) -> None:
    if how == "index":
        [][0]
    if how == "value":
        raise ValueError("no \\udcff value")
    if how == "fatal":
        raise Fatal("never")
    if how == "in":
        raise RetryIn("3d")
    if how == "exit":
        sys.exit(3)
    if how == "unspeakable":
        class Unspeakable(Exception):
            def __str__(self):
                raise RuntimeError
        raise Unspeakable

class Patient:
    def delay(self, attempt, chance):
        note(f"asked {os.getpid()} {attempt} {0 <= chance < 1}")
        return "3d"

@isolated(retry=Patient())
def impatient() -> None:
    note(f"failed {os.getpid()} {os.getppid()}")
    raise ValueError

@isolated()
def picky(n: int) -> None: ...

@isolated(timeout="20s")
def told(context: Context) -> None:
    state = context.state
    note([context.id, context.attempt, context.handler, context.queue, context.idempotency_key, state])
    assert 0 < context.time_left() <= 20 and not context.cancelled
    context.checkpoint({"step": 1})
    assert context.state == {"step": 1}

@isolated()
def until_cancelled(context: Context) -> None:
    note("waits")
    while not context.cancelled:
        time.sleep(0.005)
    note("cancelled")

@isolated(timeout="10s")
def asks(heeds: bool, context: Context) -> None:
    while not (heeds and context.cancelled):
        context.checkpoint({"step": 1})

@isolated()
def reports(how: str, context: Context):
    if how == "yield":
        raise Yield("later")
    if how == "odd":
        return {1, 2}
    state = context.state
    try:
        context.checkpoint({"step": 1})
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    context.enqueue("pid", {"n": "é"}, priority=3, in_="5s", queue="other")
    return {"attempt": context.attempt, "generation": context.generation, "fence": context.fence, "state": state}

@isolated()
def forward() -> None:
    note((Path("/proc/self/cmdline").read_bytes() + Path("/proc/self/environ").read_bytes()).decode())
    pid.enqueue()

@isolated()
def speak() -> None:
    print("on stdout")
    print("on stderr", file=sys.stderr)

@isolated(timeout="10s")
async def awaits() -> None:
    await asyncio.sleep(0)
    note("awaited")
'''


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    (site.directory / "handlers.py").write_text(HANDLERS)
    yield site
    site.close()


def gone(pid: str | int) -> bool:
    """Or waiting to be buried, which is init's business."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def await_end(*pids: str | int) -> None:
    for pid in pids:
        wait_until(lambda pid=pid: gone(pid), f"end of {pid}")  # type: ignore[misc]


def noted(site: Site, first: str) -> list[str]:
    found: list[list[str]] = []

    def seen() -> bool:
        found[:] = [note.split() for note in site.notes() if note.startswith(first)]
        return bool(found)

    wait_until(seen, f"a note that begins with {first}")
    return found[0][1:]


def test_messages_share_a_process_that_is_not_the_launch(site: Site) -> None:
    for _ in range(3):
        site.enqueue("pid")
    done = site.drain()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    first, *others = site.notes()
    assert others == [first, first]
    pid, parent = first.split()
    assert pid != parent
    await_end(pid)


def test_slots_have_a_process_each(site: Site) -> None:
    messages = [site.enqueue("hold") for _ in range(2)]
    launch = site.start("run", "--concurrency", "2", "--until-empty")
    wait_until(lambda: len(site.notes()) == 2, "two at a time")
    assert len(set(site.notes())) == 2
    site.open_gate()
    assert launch.wait(90) == 0
    assert [site.state(message) for message in messages] == ["completed", "completed"]


def test_what_nothing_else_could_stop_is_killed_with_what_it_started(site: Site) -> None:
    stuck, after = site.enqueue("stuck"), site.enqueue("pid")
    done = site.drain()
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        site.json("status", stuck)["last_error"]
        == "HandlerTimeout: ran longer than its limit of 300ms, from timeout= or consumer.handler_limit"
    )
    assert site.state(after) == "completed"
    await_end(*noted(site, "stuck"))


def test_nothing_outlives_a_launch_that_ends(site: Site) -> None:
    site.enqueue("linger")
    assert site.drain().returncode == 0
    await_end(*noted(site, "linger"))


def test_nothing_outlives_a_launch_that_is_killed(site: Site) -> None:
    site.enqueue("stuck_for_ever")
    launch = site.start("run")
    pids = noted(site, "stuck")
    launch.kill()
    await_end(*pids)


@pytest.mark.crossing
def test_nothing_outlives_the_limit_of_its_message(site: Site) -> None:
    for _ in range(3):  # for each window: one whose process was cut off before it noted anything is retried much later
        site.enqueue("stuck_for_ever")
    assert site.outlast("stuck").returncode == 0
    await_end(*noted(site, "stuck"))


def test_nothing_outlives_a_launch_that_is_told_twice_to_stop(site: Site) -> None:
    site.enqueue("stuck_for_ever")
    launch = site.start("run")
    pids = noted(site, "stuck")

    def told_again() -> bool:
        launch.terminate()
        return launch.poll() is not None

    wait_until(told_again, "the end")
    assert launch.returncode == 143
    await_end(*pids)


@pytest.mark.parametrize("concurrency", ["1", "2"])
def test_a_launch_that_is_told_to_stop_finishes_what_is_in_hand(site: Site, concurrency: str) -> None:
    message, cancelled = site.enqueue("hold"), site.enqueue("until_cancelled") if concurrency == "2" else None
    launch = site.start("run", "--concurrency", concurrency)
    (pid,) = noted(site, "hold")
    if cancelled:
        site.await_note("waits")
    os.kill(int(pid), signal.SIGTERM)  # as a platform does that signals every process
    launch.terminate()
    if cancelled:
        site.await_note("cancelled")
    site.open_gate()
    assert launch.wait(90) == 0
    assert site.state(message) == "completed"
    assert cancelled is None or site.state(cancelled) == "completed"
    await_end(pid)


@pytest.mark.crossing
@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("segv", "ProcessDied: signal SIGSEGV"),
        ("exit", "ProcessDied: exit code 9"),
        ("close", "ProcessDied: exit code 0"),
    ],
)
def test_a_process_that_dies_fails_its_message_only(site: Site, how: str, error: str) -> None:
    before, dies, after = site.enqueue("pid"), site.enqueue("die", how=how), site.enqueue("pid")
    assert site.drain().returncode == 0
    status = site.json("status", dies)
    assert (status["state"], status["attempts"], status["last_error"]) == ("scheduled", 1, error)
    assert (site.state(before), site.state(after)) == ("completed", "completed")
    first, second = site.notes()
    assert first.split()[0] != second.split()[0]
    assert first.split()[1] == second.split()[1]


def test_failures_mean_what_they_mean_in_the_launch(site: Site) -> None:
    expected = {
        "index": ("dead", "IndexError: list index out of range"),
        "value": ("scheduled", "ValueError: no \\udcff value"),
        "fatal": ("dead", "Fatal: never"),
        "in": ("scheduled", "RetryIn: retry in 3d"),
        "exit": ("scheduled", "SystemExit: 3"),
        "unspeakable": ("scheduled", "Unspeakable: (its text raised RuntimeError)"),
    }
    messages = {how: site.enqueue("fail", how=how) for how in expected}
    picky = site.enqueue("picky", "--queue", "default", n="1")
    assert site.drain().returncode == 0
    found = {how: site.json("status", message) for how, message in messages.items()}
    assert {how: (status["state"], status["last_error"]) for how, status in found.items()} == expected
    due, again = found["in"]["timestamps"]["failed_at"], found["in"]["timestamps"]["next_attempt_at"]
    assert int(again[8:10]) != int(due[8:10])  # days, not the hour of the backoff
    status = site.json("status", picky)
    assert (status["state"], status["last_error"]) == ("dead", "bad_arguments: n is str, not int")


def test_a_retry_policy_is_asked_in_the_launch(site: Site) -> None:
    message = site.enqueue("impatient")
    assert site.drain().returncode == 0
    _, launch = noted(site, "failed")
    assert noted(site, "asked") == [launch, "1", "True"]
    times = site.json("status", message)["timestamps"]
    assert int(times["next_attempt_at"][8:10]) != int(times["failed_at"][8:10])  # days, not the second of the default


def test_the_context_reaches_over(site: Site) -> None:
    message = site.enqueue("told")
    assert site.drain().returncode == 0
    assert site.notes() == [str([message, 1, "told", "default", f"pollconsumer:default:{message}", None])]
    assert site.state(message) == "completed"


def test_output_goes_where_the_launch_has_its_own(site: Site) -> None:
    site.enqueue("speak")
    done = site.drain()
    assert (done.stdout, done.stderr) == ("on stdout\n", "on stderr\n")


def test_an_async_handler_can_be_isolated(site: Site) -> None:
    message = site.enqueue("awaits")
    assert site.drain().returncode == 0
    assert site.state(message) == "completed"
    assert site.notes() == ["awaited"]


def test_where_the_store_is_and_its_password_are_known_there_and_shown_to_nobody(site: Site) -> None:
    assert site.command("store", "start").returncode == 0
    socket = site.json("store", "path")["socket"]
    config = site.directory / "config.toml"
    before = config.read_text()
    with Redis(unix_socket_path=socket) as client:
        client.config_set("requirepass", "secretword")
        try:
            config.write_text(f'store = "unix://:secretword@{socket}"\n{before}')
            site.enqueue("forward")
            assert site.drain().returncode == 0
        finally:
            client.config_set("requirepass", "")
            config.write_text(before)
    shown, _ = site.notes()
    assert "child_main.py" in shown
    assert "secretword" not in shown


class FakeLease:
    """That of the launch that there is none of."""

    lost = False

    def check(self) -> bool:
        if self.lost:
            raise LeaseLost("lease", "it", "is another's")
        return False


@pytest.fixture
def lease() -> FakeLease:
    return FakeLease()


@pytest.fixture
def handlers(site: Site, lease: FakeLease, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mapping[str, Handler]]:
    """Isolated handlers, called without a launch."""
    monkeypatch.setattr(sys, "path", [str(site.directory), *sys.path])
    monkeypatch.delitem(sys.modules, "handlers", raising=False)  # what an earlier test has imported
    in_slot = IN_SLOT.set(Handed("id", "told", 2))
    settings = load_settings(site.directory / "config.toml")
    try:
        with registry.afresh(), isolating(load_handlers(settings), settings, lease.check) as handlers:
            yield handlers
    finally:
        IN_SLOT.reset(in_slot)
        del sys.modules["handlers"]


class Refusing:
    """What starts processes, of which the system allows no more."""

    asked = 0

    def __call__(self, *_: object) -> int:
        self.asked += 1
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")


class Given:
    """A context, and what came of it."""

    def __init__(
        self,
        *,
        save: Callable[[bytes], None] | None = None,
        cancelled: Callable[[], bool] = bool,
        stop_asked: Callable[[object], bool] = bool,
    ) -> None:
        self.saved: list[bytes] = []
        delivery = Delivery("n", "q", "id", "told", 2, 1, 7, {"step": 0})
        defaults_of = {"told": Defaults("mail")}.__getitem__
        save = save or self.saved.append
        situation = Situation(
            lambda began, limit=60.0: began + limit,
            cancelled,
            lambda _, state: save(state),
            defaults_of,
            stop_asked=stop_asked,
        )
        self.context = LaunchContext(delivery, situation)


def test_what_a_handler_enqueues_checkpoints_and_returns_comes_back(handlers: Mapping[str, Handler]) -> None:
    given = Given()
    outcome = handlers["reports"].handle({"how": "return"}, given.context)
    assert outcome.error is None
    assert outcome.result == {"attempt": 2, "generation": 1, "fence": 7, "state": {"step": 0}}
    assert given.saved == [b'{"step":1}']
    assert given.context.state == {"step": 1}
    (message,) = given.context.enqueued
    assert (message.handler, message.payload, message.priority, message.delay) == ("pid", b'{"n":"\xc3\xa9"}', 3, 5000)


def test_a_refused_checkpoint_is_refused_there(handlers: Mapping[str, Handler]) -> None:
    def refuse(_: bytes) -> None:
        raise LeaseLost("lease", "it", "is gone")

    outcome = handlers["reports"].handle({"how": "caught"}, Given(save=refuse).context)
    assert outcome == Outcome(result="LeaseLost: lease: it; is gone")


def test_a_handler_that_asks_without_a_pause_is_told_to_stop(handlers: Mapping[str, Handler]) -> None:
    given = Given(cancelled=lambda: len(given.saved) > 3)
    assert handlers["asks"].handle({"heeds": True}, given.context).error is None


def test_a_handler_that_asks_without_a_pause_is_stopped(
    handlers: Mapping[str, Handler], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pollconsumer.runtime.children.pool.STOP_GRACE", 0.1)
    given = Given(stop_asked=lambda _: len(given.saved) > 3)
    assert isinstance(handlers["asks"].handle({"heeds": False}, given.context).error, Stopped)


def test_yield_and_tracebacks_come_back(handlers: Mapping[str, Handler]) -> None:
    outcome = handlers["reports"].handle({"how": "yield"}, Given().context)
    assert isinstance(outcome.error, Yield)
    assert outcome.error is not None
    shown = trace(outcome.error)
    assert 'raise Yield("later")' in shown


def test_of_what_json_cannot_say_the_reason_comes_back(handlers: Mapping[str, Handler]) -> None:
    outcome = handlers["reports"].handle({"how": "odd"}, Given().context)
    assert why_dropped(outcome.result) == "it is no JSON: result: a set has no JSON form; return what JSON has"


def test_a_process_that_died_idle_costs_no_message(site: Site, handlers: Mapping[str, Handler]) -> None:
    assert handlers["pid"].handle({}, Given().context).error is None
    (first,) = site.notes()
    os.kill(int(first.split()[0]), signal.SIGKILL)
    assert handlers["pid"].handle({}, Given().context).error is None
    assert len(set(site.notes())) == 2


def test_a_message_waits_for_the_process_of_another_slot_where_the_system_refuses_a_second_one(
    site: Site, handlers: Mapping[str, Handler], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert handlers["pid"].handle({}, Given().context).error is None
    monkeypatch.setattr(subprocess, "_fork_exec", Refusing())
    with ThreadPoolExecutor(1) as slot:
        held = slot.submit(copy_context().run, handlers["hold"].handle, {}, Given().context)
        noted(site, "hold")
        over = handlers["pid"].handle({}, Given(cancelled=lambda: True).context)
        assert isinstance(over.error, NotBegun)  # no time to wait
        second = ThreadPoolExecutor(1).submit(copy_context().run, handlers["pid"].handle, {}, Given().context)
        site.open_gate()
        assert (held.result(PATIENCE).error, second.result(PATIENCE).error) == (None, None)
    assert len({note.split()[0] for note in site.notes() if note[0].isdigit()}) == 1


def test_where_no_process_can_be_started_the_next_messages_try_none(
    handlers: Mapping[str, Handler], monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing = Refusing()
    monkeypatch.setattr(subprocess, "_fork_exec", refusing)
    errors = [handlers["pid"].handle({}, Given().context).error for _ in range(3)]
    assert all(isinstance(error, NotBegun) and "cannot start a process" in str(error) for error in errors)
    assert refusing.asked == 1


@pytest.mark.parametrize(
    ("start", "said"),
    [("os._exit(3)", "exit code 3"), ("raise MemoryError", "out of memory"), ("NO_THREADS", "new thread")],
)
def test_what_keeps_a_process_from_starting_is_charged_to_no_message(site: Site, start: str, said: str) -> None:
    start = start.replace("NO_THREADS", "import _thread; _thread.start_new_thread = refuse")
    with (site.directory / "handlers.py").open("a") as module:
        module.write(
            'def refuse(*_):\n    raise RuntimeError("can\'t start new thread")\n'
            f"if sys.argv[0].endswith('child_main.py'):\n    {start}\n"
            "@app.handler\ndef here() -> None: ...\n"
        )
    isolated, here = site.enqueue("pid"), site.enqueue("here")
    done = site.drain()
    assert (done.returncode, done.stderr.count("warning")) == (0, 1), done.stderr
    assert "its process could not start" in done.stderr
    status = site.json("status", isolated)
    assert (status["state"], status["attempts"]) == ("scheduled", 0)
    assert said in status["last_error"]
    assert "ulimit" in status["last_error"]
    assert site.state(here) == "completed"


def test_nothing_begins_where_the_lease_was_lost_while_its_process_started(
    site: Site, lease: FakeLease, handlers: Mapping[str, Handler]
) -> None:
    lease.lost = True
    assert isinstance(handlers["pid"].handle({}, Given().context).error, Yield)
    assert site.notes() == []
    lease.lost = False
    assert handlers["pid"].handle({}, Given().context).error is None
    assert len(site.notes()) == 1


def test_a_fork_of_the_launch_does_not_keep_them_alive(site: Site) -> None:
    site.enqueue("stuck_for_ever")
    launch = site.start("run", "--concurrency", "2")
    pids = noted(site, "stuck")
    site.enqueue("fork_here")
    (fork,) = noted(site, "fork")
    try:
        launch.kill()
        await_end(*pids)
        assert not gone(fork)
    finally:
        os.kill(int(fork), signal.SIGKILL)
