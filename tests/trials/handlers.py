"""The handler of an installation on trial: it records each of its calls."""

from __future__ import annotations

import secrets
import time

from pollconsumer import Backoff, Context, PollConsumer
from tests.trials.recording import EXECUTED, append, open_record

app = PollConsumer()
LAUNCH = secrets.token_hex(8)
_RECORD = open_record(EXECUTED)


@app.handler(max_attempts=1000, retry=Backoff(first="10ms", factor=1, most="10ms"))
def record(context: Context, since: float) -> int:
    """Returns its fence, which the store keeps if it takes the completion."""
    at = f"{time.time():.6f}"
    append(_RECORD, context.id, since, at, context.attempt, context.fence, LAUNCH)
    time.sleep(0.001)
    return context.fence
