"""Programs as handlers: what they are given, what becomes of their ends, and that nothing of them is left over."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from pollconsumer.core.retry import Fatal, NotBegun
from pollconsumer.interface.settings.load import ABOUT_MESSAGE, MESSAGE_VARIABLE
from pollconsumer.runtime.children.command import KEPT_BYTES, Command, CommandFailed, Programs
from pollconsumer.runtime.handling.context import LaunchContext
from pollconsumer.runtime.handling.delivery import Delivery, Situation
from pollconsumer.runtime.handling.handler import trace
from pollconsumer.runtime.new_messages import Defaults
from pollconsumer.runtime.session.settlements import MAX_RESULT_BYTES
from pollconsumer.runtime.system.process import birth
from tests.site import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

DELIVERY = Delivery("tests", "mail", "m1", "send", attempt=2, generation=1, fence=7)


def context(delivery: Delivery = DELIVERY) -> LaunchContext:
    return LaunchContext(
        delivery, Situation(lambda began, limit=60.0: began + limit, lambda: False, lambda *_: None, Defaults)
    )


class Run(Protocol):
    def __call__(self, *argv: str, payload: dict[str, Any] | None = None, **options: Any) -> str: ...


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a program to its end and returns what it printed."""

    def run_it(*argv: str, payload: dict[str, Any] | None = None, **options: Any) -> str:
        programs = Programs(tmp_path / "programs", pytest.fail)
        command = Command(argv, programs, **{"directory": tmp_path, "kill_after": 5.0, **options})
        result = command(payload or {}, context())
        assert result["exit_code"] == 0
        assert list((tmp_path / "programs").iterdir()) == []
        output: str = result["output"]
        return output

    return run_it


def python(code: str) -> tuple[str, str, str]:
    return sys.executable, "-c", code


def shell(script: str) -> tuple[str, str, str]:
    return "/bin/sh", "-c", script


def is_gone(pid: int) -> bool:
    return birth(pid) is None


# What it is given


def test_the_payload_is_one_line_of_json_on_standard_input(run: Run) -> None:
    assert run("/bin/cat", payload={"name": "Zoë", "n": [1, {}]}) == '{"name":"Zoë","n":[1,{}]}\n'
    assert run(*shell('read -r line && echo "got $line"'), payload={"a": 1}) == 'got {"a":1}\n'


def test_a_payload_with_half_a_surrogate_pair_is_given_escaped(run: Run) -> None:
    assert run("/bin/cat", payload={"a": "\ud800"}) == '{"a":"\\ud800"}\n'


def test_a_program_that_never_reads_a_large_payload_is_not_waited_for(run: Run) -> None:
    assert run("/bin/true", payload={"a": "x" * (1 << 20)}) == ""
    assert run("/usr/bin/wc", "-c", payload={"a": "x" * (1 << 20)}).strip() == str((1 << 20) + 9)


def test_arguments_are_taken_literally(run: Run) -> None:
    words = ["a b", "*", ";", "$HOME", "`id`", "", "'", "-n"]
    code = "import sys; print(sys.argv[1:])"
    assert run(*python(code), *words) == f"{words}\n"


def test_it_starts_in_its_directory_and_in_a_session_of_its_own(run: Run, tmp_path: Path) -> None:
    assert run("/bin/pwd") == f"{tmp_path}\n"
    assert run("/bin/pwd", directory=Path("/")) == "/\n"
    assert run(*python("import os; print(os.getsid(0) == os.getpid() == os.getpgrp())")) == "True\n"


def environment(output: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in output.splitlines())


