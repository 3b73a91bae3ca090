"""The handler of a trial: each call appends its message's id, when it began, its fence, and its launch."""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path

from pollconsumer import Backoff, Context, PollConsumer

app = PollConsumer()
log = os.open(Path(__file__).with_name("calls"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
launch = secrets.token_hex(8)


@app.handler(max_attempts=1000, retry=Backoff(first="10ms", factor=1, most="10ms"))
def count(context: Context, n: str) -> int:
    """Returns its fence, which the store keeps if it takes the completion."""
    os.write(log, b"%s %.6f %d %s\n" % (n.encode(), time.time(), context.fence, launch.encode()))
    time.sleep(0.001)
    return context.fence
