"""What type checkers find in programs that use the API: each mistake, on its line, and nothing in what is right."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from mypy import api

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]
PROGRAM = """
from dataclasses import dataclass
from datetime import timedelta
from pollconsumer import Backoff, Batch, BulkContext, Context, Item, PollConsumer, RetryIn
from pollconsumer.testing import Sandbox

app = PollConsumer()

@dataclass
class Row:
    path: str
    size: int

@app.handler("mail.send", queue="mail", timeout="30s", max_attempts=5, retry=Backoff(first="1s"), fatal=(ValueError,))
def send(to: str, subject: str = "") -> int:
    return len(to)

@app.handler
def log(line: str) -> None: ...

@app.handler("index", bulk=200, bulk_wait=timedelta(seconds=2))
def index(messages: list[Item[Row]], context: BulkContext) -> None:
    [each.payload.size for each in messages]
    [each.payload.sise for each in messages]  # attr-defined
    [each.playload for each in messages]  # attr-defined
    [each.payload.size.upper() for each in messages]  # attr-defined
    context.cancelled
    context.canceled  # attr-defined

@app.handler("report")
def report(context: Context, day: int) -> None:
    if context.batch:
        sum(each.result for each in context.batch.results())
        [each.payload for each in context.batch.failures()]
        [each.paylod for each in context.batch.failures()]  # attr-defined
        context.batch.redrive()
    context.enqueue("log", {"line": "x"}, in_="5m")
    context.enqueue("log", {"line": "x"}, delay="5m")  # call-arg
    context.enqueue("log", line="x")  # call-arg
    context.idempotencykey  # attr-defined
    raise RetryIn(timedelta(minutes=1))

@app.handler("bad", max_attemps=5)  # call-overload
def misspelt() -> None: ...

@app.handler("bad", timeout=b"5m")  # call-overload
def of_bytes() -> None: ...

@app.handler("bad", retry=["10s", 60, timedelta(minutes=5)], isolation="proces")  # call-overload
def isolated() -> None: ...

@app.every("5m", oberlap="skip")  # call-arg
def every() -> None: ...

@app.every("5m", overlap="never")  # arg-type
def never() -> None: ...

send.enqueue(to="ada")
send.enqueue("ada", subject="hello")
send.enqueue(too="ada")  # call-arg
send.enqueue()  # call-arg
send.enqueue(to=5)  # arg-type
send.enqueue(to="ada", in_="5m")  # call-arg
send.using(in_="5m", priority=3, expires=timedelta(days=1)).enqueue(to="ada")
send.using(dellay="5m").enqueue(to="ada")  # call-arg
send.using(priority="3").enqueue(to="ada")  # arg-type
send.using(in_="5m").enqueue(too="ada")  # call-arg
send.using(in_="5m").using(priority=3)  # attr-defined
send.args("ada").using(in_="5m")
send.args(too="ada")  # call-arg
send.args("ada").enqueue()  # attr-defined
send.delay(to="ada")  # attr-defined
send.enqueue("ada").result  # attr-defined
send.enqueue("ada").wait("5s")
send.enqueue_many([{"to": "ada"}])
send.enqueue_many([send.args("ada"), send.args("bob").using(id="b")])
send.enqueue_many([log.args("line")])  # list-item
send.enqueue_many(["ada"])  # list-item
send.enqueue_many([{1: "ada"}])  # dict-item
send.enqueue_many({"to": "ada"})  # dict-item
app.enqueue("mail.send", {"to": "ada"}, in_="5m")
app.enqueue("mail.send", to="ada")  # call-arg
app.enqueue(send, {"to": "ada"})  # arg-type
app.enqueue(send.args("ada"))  # arg-type
app.enqueue("mail.send", {"to": "ada"}, key_scope="all")  # arg-type
app.task  # attr-defined
app.enqueue_in("5m", "mail.send")  # attr-defined
app.messages(state="dead").redrive_all()
app.messages(state="ded")  # arg-type
app.messages(stat="dead")  # call-arg
app.batches.get("b").members("dead")
app.batches.get("b").members("ded")  # arg-type
app.recurrences.put("check:42", every="5m", handler="check", payload={}, first="now")
app.recurrences.put("check:42", evry="5m", handler="check")  # call-arg
app.recurrences.put("check:42", every="5m", handler="check", missed="never")  # arg-type
app.recurrences.get("check:42").nxt  # attr-defined
app.chain(send.args("ada"), log.args("x"), failed=report.args(1)).enqueue().wait(60)
app.chain(send.args("ada"), log)  # arg-type
PollConsumer(patience=timedelta(seconds=1), stroe="redis://host")  # call-arg

with app.batch("import-42", then=report.args(day=1), expires="2d") as batch:
    batch.add(send.args("ada"))
    batch.add(app.chain(log.args("x")))
    batch.add(send)  # arg-type
    batch.add({"to": "ada"})  # arg-type
met: Batch = batch
met.status().complete  # attr-defined
app.batch("import-42", than=report.args(day=1))  # call-arg

with Sandbox(app) as sandbox:
    sandbox.run_for("1h", every="1m")
    sandbox.run_for("1h", evry="1m")  # call-arg
    sandbox.messages(stat="dead")  # call-arg
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Mapping[int, set[str]]:
    """The errors that mypy finds in the program, by their lines."""
    file = tmp_path_factory.mktemp("typed") / "program.py"
    file.write_text(PROGRAM)
    told, problems, _ = api.run(["--strict", "--no-error-summary", "--cache-dir", str(ROOT / ".mypy_cache"), str(file)])
    assert problems == ""
    lines = dict[int, set[str]]()
    for number, code in re.findall(r"program\.py:(\d+): error: .*\[([\w-]+)\]$", told, re.MULTILINE):
        lines.setdefault(int(number), set()).add(code)
    return lines


def test_type_checkers_find_each_mistake_on_its_line_and_nothing_else(found: Mapping[int, set[str]]) -> None:
    lines = PROGRAM.split("\n")
    meant = {number: line.rpartition("  # ")[2] for number, line in enumerate(lines, 1) if "  # " in line}
    differing = {number for number in {*found, *meant} if meant.get(number) not in found.get(number, ())}
    assert {lines[number - 1]: found.get(number) for number in sorted(differing)} == {}


def test_the_package_says_that_it_has_types() -> None:
    assert (ROOT / "pollconsumer" / "py.typed").is_file()
