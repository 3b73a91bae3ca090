"""Each execution appends the number of its message."""

from __future__ import annotations

import os
from pathlib import Path

from pollconsumer import PollConsumer

app = PollConsumer()
LOG = os.open(Path(__file__).with_name("executed"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


@app.handler
def count(n: int) -> None:
    os.write(LOG, n.to_bytes(4, "big"))
