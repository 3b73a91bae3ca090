"""``python -m tests.trials.producing SOURCE PACE [QUEUE…]``: enqueues until it is told to end, and records what was
accepted.

A message each PACE seconds, on average, whose ids begin with SOURCE, to the queues in turn. A call is repeated with its
id until it is acknowledged.
"""

from __future__ import annotations

import random
import signal
import sys
import time
from itertools import count, cycle

from pollconsumer import OutcomeUnknown, PollConsumer, StoreUnreachable
from tests.trials.recording import ACCEPTED, append, open_record


def produce(source: str, pace: float, *queues: str) -> None:
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    app, record = PollConsumer(patience="5s"), open_record(ACCEPTED)
    for number, queue in zip(count(), cycle(queues or ("default",)), strict=False):
        message, since, doubts = f"{source}-{number}", time.time(), 0
        while not stopped:
            try:
                app.enqueue("record", {"since": since}, id=message, queue=queue)
            except (OutcomeUnknown, StoreUnreachable):
                doubts += 1  # the id makes repeating it harmless
                continue
            append(record, message, since, f"{time.time():.6f}", doubts)
            break
        if stopped:
            return
        time.sleep(random.uniform(0, 2 * pace))


if __name__ == "__main__":
    produce(sys.argv[1], float(sys.argv[2]), *sys.argv[3:])
