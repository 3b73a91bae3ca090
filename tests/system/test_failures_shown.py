"""What a launch shows of a failure: where in the user's code it was, and the traceback to a person; and each completed
message with -v, wherever the log goes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.terminal import Terminal

if TYPE_CHECKING:
    from tests.site import Site

HANDLERS = """
import asyncio, json, time
from pollconsumer import Backoff, PollConsumer
from shop.prices import price
app = PollConsumer()

@app.handler(max_attempts=1)
def plain(): raise ValueError("no")  # plain

@app.handler(max_attempts=1)
def within(): json.loads("{")  # within

@app.handler(max_attempts=1)
def deeper(): price()

@app.handler(max_attempts=1)
async def coroutine():
    await asyncio.sleep(0)
    raise ValueError("no")  # coroutine

@app.handler(max_attempts=1, isolation="process")
def isolated(): raise ValueError("no")  # isolated

@app.handler(max_attempts=1, isolation="process")
async def apart(): raise ValueError("no")  # apart

@app.handler(max_attempts=1, timeout="20ms")
def slow():
    while True: time.sleep(0.001)  # slow

@app.handler(max_attempts=1, bulk=2)
def bulk(messages: list[dict]): raise ValueError("no")  # bulk

@app.handler(max_attempts=1)
def exits(): raise SystemExit(3)  # exits

@app.handler(max_attempts=1)
def caused():
    try:
        price()
    except KeyError as error:
        raise ValueError("no") from error  # caused

@app.handler(max_attempts=2, retry=Backoff(first="1ms"))
def again(): raise ValueError("no")  # again

@app.handler
def good(): pass
"""
CONFIG = """
handlers = ["handlers"]
[commands.program]
command = ["/bin/sh", "-c", "echo one; echo two >&2; exit 3"]
max_attempts = 1
"""
PRICES = 'PRICES = {}\n\ndef price(): return PRICES["apple"]  # deeper\n'
FAILING = re.findall(r"^(?:async )?def (\w+)", HANDLERS, re.MULTILINE)[:-1]


def place(handler: str) -> str:
    """Where the handler fails."""
    file, text = ("shop/prices.py", PRICES) if handler == "deeper" else ("handlers.py", HANDLERS)
    return f"{file}:{next(n for n, line in enumerate(text.split(chr(10)), 1) if line.endswith(f'# {handler}'))}"


def until_empty(site: Site, where: str, slots: int) -> str:
    """What a launch shows of one message for each handler. ``where``: a case of the test."""
    (site.directory / "shop").mkdir(exist_ok=True)
    (site.directory / "shop/prices.py").write_text(PRICES)
    (site.directory / "handlers.py").write_text(HANDLERS)
    target = '[logs]\ntarget = "log.txt"\n' if where == "file" else ""
    (site.directory / "config.toml").write_text(CONFIG + target)
    for handler in (*FAILING, "program", "good"):
        site.enqueue(handler, "--queue", "default")
    options = {"cron": [], "quiet": ["-q"], "-vv": ["-vv"]}.get(where, ["-v"])
    command = (*options, "run", "--until-empty", "--linger", "1s", "--concurrency", str(slots))
    if where == "terminal":
        with Terminal(site, command=command[1:]) as terminal:
            return terminal.read_to_the_end()
    done = site.command(*command)
    assert (done.returncode, done.stdout) == (0, "")
    return (site.directory / "log.txt").read_text() if where == "file" else done.stderr


TRACED = [pytest.param(each, marks=pytest.mark.ends_with(traceback=True)) for each in ("-v", "-vv", "file")]


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("where", ["cron", *TRACED, "terminal", "quiet"])
def test_a_failure_names_the_line_of_the_users_code_and_a_person_sees_its_traceback(
    site: Site, where: str, slots: int
) -> None:
    shown = until_empty(site, where, slots)
    if where == "quiet":
        assert shown == ""
        return
    for handler in FAILING:
        failed = rf"dead letter: \S+ \({handler}\), attempt \d: .* \({re.escape(place(handler))}\)\n"
        line = re.search(failed + r"((?:  .*\n|\n)*)", shown)
        assert line is not None, (handler, shown)
        assert (f"# {handler}\n" in line[1]) is (where in {"-v", "-vv", "terminal"}), handler
        assert "Traceback" in line[1] or not line[1], handler
        assert "pollconsumer/" not in line[1], handler
        if line[1] and handler == "slow":
            assert "HandlerTimeout: ran longer than its limit of 20ms, from timeout=" in line[1].splitlines()[-1]
    program = re.search(
        r"dead letter: \S+ \(program\), attempt 1: CommandFailed: exit code 3: two\n((?:  .*\n)*)", shown
    )
    assert program is not None
    assert program[1] == ("  one\n  two\n" if where in {"-v", "-vv", "terminal"} else "")
    again = re.search(
        rf"\(again\), attempt 1 failed, again in .* \({re.escape(place('again'))}\)\n((?:  .*\n)*)", shown
    )
    assert (again is not None) is (where != "cron")
    if again is not None:
        assert ("# again\n" in again[1]) is (where == "-vv")
    assert ("(good) completed in " in shown) is (where != "cron")


OWN_ATTRIBUTES = """
from pollconsumer import PollConsumer
app = PollConsumer()

class Raising(Exception):
    @property
    def location(self): raise RuntimeError("no location")
    @property
    def trace(self): raise RuntimeError("no trace")
class Surrogate(Exception):
    trace = location = "abc \\ud800 def"
class Secret(Exception):
    trace = location = "https://u:secret@host/"
class Sought(Exception):
    def __getattr__(self, name): return f"https://u:secret@host/{name}"
KINDS = {kind.__name__: kind for kind in (Raising, Surrogate, Secret, Sought)}

def fail(kind: str) -> None: raise KINDS[kind]("why")  # raised
app.handler("here", max_attempts=1)(fail)
app.handler("child", max_attempts=1, isolation="process")(fail)

@app.after
def watch(context, result): fail(context.headers["kind"])
@app.handler
def hooked() -> None: pass
"""


@pytest.mark.ends_with(traceback=True)
@pytest.mark.parametrize("kind", ["Raising", "Surrogate", "Secret", "Sought"])
def test_attributes_of_a_users_exception_named_as_ours_are_not_read(site: Site, kind: str) -> None:
    (site.directory / "handlers.py").write_text(OWN_ATTRIBUTES)
    for handler in ("here", "child"):
        site.enqueue(handler, kind=kind)
    site.enqueue("hooked", "--header", f"kind={kind}")
    done = site.command("-v", "run", "--until-empty", "--linger", "1s")
    at = next(n for n, line in enumerate(OWN_ATTRIBUTES.split("\n"), 1) if line.endswith("# raised"))
    for what in (r"\(here\), attempt 1:", r"\(child\), attempt 1:", "hook after watch raised"):
        said = rf"{what} {kind}: why \(handlers\.py:{at}\)\n(  Traceback .*\n(?:  .*\n)*)"
        found = re.search(said, done.stderr)
        assert found is not None, (what, done.stderr)
        assert "# raised" in found[1]
    assert (done.returncode, "secret" in done.stderr) == (0, False)
