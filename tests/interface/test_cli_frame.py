"""The frame of the command line: one line for each thing that a user can do wrong, exact codes, and a quiet end."""

from __future__ import annotations

import io
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click
import pytest

from pollconsumer.core.choices import HandOff, Missed, Overlap
from pollconsumer.core.errors import BadData, StoreUnreachable
from pollconsumer.core.notation.instants import ago, iso
from pollconsumer.interface import cli
from pollconsumer.interface.cli import group
from pollconsumer.interface.cli.messages.recurrences import add
from pollconsumer.interface.cli.output import print_json, print_table
from pollconsumer.interface.cli.types import CRON, DUE_TIME, MEMORY_SIZE, QUEUE_NAME, Duration, Once, WordType
from pollconsumer.interface.logs import logs
from tests.leaving_out import long
from tests.short_directory import short_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LINE = "pollconsumer: error: "
GROUPS = ("store", "queue", "dead", "lease", "recurrences", "batch")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [name for name in os.environ if name.startswith("POLLCONSUMER_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.toml").touch()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    yield
    logs.configure()


@pytest.fixture
def doing(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], None]:
    """Makes a command ``example``, with an option of each kind, do what it is given."""
    action: list[Callable[[], Any]] = []

    @click.command()
    @click.argument("word", default="")
    @click.option("--timeout", cls=Once, type=Duration(positive=True))
    @click.option("--in", "in_", cls=Once, type=Duration())
    @click.option("--at", cls=Once, type=DUE_TIME)
    @click.option("--schedule", cls=Once, type=CRON)
    @click.option("--queue", multiple=True, type=QUEUE_NAME)
    @click.option("--memory-limit", cls=Once, type=MEMORY_SIZE)
    @click.option("--concurrency", cls=Once, type=click.IntRange(1, 256), default=1)
    @click.option("--priority", cls=Once, type=click.IntRange(-4096, 4096))
    @click.option("--limit", cls=Once, type=click.IntRange(1))
    @click.option("--handoff", cls=Once, type=WordType(HandOff))
    @click.option("--json", "as_json", is_flag=True)
    def example(**values: Any) -> Any:
        return action[-1]() if action else click.echo(json.dumps(values))

    module = ModuleType("example")
    module.example = example  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pollconsumer.interface.cli.example", module)
    monkeypatch.setitem(group.COMMANDS, "example", ("interface.cli.example:example", "An example."))
    return action.append


