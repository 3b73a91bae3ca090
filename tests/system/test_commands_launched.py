"""Whole launches whose handlers are programs."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pollconsumer.runtime.system.process import birth
from tests.site import Site, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.site import Launch

WORK = f"""#!{sys.executable}
# Notes its beginning, and its end once the test opens the gate; and whether it is alone with its message.
import fcntl, json, os, sys, time
name = json.load(sys.stdin)["name"]
def note(what):
    descriptor = os.open("notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{{what}}\\n".encode())
alone = os.open(f"alone-{{name}}", os.O_RDWR | os.O_CREAT, 0o600)
os.set_inheritable(alone, True)
try:
    fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    note(f"two at once {{name}}")
if os.fork() == 0:  # its child would work on without it
    time.sleep(60)
    os._exit(0)
note(f"begin {{name}}")
with open(f"pid-{{name}}", "w") as file:
    file.write(str(os.getpid()))
note(f"pid {{name}}")
while not os.path.exists("gate"):
    time.sleep(0.005)
note(f"end {{name}}")
os.killpg(0, 9) if name == "suicide" else None
print("worked on", name)
"""
SETTINGS = """
[commands.work]
command = ["./work"]
[commands."shell.words"]
command = ["sh", "-c", 'printf "%s\\n" "$@" >> notes; cat >> notes', "sh", "a b", "*", "; id", "$HOME"]
[commands.refuse]
command = ["sh", "-c", "echo no such customer; exit 64"]
fatal = [64, 65]
[commands.flop]
command = ["sh", "-c", "echo x >> notes; exit 64"]
max_attempts = 2
retry = { first = "10ms", factor = 1, most = "10ms", jitter = 0 }
[commands.slow]
command = ["sleep", "60"]
timeout = "200ms"
max_attempts = 1
[commands.enqueue]
command = ["PYTHON", "-m", "pollconsumer", "enqueue", "record", '{"name": "from a program"}']
queue = "mail"
[commands.environment]
command = ["sh", "-c", "env >> notes"]
environment = ["WANTED"]
"""


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site(SETTINGS.replace("PYTHON", sys.executable))
    work = site.directory / "work"
    work.write_text(WORK)
    work.chmod(0o700)
    yield site
    site.open_gate()
    for file in site.directory.glob("pid-*"):
        if birth(int(file.read_text() or 0)):
            os.killpg(int(file.read_text()), signal.SIGKILL)
    site.close()


def program_of(site: Site, name: str) -> int:
    return int((site.directory / f"pid-{name}").read_text())


def noted_program_of(site: Site, name: str) -> int:
    """The same, once the launch has noted whose process it is, in a second line: the next launch finds it by that."""
    notes = site.directory / "state"
    wait_until(
        lambda: any(note.read_bytes().count(b"\n") > 1 for note in notes.rglob("programs/*/*")), "the program's note"
    )
    return program_of(site, name)


def is_gone(site: Site, name: str) -> bool:
    """Whether the program, and what it started, has ended: nobody holds its lock."""
    with (site.directory / f"alone-{name}").open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_a_program_handles_a_message_and_nothing_is_printed(site: Site) -> None:
    message = site.enqueue("shell.words", name="Zoë")
    done = site.drain()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert site.notes() == ["a b", "*", "; id", "$HOME", '{"name":"Zoë"}']
    assert site.state(message) == "completed"


def test_a_fatal_exit_code_makes_a_dead_letter_at_once(site: Site) -> None:
    message = site.enqueue("refuse")
    done = site.drain()
    assert "dead letter" in done.stderr
    status = site.json("status", message)
    assert (status["state"], status["attempts"]) == ("dead", 1)
    assert "exit code 64: no such customer" in status["last_error"]


def test_another_exit_code_is_tried_again_as_often_as_it_may(site: Site) -> None:
    message = site.enqueue("flop")
    done = site.command("run", "--max-messages", "2")
    assert done.returncode == 0
    assert site.notes() == ["x", "x"]
    assert site.state(message) == "dead"


def test_a_timeout_is_a_failure_of_the_message_and_not_of_the_launch(site: Site) -> None:
    message = site.enqueue("slow")
    assert site.drain().returncode == 0
    status = site.json("status", message)
    assert status["state"] == "dead"
    assert "ran longer than its limit of 200ms" in status["last_error"]


def test_a_program_finds_the_variables_that_are_named_and_no_secret(site: Site) -> None:
    site.enqueue("environment")
    secrets = {"WANTED": "wanted", "TOKEN": "canary", "POLLCONSUMER_STORE": "embedded"}
    assert site.command("run", "--until-empty", **secrets).returncode == 0
    names = dict(line.split("=", 1) for line in site.notes())
    assert names["WANTED"] == "wanted"
    assert names["POLLCONSUMER_ATTEMPT"] == "1"
    assert not {"TOKEN", "POLLCONSUMER_STORE"} & names.keys()


def test_a_program_runs_for_a_launch_in_an_empty_environment(site: Site) -> None:
    message = site.enqueue("shell.words")
    environment, site.environment = site.environment, {n: site.environment[n] for n in site.environment if "XDG" in n}
    assert site.drain().returncode == 0
    site.environment = environment
    assert site.state(message) == "completed"


def test_a_program_that_calls_us_is_not_refused_for_what_we_told_it(site: Site) -> None:
    message = site.enqueue("enqueue")
    assert site.drain("--queue", "mail").returncode == 0
    assert site.state(message) == "completed"
    site.drain()
    assert site.notes() == ["from a program"]


def test_our_words_to_programs_are_no_settings_elsewhere(site: Site) -> None:
    refused = site.command("status", POLLCONSUMER_QUEUE="mail")
    assert refused.returncode == 78
    assert "unknown variable: POLLCONSUMER_QUEUE" in refused.stderr
    assert site.command("status", POLLCONSUMER_QUEUE="mail", POLLCONSUMER_MESSAGE_ID="x").returncode == 0


def test_a_message_goes_to_the_queue_of_its_command(site: Site) -> None:
    (site.directory / "lines").write_text('{"handler": "enqueue"}\n{"handler": "enqueue", "queue": "other"}\n')
    messages = [site.enqueue("enqueue"), *site.command("enqueue", "--ndjson", "lines").stdout.split()]
    assert [site.json("status", message)["queue"] for message in messages] == ["mail", "mail", "other"]
    with (site.directory / "handlers.py").open("a") as handlers:
        handlers.write("\n@app.handler\ndef pass_on() -> None:\n    app.enqueue('enqueue', id='x')\n")
    site.enqueue("pass_on")
    site.drain()
    assert site.json("status", "x")["queue"] == "mail"


def test_slots_run_programs_at_the_same_time(site: Site) -> None:
    names = "abcd"
    for name in names:
        site.enqueue("work", name=name)
    launch = site.start("run", "--until-empty", "--concurrency", "4")
    for name in names:
        site.await_note(f"begin {name}")
    site.open_gate()
    assert launch.wait(90) == 0
    assert sorted(note for note in site.notes() if note.startswith("end")) == [f"end {name}" for name in names]


def test_a_function_that_closed_standard_descriptors_does_not_harm_the_next_program(site: Site) -> None:
    site.enqueue("leave", how="close")
    message = site.enqueue("shell.words")
    assert site.drain().returncode == 0
    assert site.state(message) == "completed"


def test_a_signal_lets_the_program_in_hand_finish(site: Site) -> None:
    message = site.enqueue("work", name="a")
    launch = site.start("run")
    site.await_note("pid a")
    launch.terminate()
    site.open_gate()
    assert launch.wait(90) == 0
    assert site.notes() == ["begin a", "pid a", "end a"]
    assert site.state(message) == "completed"


def test_the_program_of_a_killed_launch_ends_before_its_message_is_handled_again(site: Site) -> None:
    message = site.enqueue("work", name="a")
    launch = site.start("run")
    site.await_note("pid a")
    launch.kill()
    launch.wait()
    successor = site.start("run", "--until-empty")
    site.await_note("pid a", 2)
    site.open_gate()
    assert successor.wait(90) == 0
    assert site.notes() == ["begin a", "pid a"] * 2 + ["end a"]
    assert site.json("status", message)["attempts"] == 2


def test_a_survivor_of_launch_and_heartbeat_is_reported_and_killed_by_the_next_launch(site: Site) -> None:
    message = site.enqueue("work", name="a")
    launch = site.start("run", "--concurrency", "2")
    site.await_note("pid a")
    survivor = noted_program_of(site, "a")
    os.kill(heartbeat_of(launch), signal.SIGKILL)  # nobody is left to tidy up, or to give the lease back
    launch.kill()
    launch.wait()
    assert birth(survivor)
    site.command("lease", "break", "--yes")
    successor = site.start("run", "--until-empty")
    site.await_note("pid a", 2)
    assert birth(survivor) is None
    site.open_gate()
    _, errors = successor.communicate(timeout=90)
    assert f"warning: program of message {message} still running: pid {survivor}; killed" in errors
    assert site.notes() == ["begin a", "pid a"] * 2 + ["end a"]
    assert site.state(message) == "completed"


def test_a_survivor_is_killed_by_launches_that_do_not_get_its_message_too(site: Site) -> None:
    message = site.enqueue("work", name="a")
    launch = site.start("run")
    site.await_note("pid a")
    survivor = noted_program_of(site, "a")
    os.kill(heartbeat_of(launch), signal.SIGKILL)
    launch.kill()
    launch.wait()
    done = site.command("run", "--queue", "other", "--until-empty")
    assert done.returncode == 0
    assert f"program of message {message} still running: pid {survivor}; killed" in done.stderr
    assert birth(survivor) is None


def heartbeat_of(launch: Launch) -> int:
    """Of the launch's children the one that is no program: they lead sessions of their own."""
    lists = [(task / "children").read_text() for task in Path(f"/proc/{launch.pid}/task").iterdir()]
    (heartbeat,) = [pid for pid in map(int, " ".join(lists).split()) if os.getsid(pid) != pid]
    return heartbeat


