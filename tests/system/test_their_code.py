"""What a handler does in its process is not seen by the next message, and neither silences nor ends a launch."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.leaving_out import long
from tests.site import PATIENCE

if TYPE_CHECKING:
    from tests.site import Site

HANDLERS = '''
import asyncio, decimal, os, sys, warnings
from contextvars import ContextVar
from pathlib import Path
from pollconsumer import Context, PollConsumer

app = PollConsumer()
tenant = ContextVar("tenant", default="none")
tenant.set("imported")
decimal.getcontext().prec = 20  # so that the launch's context has one, which can be changed

@app.on_launch
def launch() -> None:
    tenant.set("launched")

def note(what):
    descriptor = os.open(Path(__file__).parent / "notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{what}\\n".encode())
    os.close(descriptor)

def change():
    """Returns what it found."""
    context = decimal.getcontext()
    found = f"{tenant.get()} {context.prec} {bool(context.flags[decimal.Inexact])}"
    tenant.set("mine")
    context.prec = 3
    decimal.Decimal(1) / 3
    warnings.simplefilter("error")  # the process's: later messages have it
    return found

@app.handler
def plain() -> None:
    note(change())

@app.handler(timeout="60s")
def limited() -> None:
    note(change())

@app.handler
def takes(context: Context) -> None:
    note(change())

@app.handler(isolation="process")
def alone() -> None:
    note(change())

@app.handler
async def turns() -> None:
    note(change())

@app.handler(timeout="60s")
async def awaits() -> None:
    before = change()
    await asyncio.sleep(0.001)
    assert (tenant.get(), decimal.getcontext().prec) == ("mine", 3)
    note(before)

@app.handler(max_attempts=1)
def fails() -> None:
    raise ValueError("no")

@app.on_dead
def dead(context, error) -> None:
    note(change())
'''
NAMES = ["plain", "limited", "takes", "turns", "awaits", "fails"]
SANDBOX = f"""
import handlers
from pollconsumer.testing import Sandbox
handlers.launch()
with Sandbox(handlers.app) as sandbox:
    for handler in {NAMES * 2}:
        handlers.app.enqueue(handler)
    sandbox.run()
"""


@pytest.mark.parametrize("concurrency", [1, 2])
def test_context_variables_are_a_messages_own(site: Site, concurrency: int) -> None:
    """Decimal's context among them. The fourth of each is handled in the quick pass, where there is one."""
    (site.directory / "handlers.py").write_text(HANDLERS)
    lines = "".join(f'{{"handler": "{name}"}}\n' for name in [*NAMES, "alone"] for _ in range(4))
    (site.directory / "messages").write_text(lines)
    assert site.command("enqueue", "--ndjson", "messages").returncode == 0
    done = site.drain("--concurrency", str(concurrency))
    assert done.returncode == 0, done.stderr
    assert sorted(site.notes()) == ["imported 20 False"] * 4 + ["launched 20 False"] * 4 * len(NAMES)


def test_context_variables_are_a_messages_own_in_a_sandbox(site: Site) -> None:
    (site.directory / "handlers.py").write_text(HANDLERS)
    program = site.start_program([sys.executable, "-c", SANDBOX])
    program.communicate(timeout=PATIENCE)
    assert site.notes() == ["launched 20 False"] * 2 * len(NAMES)


LOGGING = """
import logging, logging.config, sys
from pollconsumer import PollConsumer

app = PollConsumer()
OURS, ROOT = logging.getLogger("pollconsumer"), logging.getLogger()

def refuse(*_):
    raise ZeroDivisionError

class Refusing(logging.Handler):
    def emit(self, record):
        refuse()

class Leaving(logging.Handler):
    def emit(self, record):
        sys.exit(3)

class Refused:
    filter = write = flush = refuse

def from_file():
    with open("logging.ini", "w") as file:
        file.write("[loggers]\\nkeys=root\\n[handlers]\\nkeys=\\n[formatters]\\nkeys=\\n[logger_root]\\nhandlers=\\n")
    logging.config.fileConfig("logging.ini")

WAYS = {
    "dictConfig": lambda: logging.config.dictConfig({"version": 1}),
    "fileConfig": from_file,
    "replacing handlers": lambda: logging.basicConfig(handlers=[logging.NullHandler()], force=True),
    "disable": lambda: logging.disable(logging.CRITICAL),
    "level": lambda: OURS.setLevel(logging.CRITICAL),
    "shutdown": logging.shutdown,
    "refusing filter": lambda: OURS.addFilter(Refused()),
    "refusing handler": lambda: ROOT.addHandler(Refusing()),
    "leaving handler": lambda: ROOT.addHandler(Leaving()),
    "factory": lambda: logging.setLogRecordFactory(refuse),
    "all records": lambda: [ROOT.setLevel(0), OURS.setLevel(0), ROOT.handlers.insert(0, Refusing())],
}

@app.handler(max_attempts=1)
def spoils(way: str) -> None:
    WAYS[way]()
    raise ValueError(way)
"""
WAYS = [line.split('"')[1] for line in LOGGING.partition("WAYS")[2].splitlines() if line.startswith('    "')]
RAISING = ["refusing filter", "refusing handler", "leaving handler", "all records"]