def test_the_environment_holds_the_message_and_what_is_allowed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name != "PATH":
            monkeypatch.delenv(name)
    allowed = {"HOME": "/h", "LANG": "C.UTF-8", "LC_TIME": "C", "TZ": "UTC", "XDG_DATA_HOME": "/d", "USER": "u"}
    for name, value in allowed.items():
        monkeypatch.setenv(name, value)
    for name in ("CANARY", "POLLCONSUMER_STORE", "POLLCONSUMER_CONFIG", "LD_PRELOAD_X", "PYTHONPATH"):
        monkeypatch.setenv(name, "canary")
    found = environment(run("/usr/bin/env"))
    assert "canary" not in found.values()
    about = {name: found.pop(name) for name in list(found) if name.startswith("POLLCONSUMER_")}
    assert found == {"PATH": os.environ["PATH"], **allowed}
    assert about.keys() == ABOUT_MESSAGE | {MESSAGE_VARIABLE}
    assert about.pop("POLLCONSUMER_DEADLINE").endswith("Z")
    assert 0 < int(about.pop("POLLCONSUMER_SECONDS_LEFT")) < 60
    assert about == {
        "POLLCONSUMER_MESSAGE_ID": "m1",
        "POLLCONSUMER_HANDLER": "send",
        "POLLCONSUMER_QUEUE": "mail",
        "POLLCONSUMER_ATTEMPT": "2",
        "POLLCONSUMER_GENERATION": "1",
        "POLLCONSUMER_FENCE": "7",
        "POLLCONSUMER_IDEMPOTENCY_KEY": "tests:mail:m1",
    }
    assert environment(run("/usr/bin/env", environment=["CANARY", "NOT_SET"]))["CANARY"] == "canary"


def test_a_timeout_shorter_than_the_window_is_the_deadline(run: Run) -> None:
    assert int(environment(run("/usr/bin/env", timeout=5))["POLLCONSUMER_SECONDS_LEFT"]) < 5
    assert int(environment(run("/usr/bin/env", timeout=500))["POLLCONSUMER_SECONDS_LEFT"]) > 5


def test_it_inherits_nothing_else_that_is_open(run: Run, tmp_path: Path) -> None:
    with (tmp_path / "secret").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        opened = run(*python("import os; print([os.readlink(e.path) for e in os.scandir('/proc/self/fd')])"))
    assert "secret" not in opened


# How it ends


def failure(run: Run, *argv: str, **options: Any) -> CommandFailed:
    with pytest.raises(CommandFailed) as caught:
        run(*argv, **options)
    return caught.value


def test_another_exit_code_is_a_failure_that_shows_the_last_lines(run: Run) -> None:
    assert str(failure(run, *shell("exit 3"))) == "exit code 3"
    failed = failure(run, *shell("seq 1000; echo >&2; echo oh no >&2; exit 3"), fatal=[64])
    assert str(failed) == "exit code 3: oh no"
    assert trace(failed).splitlines() == [*map(str, range(982, 1001)), "oh no"]
    assert trace(failure(run, *shell("echo oh no; exit 3"))) == ""  # its text has that
    assert not isinstance(failed, Fatal)


def test_an_exit_code_that_is_named_fatal_is(run: Run) -> None:
    failed = failure(run, *shell("echo gone for good; exit 64"), fatal=[3, 64])
    assert isinstance(failed, Fatal)
    assert str(failed) == "exit code 64: gone for good"


def test_a_signal_is_named(run: Run) -> None:
    assert str(failure(run, *shell("echo last line; kill -SEGV $$"))) == "killed by SIGSEGV: last line"
    assert str(failure(run, *shell(f"kill -{signal.SIGRTMIN + 3} $$"))) == f"killed by signal {signal.SIGRTMIN + 3}"


