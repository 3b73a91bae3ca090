"""The trial's only handler: it notes each attempt."""

from __future__ import annotations

import os

from pollconsumer import Context, PollConsumer

app = PollConsumer(patience=0.3)


def note(file: str, line: str) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)


@app.handler
def noted(context: Context, name: str) -> None:
    note("notes", f"{context.id} {context.attempt} {name}")