@pytest.mark.parametrize("way", WAYS)
def test_no_logging_of_the_users_silences_or_ends_a_launch(site: Site, way: str) -> None:
    (site.directory / "handlers.py").write_text(LOGGING)
    messages = [site.enqueue("spoils", way=way) for _ in range(2)]
    done = site.drain()
    dead = [f"dead letter: {each} (spoils), attempt 1: ValueError: {way} (handlers.py:44)" for each in messages]
    raised = "SystemExit" if way == "leaving handler" else "ZeroDivisionError"
    said = [f"logging: a filter or handler of 'pollconsumer' raised {raised}"] if way in RAISING else []
    lines = [line.removeprefix("pollconsumer: warning: ") for line in done.stderr.splitlines()]
    assert (done.returncode, lines) == (0, [dead[0], *said, dead[1]])


def test_a_configuration_of_the_module_silences_no_line(site: Site) -> None:
    (site.directory / "handlers.py").write_text(LOGGING + 'WAYS["dictConfig"](), from_file()\n')
    message = site.enqueue("spoils", way="level")
    dead = f"dead letter: {message} (spoils), attempt 1: ValueError: level (handlers.py:44)"
    assert site.drain().stderr == f"pollconsumer: warning: {dead}\n"


def test_what_others_attach_to_our_logger_has_our_records(site: Site) -> None:
    ways = 'OURS.addHandler(logging.FileHandler("ours")), ROOT.addHandler(logging.FileHandler("roots"))\n'
    (site.directory / "handlers.py").write_text(LOGGING + ways)
    message = site.enqueue("spoils", way="shutdown")
    said = f"dead letter: {message} (spoils), attempt 1: ValueError: shutdown (handlers.py:44)"
    assert site.drain().stderr == f"pollconsumer: warning: {said}\n"
    assert {(site.directory / name).read_text() for name in ("ours", "roots")} == {f"{said}\n"}


STREAMS = """
import io, logging, os, sys
from pollconsumer import PollConsumer

app = PollConsumer()
OURS = sys.stderr

class Wrapper:
    def __init__(self, stream):
        self.stream = stream
    def __getattr__(self, name):
        return getattr(self.stream, name)
    def write(self, text):
        pass

class Nothing:
    pass

def replaced(stream):
    sys.stdout = sys.stderr = stream

def closed():
    OURS.close()
    replaced(OURS)

def led_elsewhere():
    descriptor = os.open("elsewhere", os.O_WRONLY | os.O_CREAT)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)

WAYS = {
    "None": lambda: replaced(None),
    "StringIO": lambda: replaced(io.StringIO()),
    "wrapper": lambda: replaced(Wrapper(OURS)),
    "nothing": lambda: replaced(Nothing()),
    "file": lambda: replaced(open("elsewhere", "w")),
    "closed": closed,
    "closed file": lambda: replaced(open(os.devnull, "w")) or sys.stderr.close(),
    "closed descriptor": lambda: os.closerange(2, 3),
    "led elsewhere": led_elsewhere,
}

@app.handler(max_attempts=1)
def fails() -> None:
    raise ValueError("no")

@app.handler(max_attempts=1)
def spoils(way: str) -> None:
    WAYS[way]()
    raise ValueError("no")

@app.handler(isolation="process")
def spoils_alone(way: str) -> None:
    WAYS[way]()
    logging.getLogger("mine").warning("careful")
"""
STREAM_WAYS = [line.split('"')[1] for line in STREAMS.partition("WAYS")[2].splitlines() if line.startswith('    "')]


IN_TURN = [(way, at % 2 == 0) for at, way in enumerate(STREAM_WAYS)]


