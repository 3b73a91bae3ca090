"""The producer: a message every 100 ms through the Python API, until SIGTERM.

Each message has an id of its own, so that an enqueue whose outcome is unknown can be repeated. What was accepted is
written to the file that is the first argument: sequence, time of the first try, seconds until accepted, tries. The
second argument is a kind: with ``mixed``, every twentieth message takes 0.5 s to handle and every fiftieth is scheduled
3 s ahead; with ``brief``, each takes 10 ms and every tenth is scheduled; with ``site``, every fortieth takes 1 s.
"""

from __future__ import annotations

import itertools
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from pollconsumer import PollConsumer
from pollconsumer.core.errors import StoreUnreachable
from tests.inner import calls_of

PERIOD = 0.1
LASTING, LASTS = 20, 0.5
SCHEDULED, AHEAD = 50, 3.0
RETRY_AFTER = 0.05


class Kind(NamedTuple):
    """Every ``scheduled``-th message is scheduled; of the others, every ``lasting``-th takes ``lasts`` seconds."""

    scheduled: int = 0
    lasting: int = 0
    lasts: float = 0.0


KINDS = {
    "plain": Kind(),
    "mixed": Kind(SCHEDULED, LASTING, LASTS),
    "brief": Kind(10, 1, 0.01),
    "site": Kind(0, 40, 1.0),
}


def main() -> None:
    """Produce until told to stop; returns after the message in flight was accepted."""
    accepted, kind = Path(sys.argv[1]), KINDS[sys.argv[2]]
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    app = PollConsumer()
    calls_of(app).enqueue_messages([])  # settings and imports, so that they do not delay the first message
    began = time.monotonic()
    with accepted.open("w", buffering=1) as lines:
        for sequence in itertools.count():
            if stopped.wait(max(0.0, began + sequence * PERIOD - time.monotonic())):
                return
            tried, enqueued = time.monotonic(), time.time()
            tries = produce(app, sequence, enqueued, kind)
            lines.write(f"{sequence} {enqueued:.6f} {time.monotonic() - tried:.6f} {tries}\n")


def produce(app: PollConsumer, sequence: int, enqueued: float, kind: Kind) -> int:
    """Enqueue one message, again until it is accepted. Returns the number of tries."""
    payload: dict[str, Any] = {"sequence": sequence, "enqueued": enqueued}
    ahead: float | None = None
    if kind.scheduled and sequence % kind.scheduled == kind.scheduled - 1:
        ahead = AHEAD
        payload["due"] = enqueued + AHEAD
    elif kind.lasting and sequence % kind.lasting == kind.lasting - 1:
        payload["lasts"] = kind.lasts
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
