"""A request and the process that it starts: its outcome, its environment, its end. Small programs are the launches."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import redis

from pollconsumer import PollConsumer
from pollconsumer.runtime.launch.launch_end import END_BUDGET
from pollconsumer.web import LaunchEndpoint, launch_starter
from tests.inner import calls_of
from tests.site import PATIENCE, wait_until
from tests.web.conftest import ENQUEUE_TOKEN, TOKEN, request_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pollconsumer.web.web_exchange import WebAnswer

    Program = Callable[[str], None]

TELL = """
import json, os, sys, time
from pathlib import Path
told = int(os.environ["_POLLCONSUMER_OUTCOME"])
def tell(**said): os.write(told, json.dumps(said).encode())
"""
OUTCOME = {"stop_reason": "empty", "handled": 3, "failed": 1}
END = f"tell(**{OUTCOME})"


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Program:
    """Sets the program that is started in place of a launch, in the directory of the configuration."""

    def be(text: str) -> None:
        command = [sys.executable, "-I", "-c", TELL + text]
        monkeypatch.setattr(launch_starter, "command_of", lambda *_: command)

    return be


def launched(endpoint: LaunchEndpoint, within: float = PATIENCE) -> WebAnswer:
    return endpoint.answer(request_of("POST", "/launch", TOKEN), within)


def started(config: Path) -> int:
    """How many programs have noted that they run."""
    return len([*config.parent.glob("started-*")])


WAIT = """
Path(f"started-{os.getpid()}").touch()
while not Path("gate").exists(): time.sleep(0.01)
"""


@pytest.fixture
def in_no_time(monkeypatch: pytest.MonkeyPatch, endpoint: LaunchEndpoint, config: Path) -> Iterator[None]:
    """Requests that do not wait for what they have started."""
    monkeypatch.setattr(launch_starter, "SHORTEST", 0.0)
    monkeypatch.setattr(launch_starter, "FOR_END", 0.0)
    monkeypatch.setattr(launch_starter, "FOR_ANSWER", 0.0)
    yield
    (config.parent / "gate").touch()
    children = endpoint._starter._children  # noqa: SLF001
    wait_until(lambda: all(each.has_ended() for each in children), "the end of the launches")


AT_ONCE = 0.02
"""Seconds."""


def test_the_answer_is_what_the_launch_has_told(endpoint: LaunchEndpoint, program: Program) -> None:
    program(END)
    answered = launched(endpoint)
    assert (answered.status, json.loads(answered.body)) == (200, OUTCOME)


@pytest.mark.parametrize(
    ("end", "status", "retry", "code"),
    [
        ("sys.exit(69)", 503, True, 69),
        ("sys.exit(75)", 503, True, 75),
        ("sys.exit(77)", 500, False, 77),
        ("sys.exit(78)", 500, False, 78),
        ("sys.exit(2)", 500, False, 2),
        ("sys.exit(1)", 500, False, 1),
        (f"{END}; sys.exit(124)", 500, False, 124),
        (f"{END}; os.kill(os.getpid(), 9)", 500, False, -9),
        ("os.kill(os.getpid(), 15)", 500, False, -15),
        ("os._exit(0)", 500, False, 0),  # as a handler may end its launch
    ],
)
def test_a_launch_that_fails_is_a_failure_by_its_exit_code(
    endpoint: LaunchEndpoint, program: Program, end: str, status: int, retry: bool, code: int
) -> None:
    program(end)
    answered = launched(endpoint)
    assert (answered.status, json.loads(answered.body)["exit_code"]) == (status, code)
    assert ("Retry-After" in dict(answered.headers())) == retry
    assert "stop_reason" not in json.loads(answered.body)


def test_a_process_of_a_handler_that_goes_on_delays_no_answer(endpoint: LaunchEndpoint, program: Program) -> None:
    program("if os.fork() == 0:\n    time.sleep(60)\n    os._exit(0)\nPath('done').touch()")
    assert json.loads(launched(endpoint).body)["exit_code"] == 0


@pytest.mark.usefixtures("in_no_time")
def test_a_second_request_starts_nothing_while_the_launch_of_the_first_runs(
    endpoint: LaunchEndpoint, program: Program, config: Path
) -> None:
    program(WAIT + END)
    assert json.loads(launched(endpoint, AT_ONCE).body)["note"] == "still running"
    wait_until(lambda: started(config) == 1, "a launch")
    for _ in range(5):
        answered = launched(endpoint)
        assert (answered.status, json.loads(answered.body)["stop_reason"]) == (200, "lease_held")
    assert started(config) == 1
    (config.parent / "gate").touch()
    wait_until(lambda: json.loads(launched(endpoint).body).get("stop_reason") == "empty", "another launch")
    assert started(config) == 2


@pytest.mark.usefixtures("in_no_time")
def test_a_launch_that_outlasts_its_request_goes_on(endpoint: LaunchEndpoint, program: Program, config: Path) -> None:
    program(WAIT + "tell(a=1)")
    answered = launched(endpoint, AT_ONCE)
    assert answered.status == 202
    assert json.loads(answered.body) == {"stop_reason": None, "handled": None, "failed": None, "note": "still running"}
    (config.parent / "gate").touch()
    program(END)
    wait_until(lambda: json.loads(launched(endpoint).body).get("stop_reason") == "empty", "the launch's end")


@pytest.mark.usefixtures("in_no_time")
def test_while_a_launch_exits_another_is_started_up_to_a_bound(
    endpoint: LaunchEndpoint, program: Program, config: Path
) -> None:
    program(END + "\nPath(f'told-{os.getpid()}').touch()" + WAIT)
    for n in range(1, launch_starter.MOST_CHILDREN + 1):
        assert json.loads(launched(endpoint, AT_ONCE).body)["note"] == "still running"
        wait_until(lambda n=n: len([*config.parent.glob("told-*")]) == n, "the launch's word")  # type: ignore[misc]
        wait_until(lambda n=n: started(config) == n, "the launch's exit")  # type: ignore[misc]
    assert launched(endpoint).status == 503
    (config.parent / "gate").touch()
    wait_until(lambda: launched(endpoint).status == 200, "the end of the exits")


@pytest.mark.parametrize("within", [4.9, 0.0, -5.0])
def test_a_request_with_too_little_time_starts_nothing(
    endpoint: LaunchEndpoint, program: Program, config: Path, within: float
) -> None:
    program(WAIT)
    assert launched(endpoint, within).status == 503
    assert started(config) == 0


@pytest.mark.parametrize(("budget", "within", "window"), [("25s", 900.0, 21.0), ("10m", 60.0, 56.0), ("6s", 6.0, 2.0)])
def test_the_window_is_what_budget_and_caller_leave_for_it(
    endpoint: LaunchEndpoint,
    monkeypatch: pytest.MonkeyPatch,
    config: Path,
    budget: str,
    within: float,
    window: float,
) -> None:
    monkeypatch.setattr(launch_starter, "time", type("time", (), {"monotonic": staticmethod(lambda: 0.0)}))
    config.write_text(f'[web]\ntoken = "{TOKEN}"\nbudget = "{budget}"\n')
    windows: list[float] = []

    def command(seconds: float, _linger: str) -> list[str]:
        windows.append(seconds)
        return [sys.executable, "-I", "-c", ""]

    monkeypatch.setattr(launch_starter, "command_of", command)
    launched(endpoint, within)
    assert windows == [window]


def test_a_launch_that_cannot_reach_its_store_has_ended_before_the_budget_is_spent() -> None:
    assert launch_starter.FOR_END >= END_BUDGET + 1


def test_the_launch_finds_what_the_application_has_and_no_token(
    app: PollConsumer, endpoint: LaunchEndpoint, program: Program, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLLCONSUMER_WEB__TOKEN", TOKEN)
    monkeypatch.setenv("POLLCONSUMER_WEB__ENQUEUE_TOKEN", ENQUEUE_TOKEN)
    monkeypatch.setenv("POLLCONSUMER_CONSUMER__IDLE_TIME", "7s")
    monkeypatch.setattr(sys, "path", [*sys.path, str(config.parent)])
    program("Path('environment').write_text(json.dumps(dict(os.environ)))")
    launched(endpoint)
    environment: dict[str, str] = json.loads((config.parent / "environment").read_text())
    ours = {name: value for name, value in environment.items() if name.startswith("POLLCONSUMER_")}
    store, namespace = calls_of(app).location
    assert ours == {
        "POLLCONSUMER_CONFIG": str(config),
        "POLLCONSUMER_STORE": store,
        "POLLCONSUMER_NAMESPACE": namespace,
        "POLLCONSUMER_CONSUMER__IDLE_TIME": "7s",
    }
    assert str(config.parent) in environment["PYTHONPATH"].split(os.pathsep)
    assert os.path.dirname(os.__file__) not in environment["PYTHONPATH"].split(os.pathsep)  # noqa: PTH120


@pytest.mark.parametrize("of_cgi", [True, False])
def test_the_launch_does_not_find_the_headers_of_a_request_by_cgi(
    endpoint: LaunchEndpoint, program: Program, config: Path, monkeypatch: pytest.MonkeyPatch, of_cgi: bool
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy")  # outside CGI the host sets this variable
    monkeypatch.setenv("HTTP_AUTHORIZATION", f"Bearer {TOKEN}")
    if of_cgi:
        monkeypatch.setenv("REQUEST_METHOD", "POST")
    program("Path('environment').write_text(' '.join(os.environ))")
    launched(endpoint)
    found = {name for name in (config.parent / "environment").read_text().split() if name.startswith("HTTP_")}
    assert found == (set() if of_cgi else {"HTTP_PROXY", "HTTP_AUTHORIZATION"})


def test_the_command_line_has_no_secret_and_is_a_launch_that_leaves(config: Path) -> None:
    command = launch_starter.command_of(24.0, "2s")
    assert command[1:] == [
        *("-m", "pollconsumer", "run", "--handoff", "deadline", "--launcher", "parallel", "--if-free"),
        *("--until-empty", "--timeout", "24s", "--linger", "2s"),
    ]
    assert str(config) not in command
    assert launch_starter.command_of(24.0, "budget")[-2:] == ["--linger", "24s"]


@pytest.mark.parametrize(
    ("executable", "found"),
    [
        ("/usr/bin/python3.12", "/usr/bin/python3.12"),
        ("/srv/venv/bin/uwsgi", "/srv/venv/bin/python3"),
        ("", "/srv/venv/bin/python3"),
        (None, "/srv/venv/bin/python3"),
    ],
)
def test_a_server_that_has_python_built_in_is_not_taken_for_the_interpreter(
    monkeypatch: pytest.MonkeyPatch, executable: str | None, found: str
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    monkeypatch.setattr(sys, "prefix", "/srv/venv")
    assert launch_starter.command_of(24.0, "2s")[0] == found


def test_where_no_process_can_be_started_the_client_is_to_come_again(
    endpoint: LaunchEndpoint, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(END)

    def refused(*_: Any, **__: Any) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    before = os.listdir("/proc/self/fd")  # noqa: PTH208
    with monkeypatch.context() as refusing:
        refusing.setattr(subprocess, "Popen", refused)
        answered = launched(endpoint)
    assert answered.status == 503
    assert "Retry-After" in dict(answered.headers())
    assert len(os.listdir("/proc/self/fd")) == len(before)  # noqa: PTH208
    assert launched(endpoint).status == 200


def test_requests_leave_no_descriptor_behind(endpoint: LaunchEndpoint, program: Program) -> None:
    program(END)
    launched(endpoint)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for _ in range(3):
        launched(endpoint)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


WITHOUT_DESCRIPTORS = """
import sys
from pathlib import Path
from pollconsumer import PollConsumer
from pollconsumer.web import LaunchEndpoint, launch_starter
from pollconsumer.web.web_exchange import WebRequest

config, token, *command = sys.argv[1:]
launch_starter.command_of = lambda *_: command
endpoint = LaunchEndpoint(PollConsumer(config=config))
request = WebRequest("POST", "/launch", {"authorization": f"Bearer {token}"}, lambda _: b"")
Path(config).with_name("answer").write_bytes(endpoint.answer(request).body)
"""


@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", ">&- 2>&-", "<&- >&-"])
def test_a_server_without_standard_descriptors_is_told_the_outcome(config: Path, closed: str) -> None:
    launch = [sys.executable, "-I", "-c", TELL + "print('of a handler', flush=True);" + END]
    server = [sys.executable, "-c", WITHOUT_DESCRIPTORS, str(config), TOKEN]
    subprocess.run(["sh", "-c", f'exec "$@" {closed}', "sh", *server, *launch], check=True)
    assert json.loads((config.parent / "answer").read_bytes()) == OUTCOME


def test_a_client_of_the_applications_own_cannot_be_given_to_a_launch(
    config: Path, program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    program(END)
    client = redis.Redis(host="secret.example", password="hush")
    answered = launched(LaunchEndpoint(PollConsumer(config=config, store=client)))
    assert answered.status == 500
    assert b"secret" not in answered.body
    assert "client" in caplog.text
