"""``python -m tests.batches.producer MEMBERS ID…``: batches, each with a batch within it, the same each time."""

from __future__ import annotations

import sys
from contextlib import suppress

from pollconsumer.core.errors import UsageError
from pollconsumer.store.queues import batches
from tests.batches.handlers import INNER, QUEUES, app, callback, elsewhere, member

OPEN_FOR_MS = 20_000
"""An open batch is abandoned sooner than users' batches, so that a trial sees it."""


def produce(name: str, members: int) -> None:
    with app.batch(name, then=callback.args(), failed=elsewhere.args(), ended=callback.args()) as batch:
        for number in range(members):
            grows = 3 if number % 10 == 9 else 0
            given = member.args(fails=number % 5 == 0, grows=grows)
            batch.add(given.using(queue=QUEUES[number % 3]))
        with batch.add_batch(then=callback.args(), failed=elsewhere.args(), ended=callback.args()) as inner:
            for number in range(INNER):
                inner.add(member.args(fails=number == 0).using(queue=QUEUES[number % 3]))


batches.OPEN_FOR_MS = OPEN_FOR_MS
for name in sys.argv[2:]:
    with suppress(UsageError):  # it was abandoned, while an earlier producer's successor was away
        produce(name, int(sys.argv[1]))
