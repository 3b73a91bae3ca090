"""Handlers of the messages that an earlier version's store holds, in every state. Each call appends to ``notes``."""

from __future__ import annotations

import time
from pathlib import Path

from pollconsumer import Context, Fatal, PollConsumer, RetryIn

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
