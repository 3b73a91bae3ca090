"""``python -m tests.faults.volume_producer COUNT``: enqueues so many messages, each until it is accepted."""

from __future__ import annotations

import sys

from pollconsumer import OutcomeUnknown, PollConsumer, StoreUnreachable
from pollconsumer.runtime.new_messages import new_message
from tests.inner import calls_of

BATCH = 1000


def main(count: int) -> None:
    app = PollConsumer()
    for first in range(0, count, BATCH):
        messages = [new_message("count", {"n": n}, id=f"m{n}") for n in range(first, min(first + BATCH, count))]
        while True:
            try:
                calls_of(app).enqueue_messages(messages)
            except (OutcomeUnknown, StoreUnreachable):
                continue  # the ids make repeating it harmless
            break


if __name__ == "__main__":
    main(int(sys.argv[1]))
