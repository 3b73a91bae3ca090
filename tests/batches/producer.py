"""``python -m tests.batches.producer MEMBERS ID…``: batches, the same each time."""

from __future__ import annotations

import sys

from tests.batches.handlers import QUEUES, app, callback, elsewhere, member


def produce(name: str, members: int) -> None:
    with app.batch(name, then=callback.args(), failed=elsewhere.args(), ended=callback.args()) as batch:
        for number in range(members):
            grows = 3 if number % 10 == 9 else 0
            given = member.args(fails=number % 5 == 0, grows=grows)
            batch.add(given.using(queue=QUEUES[number % 3]))


for name in sys.argv[2:]:
    produce(name, int(sys.argv[1]))