@pytest.mark.crossing
@pytest.mark.parametrize("concurrency", ["1", "2"])
def test_no_program_survives_its_limit(site: Site, concurrency: str) -> None:
    site.enqueue("work", name="a")
    assert site.outlast("begin a", "--concurrency", concurrency).returncode == 0
    wait_until(lambda: is_gone(site, "a"), "the program's end")


def test_no_program_survives_a_second_signal(site: Site) -> None:
    site.enqueue("work", name="a")
    launch = site.start("run")
    site.await_note("pid a")
    launch.terminate()
    wait_until(lambda: _ended_by_another_signal(launch), "the end")
    assert launch.returncode == 143
    wait_until(lambda: is_gone(site, "a"), "the program's end")


def _ended_by_another_signal(launch: Launch) -> bool:
    launch.terminate()  # signals that come too close together are one
    return launch.poll() is not None


@pytest.mark.crossing
@pytest.mark.usefixtures("quick_leases")
def test_no_program_survives_the_loss_of_the_lease(site: Site) -> None:
    site.enqueue("work", name="a")
    launch = site.start("run", "--concurrency", "2")
    site.await_note("pid a")
    assert site.command("lease", "break", "--yes").returncode == 0
    assert launch.wait(90) == 75
    wait_until(lambda: is_gone(site, "a"), "the program's end")