def test_an_exit_that_something_else_waited_for_is_no_success(run: Run) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert "exit code unknown" in str(failure(run, "/bin/true"))
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_program_that_cannot_be_started_fails_and_leaves_no_descriptor(run: Run, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("no interpreter is named")
    script.chmod(0o700)
    before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208  names are enough
    assert str(failure(run, str(script))) == f"cannot start {script}: Exec format error"
    assert str(failure(run, "/nowhere/x")) == "cannot start /nowhere/x: No such file or directory"
    assert "cannot start" in str(failure(run, "/bin/true", directory=Path("/nowhere")))
    run("/bin/true")
    assert set(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_a_program_that_the_system_refuses_to_start_has_not_begun(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "_fork_exec", refuse)
    with pytest.raises(NotBegun, match=r"^cannot start a process: .*ulimit|no limit"):
        run("/bin/true")


def test_systems_without_descriptors_for_processes_and_memory_do_as_well(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    monkeypatch.delattr(os, "memfd_create")
    assert run("/bin/cat", payload={"a": "x" * 100_000}).endswith('x"}\n')
    assert "exit code 3: oh" in str(failure(run, *shell("sleep 0.1; echo oh; exit 3")))
    assert "timeout" in str(failure(run, "/bin/sleep", "60", timeout=0.05))


# Its output


def test_of_long_output_the_first_and_the_last_is_kept(run: Run) -> None:
    output = run(*shell("echo first; head -c 100000000 /dev/zero | tr '\\0' x; echo; echo last"))
    assert output.startswith("first\nxxx")
    assert output.endswith("xxx\nlast\n")
    assert f"\n[{100_000_012 - 2 * KEPT_BYTES} bytes left out]\n" in output
    assert len(output) < 2 * KEPT_BYTES + 100


def test_output_that_just_fits_is_whole(run: Run) -> None:
    assert run(*python(f"print('é' * {KEPT_BYTES - 1}, end='x')")) == "é" * (KEPT_BYTES - 1) + "x"


def test_output_that_is_no_text_becomes_some(run: Run) -> None:
    assert run("/bin/printf", r"a\377\000b") == "a\ufffd\0b"


@pytest.mark.parametrize(("byte", "size"), [(0, 40_000), (0, 9_000), (255, 40_000)])
def test_binary_output_is_kept_as_far_as_a_result_may_be_long(run: Run, byte: int, size: int) -> None:
    program = f"import sys; sys.stdout.buffer.write(b'head' + bytes([{byte}]) * {size})"
    output = run(sys.executable, "-c", program)
    assert len(json.dumps({"exit_code": 0, "output": output}, ensure_ascii=False).encode()) <= MAX_RESULT_BYTES
    assert output.startswith("head" + bytes([byte]).decode("utf-8", "replace"))
    assert size < 16_000 or " bytes left out]" in output


def test_a_process_left_behind_that_holds_the_output_open_is_not_waited_for(run: Run) -> None:
    pid = int(run(*shell("sleep 60 & echo $!")))
    assert not is_gone(pid)
    os.kill(pid, signal.SIGKILL)


def test_a_process_left_behind_that_prints_for_ever_is_not_listened_to(run: Run, tmp_path: Path) -> None:
    assert "bytes left out" in run(*shell("yes & echo $! > child; sleep 0.1"))
    wait_until(lambda: is_gone(int((tmp_path / "child").read_text())), "its end by SIGPIPE")


# Its timeout


def test_a_timeout_ends_the_program_and_what_it_has_started(run: Run, tmp_path: Path) -> None:
    script = "sleep 60 & echo $! > child; echo waiting; wait"
    assert str(failure(run, *shell(script), timeout=0.5)) == (
        "ran longer than its limit of 500ms, from its timeout or consumer.handler_limit: waiting"
    )
    wait_until(lambda: is_gone(int((tmp_path / "child").read_text())), "the child's end")


def test_a_program_may_tidy_up_at_its_timeout(run: Run, tmp_path: Path) -> None:
    script = "trap 'echo tidy > tidied; exit 0' TERM; sleep 60 & wait"
    assert "timeout" in str(failure(run, *shell(script), timeout=0.5))
    assert (tmp_path / "tidied").exists()


def test_a_program_that_does_not_end_at_its_timeout_is_killed_with_its_children(run: Run, tmp_path: Path) -> None:
    script = "trap '' TERM; sleep 60 & echo $! > child; echo $$ > leader; wait; sleep 60"
    assert "timeout" in str(failure(run, *shell(script), timeout=0.5, kill_after=0.2, fatal=[1]))
    for name in ("child", "leader"):
        pid = int((tmp_path / name).read_text())
        wait_until(lambda pid=pid: is_gone(pid), f"the end of {name}")  # type: ignore[misc]


def test_a_child_that_ignores_the_signal_dies_though_its_parent_obeyed(run: Run, tmp_path: Path) -> None:
    script = "(trap '' TERM; echo ready; sleep 60; sleep 60) & echo $! > child; wait"
    assert "timeout" in str(failure(run, *shell(script), timeout=0.5, kill_after=0.2))
    wait_until(lambda: is_gone(int((tmp_path / "child").read_text())), "the child's end")


# What a launch leaves behind

LAUNCH = """
import sys, time
from pathlib import Path
from pollconsumer.runtime.children.command import Command
from pollconsumer.runtime.children.command import Programs
from tests.runtime.test_commands import DELIVERY, context
place = Path(sys.argv[1])
delivery = DELIVERY._replace(fence=int(sys.argv[2]))
programs = Programs(place / "programs", print)
Command(("/bin/sh", "-c", sys.argv[3]), programs, directory=place, kill_after=5.0)({}, context(delivery))
"""


class Launches:
    """Launches without a heartbeat, whose programs therefore outlive them."""

    def __init__(self, place: Path) -> None:
        self.place, self.warnings = place, list[str]()
        self.programs = Programs(place / "programs", self.warnings.append)
        self._launches: list[subprocess.Popen[bytes]] = []

    def start(self, script: str, *, fence: int = 7) -> tuple[subprocess.Popen[bytes], int]:
        """A launch and the program that it runs."""
        pid = self.place / "pid"
        pid.unlink(missing_ok=True)
        argv = [sys.executable, "-c", LAUNCH, str(self.place), str(fence), f"echo $$ > pid.; mv pid. pid; {script}"]
        launch = subprocess.Popen(argv, cwd=Path(__file__).parents[2])
        self._launches.append(launch)
        wait_until(pid.exists, "the program's start")
        wait_until(lambda: b"]\n" in b"".join(path.read_bytes() for path in self.notes()), "its note")
        return launch, int(pid.read_text())

    def notes(self) -> list[Path]:
        return [path for path in (self.place / "programs").glob("[!.]*") if path.read_bytes().count(b"\n") == 2]

    def close(self) -> None:
        for launch in self._launches:
            with suppress(ProcessLookupError):
                launch.send_signal(signal.SIGCONT)
            launch.kill()
            launch.wait()
        self.programs.clear()


@pytest.fixture
def launches(tmp_path: Path) -> Any:
    launches = Launches(tmp_path)
    yield launches
    launches.close()


def test_the_program_of_a_launch_that_is_gone_is_reported_and_killed(launches: Launches) -> None:
    launch, program = launches.start("sleep 60")
    launch.kill()
    launch.wait()
    assert not is_gone(program)
    launches.programs.clear()
    assert is_gone(program)
    (warning,) = launches.warnings
    assert warning.startswith(f"program of message m1 still running: pid {program}; killed")
    assert launches.notes() == []


def test_a_launch_that_died_without_having_been_waited_for_is_gone_too(launches: Launches) -> None:
    launch, program = launches.start("sleep 60")
    launch.kill()
    os.waitid(os.P_PID, launch.pid, os.WEXITED | os.WNOWAIT)
    launches.programs.clear()
    assert is_gone(program)


def test_the_program_of_a_launch_that_lives_is_left_alone(launches: Launches) -> None:
    _, program = launches.start("sleep 60")
    launches.programs.clear()
    assert not is_gone(program)
    assert launches.warnings == []


def test_a_survivor_is_killed_before_its_message_is_handled_again(launches: Launches) -> None:
    launch, program = launches.start("sleep 60")
    launch.kill()
    launch.wait()
    note = launches.programs.begin(DELIVERY._replace(id="another"))
    assert not is_gone(program)
    note.close()
    launches.programs.begin(DELIVERY._replace(fence=6)).close()
    assert is_gone(program)


def test_what_a_killed_program_has_started_is_a_survivor_too(launches: Launches) -> None:
    launch, program = launches.start("sleep 60 & echo $! > child.; mv child. child; wait")
    wait_until((launches.place / "child").exists, "the child's start")
    child = int((launches.place / "child").read_text())
    launch.kill()
    launch.wait()
    os.kill(program, signal.SIGKILL)
    wait_until(lambda: is_gone(program), "the program's end")
    launches.programs.begin(DELIVERY).close()
    wait_until(lambda: is_gone(child), "the child's end")


def test_the_program_of_a_suspended_launch_that_lost_its_message_is_killed(launches: Launches) -> None:
    launch, program = launches.start("sleep 60", fence=7)
    launch.send_signal(signal.SIGSTOP)
    launches.programs.begin(DELIVERY._replace(fence=8)).close()
    wait_until(lambda: is_gone(program), "the program's end")


def test_a_launch_that_was_suspended_does_not_kill_the_program_of_its_successor(launches: Launches) -> None:
    _, program = launches.start("sleep 60", fence=8)
    with pytest.raises(Exception, match="another launch handles it"):
        launches.programs.begin(DELIVERY._replace(fence=7))
    assert not is_gone(program)
    assert len(launches.notes()) == 1


def rewrite(launches: Launches, change: Callable[[str], str]) -> None:
    (note,) = launches.notes()
    note.write_text(change(note.read_text()))


def test_the_program_of_a_launch_that_died_before_it_recorded_it_is_killed_and_no_reader_of_its_note(
    launches: Launches,
) -> None:
    launch, program = launches.start("sleep 60")
    launch.kill()
    launch.wait()
    rewrite(launches, lambda text: text.partition("\n")[0] + "\n")
    (note,) = (launches.place / "programs").glob("[!.]*")
    with note.open("rb") as opened:
        reader = subprocess.Popen(["/bin/sleep", "60"], stdin=opened, start_new_session=True)
    try:
        launches.programs.begin(DELIVERY).close()
        assert is_gone(program)
        assert reader.poll() is None
    finally:
        reader.kill()
        reader.wait()


def test_a_process_that_has_only_the_number_of_a_program_is_not_killed(launches: Launches) -> None:
    launch, program = launches.start("exec sleep 60")
    launch.kill()
    launch.wait()
    time.sleep(2 / os.sysconf("SC_CLK_TCK"))  # what tells one from the other is the tick in which it was started
    innocent = subprocess.Popen(["/bin/sleep", "60"], start_new_session=True)
    try:
        rewrite(launches, lambda text: text.replace(f"[{program},", f"[{innocent.pid},"))
        with pytest.raises(Exception, match="program of an earlier attempt"):
            # The lock is held by somebody, so the message must wait; but whose it is, nobody knows.
            Programs(launches.place / "programs", launches.warnings.append).begin(DELIVERY)
        os.kill(program, signal.SIGKILL)
        wait_until(lambda: is_gone(program), "the program's end")
        launches.programs.clear()
        assert innocent.poll() is None
        assert launches.notes() == []
    finally:
        innocent.kill()
        innocent.wait()


def test_a_program_that_closed_what_it_inherited_is_known_by_its_birth(launches: Launches) -> None:
    launch, program = launches.start('for n in 3 4 5 6 7 8 9; do eval "exec $n>&-"; done; echo > closed; sleep 60 >&-')
    wait_until((launches.place / "closed").exists, "the closing")
    launch.kill()
    launch.wait()
    launches.programs.begin(DELIVERY).close()
    assert is_gone(program)


def test_a_note_that_is_none_harms_nobody(tmp_path: Path) -> None:
    programs = Programs(tmp_path, pytest.fail)
    note = programs.begin(DELIVERY)
    assert note.path is not None
    for n, text in enumerate(["", "{}\n", "[]\n\n", '{"message": 1, "fence": "x", "launch": 3}\n\n', "\0"]):
        note.path.with_suffix(f".{n}").write_text(text)
    programs.clear()
    programs.begin(DELIVERY._replace(id="another")).close()
    note.close()


@pytest.mark.parametrize("how", ["file", "open"])
def test_where_notes_cannot_be_kept_programs_run_without_after_one_warning(tmp_path: Path, how: str) -> None:
    place, warnings = tmp_path / "programs", list[str]()
    if how == "file":
        place.touch()
    else:
        place.mkdir()
        place.chmod(0o777)
    programs = Programs(place, warnings.append)
    programs.clear()
    for _ in range(2):
        Command(("/bin/true",), programs, directory=tmp_path, kill_after=5.0)({}, context())
    programs.clear(os.getpid())
    assert len(warnings) == 1
    assert "cannot be noted" in warnings[0]
