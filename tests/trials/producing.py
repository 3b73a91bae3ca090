"""``python -m tests.trials.producing SOURCE PACE SIZE [QUEUE…]``: enqueues until it is told to end, and records what
was accepted.

SIZE messages in one call each PACE seconds, on average, to the queues in turn. Their ids begin with SOURCE. A call is
repeated with its ids until it is acknowledged.
"""

from __future__ import annotations

import random
import signal
import sys
import time
from itertools import count, cycle, islice
from typing import TYPE_CHECKING

from pollconsumer import OutcomeUnknown, PollConsumer, StoreUnreachable
from tests.trials.recording import ACCEPTED, append, open_record

if TYPE_CHECKING:
    from collections.abc import Sequence


app = PollConsumer(patience="5s")


@app.handler
def record(since: float) -> None:
    """Its messages go to the handler of the same name in `tests.trials.handlers`."""


def produce(source: str, pace: float, size: int, *queues: str) -> None:
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    accepted, numbers = open_record(ACCEPTED), count()
    for queue in cycle(queues or ("default",)):
        messages = [f"{source}-{number}" for number in islice(numbers, size)]
        since, doubts = time.time(), 0
        while not stopped:
            try:
                _enqueue(messages, since, queue)
            except (OutcomeUnknown, StoreUnreachable):
                doubts += 1  # the ids make repeating it harmless
                continue
            at = f"{time.time():.6f}"
            for message in messages:
                append(accepted, message, since, at, doubts)
            break
        if stopped:
            return
        time.sleep(random.uniform(0, 2 * pace))


def _enqueue(messages: Sequence[str], since: float, queue: str) -> None:
    if len(messages) == 1:
        app.enqueue("record", {"since": since}, id=messages[0], queue=queue)
    else:
        record.enqueue_many(record.args(since).using(id=message, queue=queue) for message in messages)


if __name__ == "__main__":
    produce(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