def process(*arguments: str, **keywords: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pollconsumer", *arguments]
    return subprocess.run(command, text=True, timeout=30, check=False, **keywords)


# Usage


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-v"], "missing argument: COMMAND; see 'pollconsumer --help'"),
        (["exampel"], "unknown command: exampel; did you mean example?"),
        (["zzz"], "unknown command: zzz; see 'pollconsumer --help'"),
        (["store", "strat"], "unknown command: strat; did you mean start?"),
        (["store", "-v"], "missing argument: COMMAND; see 'pollconsumer store --help'"),
        (["example", "--concurency", "4"], "unknown option: --concurency; did you mean --concurrency?"),
        (["example", "--zzz"], "unknown option: --zzz; see 'pollconsumer example --help'"),
        (["--stroe", "x", "example"], "unknown option: --stroe; did you mean --store?"),
        (["example", "--timeout", "1", "--timeout", "2"], "--timeout: given twice; give it once"),
        (["--store", "embedded", "--store", "embedded", "example"], "--store: given twice; give it once"),
        (["example", "--timeout", "0"], "--timeout: 0; must be > 0"),
        (["example", "--timeout", "-5s"], "--timeout: -5s; must be > 0"),
        (["example", "--in", "-5s"], "--in: -5s; must be 0 or more"),
        (["example", "--timeout", "5 minutes ago"], "--timeout: 5 minutes ago; unknown unit: units are ms, s, m, h, d"),
        (["example", "--timeout", "nan"], "--timeout: nan; must be 0 or more, and finite"),
        (["example", "--timeout", ""], "--timeout: empty; unknown unit"),
        (["example", "--timeout"], "--timeout: requires an argument;"),
        (["example", "--json=1"], "--json: does not take a value;"),
        (["example", "--concurrency", "0"], "--concurrency: 0; must be 1-256"),
        (["example", "--concurrency", "100000"], "--concurrency: 100000; must be 1-256"),
        (["example", "--concurrency", "x"], "--concurrency: 'x'; must be a whole number, 1-256"),
        (["example", "--concurrency", "1e3"], "--concurrency: '1e3'; must be a whole number, 1-256"),
        (["example", "--priority", "4097"], "--priority: 4097; must be from -4096 to 4096"),
        (["example", "--priority", "high"], "--priority: 'high'; must be a whole number, from -4096 to 4096"),
        (["example", "--limit", "0"], "--limit: 0; must be 1-1000000000"),
        (["example", "--handoff", "x"], "--handoff: 'x'; must be one of 'deadline', 'baton'"),
        (["example", "--queue", ""], "--queue: empty; empty name"),
        (["example", "--queue", "a\nb"], "--queue: a\\nb; use 1 to 64 of the characters"),
        (["example", "--queue", "q" * 65], "q; use 1 to 64"),
        (["example", "--at", "2030-01-31T09:00:00"], "--at: 2030-01-31T09:00:00; needs an offset or Z"),
        (["example", "--at", "2030-01-31"], "needs an offset or Z"),
        (["example", "--at", "soon"], "--at: soon; write ISO 8601 with an offset or Z"),
        (["example", "--at", "10000-01-01T00:00:00Z"], "must not be beyond year 9999"),
        (["example", "--at", "9999-12-31T23:59:59-05:00"], "must not be beyond year 9999"),
        (["example", "--at", "9999-12-31T23:59:59.9999999Z"], "must not be beyond year 9999"),
        (["example", "--schedule", "61 * * * *"], "--schedule: 61 * * * *; minute must be 0-59, field 1"),
        (["example", "--schedule", "@reboot"], "--schedule: @reboot; @reboot names no time, write five fields"),
        (["example", "--memory-limit", "lots"], "--memory-limit: lots; write bytes or a unit"),
        (["example", "one", "two"], "unexpected argument: two;"),
        (["example", "one", "redis://:secret@h"], "unexpected argument: redis://***@h;"),
        (["--namespace", "", "example"], "--namespace: empty; empty name"),
        (["-v", "-q", "example"], "-q: -v; give one of them"),
    ],
)
@pytest.mark.usefixtures("doing")
def test_a_usage_that_cannot_be_meant_is_one_line_and_code_2(
    arguments: list[str], message: str, run: Callable[..., tuple[int, str, str]]
) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith(LINE)
    assert err.count("\n") == 1
    assert message in err
    assert "; " in err


@pytest.mark.parametrize("arguments", [["run", "slow"], ["run", "-q", "slow"], ["list", "slow"]])
def test_a_queue_that_is_given_as_an_argument_is_refused_with_its_option(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 2
    said = "pollconsumer: error: unexpected argument: slow; a queue is given as --queue slow; "
    assert capsys.readouterr().err == f"{said}see 'pollconsumer {arguments[0]} --help'\n"


def test_a_payload_in_several_words_is_refused_with_the_form_of_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["enqueue", "quote", "name=x", "amount=1"]) == 2
    said = 'unexpected argument: amount=1; the payload is one JSON object: write \'{"name": "x"}\''
    assert capsys.readouterr().err == f"pollconsumer: error: {said}\n"


@pytest.mark.parametrize("arguments", [[], *([name] for name in GROUPS)], ids=str)
def test_who_names_no_command_gets_the_help_and_code_2(
    arguments: list[str], run: Callable[..., tuple[int, str, str]]
) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err == run(*arguments, "--help")[1]


