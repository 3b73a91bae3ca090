"""Reads for `doctor` what is known of batches that have not ended. Nothing here writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pollconsumer.core.notation.instants import epoch_ms
from pollconsumer.store.reading.batch_reader import BatchReader
from pollconsumer.watching.health.facts import BatchFacts

LOOKED_AT = 50
"""Batches of a queue, from either end of their order."""
OLDEST, MEMBERS = 10, 20
"""How many closed batches of a queue, the oldest, are asked for the queues of outstanding members; and for how many
members each."""


def batch_facts(reader: BatchReader, queues: Sequence[str], now: int) -> list[BatchFacts]:
    """Facts of batches of ``queues``. ``now``: in epoch ms of the server's clock."""
    counts = zip(queues, reader.counts(queues), strict=True)
    return [each for queue, count in counts if count for each in _of_queue(reader, queue, now)]


def _of_queue(reader: BatchReader, queue: str, now: int) -> Iterator[BatchFacts]:
    parts = [*reader.part(queue, 0, LOOKED_AT - 1), *reader.part(queue, -LOOKED_AT, -1)]
    lasting = {each.id: (at, each) for at, each in parts if each.state in ("open", "closed")}
    by_age = sorted(lasting.values(), key=lambda found: found[1].created_at)
    asked = [each.id for _, each in by_age if each.state == "closed" and each.outstanding][:OLDEST]
    for at, each in by_age:
        ahead = reader.queues_ahead(each, MEMBERS) if each.id in asked else ()
        yield BatchFacts(
            each.id,
            each.state,
            (each.home, *ahead),
            each.total,
            each.outstanding,
            age=(now - epoch_ms(each.created_at)) / 1000,
            overdue_by=(now - at) / 1000 if at < now else None,
        )