def test_check_shows_commands_and_those_that_keep_others_waiting(site: Site) -> None:
    report = site.json("check")
    assert {"work", "slow", "record"} <= set(report["handlers"])
    assert (report["queues"], report["queues_not_served"]) == (["default", "mail"], [])
    assert report["commands"]["slow"] == {
        "command": [report["commands"]["slow"]["command"][0], "60"],
        "queue": "default",
        "timeout_seconds": 0.2,
        "fits": True,
    }
    assert report["commands"]["work"]["command"] == [str(site.directory / "work")]
    shown = site.command("check").stdout
    assert re.search(r"store +embedded, its server does not run yet: a launch or enqueue starts it\n", shown)
    assert "long work" not in shown
    config = site.directory / "config.toml"
    config.write_text(config.read_text().replace('timeout = "200ms"', 'timeout = "2h"'))
    shown = site.command("check").stdout
    assert re.search(
        r"long work +slow may take 2h: other messages of default, mail wait meanwhile; a queue and ", shown
    )
    said = site.command("-v", "run", "--until-empty").stderr
    assert "slow may take 2h: other messages of default, mail wait meanwhile" in said


def test_check_starts_no_server_and_makes_no_directory(site: Site) -> None:
    for data in ("0MB", "none", "deep/er"):
        place = site.directory / data
        shown = site.command("check", POLLCONSUMER_DATA=str(place))
        assert (shown.returncode, shown.stderr) == (0, "")
        assert not place.exists()
    assert "its server runs" not in site.command("check").stdout
    assert site.command("enqueue", "work").returncode == 0
    assert "embedded, its server runs\n" in site.command("check").stdout


