"""What a launch adds to the totals of all launches: counted by the step, sent now and then."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import itemgetter, sub
from typing import TYPE_CHECKING

from pollconsumer.core.histogram import PER_DOUBLING
from pollconsumer.store import rows, totals

if TYPE_CHECKING:
    from pollconsumer.core.histogram import Histogram
    from pollconsumer.runtime.launch.held import Launch
    from pollconsumer.store.reservations import Run, Share

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
AT_ONCE = 512
"""Rows that are counted together, by columns: a fifth of the instructions of a loop over rows."""
_phases = struct.Struct(">4xHxB8xI20xI2xI").unpack_from
"""Of a row: ATTEMPTS, GENERATION, and the low halves of RESERVED, DUE and ENQUEUED, which tell spans up to 49 days."""
_HALF = 2
"""Bytes of an instant before its low half."""
_row = itemgetter(0)
"""Of a `Run`."""


class _Spans:
    """In ms: how many there are of each length in bits, and their sum. Negative ones, of a clock that was set back,
    count as 0."""

    __slots__ = ("counts", "ms")

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self.ms = 0

    def add(self, span: int, times: int) -> None:
        span = max(0, span)
        self.counts[span.bit_length()] += times
        self.ms += span * times

    def add_all(self, spans: list[int]) -> None:
        spans.sort()
        at = 0
        while at < len(spans):
            bits = max(0, spans[at]).bit_length()
            upto = bisect_left(spans, 1 << bits)
            self.counts[bits] += upto - at
            at = upto
        self.ms += sum(spans[bisect_left(spans, 0) :])


class _OfQueue:
    """Outcomes by handler, as rows have it, and spans."""

    __slots__ = ("alone", "late", "outcomes", "waited")

    def __init__(self) -> None:
        self.outcomes: Counter[tuple[bytes, str]] = Counter()
        self.waited, self.late = _Spans(), _Spans()
        self.alone: list[bytes] = []
        """Rows of completed messages, each of one, to `count`."""

    def completed_alike(self, row: bytes, messages: int) -> None:
        self.outcomes[row[rows.HANDLER :], "completed"] += messages
        self.attempted(row, messages)

    def attempted(self, row: bytes, messages: int = 1) -> None:
        attempt, generation, reserved, due, ready = _phases(row)
        self.waited.add(reserved - ready, messages)
        if due and attempt == 1 and not generation:  # a later attempt is late by design
            self.late.add(ready - due, messages)

    def count(self) -> None:
        alone, self.alone = self.alone, []
        sizes = set(map(len, alone))
        for size in sizes:
            self._count_columns(alone if len(sizes) == 1 else [row for row in alone if len(row) == size])

    def _count_columns(self, alike: list[bytes]) -> None:
        """Rows of one size."""
        joined, size, number = b"".join(alike), len(alike[0]), len(alike)

        def column(at: int) -> bytes:
            return joined[at::size]

        def instants(at: int) -> tuple[int, ...]:
            packed = bytearray(4 * number)
            for byte in range(4):
                packed[byte::4] = column(at + _HALF + byte)
            return struct.unpack(f">{number}I", packed)

        ready = instants(rows.ENQUEUED)
        self.waited.add_all(list(map(sub, instants(rows.RESERVED), ready)))
        if any(column(at).count(0) < number for at in range(rows.DUE, rows.ENQUEUED)):
            first = zip(column(rows.ATTEMPTS), column(rows.ATTEMPTS + 1), column(rows.GENERATION), strict=True)
            each = zip(first, instants(rows.DUE), ready, strict=True)
            self.late.add_all([at - due for which, due, at in each if due and which == (0, 1, 0)])
        if all(column(at) == joined[at : at + 1] * number for at in range(rows.HANDLER, size)):
            self.outcomes[alike[0][rows.HANDLER :], "completed"] += number
        else:
            for row in alike:
                self.outcomes[row[rows.HANDLER :], "completed"] += 1

    def increments(self, queue: str, known: Collection[str]) -> Counter[str]:
        """To the totals, by name. Handlers that are not ``known`` share one."""
        self.count()
        found: Counter[str] = Counter()
        for (name, outcome), count in sorted(self.outcomes.items()):
            handler = name.partition(b"\0")[0].decode("utf-8", "replace")  # a digest may follow
            found[totals.settled(queue, handler if handler in known else UNKNOWN, outcome)] += count
        for histogram, spans in (("waiting", self.waited), ("lateness", self.late)):
            for bits, count in sorted(spans.counts.items()):
                found[totals.bucket(histogram, queue, min(bits, totals.LAST_BUCKET))] += count
            if spans.ms:
                found[totals.total(histogram, queue)] += spans.ms * 1000
        return found


class Tally:
    def __init__(self, launch: Launch, handlers: Collection[str], measured: Mapping[str, Histogram]) -> None:
        """``measured``: durations by handler, as this launch goes on to measure them."""
        self._launch, self._handlers, self._measured = launch, handlers, measured
        self._queues: defaultdict[str, _OfQueue] = defaultdict(_OfQueue)
        self._sent_durations: Counter[str] = Counter()
        self._clock = launch.clock
        self._calls, self._sent = 0, launch.clock()

    def settled(self, shares: Iterable[Share], stale: Sequence[bytes]) -> None:
        """Count what a step has settled; send it from time to time. Hot path."""
        for share in shares:
            if share.runs:
                of_queue = self._queues[share.queue]
                if share.completed == len(share.runs) and not stale:
                    of_queue.alone += map(_row, share.runs)
                else:
                    self._completed(of_queue, share.runs, stale)
                if len(of_queue.alone) >= AT_ONCE:
                    of_queue.count()
            for settlement in share.settlements:
                if settlement.id not in stale:
                    of_queue, row = self._queues[share.queue], settlement.row
                    of_queue.outcomes[row[rows.HANDLER :], OUTCOMES[settlement.kind]] += 1
                    if settlement.kind in ATTEMPTED:
                        of_queue.attempted(row)
        if self._clock() - self._sent >= EVERY:
            self.send()

    def _completed(self, of_queue: _OfQueue, runs: Iterable[Run], stale: Sequence[bytes]) -> None:
        for row, _, ids in runs:
            messages = sum(name not in stale for name in ids) if stale else len(ids)
            if messages > 1:
                of_queue.completed_alike(row, messages)
            elif messages:
                of_queue.alone.append(row)

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
        self._sent_durations, self._sent = durations, self._clock()
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
