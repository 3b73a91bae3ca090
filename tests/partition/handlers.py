"""Each execution appends a line when it begins and one when it ends; its result names it."""

from __future__ import annotations

import os
import time
from pathlib import Path

from pollconsumer import Context, PollConsumer
from tests.faults.recording import append

app = PollConsumer()
LOG = Path(__file__).with_name("executions.jsonl")
HOST = os.environ.get("PARTITION_HOST", "")
SECONDS = 0.05


@app.handler(max_attempts=50)
def work(context: Context) -> int:
    """Returns its fence, which the store keeps if it takes the completion."""
    line = {"id": context.id, "fence": context.fence, "host": HOST}
    append(LOG, line | {"what": "begin", "at": time.monotonic()})
    time.sleep(SECONDS)
    append(LOG, line | {"what": "end", "at": time.monotonic()})
    return context.fence
