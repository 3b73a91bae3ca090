"""Names of keys. A queue's keys share one hash tag, and so do those of a namespace: no script touches two slots."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from pollconsumer.core.errors import BadData
from pollconsumer.core.message import check_queue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pollconsumer.store.scripts import Script

QUEUE_TYPES = {
    "b": "hash",
    "m": "hash",
    "r": "list",
    "z": "zset",
    "s": "zset",
    "f": "zset",
    "d": "list",
    "dx": "list",
    "x": "zset",
    "e": "hash",
    "u": "hash",
    "c": "hash",
    "t": "hash",
    "k": "list",
    "ks": "list",
    "p": "set",
    "q": "string",
    "g": "hash",
    "w": "zset",
    "h": "hash",
    "o": "list",
    "v": "hash",
    "vx": "zset",
    "y": "hash",
    "n": "hash",
    "nz": "zset",
    "nc": "hash",
    "served": "string",
    "recurrence_owners": "hash",
    "recurrence_owners_seen": "hash",
    "recurrences_replaced": "hash",
    "recurrences_unreadable": "zset",
    "digests": "hash",
    "id_memory": "hash",
    "id_memory_before": "hash",
    "received": "hash",
}
"""Keys of a queue and their types: records, rows, ready, ready by priority, schedule, in flight, completed, cancelled,
dead, errors, unique keys, counters, fences seen, marker of the queue, marker of the schedule, parked, paused;
in flight by concurrency key, waiting for one, handed out by time, to be sent, results, their ends, checkpoints;
recurrences, their next instants, their counts, whether a consumer can be expected; the groups that define them, when
those last did, next instants of definitions that were replaced, instants of those that could not be read;
digests of what was enqueued under ids of the user's choice, ids of forgotten messages in two generations, what was
received last from the outbox of each queue."""

ID_MEMORY_MS = 600_000
"""So long at least the ids of forgotten messages are kept: until then, none of them makes a second message."""
MOST_REMEMBERED = 3_000_000
"""Ids in each of two generations: where more are forgotten in that time, they are kept for less."""


def queue_names(stored: Iterable[bytes]) -> list[str]:
    """In order, and without what cannot be the name of a queue: somebody else wrote it."""
    names = []
    for each in stored:
        with suppress(BadData, UnicodeDecodeError):
            names.append(check_queue(each.decode()))
    return sorted(names)


class Keys:
    def __init__(self, namespace: str) -> None:
        self.namespace = namespace

    def queue(self, queue: str, name: str) -> str:
        return f"{{{self.namespace}:{queue}}}:{name}"

    def of_script(self, script: Script, queue: str) -> list[str]:
        prefix = f"{{{self.namespace}:{queue}}}:"
        return [prefix + name for name in script.keys]

    def control(self, name: str) -> str:
        """A key of the namespace itself: leases, ledger, durations."""
        return f"{{{self.namespace}}}:{name}"
