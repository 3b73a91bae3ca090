"""The handler of an installation on trial: notes each of its executions."""

from __future__ import annotations

import os
import time

from pollconsumer import PollConsumer

app = PollConsumer()
_NOTES = os.open("notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


@app.handler(queue="q0")
def note(name: str, since: float) -> None:
    os.write(_NOTES, f"{name} {since} {time.time()}\n".encode())
