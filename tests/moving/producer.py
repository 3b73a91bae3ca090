"""A producer that repeats what was refused, by its id, wherever the store is by now.

``python -m tests.moving.producer FIRST STEP``: enqueues the numbers FIRST, FIRST + STEP, and so on, until there is a
file ``stop``; the file ``store`` has the URL. Prints how many were accepted, how often a call was refused, and for how
many seconds at most.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pollconsumer import OutcomeUnknown, PollConsumer, StoreUnreachable

BATCH = 20
PAUSE = 0.05


def main() -> None:
    first, step = map(int, sys.argv[1:])
    here = Path.cwd()
    refused, unknown, longest = 0, 0, 0.0
    number = first
    url, app = "", PollConsumer()
    while not (here / "stop").exists():
        batch = range(number, number + BATCH * step, step)
        since = time.monotonic()
        while True:
            if (now := (here / "store").read_text()) != url:
                url, app = now, PollConsumer(store=now, patience="500ms")
            try:
                for n in batch:
                    app.enqueue("count", {"n": n}, id=f"live-{n}")
            except StoreUnreachable as error:
                refused += 1
                unknown += isinstance(error, OutcomeUnknown)
                time.sleep(PAUSE)
            else:
                break
        longest = max(longest, time.monotonic() - since)
        number += BATCH * step
        time.sleep(PAUSE)
    accepted = (number - first) // step
    print(json.dumps({"accepted": accepted, "refused": refused, "unknown": unknown, "longest": round(longest, 2)}))


if __name__ == "__main__":
    main()
