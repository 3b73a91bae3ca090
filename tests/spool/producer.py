"""``python -m tests.spool.producer NAME PAUSE``: messages without end; what was acknowledged is noted.

What may have been enqueued is enqueued again with its id, as the error asks for.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from itertools import count

from pollconsumer import StoreUnreachable
from pollconsumer.core.errors import CannotCreate
from tests.spool.handlers import app, note, noted


def produce(name: str, pause: float) -> None:
    for number in count():
        several = [f"{name}.{number}.{each}" for each in range(random.choice([1, 1, 20]))]
        while True:
            try:
                if len(several) > 1:
                    handles = noted.enqueue_many([{"name": each} for each in several])
                elif random.random() < 0.5:
                    handles = [noted.enqueue(name=several[0])]
                else:
                    handles = [asyncio.run(app.enqueue_async("noted", {"name": several[0]}))]
                break
            except (StoreUnreachable, CannotCreate) as error:
                note("refused", str(error))
                time.sleep(0.1)
        note("accepted", "\n".join(f"{each.id} {each.duplicate}" for each in handles))
        time.sleep(pause)


produce(sys.argv[1], float(sys.argv[2]))
