"""Members that fail until they are redriven, some that add others, and callbacks that note that they were called."""

from __future__ import annotations

import os

from pollconsumer import Context, Fatal, PollConsumer

app = PollConsumer()
QUEUES = ("mail", "reports", "calls")
"""Each on a node of its own, where three nodes are a cluster."""
INNER = 4
"""Members of the batch that is a member of each batch."""


def note(context: Context, what: str) -> None:
    """Write down the attempt and what was found, in one write, as concurrent processes do."""
    line = f"{context.id} {context.generation}.{context.attempt} {what}\n".encode()
    notes = os.open("notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(notes, line)
    os.close(notes)


@app.handler("member", queue="mail")
def member(context: Context, fails: bool, grows: int = 0) -> int:
    if fails and context.generation == 0:
        raise Fatal("until it is redriven")
    for _ in range(grows):
        assert context.batch is not None
        context.batch.add(member.args(fails=False).using(queue="reports"))
    return 1


@app.handler("callback", queue="calls")
def callback(context: Context) -> None:
    assert context.batch is not None
    batch = context.batch
    note(context, f"{batch.total} {batch.completed} {sum(1 for _ in batch.results())}")


@app.handler("elsewhere", queue="mail")
def elsewhere(context: Context) -> None:
    callback.__wrapped__(context)
