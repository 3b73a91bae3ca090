"""Handlers of the messages that an earlier version's store holds, in every state. Each call appends to ``notes``."""

from __future__ import annotations

import logging
import time
from pathlib import Path

from pollconsumer import Context, Fatal, Item, PollConsumer, RetryIn

app = PollConsumer()
HERE = Path(__file__).parent
SOON = 30.0
"""Seconds until what has failed is tried again: after its store was exported."""


def note(context: Context, what: str) -> None:
    with (HERE / "notes").open("a") as notes:
        notes.write(f"{context.id}: {what}\n")


@app.handler
def record(context: Context, text: str = "") -> None:
    note(context, f"attempt {context.attempt}, {len(text)} characters, headers {dict(context.headers)}")


@app.handler
def result(context: Context) -> dict[str, int]:
    note(context, "a result")
    return {"n": 1}


@app.handler
def fatal(context: Context) -> None:
    note(context, "an end")
    raise Fatal("no")


@app.handler
def retried(context: Context) -> None:
    note(context, f"attempt {context.attempt}")
    if context.attempt == 1:
        raise RetryIn(SOON)


@app.handler
def resumed(context: Context) -> None:
    """Keeps a checkpoint, and says in the next attempt which it has found."""
    note(context, f"found {context.state}")
    if context.state is None:
        context.progress(2, 4, "half")
        context.checkpoint({"done": 2})
        raise RetryIn(SOON)


@app.handler
def parent(context: Context) -> None:
    note(context, "a parent")
    context.enqueue("record", {"text": "child"}, id="child")


def hold(context: Context) -> None:
    """Until there is a file ``gate``."""
    note(context, f"begin {context.attempt}")
    while not (HERE / "gate").exists():
        time.sleep(0.01)
    note(context, f"end {context.attempt}")


@app.handler
def held(context: Context) -> None:
    hold(context)


@app.handler(delivery="at_most_once")
def held_once(context: Context) -> None:
    hold(context)


@app.handler
def logged(context: Context) -> None:
    logging.getLogger("kinds").info("a line of %s", context.id)


@app.handler
def stepped(context: Context) -> None:
    """Sleeps after its step, which later attempts do not repeat."""
    found = context.step("one", step, context)
    context.sleep(SOON)
    note(context, f"its step gave {found}")


def step(context: Context) -> int:
    note(context, "its step")
    return 1


@app.handler
def approved(context: Context) -> None:
    note(context, f"approved by {context.wait_for('approved')}")


@app.handler
def called(context: Context) -> int:
    note(context, "called")
    return 5


@app.handler
def caller(context: Context) -> None:
    note(context, f"its child gave {context.call(called.args().using(in_=SOON))}")


@app.handler
def counted(context: Context) -> None:
    batch = context.batch
    assert batch is not None
    note(context, f"{batch.completed} of {batch.total}")


@app.handler
def link(context: Context) -> int:
    found = context.previous.result if context.previous else 0
    note(context, f"after {found}")
    return int(found) + 1


@app.handler(bulk=10)
def together(messages: list[Item]) -> None:
    with (HERE / "notes").open("a") as notes:
        notes.writelines(f"{each.id}: in bulk\n" for each in messages)


def enqueue_more() -> None:
    """What no command enqueues."""
    with app.batch("batch", ended=counted.args()) as batch:
        for name in ("member-1", "member-2"):
            batch.add(record.args(text=name))
    app.chain(link.args().using(id="chain"), link.args()).enqueue()
    record.using(id="with-callback", then=record.args()).enqueue()
    record.using(id="key-until-start", key="u", key_until="start").enqueue()
    record.using(id="with-rate", rate_key="r", rate="1000/1s").enqueue()
    app.recurrences.put("at-run-time", every="1h", handler="record", overlap="queue", created_by="ada")
