"""What launches say of a trouble that goes on, and of its end; a person at a terminal is told each time."""

from __future__ import annotations

import logging
import re
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.core.errors import ConfigurationError, LeaseLost, StoreUnreachable, UsageError
from pollconsumer.core.window import StopReason
from pollconsumer.interface.logs import logs
from pollconsumer.interface.logs.logs import LaunchStreaks, name_of
from pollconsumer.runtime.system import own_files
from pollconsumer.runtime.system.own_files import OwnFiles
from tests.site import PATIENCE
from tests.terminal import Screen, Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.site import Site

NOON = 1_700_000_000.0
OVER = "pollconsumer: info: resolved: "


class Clock:
    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def files(tmp_path: Path) -> OwnFiles:
    return OwnFiles([tmp_path / "state"])


@pytest.fixture(autouse=True)
def _logging(capsys: pytest.CaptureFixture[str]) -> Iterator[None]:  # noqa: ARG001  our lines go to it
    logs.configure()
    yield
    logs.log.streaks = None


def launched(files: OwnFiles, clock: Clock) -> None:
    """A launch begins, a minute after the one before."""
    clock.now += 60
    logs.log.streaks = LaunchStreaks("x", files, clock)


def stopped(reason: str) -> None:
    """The launch ends."""
    assert logs.log.streaks is not None
    logs.log.streaks.stopped = reason


def test_a_warning_is_damped_by_its_text_without_numbers_unless_told_otherwise(
    files: OwnFiles, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(4):
        launched(files, clock)
        logs.log.warning("waited for %ds at 0x%x, %.1f%%, %d.", number, number, number, number)
        logs.log.warning("queue mail%d", number)
        logs.log.warning("hook %s", "abcd"[number], extra=logs.about("hook"))
        logs.log.warning("dead letter", extra=logs.UNDAMPED)
        logging.getLogger("theirs").warning("from a handler")
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" (")[0] for line in lines if "waited" in line] == [
        "pollconsumer: warning: waited for 0s at 0x0, 0.0%, 0.",
        "pollconsumer: warning: waited for 1s at 0x1, 1.0%, 1.",
    ]
    assert sum("queue mail" in line for line in lines) == 4
    assert sum("hook" in line for line in lines) == 2
    assert sum("dead letter" in line for line in lines) == 4
    assert sum("from a handler" in line for line in lines) == 4


