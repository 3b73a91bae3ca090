"""Which batches are stuck: they are not ended in time, or nobody comes for their members."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pollconsumer.core.notation.timespan import format_duration
from pollconsumer.watching.health.facts import BatchFacts, Facts, Finding
from pollconsumer.watching.health.groups import LaunchGroup

LATE, LONG = 600.0, 3600.0
"""Seconds for which a batch may be overdue, and after which a closed one should not wait for launches."""


def of_batches(facts: Facts, groups: Sequence[LaunchGroup]) -> Iterator[Finding]:
    served = {queue for group in groups if group.role == "consumer" and not group.absent for queue in group.queues}
    for batch in facts.batches:
        if batch.overdue_by is not None and batch.overdue_by > LATE:
            yield _of_overdue(batch)
        elif batch.state == "closed" and batch.age > LONG and not served.issuperset(batch.queues[1:]):
            yield _of_unserved(batch, [queue for queue in batch.queues[1:] if queue not in served])


def _of_overdue(batch: BatchFacts) -> Finding:
    end = "abandoned" if batch.state == "open" else "expired"
    return Finding(
        "batch_stuck", batch.id, f"batch {batch.id} is still {batch.state}",
        f"it should have been {end} {format_duration(batch.overdue_by or 0.0)} ago",
        f"launches of queue {batch.queues[0]} do that: check that they run, and see the log of one (run -v)",
    )  # fmt: skip


def _of_unserved(batch: BatchFacts, unserved: Sequence[str]) -> Finding:
    return Finding(
        "batch_stuck", batch.id, f"no launch serves the members of batch {batch.id}",
        f"{batch.outstanding} of {batch.total} have not ended after {format_duration(batch.age)}",
        f"start launches for queue{'s'[: len(unserved) > 1]} {', '.join(unserved)}, or cancel the batch",
    )  # fmt: skip
