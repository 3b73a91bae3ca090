"""The handler of a trial: each call appends its message's number, its attempt, and when it began."""

from __future__ import annotations

import os
import time
from pathlib import Path

from pollconsumer import Backoff, Context, PollConsumer

app = PollConsumer()
log = os.open(Path(__file__).with_name("calls"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


@app.handler(max_attempts=1000, retry=Backoff(first="10ms", factor=1, most="10ms"))
def count(context: Context, n: int) -> None:
    os.write(log, b"%d %d %.6f\n" % (n, context.attempt, time.time()))
    time.sleep(0.001)