def test_what_a_launch_meets_several_times_counts_once_and_is_printed_as_at_first(
    files: OwnFiles, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(3):
        launched(files, clock)
        for number in range(2):
            logs.log.warning("hook raised %s", number, extra=logs.about("hook"))
    assert capsys.readouterr().err.splitlines() == [
        "pollconsumer: warning: hook raised 0",
        "pollconsumer: warning: hook raised 1",
        "pollconsumer: warning: hook raised 0 (2 launches in 1m)",
        "pollconsumer: warning: hook raised 1",
    ]


def test_a_store_that_is_down_is_one_trouble_and_a_changed_configuration_another(
    files: OwnFiles, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    for error in (
        StoreUnreachable("store unreachable", "a:1", "refused"), StoreUnreachable("embedded server", "slow"),
        StoreUnreachable("store unreachable"), LeaseLost("lease lost", "fence 1"), LeaseLost("lease lost", "fence 2"),
        LeaseLost("lease lost", "fence 3"), ConfigurationError("unknown key", "a"),
        ConfigurationError("unknown key", "b"),
    ):  # fmt: skip
        launched(files, clock)
        logs.write_error(error)
    assert [line.removeprefix("pollconsumer: error: ") for line in capsys.readouterr().err.splitlines()] == [
        "store unreachable: a:1; refused", "embedded server: slow (2 launches in 1m)", "lease lost: fence 1",
        "lease lost: fence 2 (2 launches in 1m)", "unknown key: a", "unknown key: b",
    ]  # fmt: skip


def test_wrong_usage_is_never_damped_and_another_number_in_the_configuration_is_news(
    files: OwnFiles, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(4):
        launched(files, clock)
        logs.write_error(UsageError("--timeout", 0, "must be > 0"))
        logs.write_error(ConfigurationError("consumer.concurrency", -number, "must be 1-256"))
    assert len(capsys.readouterr().err.splitlines()) == 8


@pytest.mark.parametrize(
    ("reason", "code", "over"),
    [
        (StopReason.NO_TIME_TO_HANDLE, 0, ["store", "no handlers"]),
        (StopReason.LEASE_HELD, 0, ["store"]),
        (StopReason.LEASE_LOST, 75, []),
        (StopReason.FAILED, 78, []),
        (None, 0, []),
        (None, 78, []),
    ],
)
def test_a_launch_ends_only_what_it_can_know_to_be_over(
    reason: StopReason | None,
    code: int,
    over: list[str],
    files: OwnFiles,
    clock: Clock,
    capsys: pytest.CaptureFixture[str],
) -> None:
    launched(files, clock)
    logs.log.warning("no handlers", extra=logs.about("no handlers", kind=logs.PERSISTENT))
    logs.write_error(StoreUnreachable("store"))
    capsys.readouterr()
    launched(files, clock)
    if reason is not None:
        stopped(reason)
    logs.close_streaks(code)
    lines = capsys.readouterr().err.splitlines()
    ended = [re.sub(r" \((failed|seen) in 1 launch\)$", "", line) for line in lines]
    assert sorted(ended) == sorted(f"{OVER}{name}" for name in over)


def test_where_the_users_disk_is_full_streaks_are_kept_in_a_temporary_directory(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "state").write_text("no directory")
    monkeypatch.setattr(own_files, "TEMPORARY", tmp_path)
    for _ in range(4):
        launched(OwnFiles([tmp_path / "state"]), clock)
        logs.write_error(StoreUnreachable("store"))
    assert capsys.readouterr().err.splitlines() == [
        "pollconsumer: error: store", "pollconsumer: error: store (2 launches in 1m)",
    ]  # fmt: skip


def test_where_nothing_can_be_kept_everything_is_printed(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "state").write_text("no directory")
    monkeypatch.setattr(own_files, "TEMPORARY", tmp_path / "state")
    for files in (OwnFiles([]), OwnFiles([tmp_path / "state"])):
        for _ in range(4):
            launched(files, clock)
            logs.log.warning("same")
            stopped(StopReason.EMPTY)
            logs.close_streaks(0)
    assert capsys.readouterr().err.splitlines() == ["pollconsumer: warning: same"] * 8


def test_a_launch_without_trouble_leaves_no_file_and_the_end_of_one_is_forgotten(files: OwnFiles, clock: Clock) -> None:
    launched(files, clock)
    stopped(StopReason.EMPTY)
    logs.close_streaks(0)
    assert not files.directories[0].exists()
    launched(files, clock)
    logs.write_error(StoreUnreachable("store"))
    kept = files.directories[0] / "streaks" / "x"
    assert kept.stat().st_mode & 0o777 == 0o600
    for _ in range(2):
        clock.now += 4000
        launched(files, clock)
        stopped(StopReason.EMPTY)
        logs.close_streaks(0)
    assert not kept.exists()


def test_streaks_are_those_of_a_configuration_store_namespace_role_and_queues() -> None:
    place = {"POLLCONSUMER_NAMESPACE": "n"}
    runs: list[tuple[str, list[str], dict[str, str]]] = [
        ("run", [], {}),
        ("move", [], {}),
        ("run", ["--queue", "a"], {}),
        ("run", ["--queue", "a", "--queue=b"], {}),
        ("run", ["--config", "other.toml"], {}),
        ("run", ["--store", "redis://h"], {}),
        ("run", [], place),
    ]
    assert len({name_of(*each, "POLLCONSUMER_") for each in runs}) == len(runs)
    same = [["--queue", "a", "--queue", "b", "--timeout", "9"], ["--queue=b", "--queue=a"]]
    assert len({name_of("run", each, {}, "POLLCONSUMER_") for each in same}) == 1
    assert name_of("run", ["--namespace", "n"], {}, "POLLCONSUMER_") == name_of("run", [], place, "POLLCONSUMER_")
    secrets = [["--store", f"redis://:{secret}@h"] for secret in ("one", "two")]
    assert len({name_of("run", each, {}, "POLLCONSUMER_") for each in secrets}) == 1, "no secret to be guessed from it"


# Real launches


def test_launches_before_a_dead_store_say_so_now_and_then_and_its_end_once(site: Site) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        address = site.directory / "dead"
        listening.bind(str(address))
    command = ("--store", f"unix://{address}", "run", "--timeout", "100ms", "--min-margin", "1ms", "--grace", "3s")
    said = []
    for launch in range(1, 7):
        done = site.command(*command)
        assert done.returncode == 69
        if done.stderr:
            said.append(launch)
            assert done.stderr.count("\n") == 1
            assert done.stderr.startswith("pollconsumer: error: store unreachable: ")
    assert said == [1, 2, 5]
    shown = site.command("-v", *command)
    assert "store unreachable" in shown.stderr
    address.unlink()
    assert site.command("store", "start").returncode == 0
    address.symlink_to(site.json("store", "path")["socket"])
    (site.directory / "handlers.py").write_text("")
    back = ("--store", f"unix://{address}", "run", "--until-empty")
    first, second = site.command(*back), site.command(*back)
    assert (first.returncode, second.returncode) == (0, 0)
    assert [line for line in first.stderr.splitlines() if line.startswith(OVER) and "6 launches, for" in line] != []
    assert OVER not in second.stderr


def test_an_invalid_configuration_is_said_now_and_then_with_its_code_each_time(site: Site) -> None:
    good = (site.directory / "config.toml").read_text()
    (site.directory / "config.toml").write_text("nonsense = 1\n" + good)
    done = [site.command("run") for _ in range(6)]
    assert [each.returncode for each in done] == [78] * 6
    assert [number for number, each in enumerate(done, 1) if each.stderr] == [1, 2, 5]
    assert "nonsense" in site.command("check").stderr
    assert "nonsense" in site.command("check").stderr
    (site.directory / "config.toml").write_text(good)
    over = site.drain().stderr
    assert over.startswith(OVER)
    assert "(failed in 6 launches, for " in over


def test_a_person_at_a_terminal_is_told_every_time(site: Site) -> None:
    command = [sys.executable, "-m", "pollconsumer", "--config", "missing.toml", "run"]
    for _ in range(4):
        with Screen() as screen:
            place: dict[str, Any] = {"cwd": site.directory, "env": site.environment}
            done = subprocess.run(command, **place, stderr=screen.side, check=False, timeout=60)
            assert "missing.toml" in screen.read_rest()
        assert done.returncode == 78


def test_a_person_at_a_terminal_is_told_for_whom_a_launch_waits_and_cron_nothing(site: Site) -> None:
    first = site.start("run")
    site.await_holder(first.pid)
    with Terminal(site) as terminal:
        said = terminal.read_to("\n")
        info, holder = "pollconsumer: info: ", rf"pid {first.pid} on {re.escape(socket.gethostname())}"
        assert re.fullmatch(
            rf"{info}another launch is running \({holder}\); waiting up to [\d.]+m?s for it to end\n", said
        )
        first.terminate()
        assert first.wait(PATIENCE) == 0
        assert terminal.read_to_the_end().startswith(f"{info}started: queues default; runs until ")


def test_a_person_who_interrupts_a_launch_is_told_that_it_ends_with_what_is_in_hand(site: Site) -> None:
    site.enqueue("hold", name="a")
    with Terminal(site) as terminal:
        site.await_note("begin a")
        terminal.interrupt()
        said = terminal.read_to("at once\r\n")
        assert said.endswith(
            "\npollconsumer: stops as soon as what is in flight has ended; Ctrl-C again stops at once\n"
        )
        site.open_gate()
        assert "consumer ended after" in terminal.read_to_the_end()
    assert site.notes() == ["begin a", "end a"]


def test_a_person_at_a_terminal_is_told_what_is_served_each_message_and_a_summary_and_cron_nothing(site: Site) -> None:
    def at_terminal(*options: str) -> str:
        with Terminal(site, *options) as terminal:
            return terminal.read_to_the_end()

    (site.directory / "handlers.py").write_text(
        "import logging\nfrom pollconsumer import PollConsumer\napp = PollConsumer()\n"
        "@app.handler(max_attempts=1)\n"
        "def greet(name): logging.getLogger('theirs').info('no line'); {'b': 1 / (name != 'b')}\n"
    )
    ids = {name: site.enqueue("greet", name=name) for name in "ab"}
    shown = at_terminal()
    info, warning = "pollconsumer: info: ", "pollconsumer: warning: "
    assert re.fullmatch(
        rf"{info}started: queues default; runs until \d\d:\d\d:\d\d\n"
        rf"{info}{ids['a']} \(greet\) completed in [\d.]+m?s\n"
        rf"{warning}dead letter: {ids['b']} \(greet\), attempt 1: ZeroDivisionError: division by zero "
        rf"\(handlers.py:5\)\n"
        rf"  Traceback [^\0]*\n  ZeroDivisionError: division by zero\n"
        rf"{info}consumer ended after [\d.]+m?s \(empty\): 1 completed, 1 failed\n",
        shown,
    )
    site.enqueue("greet", name="a")
    assert at_terminal("-q") == ""
    site.enqueue("greet", name="a")
    assert site.drain().stderr == ""


def test_processes_of_isolated_handlers_and_their_launch_are_one_launch(site: Site) -> None:
    (site.directory / "handlers.py").write_text(
        "from pollconsumer import PollConsumer\napp = PollConsumer()\n"
        "@app.before\ndef note(context): raise ValueError('no')\n"
        "@app.handler\ndef here(): pass\n"
        "@app.handler(isolation='process')\ndef apart(): pass\n"
    )
    told = []
    for _ in range(3):
        for handler in ("here", "apart", "here", "apart"):
            site.enqueue(handler)
        told.append(site.drain().stderr.count("hook before note raised ValueError: no"))
    assert told == [4, 4, 0]
