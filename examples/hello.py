"""A greeting, and a handler that succeeds at its second attempt."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from tempfile import gettempdir

from pollconsumer import Backoff, PollConsumer

app = PollConsumer()


@app.handler
def greet(name: str, enqueued: float | None = None) -> None:
    """Greet ``name``; ``enqueued`` is the sender's clock, in seconds since the epoch."""
    after = f", {(time.time() - enqueued) * 1000:.1f} ms after it was enqueued" if enqueued else ""
    print(f"hello {name}{after}", file=sys.stderr)  # noqa: T201  the point of the example


@app.handler("flaky", max_attempts=3, retry=Backoff(first="500ms", factor=2, most="5s"))
def fail_once(token: str) -> None:
    """Fail the first time that ``token`` is seen."""
    seen = Path(gettempdir(), f"pollconsumer-flaky-{token}")
    if not seen.exists():
        seen.touch()
        raise ConnectionError("the other side is not ready yet")
    seen.unlink()
    print("flaky worked at its second attempt", file=sys.stderr)  # noqa: T201  the point of the example
