"""The handler of the scenarios: it notes when it starts and when it ends.

The harness copies this module beside its configuration file; the notes go to ``handled`` in the same directory.
"""

from __future__ import annotations

import os
import time
from datetime import datetime
from pathlib import Path

from pollconsumer import PollConsumer

NOTES = os.open(Path(__file__).with_name("handled"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

app = PollConsumer()


@app.handler
def measured(sequence: int, enqueued: float, due: float | None = None, lasts: float = 0.0) -> None:
    """Handle message number ``sequence``, for ``lasts`` seconds.

    ``enqueued`` and ``due`` are the producer's clock, in seconds since the epoch; ``due`` only for a scheduled one.
    """
    note("start", sequence, enqueued, due)
    if lasts:
        time.sleep(lasts)
    note("end", sequence, enqueued, due)


@app.handler
def tick(occurrence: datetime) -> None:
    """Note the start of an occurrence; its sequence is its instant."""
    instant = occurrence.timestamp()
    note("tick", int(instant), instant, instant)


def note(mark: str, sequence: int, enqueued: float, due: float | None) -> None:
    """One line in one write, which O_APPEND keeps whole between processes."""
    line = f"{mark} {sequence} {time.time():.6f} {os.getpid()} {enqueued:.6f} {due or 0:.6f}\n"
    os.write(NOTES, line.encode())
