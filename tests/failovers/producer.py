"""``python -m tests.failovers.producer NAME SECONDS``: enqueues a message each so many seconds, until it is stopped.

A line for each acknowledgement: the message's id, when it came, and after how many calls that were in doubt.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from pollconsumer import OutcomeUnknown, PollConsumer, StoreUnreachable


def main() -> None:
    name, pace = sys.argv[1], float(sys.argv[2])
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    app = PollConsumer(patience="5s")
    log = os.open(Path("acknowledged"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    number = 0
    while not stopped:
        doubts, message_id = 0, f"{name}-{number}"
        while not stopped:
            try:
                app.enqueue("count", {"n": message_id}, id=message_id)
            except (OutcomeUnknown, StoreUnreachable):
                doubts += 1  # the id makes repeating it harmless
                continue
            os.write(log, b"%s %.6f %d\n" % (message_id.encode(), time.time(), doubts))
            break
        number += 1
        time.sleep(pace)


if __name__ == "__main__":
    main()
