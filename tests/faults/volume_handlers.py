"""The handler of `volume`: each call appends its message's number and its attempt, which is all that it does."""

from __future__ import annotations

import os
from pathlib import Path

from pollconsumer import Backoff, Context, PollConsumer
from tests.faults.recording import RECORD

app = PollConsumer()
log = os.open(Path(__file__).with_name("calls"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
process = os.getpid() & 0xFFFF


@app.handler(max_attempts=1000, retry=Backoff(first="10ms", factor=1, most="10ms"))
def count(context: Context, n: int) -> None:
    os.write(log, RECORD.pack(n, context.attempt, process))