@pytest.mark.usefixtures("doing")
def test_verbosity_and_help_are_asked_for_before_and_after_a_command(run: Callable[..., tuple[int, str, str]]) -> None:
    for arguments, level in ((["-v", "example"], 20), (["example", "-vv"], 10), (["example", "-q"], 40)):
        assert run(*arguments)[0] == 0
        assert logs.log.level == level, arguments
    assert run("-v", "example", "-q") == (2, "", f"{LINE}-q: -v; give one of them\n")
    shown = run("example", "--help")
    assert shown[0] == 0
    assert run("example", "-h") == run("help", "example") == shown
    assert run("help") == run("-h") == run("--help")


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        (["--timeout", "1m30s"], "timeout", 90.0),
        (["--timeout", "500ms"], "timeout", 0.5),
        (["--in", "0"], "in_", 0.0),
        (["--at", "1970-01-01T00:00:00Z"], "at", 1),
        (["--at", "0001-01-01T00:00:00+14:00"], "at", 1),
        (["--at", "1970-01-01T01:00:00.0001+01:00"], "at", 1),
        (["--at", "1970-01-01T00:00:00.0010000001Z"], "at", 2),
        (["--at", "9999-12-31T23:59:59.999Z"], "at", 253_402_300_799_999),
        (["--schedule", "*/5 * * * *"], "schedule", "*/5 * * * *"),
        (["--queue", "a", "--queue", "b"], "queue", ["a", "b"]),
        (["--memory-limit", "256MB"], "memory_limit", 256_000_000),
        ([], "concurrency", 1),
        (["--concurrency", "4"], "concurrency", 4),
        ([], "timeout", None),
    ],
)
@pytest.mark.usefixtures("doing")
def test_values_are_read(
    arguments: list[str], name: str, value: object, run: Callable[..., tuple[int, str, str]]
) -> None:
    code, out, err = run("example", *arguments)
    assert (code, err) == (0, "")
    assert json.loads(out)[name] == value


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--config", "missing.toml", "store", "start"], 78),
        (["--config", ".", "store", "start"], 78),
        (["--store", "http://h", "store", "start"], 78),
        (["--store", "redis://:secret@h:99999", "store", "start"], 78),
        (["--store", "redis://:secret@redis..svc", "store", "start"], 78),
        (["--store", "redis://:secret@redis%2e%2esvc", "store", "start"], 78),
        (["--store", f"redis://:secret@{'x' * 64}.svc", "store", "start"], 78),
        (["--store", "redis+sentinel://h", "store", "start"], 78),
    ],
)
def test_a_configuration_that_cannot_be_meant_is_one_line_and_code_78(
    arguments: list[str], code: int, run: Callable[..., tuple[int, str, str]]
) -> None:
    found, out, err = run(*arguments)
    assert (found, out, err.count("\n")) == (code, "", 1)
    assert "secret" not in err


# Ends


