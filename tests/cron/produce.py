"""The producer: a message every 100 ms through the Python API, until SIGTERM.

Each message has an id of its own, so that an enqueue whose outcome is unknown can be repeated. What was accepted is
written to the file that is the first argument: sequence, time of the first try, seconds until accepted, tries. With a
second argument ``mixed``, every twentieth message takes 0.5 s to handle and every fiftieth is scheduled 3 s ahead.
"""

from __future__ import annotations

import itertools
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pollconsumer import PollConsumer
from pollconsumer.core.errors import StoreUnreachable

PERIOD = 0.1
LASTING, LASTS = 20, 0.5
SCHEDULED, AHEAD = 50, 3.0
RETRY_AFTER = 0.05


def main() -> None:
    """Produce until told to stop; returns after the message in hand was accepted."""
    accepted, mixed = Path(sys.argv[1]), sys.argv[2:] == ["mixed"]
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    app = PollConsumer()
    began = time.monotonic()
    with accepted.open("w", buffering=1) as lines:
        for sequence in itertools.count():
            if stopped.wait(max(0.0, began + sequence * PERIOD - time.monotonic())):
                return
            tried, enqueued = time.monotonic(), time.time()
            tries = produce(app, sequence, enqueued, mixed)
            lines.write(f"{sequence} {enqueued:.6f} {time.monotonic() - tried:.6f} {tries}\n")


def produce(app: PollConsumer, sequence: int, enqueued: float, mixed: bool) -> int:
    """Enqueue one message, again until it is accepted. Returns the number of tries."""
    payload: dict[str, Any] = {"sequence": sequence, "enqueued": enqueued}
    ahead: float | None = None
    if mixed and sequence % SCHEDULED == SCHEDULED - 1:
        ahead = AHEAD
        payload["due"] = enqueued + AHEAD
    elif mixed and sequence % LASTING == LASTING - 1:
        payload["lasts"] = LASTS
    tries = 1
    while True:
        try:
            app.enqueue("measured", payload, id=f"measured-{sequence}", in_=ahead)
        except StoreUnreachable:
            time.sleep(RETRY_AFTER)
            tries += 1
        else:
            return tries


if __name__ == "__main__":
    main()
