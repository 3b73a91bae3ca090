"""What the hooks, handlers, modules and programs of somebody else do never stops the others' messages."""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

import pytest

from tests.leaving_out import long
from tests.site import Site

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.ends_with(1, 7, -signal.SIGABRT)

HOOKED = """
import os, sys, time
from pollconsumer import Backoff, PollConsumer
from pollconsumer.runtime.handling import handler

handler.HOOK_TIMEOUT = 0.3

watched = PollConsumer()

@watched.handler(max_attempts=1)
def doomed(how: str = "") -> None:
    note("doomed")
    raise ValueError("no")

@watched.handler(max_attempts=3, retry=Backoff(first="10m"))
def shaky(how: str = "") -> None:
    note("shaky")
    raise ValueError("not yet")

@watched.handler
def fine(how: str = "") -> str:
    note(f"fine {os.getpid() == launch}")
    return how

launch = os.getpid()

def misbehave(how):
    if how == "hang":
        time.sleep(300)
    elif how == "hang for good":
        while True:
            try:
                time.sleep(300)
            except BaseException:
                pass
    elif how == "hold the interpreter":
        keep_interpreter()
    elif how == "raise":
        raise ValueError("of the hook")
    elif how == "exit":
        sys.exit(3)
    elif how == "interrupt":
        raise KeyboardInterrupt
    elif how == "fork":
        os.fork()
    elif how == "close":
        os.closerange(3, 100)
    elif how == "die":
        os._exit(7)

"""


ARGUMENTS = {
    "before": "context",
    "after": "context, result",
    "on_failure": "context, error, delay",
    "on_dead": "context, error",
}


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.close()


def hook(site: Site, how: str, *kinds: str) -> None:
    """Have hooks of these kinds do that."""
    with (site.directory / "handlers.py").open("a") as handlers:
        handlers.write(HOOKED)
        for kind in kinds:
            handlers.write(f"@watched.{kind}\ndef {kind}({ARGUMENTS[kind]}):\n    misbehave({how!r})\n")


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("hang", "did not end within 0.3s; it is not called again in this launch"),
        ("raise", "raised ValueError: of the hook"),
        ("exit", "raised SystemExit: 3"),
        ("interrupt", "raised KeyboardInterrupt"),
        ("fork", None),
        ("close", None),
    ],
)
def test_a_hook_changes_nothing_of_its_message_nor_of_those_behind_it(site: Site, how: str, said: str | None) -> None:
    hook(site, how, *ARGUMENTS)
    messages = {handler: site.enqueue(handler) for handler in ("fine", "shaky", "doomed")}
    site.enqueue("record", name="next")
    done = site.drain()
    assert done.returncode == 0
    assert site.notes() == ["fine True", "shaky", "doomed", "next"]
    assert {handler: site.state(message) for handler, message in messages.items()} == {
        "fine": "completed",
        "shaky": "scheduled",
        "doomed": "dead",
    }
    times = dict.fromkeys(ARGUMENTS, 0 if said is None else 1) | {
        "before": 0 if said is None else 1 if how == "hang" else 3
    }
    for kind, count in times.items():
        line = rf"pollconsumer: warning: hook {kind} {kind} {said and re.escape(said)}( \(handlers\.py:\d+\))?\n"
        assert len(re.findall(line, done.stderr)) == count
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("how", "code"), [("hang for good", 124), ("hold the interpreter", -signal.SIGABRT), ("die", 7)]
)
def test_a_death_that_a_hook_is_told_of_was_settled_whatever_it_does_to_its_process(
    site: Site, how: str, code: int
) -> None:
    hook(site, how, "on_dead")
    message = site.enqueue("doomed")
    site.enqueue("record", name="next")
    assert site.outlast("doomed", "--until-empty").returncode == code
    assert site.state(message) == "dead"
    assert site.drain().returncode == 0
    assert site.notes() == ["doomed", "next"]


def test_a_failure_that_a_hook_is_told_of_was_settled_whatever_it_does_to_its_process(site: Site) -> None:
    hook(site, "die", "on_failure")
    message = site.enqueue("shaky")
    assert site.drain().returncode == 7
    assert site.state(message) == "scheduled"