@pytest.mark.parametrize(("way", "in_module"), [*IN_TURN, *(long(way, not in_module) for way, in_module in IN_TURN)])
def test_whatever_stands_in_the_place_of_standard_error_our_lines_are_printed(
    site: Site, way: str, in_module: bool
) -> None:
    (site.directory / "handlers.py").write_text(STREAMS)
    handler = "fails" if in_module else "spoils"
    messages = [site.enqueue(handler, **({} if in_module else {"way": way})) for _ in range(2)]
    if in_module:
        (site.directory / "handlers.py").write_text(f'{STREAMS}\nWAYS["{way}"]()\n')
    done = site.drain()
    failed = f"({handler}), attempt 1: ValueError: no (handlers.py:{45 if in_module else 50})"
    said = [f"pollconsumer: warning: dead letter: {each} {failed}" for each in messages]
    assert (done.returncode, done.stderr.splitlines()) == (0, said)


def test_nor_does_it_hide_those_of_a_process_of_its_own(site: Site) -> None:
    (site.directory / "handlers.py").write_text(STREAMS)
    messages = [site.enqueue("spoils_alone", way="None") for _ in range(2)]
    said = [f"pollconsumer: warning: careful (message {each}, spoils_alone, attempt 1)" for each in messages]
    assert site.drain().stderr.splitlines() == said


def test_a_module_that_replaces_the_streams_hides_neither_ids_nor_errors_of_a_command(site: Site) -> None:
    (site.directory / "handlers.py").write_text(f'{STREAMS}\nWAYS["StringIO"]()\n')
    assert len(site.enqueue("fails")) > 8
    refused = site.command("enqueue", "fails", '{"extra": 1}')
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (65, "", 1)


FORKING = """
import multiprocessing, os, signal, time
from pathlib import Path
from pollconsumer import PollConsumer

app = PollConsumer()
processes = multiprocessing.get_context("fork")

def note(what):
    with (Path(__file__).parent / "notes").open("a") as notes:
        notes.write(f"{what}\\n")

def fork(name):
    plain = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGALRM, signal.SIGURG)]
    ends = [plain == [signal.SIG_DFL] * 4, signal.getsignal(signal.SIGINT) is signal.default_int_handler]
    os._exit(0 if all(ends) else 1)

def ended(process):
    until = time.monotonic() + 60
    while process.exitcode is None and time.monotonic() < until:
        process.join(1)  # at once without a code where another thread's start() reaps it in this instant
    return process.exitcode

@app.handler(timeout="80s")
def forks(name: str) -> None:
    first, second = processes.Process(target=fork, args=(name,)), processes.Process(target=time.sleep, args=(300,))
    first.start(), second.start()
    second.terminate()
    note(f"{name} {ended(first)} {ended(second)}")

@app.handler
async def forks_async(name: str) -> None:
    forks(name)

@app.handler(isolation="process")
def forks_alone(name: str) -> None:
    forks(name)
"""


@pytest.mark.parametrize("concurrency", [1, 2])
def test_what_a_handler_forks_ends_at_signals_as_any_program(site: Site, concurrency: int) -> None:
    (site.directory / "handlers.py").write_text(FORKING)
    names = ["forks", "forks_async", "forks_alone"]
    for name in names:
        site.enqueue(name, name=name)
    done = site.drain("--concurrency", str(concurrency))
    assert done.returncode == 0, done.stderr
    assert sorted(site.notes()) == sorted(f"{name} 0 -15" for name in names)


@pytest.mark.parametrize("concurrency", [1, 2])
def test_files_named_as_modules_of_pythons_end_no_launch(site: Site, concurrency: int) -> None:
    (site.directory / "handlers.py").write_text(HANDLERS)
    for name in ("queue", "ssl"):
        (site.directory / f"{name}.py").write_text("mine = True\n")
    for handler in ("plain", "turns", "alone"):
        site.enqueue(handler)
    done = site.drain("--concurrency", str(concurrency))
    assert (done.returncode, done.stderr, len(site.notes())) == (0, "", 3)


POOLED = """
import multiprocessing
from pollconsumer import PollConsumer

app = PollConsumer()

@app.handler
def twice(n: int) -> int:
    return 2 * n

@app.handler(max_attempts=1)
def several() -> None:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(twice, [1, 2, 3]) == [2, 4, 6]
"""


def test_a_handler_can_be_called_in_the_processes_of_a_pool(site: Site) -> None:
    (site.directory / "handlers.py").write_text(POOLED)
    site.enqueue("several")
    done = site.drain()
    assert (done.returncode, done.stderr) == (0, "")