def raising(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


@pytest.mark.parametrize("command", ["run", "move", "check"])
def test_a_command_in_a_directory_that_is_gone_is_one_line_and_code_78(
    run: Any, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    reason = "current directory: No such file or directory; start in one that exists\n"
    assert run(command) == (78, "", f"{LINE}{reason}")


def test_an_error_of_ours_is_one_line_and_its_code(run: Any, doing: Callable[[Any], None]) -> None:
    doing(raising(BadData("payload", "{\n", "write JSON")))
    assert run("example") == (65, "", f"{LINE}payload: {{\\n; write JSON\n")
    doing(raising(StoreUnreachable("store", "down\x1b[31m", "start it")))
    assert run("-q", "example") == (69, "", f"{LINE}store: down\\x1b[31m; start it\n")


def test_a_command_may_return_its_code(run: Any, doing: Callable[[Any], None]) -> None:
    doing(lambda: 75)
    assert run("example") == (75, "", "")
    doing(lambda: click.get_current_context().exit(3))
    assert run("example") == (3, "", "")


def test_an_interrupt_is_130_without_a_word(run: Any, doing: Callable[[Any], None]) -> None:
    doing(raising(KeyboardInterrupt()))
    assert run("example") == (130, "", "")


def test_an_interrupted_question_is_130(run: Any, doing: Callable[[Any], None]) -> None:
    def act() -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            raise click.Abort from None  # as click.confirm does

    doing(act)
    assert run("example") == (130, "", "")


def test_a_question_without_an_answer_asks_for_the_flag(
    run: Any, doing: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    doing(lambda: click.confirm("sure?", abort=True, err=True))
    for answer in ("", "n\n"):
        monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
        code, _, err = run("example")
        assert code == 2
        assert err.endswith("not confirmed; answer y, or give --yes\n")


def test_a_bug_of_ours_is_raised_for_its_traceback(run: Any, doing: Callable[[Any], None]) -> None:
    doing(raising(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        run("example")
    doing(raising(BrokenPipeError()))  # of something else than the output
    with pytest.raises(BrokenPipeError):
        run("example")


def test_the_module_exits_with_the_code_and_success_prints_nothing_else() -> None:
    assert process("rnu", capture_output=True).returncode == 2
    done = process("store", "status", capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "stopped\n", "")


@pytest.mark.parametrize(
    ("arguments", "unbuffered"),
    [
        (["--help"], ""),
        long(["--help"], "1"),
        long(["store", "path"], ""),
        (["store", "path"], "1"),
        (["store", "status", "--json"], ""),
        long(["store", "status", "--json"], "1"),
    ],
)
def test_a_reader_who_left_ends_it_quietly(
    arguments: list[str], unbuffered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = process(*arguments, stdout=write_end, stderr=subprocess.PIPE)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "unbuffered"),
    [(["--help"], ""), long(["--help"], "1"), long(["store", "path"], ""), (["store", "path"], "1")],
)
def test_a_full_output_is_an_error(arguments: list[str], unbuffered: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = process(*arguments, stdout=full, stderr=subprocess.PIPE)
        assert done.returncode == 73
        assert done.stderr == f"{LINE}standard output: No space left on device; check where it goes\n"
        assert process(*arguments, stdout=full, stderr=full).returncode == 73
        assert process("rnu", stderr=full).returncode == 2


@pytest.mark.parametrize(
    ("closed", "arguments", "code"),
    [
        (">&-", "store path", 0),
        ("2>&-", "rnu", 2),
        ("<&- >&- 2>&-", "store path", 0),
        ("<&- >&- 2>&-", "rnu", 2),
    ],
)
def test_closed_descriptors_do_no_harm(closed: str, arguments: str, code: int) -> None:
    script = f"'{sys.executable}' -m pollconsumer {arguments} {closed}"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


@pytest.mark.parametrize(
    ("arguments", "number", "code"),
    [
        (["run"], signal.SIGTERM, 0),
        (["--config", "run", "-v", "move"], signal.SIGTERM, 0),
        (["enqueue", "run"], signal.SIGTERM, -signal.SIGTERM),
        (["--config", "run", "enqueue"], signal.SIGTERM, -signal.SIGTERM),
        (["run"], signal.SIGHUP, 0),
        (["run"], signal.SIGINT, 130),
    ],
)
def test_a_signal_during_the_imports_ends_a_launch_at_once(
    arguments: list[str], number: int, code: int, tmp_path: Path
) -> None:
    # Python looks for signals before it waits, not as it begins to: in one long wait, one could be overlooked.
    waiting = "for _ in range(3000):\n    time.sleep(0.01)\n"
    (tmp_path / "logging.py").write_text(f"import time\nprint(flush=True)\n{waiting}")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "pollconsumer", *arguments]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True) as launch:
        assert launch.stdout is not None
        launch.stdout.readline()
        began = time.monotonic()
        launch.send_signal(number)
        _, err = launch.communicate(timeout=90)
    assert (launch.returncode, err) == (code, "")
    assert time.monotonic() - began < 1


def test_ctrl_c_before_the_command_is_known_prints_nothing(tmp_path: Path) -> None:
    """At the first import after a signal has a handler; before, it is the interpreter's."""
    (tmp_path / "sitecustomize.py").write_text(
        "import __future__, errno, os, sys\n"
        "class Interrupting:\n"
        "    reached = False\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if self.reached:\n"
        "            os.kill(os.getpid(), 2)\n"
        "        self.reached = name == 'pollconsumer.__main__'\n"
        "        if self.reached:\n"
        "            sys.modules.pop('signal', None), sys.modules.pop('typing', None)\n"
        "sys.meta_path.insert(0, Interrupting())\n"
    )
    command = [sys.executable, "-c", "from pollconsumer.__main__ import main; main()", "status"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "")


INTERRUPTED_IN_A_FINALISER = """
import os, sys

class Finalised:
    def __del__(self):
        os.kill(os.getpid(), 2)
        [None for _ in range(100)]

class Interrupting:
    def find_spec(self, name, path, target=None):
        if name == os.environ["AT"]:
            Finalised()

sys.meta_path.insert(0, Interrupting())
"""
INTERRUPTED_AT_A_RETURN = """
import os, sys

def profile(frame, event, _):
    at = frame.f_code.co_filename.rpartition("/")[2], frame.f_code.co_name
    if event == "return" and ":".join(at) == os.environ["AT"]:
        os.kill(os.getpid(), 2)

sys.setprofile(profile)
"""


def interrupted(directory: Path, program: str, at: str) -> subprocess.CompletedProcess[str]:
    """A command that prints a line, interrupted at one instant: the program is imported when the interpreter starts.
    What comes while it imports other modules that are installed, before ours, is the interpreter's to say."""
    (directory / "sitecustomize.py").write_text(program)
    command = [sys.executable, "-c", "from pollconsumer.__main__ import main; main()", "store", "path"]
    environment = {**os.environ, "PYTHONPATH": str(directory), "AT": at}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "module",
    [
        "pollconsumer.interface.cli",
        "click",
        "pollconsumer.interface.cli.installation.store",
        "pollconsumer.runtime.embedded.directory",
    ],
)
def test_ctrl_c_where_python_would_print_and_ignore_it_ends_a_command(module: str, tmp_path: Path) -> None:
    """The last one is imported by the command itself."""
    done = interrupted(tmp_path, INTERRUPTED_IN_A_FINALISER, module)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("at", ["group.py:invoke", "__init__.py:main", "__main__.py:_ran"])
def test_ctrl_c_after_a_command_has_printed_its_results_prints_nothing(at: str, tmp_path: Path) -> None:
    done = interrupted(tmp_path, INTERRUPTED_AT_A_RETURN, at)
    assert (done.returncode, done.stdout.count("\n"), done.stderr) == (130, 1, "")


def test_ctrl_c_while_a_command_leaves_changes_neither_its_code_nor_what_it_prints(tmp_path: Path) -> None:
    done = interrupted(tmp_path, INTERRUPTED_AT_A_RETURN, "watchdog.py:_limit_exit")
    assert (done.returncode, done.stdout.count("\n"), done.stderr) == (0, 1, "")


@pytest.mark.parametrize("command", ["run", "status"])
def test_a_limit_of_open_files_with_which_nothing_works_is_named(command: str) -> None:
    script = f"ulimit -n 6; exec {sys.executable} -m pollconsumer {command}"
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 78
    assert done.stderr.startswith("pollconsumer: error: most open files: 6; ")
    assert done.stderr.endswith(" (ulimit -n)\n")
    assert done.stderr.count("\n") == 1


# Help and start


def test_help_lists_every_command_without_importing_any() -> None:
    script = (
        "import sys; from pollconsumer.interface.cli import main; main(['--help'])\n"
        "SLOW = 'pollconsumer.store.client.wire', 'pollconsumer.store.reading', 'redis', 'pydantic'\n"
        "print([name for name in sys.modules if name.startswith(SLOW)])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    for name in ("run", "move", "enqueue", "status", "list", "launches", "lease", "check", "store"):
        assert f"\n  {name} " in done.stdout


WITHOUT_GENERIC_TYPES = """
import importlib, pkgutil

import click

from pollconsumer.interface import cli


class ParamType(click.ParamType):
    def __class_getitem__(cls, _):
        raise TypeError("type 'ParamType' is not subscriptable")


click.ParamType = ParamType
for module in pkgutil.walk_packages(cli.__path__, f"{cli.__name__}."):
    importlib.import_module(module.name)
from pollconsumer.interface.cli.group import COMMANDS

for place, _ in COMMANDS.values():
    importlib.import_module(f"pollconsumer.{place.partition(':')[0]}")
"""


def test_no_module_needs_the_generic_types_that_the_lowest_click_lacks() -> None:
    subprocess.run([sys.executable, "-c", WITHOUT_GENERIC_TYPES], check=True)


def test_the_version_is_shown(run: Any) -> None:
    assert run("--version") == (0, "pollconsumer 1.0.0\n", "")


def test_help_of_a_command_needs_no_valid_configuration(run: Any, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("x =")
    assert run("store", "start", "--help")[0] == 0


@pytest.fixture
def data_home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where an embedded server may live, however long the path of pytest's directories."""
    directory = short_directory()
    monkeypatch.setenv("XDG_DATA_HOME", str(directory))
    yield directory
    shutil.rmtree(directory)


def test_the_path_of_the_embedded_server_is_printed(run: Any, data_home: Path) -> None:
    directory = str(data_home / "pollconsumer")
    assert run("store", "path") == (0, f"{directory}\n", "")
    found = json.loads(run("store", "path", "--json")[1])
    assert found.keys() == {"directory", "socket", "log", "url"}
    assert found["directory"] == directory


@pytest.mark.usefixtures("data_home")
def test_the_embedded_server_is_started_shown_and_stopped_without_a_word(run: Any) -> None:
    assert run("store", "status") == (0, "stopped\n", "")
    assert json.loads(run("store", "status", "--json")[1]) == {"running": False}
    try:
        assert run("store", "start") == (0, "", "")
        assert run("store", "start") == (0, "", "")
        found = json.loads(run("store", "status", "--json")[1])
        assert (found["running"], found["durability"]) == (True, "everysec")
        assert run("store", "status")[1].startswith("running ")
    finally:
        assert run("store", "stop") == (0, "", "")
    assert run("store", "stop") == (0, "", "")
    assert run("store", "status") == (0, "stopped\n", "")


@pytest.mark.parametrize("asked", [["start"], ["status"], ["status", "--json"]])
def test_the_embedded_server_is_neither_started_nor_shown_where_the_store_is_another(
    run: Any, data_home: Path, asked: list[str]
) -> None:
    code, shown, said = run("--store", "redis://:secret@h:1/0", "store", *asked)
    assert (code, shown) == (78, "")
    assert said == (
        "pollconsumer: error: store: redis://***@h:1/0; that server is yours to start: 'pollconsumer check' reads from "
        "it; without store, the embedded one is used\n"
    )
    assert not (data_home / "pollconsumer").exists()
    assert run("--store", "redis://h:1/0", "store", "stop") == (0, "", ""), "one that a setting of before started"


# Logs and output


@pytest.mark.parametrize(
    ("flags", "levels"),
    [
        ([], ["warning", "error"]),
        (["-v"], ["info", "warning", "error"]),
        (["-vv"], ["debug", "info", "warning", "error"]),
        (["-q"], ["error"]),
    ],
)
def test_flags_choose_what_is_logged(
    flags: list[str], levels: list[str], run: Any, doing: Callable[[Any], None]
) -> None:
    def act() -> None:
        for level in ("debug", "info", "warning", "error"):
            getattr(logs.log, level)("said %s", "it")

    doing(act)
    code, out, err = run(*flags, "example")
    assert (code, out) == (0, "")
    assert err.splitlines() == [f"pollconsumer: {level}: said it" for level in levels]


def test_a_record_is_one_line_whatever_stands_in_it(run: Any, doing: Callable[[Any], None]) -> None:
    def act() -> None:
        logs.log.warning("a\nb\r\x1b[31m\u202e\udc80 é")
        try:
            raise ValueError("two\nlines")
        except ValueError:
            logs.log.exception("failed")

    doing(act)
    assert run("example")[2].splitlines() == [
        "pollconsumer: warning: a\\nb\\r\\x1b[31m\\u202e\\udc80 é",
        "pollconsumer: error: failed: ValueError: two\\nlines",
    ]


def test_a_record_whose_arguments_do_not_fit_is_printed_without_them(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure()
    handler = next(each for each in logging.getLogger().handlers if type(each).__module__ == logs.__name__)
    handler.handle(logging.LogRecord("x", logging.WARNING, "x.py", 1, "%d", ("no number",), None))
    assert capsys.readouterr().err == "pollconsumer: warning: %d\n"


def test_logging_to_an_error_output_that_is_closed_or_gone_does_not_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123
        monkeypatch.setattr(sys, "stderr", full)
        logs.write_line("error", "lost")
        monkeypatch.undo()
        os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())
    monkeypatch.setattr(sys, "stderr", full)
    logs.write_line("error", "lost")
    monkeypatch.setattr(sys, "stderr", None)
    logs.write_line("error", "lost")


def test_json_is_one_line_of_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"é": [1, None, "\u202e"]})
    assert capsys.readouterr().out == '{"\\u00e9": [1, null, "\\u202e"]}\n'


def test_a_table_is_aligned_and_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "n"), [("a", 1), ("long\nname", None)])
    assert capsys.readouterr().out == "name        n\na           1\nlong\\nname  -\n"
    print_table(("name", "n"), [])
    assert capsys.readouterr().out == "name  n\n"


