"""``python -m tests.cluster.producing QUEUES PACE``: enqueues to all queues in turn until it is told to end; notes what
was acknowledged."""

from __future__ import annotations

import random
import select
import sys
import time
from itertools import count
from pathlib import Path

from pollconsumer import OutcomeUnknown, PollConsumer, StoreUnreachable

ACKNOWLEDGED = "acknowledged"


def produce(queues: int, pace: float) -> None:
    """A message each ``pace`` seconds, on average. Repeats a call with its id until it is acknowledged."""
    app = PollConsumer()
    with Path(ACKNOWLEDGED).open("w", 1) as acknowledged:
        for number in count():
            since, name = time.time(), f"m{number}"
            while True:
                try:
                    app.enqueue("note", {"name": name, "since": since}, id=name, queue=f"q{number % queues}")
                    break
                except (OutcomeUnknown, StoreUnreachable):
                    continue
            print(name, file=acknowledged)
            if select.select([sys.stdin], [], [], random.uniform(0, 2 * pace))[0]:
                return


if __name__ == "__main__":
    produce(int(sys.argv[1]), float(sys.argv[2]))