@pytest.mark.parametrize(
    ("environment", "code", "said"),
    [
        ({"POLLCONSUMER_DATA": "/dev/null/data"}, 73, "cannot create /dev/null/data: Not a directory; "),
        ({"POLLCONSUMER_DATA": "/" + "x" * 100_000}, 73, f"cannot create /{'x' * 78}…: File name too long; "),
        ({"POLLCONSUMER_SERVER": "/nonexistent/valkey"}, 78, "server /nonexistent/valkey cannot be run: No such file"),
    ],
)
def test_check_says_why_a_server_could_not_be_started(
    site: Site, environment: dict[str, str], code: int, said: str
) -> None:
    done = site.command("check", **environment)
    assert done.returncode == code
    assert done.stderr.startswith(f"pollconsumer: error: {said}")
    assert done.stderr.count("\n") == 1


def test_check_judges_no_timeout_by_a_window_in_which_the_program_does_not_run(site: Site) -> None:
    config = site.directory / "config.toml"
    config.write_text(config.read_text() + '[commands.backup]\ncommand = ["true"]\nqueue = "slow"\ntimeout = "50m"\n')
    assert "backup may take 50m" in site.command("check").stdout  # its own launches serve all queues
    assert site.drain("--queue", "slow", "--timeout", "1h").returncode == 0
    assert "backup may take" not in site.command("check").stdout
    assert site.json("check")["commands"]["backup"]["fits"] is None
    other = site.command("check", POLLCONSUMER_CONSUMER__QUEUES="default,mail").stdout
    assert "backup may take" not in other
    assert "slow (of backup): other launches serve it, which need a timeout above 50m" in other
    assert site.drain().returncode == 0
    assert "backup may take" in site.command("check").stdout


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ('command = "rm -rf $x"', "commands.x.command: rm -rf $x; expected a list"),
        ("command = []", "commands.x.command: []; empty"),
        ('command = [""]', "empty"),
        ("", "commands.x.command: []; empty"),
        ('command = ["/nowhere/backup"]', "commands.x.command: /nowhere/backup; No such file or directory (errno 2)"),
        ('command = ["./plain"]', "/plain; Permission denied (errno 13)"),
        ('command = ["/tmp"]', "commands.x.command: /tmp; Is a directory (errno 21)"),
        (
            'command = ["no-such-program"]',
            "No such file or directory (errno 2) in any directory of PATH\n",
        ),
        ('command = ["true"]\ndirectory = "nowhere"', "nowhere; No such file or directory (errno 2)"),
    ],
)
def test_a_command_that_cannot_be_run_is_named_before_anything_is_handled(site: Site, section: str, said: str) -> None:
    (site.directory / "plain").touch(0o600)
    (site.directory / "config.toml").write_text(f"[commands.x]\n{section}\n")
    done = site.command("run")
    assert done.returncode == 78
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_name_that_is_a_function_and_a_command_is_refused(site: Site) -> None:
    (site.directory / "config.toml").write_text('handlers = ["handlers"]\n[commands.record]\ncommand = ["true"]\n')
    for command in ("run", "check"):
        done = site.command(command)
        assert done.returncode == 78
        assert "handler registered twice: record" in done.stderr
    assert site.command("enqueue", "record", "{}").returncode == 0


@pytest.mark.parametrize(
    "script",
    [
        "sleep 30 &",
        "(exec </dev/null >/dev/null 2>&1; setsid sleep 30) & sleep 30 & disown -a 2>/dev/null; kill -9 $$",
        "head -c 300000 /dev/urandom; printf '\\377\\000\\033[31m\\r\\n'",
        "head -c 300000 /dev/urandom; exit 3",
    ],
)
def test_a_program_that_leaves_a_daemon_or_prints_garbage_costs_other_messages_nothing(site: Site, script: str) -> None:
    config = site.directory / "config.toml"
    command = json.dumps(["sh", "-c", script])
    config.write_text(f"{config.read_text()}[commands.odd]\ncommand = {command}\nmax_attempts = 1\n")
    odd = site.enqueue("odd")
    other = site.enqueue("record", name="other")
    assert site.drain().returncode == 0
    assert site.notes() == ["other"]
    assert site.state(other) == "completed"
    assert site.state(odd) == ("dead" if "kill" in script or "exit" in script else "completed")
    assert site.json("lease", "show") == []