def test_a_time_is_iso_in_utc_with_milliseconds() -> None:
    assert iso(0) == "1970-01-01T00:00:00.000Z"
    assert iso(253_402_300_799_999) == iso((1 << 48) - 1) == "9999-12-31T23:59:59.999Z"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "now"),
        (0.9, "now"),
        (1, "1 second ago"),
        (59.9, "59 seconds ago"),
        (60, "1 minute ago"),
        (180, "3 minutes ago"),
        (7200, "2 hours ago"),
        (86400, "1 day ago"),
        (-180, "in 3 minutes"),
    ],
)
def test_a_time_is_told_from_now_in_its_largest_unit(seconds: float, text: str) -> None:
    now = 1_700_000_000_000
    assert ago(now - int(seconds * 1000), now) == text


def choices() -> dict[str, click.Parameter]:
    """By command and name, all parameters that take one of some words."""
    found: dict[str, click.Parameter] = {}
    left: list[tuple[str, click.Command]] = [("", group.group)]
    for path, command in left:
        found |= {f"{path} {each.name}": each for each in command.params if isinstance(each.type, click.Choice)}
        if isinstance(command, click.Group):
            names = command.list_commands(click.Context(command))
            left += [(f"{path} {name}", command.get_command(click.Context(command), name)) for name in names]  # type: ignore[misc]
    return found


def test_a_word_of_a_choice_may_be_in_any_case_and_is_shown_as_in_the_file() -> None:
    found = choices()
    assert {" run launcher", " recurrences add missed", " recurrences add overlap", " list state"} <= found.keys()
    for name, parameter in found.items():
        assert isinstance(parameter.type, WordType), name
        words = parameter.type.choices
        shown = parameter.make_metavar(click.Context(group.group)).strip("[]{}").split("|")
        assert shown == [word.lower() for word in words], name
        for word in words:
            read = [parameter.type.convert(each, parameter, None) for each in (word, word.upper(), word.title())]
            assert read == [word] * 3, name
            assert str(read[0]) == word


@pytest.mark.parametrize(
    "arguments",
    [
        ("--missed", "once", "--overlap", "skip", "--first", "next"),
        ("--missed", "ONCE", "--overlap", "Skip", "--first", "NEXT"),
    ],
)
def test_a_recurrence_is_added_with_words_in_any_case(arguments: tuple[str, ...]) -> None:
    context = add.make_context("add", ["x", "record", "--every", "1h", *arguments])
    given = context.params
    assert (given["missed"], given["overlap"], given["first"]) == (Missed.ONCE, Overlap.SKIP, "next")
