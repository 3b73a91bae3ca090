"""Whether queues are served, and how many messages are ready in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pollconsumer.store.counts import count_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pollconsumer.store.keys import Keys
    from pollconsumer.store.wire import Wire


class Service(NamedTuple):
    """``lately``: the next launch of a consumer can still be expected. ``ready``: number of ready messages."""

    lately: bool
    paused: bool
    ready: int


def service_of(wire: Wire, keys: Keys, queues: Sequence[str]) -> dict[str, Service]:
    """In one round trip."""
    commands = []
    for queue in queues:
        commands += [
            ("EXISTS", keys.queue(queue, "served")),
            ("EXISTS", keys.queue(queue, "paused")),
            ("LLEN", keys.queue(queue, "ready")),
            ("HGET", keys.queue(queue, "counters"), "left over"),
            ("ZCARD", keys.queue(queue, "ready_by_priority")),
            ("ZCARD", keys.queue(queue, "waiting_for_place")),
        ]
    answers = iter(wire.all(commands))
    found = {}
    for queue in queues:
        served, paused, ready, duplicates, ranked, in_line = (next(answers) for _ in range(6))
        found[queue] = Service(bool(served), bool(paused), ready - count_of(duplicates) + ranked + in_line)
    return found


def unknown_queues(wire: Wire, keys: Keys, queues: Sequence[str]) -> list[str]:
    """Queues that were never enqueued to, paused or served; in one round trip."""
    known = wire.all([("SISMEMBER", keys.control("queues"), queue) for queue in queues])
    return [queue for queue, is_known in zip(queues, known, strict=True) if not is_known]
