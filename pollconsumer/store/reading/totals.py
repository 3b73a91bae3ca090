"""Totals of all launches, which never fall.

What was settled is counted in each queue by the scripts that settle (`lua/parts/totals.lua`), in a hash whose names
have three parts. The first is the kind of a settlement, the second its handler, the third the bucket of how long it
took, empty if it was not handled; or the first is ``waiting`` or ``lateness``, the second empty. ``ms`` in place of a
bucket stands for the sum. Occurrences that were skipped are counted as ``skipped``; ``at`` in place of a bucket says
when one was last. How launches ended is counted in the namespace, by role and stop reason; there each alias that a
launch knew of has the name of its handler.

A histogram's buckets double: the first has all below a millisecond, number n those below 2ⁿ milliseconds, the last one
all longer ones.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from pollconsumer.store.client.wire import Wire
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.records.id_text import id_text
from pollconsumer.store.server import count_of, readable_queues

LAST_BUCKET = 24
"""The number of the last bucket, for spans of 2.3 hours and more."""
SKIPPED, SKIPPED_AT = "skipped\n\n", "skipped\n\nat"
"""Names in a queue's totals: how many occurrences were skipped, and when one was last, in epoch ms."""
OUTCOMES = {
    "complete": "completed",
    "retry": "retried",
    "dead": "dead",
    "cancel": "stopped",
    "expire": "expired",
    "release": "released",
    "park": "parked",
    "asleep": "asleep",
}
"""The outcome that each kind of settlement counts for."""


@dataclass
class Spans:
    """A histogram: its sum in seconds, and how many spans are in each bucket."""

    total: float = 0.0
    counts: Counter[int] = field(default_factory=Counter)

    def add(self, bucket: str, number: int) -> None:
        if bucket == "ms":
            self.total += number / 1000
        else:
            self.counts[int(bucket)] += number


@dataclass
class Totals:
    """The totals: ``settled`` by queue, handler and outcome, ``launches`` by role and stop reason, ``durations`` by
    handler, ``waits``, ``lateness`` and ``skipped`` by queue."""

    settled: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    launches: dict[tuple[str, str], int] = field(default_factory=dict)
    durations: defaultdict[str, Spans] = field(default_factory=lambda: defaultdict(Spans))
    waits: defaultdict[str, Spans] = field(default_factory=lambda: defaultdict(Spans))
    lateness: defaultdict[str, Spans] = field(default_factory=lambda: defaultdict(Spans))
    skipped: Counter[str] = field(default_factory=Counter)

    def add(self, queue: str, fields: Sequence[bytes], renamed: Mapping[str, str]) -> None:
        """Add what was settled in ``queue``. ``renamed``: handlers by alias."""
        for name, text in zip(fields[::2], fields[1::2], strict=True):
            number = max(0, count_of(text))
            match id_text(name).split("\n"):
                case ["waiting", "", bucket] if _is_place(bucket):
                    self.waits[queue].add(bucket, number)
                case ["lateness", "", bucket] if _is_place(bucket):
                    self.lateness[queue].add(bucket, number)
                case ["skipped", "", ""]:
                    self.skipped[queue] = number
                case [kind, handler, bucket] if kind in OUTCOMES and (not bucket or _is_place(bucket)):
                    handler = renamed.get(handler, handler)
                    if bucket:
                        self.durations[handler].add(bucket, number)
                    if bucket != "ms":
                        self.settled[queue, handler, OUTCOMES[kind]] += number


def _is_place(bucket: str) -> bool:
    return bucket == "ms" or (bucket.isdecimal() and int(bucket) <= LAST_BUCKET)


def all_names(wire: Wire, keys: Keys, handlers: Collection[str]) -> set[str]:
    """All names of ``handlers``, each of which is given by its own name or an alias that a launch knew of."""
    aliases = _aliases_in(wire.command("HGETALL", keys.control("totals")))
    own = {aliases.get(name, name) for name in handlers}
    return own | {alias for alias, name in aliases.items() if name in own}


def _aliases_in(fields: Sequence[bytes]) -> dict[str, str]:
    """The own name of each alias's handler, among the totals of launches."""
    split = (id_text(name).partition("\n") for name in fields[::2])
    return {
        alias: id_text(text) for (kind, _, alias), text in zip(split, fields[1::2], strict=True) if kind == "renamed"
    }


def totals_of(wire: Wire, keys: Keys) -> Totals:
    """The totals of a store, but for corrupt names and queues that cannot be read."""
    queues = readable_queues(wire, keys)
    commands = [("HGETALL", keys.queue(queue, "totals")) for queue in queues]
    launches, *settled = wire.all([("HGETALL", keys.control("totals")), *commands])
    found, renamed = Totals(), _aliases_in(launches)
    for name, text in zip(launches[::2], launches[1::2], strict=True):
        match id_text(name).split("\n"):
            case ["launches", role, reason]:
                found.launches[role, reason] = max(0, count_of(text))
    for queue, fields in zip(queues, settled, strict=True):
        found.add(queue, fields, renamed)
    if wire.unread:
        found.durations.clear()  # totals must not fall, and these are over all queues
    return found