def test_hooks_and_a_line_tell_of_dead_letters_that_the_store_makes(site: Site) -> None:
    """Whose handler cannot be read concerns every application, once."""
    from redis import Redis

    with (site.directory / "handlers.py").open("a") as handlers:
        handlers.write(
            """
other = PollConsumer()

@other.handler
def unused() -> None:
    pass

@app.on_dead
def told(context, error):
    note(f"app {context.id} {error}")

@other.on_dead
def told_too(context, error):
    note(f"other {context.id} {error}")
"""
        )
    site.enqueue("record", name="next")
    with Redis(unix_socket_path=site.json("store", "path")["socket"]) as client:
        client.lpush("{pollconsumer:default}:r", "ghost")
    done = site.drain()
    problem = "malformed: its record is missing"
    assert done.returncode == 0
    assert site.notes() == [f"app ghost {problem}", f"other ghost {problem}", "next"]
    (line,) = done.stderr.splitlines()
    assert line.startswith("pollconsumer: warning: dead letter: ghost (")
    assert line.endswith(problem)


@pytest.mark.parametrize("ending", ["pass", "raise ValueError", "raise KeyboardInterrupt"])
def test_a_process_that_a_module_forks_and_that_returns_from_it_is_no_second_launch(site: Site, ending: str) -> None:
    """It would have the heartbeat and the identity of the first."""
    with (site.directory / "handlers.py").open("a") as handlers:
        handlers.write(f"if os.fork() == 0:\n    note('forked')\n    {ending}\nos.wait()\n")
    message = site.enqueue("record", "--queue", "default", name="a")
    done = site.drain()
    assert (done.returncode, done.stderr) == (0, "")
    assert site.notes() == ["forked", "a"]
    assert site.state(message) == "completed"


MISBEHAVING = """
@app.handler(max_attempts=1, timeout="1s")
def bad(how: str) -> None:
    note("bad")
    try:
        misbehave(how)
    finally:
        misbehaved.set()

misbehaved = threading.Event()

@app.handler
def nap(name: str, beside: bool) -> None:
    if beside:  # the one that misbehaves
        assert misbehaved.wait(90)
    print("printed", flush=True)
    note(name)
"""


@pytest.mark.parametrize("concurrency", ["1", long("4")])
@pytest.mark.parametrize("how", ["hang", "raise", "exit", "interrupt", "fork", "close"])
def test_messages_beside_and_behind_a_handler_that_misbehaves_are_handled_once(
    site: Site, how: str, concurrency: str
) -> None:
    if how == "hang" and concurrency != "1":
        pytest.skip("a thread that blocks cannot be stopped: the watchdog ends the launch")
    with (site.directory / "handlers.py").open("a") as handlers:
        handlers.write(HOOKED + MISBEHAVING)
    names = ["a", "b", "c", "d", "e", "f"]
    for name in names[:2]:
        site.enqueue("nap", name=name, beside=concurrency != "1")
    bad = site.enqueue("bad", how=how)
    for name in names[2:]:
        site.enqueue("nap", name=name, beside=concurrency != "1")
    done = site.drain("--concurrency", concurrency)
    assert done.returncode == 0
    assert sorted(site.notes()) == sorted([*names, "bad"])
    assert site.state(bad) == ("dead" if how in ("hang", "raise", "exit", "interrupt") else "completed")
    assert done.stderr.count("pollconsumer: warning: dead letter: ") == (site.state(bad) == "dead")
    assert done.stdout == "printed\n" * len(names)
    assert "Traceback" not in done.stderr


def test_a_line_tells_of_what_is_delivered_at_most_once_and_died_with_its_process(site: Site) -> None:
    with (site.directory / "handlers.py").open("a") as handlers:
        handlers.write('@app.handler(delivery="at_most_once")\ndef once() -> None:\n    os._exit(7)\n')
    message = site.enqueue("once")
    site.enqueue("record", name="next")
    died = site.drain()
    after = site.drain()
    assert (died.returncode, after.returncode) == (7, 0)
    said = f"pollconsumer: warning: dead letter: {message} (once), attempt 1: skipped: its process died after it was"
    assert (died.stderr + after.stderr).count(said) == 1
    assert site.state(message) == "dead"
    assert site.notes() == ["next"]


def test_a_line_tells_that_a_launch_died_before_it_had_the_lease(site: Site) -> None:
    message = site.enqueue("record", "--queue", "default", name="a")
    module = (site.directory / "handlers.py").read_text()
    (site.directory / "handlers.py").write_text("import os\nos._exit(7)\n")
    done = site.drain()
    assert done.returncode == 7
    assert done.stderr.startswith("pollconsumer: error: launch died: before it had the lease, ")
    assert done.stderr.count("\n") == 1
    (site.directory / "handlers.py").write_text(module)
    assert site.drain().returncode == 0
    assert site.state(message) == "completed"
