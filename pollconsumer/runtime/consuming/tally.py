"""What a launch adds to the totals of all launches: counted by the step, sent now and then."""

from __future__ import annotations

import struct
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from pollconsumer.core.histogram import PER_DOUBLING
from pollconsumer.store import rows, totals

if TYPE_CHECKING:
    from pollconsumer.core.histogram import Histogram
    from pollconsumer.runtime.launch.held import Launch
    from pollconsumer.store.reservations import Share

EVERY = 5.0
"""Seconds between calls: a launch that is killed takes the counts since the last one with it."""
OUTCOMES = {
    "retry": "retried",
    "dead": "dead",
    "cancel": "stopped",
    "expire": "expired",
    "release": "released",
    "park": "parked",
}
ATTEMPTED = ("retry", "dead", "cancel")
"""Kinds of settlements whose message was handled."""
UNKNOWN = ""
"""In place of a handler that this launch does not have: anybody can enqueue for any name."""
_PHASES = struct.Struct(">4xHxB8xI20xI2xI").unpack_from
"""Of a row: ATTEMPTS, GENERATION, and the low halves of RESERVED, DUE and ENQUEUED, which tell spans up to 49 days."""
_BITS = 33
"""Lengths of such a span in bits, from 0."""


class _OfQueue:
    """Outcomes by handler, as rows have it; spans in ms: how many there are of each length in bits, and their sum."""

    __slots__ = ("late", "late_ms", "outcomes", "waited", "waited_ms")

    def __init__(self) -> None:
        self.outcomes: Counter[tuple[bytes, str]] = Counter()
        self.waited, self.late = [0] * _BITS, [0] * _BITS
        self.waited_ms = self.late_ms = 0

    def completed(self, runs: Iterable[tuple[bytes, int]]) -> None:
        """Runs of equal rows, each with its length. Hot path."""
        done: dict[bytes, int] = {}
        for row, count in runs:
            handler = row[rows.HANDLER :]
            done[handler] = done.get(handler, 0) + count
            self.attempted(row, count)
        for handler, count in done.items():
            self.outcomes[handler, "completed"] += count

    def attempted(self, row: bytes, count: int = 1) -> None:
        attempt, generation, reserved, due, ready = _PHASES(row)
        if reserved > ready:
            self.waited[(reserved - ready).bit_length()] += count
            self.waited_ms += (reserved - ready) * count
        else:
            self.waited[0] += count
        if due and attempt == 1 and not generation:  # a later attempt is late by design
            late = max(0, ready - due)
            self.late[late.bit_length()] += count
            self.late_ms += late * count

    def increments(self, queue: str, known: Collection[str]) -> Counter[str]:
        """To the totals, by name. Handlers that are not ``known`` share one."""
        found: Counter[str] = Counter()
        for (name, outcome), count in self.outcomes.items():
            handler = name.partition(b"\0")[0].decode("utf-8", "replace")  # a digest may follow
            found[totals.settled(queue, handler if handler in known else UNKNOWN, outcome)] += count
        for histogram, counts, ms in (("waiting", self.waited, self.waited_ms), ("lateness", self.late, self.late_ms)):
            for bits, count in enumerate(counts):
                found[totals.bucket(histogram, queue, min(bits, totals.LAST_BUCKET))] += count
            found[totals.total(histogram, queue)] += ms * 1000
        return found


class Tally:
    def __init__(self, launch: Launch, handlers: Collection[str], measured: Mapping[str, Histogram]) -> None:
        """``measured``: durations by handler, as this launch goes on to measure them."""
        self._launch, self._handlers, self._measured = launch, handlers, measured
        self._queues: defaultdict[str, _OfQueue] = defaultdict(_OfQueue)
        self._sent_durations: Counter[str] = Counter()
        self._calls, self._sent = 0, launch.clock()

    def settled(self, shares: Iterable[Share], stale: Sequence[bytes]) -> None:
        """Count what a step has settled; send it from time to time."""
        for share in shares:
            if share.runs:
                runs = [(row, len(ids)) for row, _, ids in share.runs]
                if stale:
                    runs = [(row, sum(name not in stale for name in ids)) for row, _, ids in share.runs]
                self._queues[share.queue].completed(runs)
            for settlement in share.settlements:
                if settlement.id not in stale:
                    of_queue, row = self._queues[share.queue], settlement.row
                    of_queue.outcomes[row[rows.HANDLER :], OUTCOMES[settlement.kind]] += 1
                    if settlement.kind in ATTEMPTED:
                        of_queue.attempted(row)
        if self._launch.clock() - self._sent >= EVERY:
            self.send()

    def died(self, queue: str, handler: str) -> None:
        """Count a dead letter that the store made."""
        self._queues[queue].outcomes[handler.encode(), "dead"] += 1

    def send(self) -> None:
        """Add what was counted to the totals. StoreUnreachable, as of every call."""
        durations = self._durations()
        counts = durations - self._sent_durations
        for queue, counted in self._queues.items():
            counts += counted.increments(queue, self._handlers)
        self._queues.clear()
        self._sent_durations, self._sent = durations, self._launch.clock()
        if counts:
            self._calls += 1
            self._launch.leases.count(self._launch.holder, self._calls, counts)

    def _durations(self) -> Counter[str]:
        """All that were measured so far."""
        counts: Counter[str] = Counter()
        for handler, histogram in self._measured.items():
            for number, count in histogram.counts.items():
                counts[totals.bucket("duration", handler, -(-number // PER_DOUBLING))] += count
            counts[totals.total("duration", handler)] = int(histogram.total * 1e6)
        return counts
