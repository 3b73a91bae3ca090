"""``python -m tests.failovers.producer``: enqueues a message each few milliseconds, until it is told to stop.

A line for each acknowledgement: the message's number, when it came, and after how many calls that were in doubt.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from pollconsumer import OutcomeUnknown, PollConsumer, StoreUnreachable

PACE = 0.005


def main() -> None:
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    app = PollConsumer(patience="5s")
    log = os.open(Path("acknowledged"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    number = 0
    while not stopped:
        doubts = 0
        while True:
            try:
                app.enqueue("count", {"n": number}, id=f"m{number}")
            except (OutcomeUnknown, StoreUnreachable):
                doubts += 1  # the id makes repeating it harmless
                continue
            break
        os.write(log, b"%d %.6f %d\n" % (number, time.time(), doubts))
        number += 1
        time.sleep(PACE)


if __name__ == "__main__":
    main()
