"""A queue's throughput and delays, computed from the timestamps of completed messages; no counters are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pollconsumer.core.lifecycle import durations_of
from pollconsumer.store.rows import read_row

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pollconsumer.store.keys import Keys
    from pollconsumer.store.wire import Wire

COUNTED = 1000
"""Completed messages from which the rate is computed: over a minute, or less if they cover less."""
LOOKED_AT = 100
MINUTE = 60_000


class Load(NamedTuple):
    """``waited_seconds``, from ready to reserved, and ``handled_seconds`` are means over the last completed messages,
    ``late_seconds`` is the maximum delay between due time and ready. None if there are none."""

    completed_per_minute: float
    waited_seconds: float | None
    handled_seconds: float | None
    late_seconds: float | None


def load_of(wire: Wire, keys: Keys, queue: str, now: int) -> Load:
    """``now`` in epoch ms of the server's clock."""
    entries = wire.command("LRANGE", keys.queue(queue, "completed"), -COUNTED, -1)
    ended = [int.from_bytes(entry[:6], "big") for entry in entries]
    recent = [at for at in ended if at > now - MINUTE]
    span = max(1, now - recent[0]) if len(recent) == COUNTED else MINUTE
    ids = [entry[6:] for entry in entries[-LOOKED_AT:]]
    found = wire.command("HMGET", keys.queue(queue, "rows"), *ids) if ids else []
    times = [read_row(row).timestamps for row in found if row]
    spans = [durations_of(t) for t in times]
    late = [max(0, t.enqueued_at - t.due_at) / 1000 for t in times if t.due_at and t.enqueued_at]
    return Load(
        completed_per_minute=round(len(recent) * MINUTE / span, 1),
        waited_seconds=_mean(span["waited_seconds"] for span in spans),
        handled_seconds=_mean(span["handled_seconds"] for span in spans),
        late_seconds=max(late) if late else None,
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 3) if known else None
