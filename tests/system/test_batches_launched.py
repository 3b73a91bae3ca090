"""Batches in whole launches: handlers in processes of their own, a store that is moved, and rights of producers."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.site import Site
    from tests.store.servers import Server

HANDLERS = """
import os
from pathlib import Path
from pollconsumer import Context, Fatal, NotFound, PollConsumer
from pollconsumer.interface.api.app import calls_of
from pollconsumer.store.keyspace import Keys

app = PollConsumer()

def note(what):
    descriptor = os.open(Path(__file__).parent / "notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{what}\\n".encode())
    os.close(descriptor)

@app.handler("apart", isolation="process")
def apart(context: Context, grows: int) -> int:
    for _ in range(grows):
        context.batch.add(apart.args(0))
    return grows

@app.handler("brief")
def brief() -> None: ...

@app.handler("starts", isolation="process")
def starts(context: Context) -> None:
    batch = context.start_batch("started", ended=told.args())
    batch.add(apart.args(0))

@app.handler("told", isolation="process", queue="told")
def told(context: Context) -> None:
    batch = context.batch
    note(f"{context.id} {batch.total} {batch.completed} {sum(each.result or 0 for each in batch.results())}")

def asks(context: Context) -> None:
    batch = context.batch
    counts = [batch.total, batch.completed, batch.dead, batch.cancelled, batch.expired]
    note(f"{context.handler} {batch.index} {batch.state} {counts}")

def misses(context: Context) -> None:
    gone = [Keys("pollconsumer").queue("default", name) for name in ("batches", "batch_members", "batch_instants")]
    calls_of(app).ask(lambda store: store.wire.command("DEL", *gone))
    batch = context.batch
    for ask in (batch.status, lambda: [*batch.results()], batch.cancel, lambda: batch.add(brief.args())):
        try:
            ask()
        except NotFound as error:
            note(str(error).replace(batch.id, "ID"))

misses_here, misses_apart = app.handler("misses_here")(misses), app.handler("misses_apart", isolation="process")(misses)

asks_here, asks_apart = app.handler("asks_here")(asks), app.handler("asks_apart", isolation="process")(asks)

@app.handler("fatal")
def fatal() -> None:
    raise Fatal("never")

@app.handler("adds")
def adds(context: Context, n: int) -> int:
    return n + (context.previous.result if context.previous else 0)

@app.handler("notes")
def notes(context: Context) -> None:
    note(f"{context.id} {context.previous.result}")
"""
PRODUCE = """
from handlers import *
with app.batch("b", then=told.args(), failed=told.args()) as batch:
    batch.add(apart.args(2))
    batch.add(apart.args(1))
app.chain(adds.args(1), adds.args(2), notes.args()).enqueue()
"""
SERVED = '[consumer]\nqueues = ["default", "told"]\n'


def produce(site: Site) -> None:
    (site.directory / "handlers.py").write_text(HANDLERS)
    with (site.directory / "config.toml").open("a") as config:
        config.write(SERVED)
    done = site.start_program([sys.executable, "-c", PRODUCE])
    assert done.communicate() == ("", "")


def test_members_and_callbacks_in_processes_of_their_own(site: Site) -> None:
    produce(site)
    site.enqueue("starts")
    assert site.drain().returncode == 0
    assert {"b:then 5 5 3", "started:ended 1 1 0"} < {*site.notes()}
    (chained,) = (note for note in site.notes() if note.split()[0].endswith("+3"))
    assert chained.split()[1] == "3"


def test_a_member_reads_its_batch_in_a_process_of_its_own_as_in_the_launch(site: Site) -> None:
    (site.directory / "handlers.py").write_text(HANDLERS)
    members = ("brief", "fatal", "asks_apart", "asks_here")
    add = "; ".join(f"batch.add({member}.args())" for member in members)
    produced = f"from handlers import *\nwith app.batch('b', ended=told.args()) as batch: {add}"
    assert site.start_program([sys.executable, "-c", produced]).communicate() == ("", "")
    for _ in members:  # a launch each: what ended before is counted
        assert site.command("run", "--max-messages", "1").returncode == 0
    assert site.notes() == ["asks_apart 2 closed [4, 1, 1, 0, 0]", "asks_here 3 closed [4, 2, 1, 0, 0]"]


@pytest.mark.parametrize("handler", ["misses_here", "misses_apart"])
def test_a_batch_that_is_forgotten_is_missed_in_a_process_of_its_own_as_in_the_launch(site: Site, handler: str) -> None:
    (site.directory / "handlers.py").write_text(HANDLERS)
    produced = f"from handlers import *\nwith app.batch() as batch: batch.add({handler}.args())"
    assert site.start_program([sys.executable, "-c", produced]).communicate() == ("", "")
    assert site.command("run", "--max-messages", "1").returncode == 0
    kept, ended = "an ended batch is kept for two days", "it has ended and was deleted"
    assert site.notes() == [f"no such batch: ID; {why}" for why in (kept, kept, kept, ended)]


def test_a_batch_that_is_moved_to_another_server_goes_on_there(site: Site, valkey: Server) -> None:
    produce(site)
    assert site.command("run", "--until-empty", "--max-messages", "1").returncode == 0
    assert site.command("store", "export", "moved").returncode == 0
    assert site.command("--store", valkey.url, "store", "import", "moved").returncode == 0
    assert site.drain("--store", valkey.url).returncode == 0
    assert "b:then 5 5 3" in site.notes()


def test_brief_members_that_are_handled_in_passes_are_told(site: Site) -> None:
    produce(site)
    many = "with app.batch('many', then=told.args()) as batch:\n    for _ in range(500): batch.add(brief.args())"
    assert site.start_program([sys.executable, "-c", f"from handlers import *\n{many}"]).communicate() == ("", "")
    assert site.drain().returncode == 0
    assert any(note.startswith("many:then 500 500") for note in site.notes())


def test_a_message_with_a_sequel_is_shown(site: Site) -> None:
    produce(site)
    found = json.loads(site.command("status", "b.0", "--json").stdout)
    assert (found["state"], found["payload"]) == ("ready", {"grows": 2})
