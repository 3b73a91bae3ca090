"""A launch's progress, in memory shared with its heartbeat, and what the ledger has of it.

The heartbeat writes until when the lease can be trusted; the launch writes the rest, which the heartbeat copies to the
ledger with every renewal, and when the launch dies.
"""

import json
import mmap
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

from pollconsumer.core.window import StopReason
from pollconsumer.runtime.launch.shared_memory.flight import Flight
from pollconsumer.runtime.launch.shared_memory.stops import Stops
from pollconsumer.store.records.reservations import Claim

_COUNTS = struct.Struct("qqqqddq")
"""The fields of `Counts`."""
_END = struct.Struct("qq")
_COUNTS_AT = 8
"""The offset of the counts: before them is a double, the instant until which the lease can be trusted."""
_END_AT = _COUNTS_AT + _COUNTS.size
_REASONS = list(StopReason)


LOST, EMPTIED, ROLLED_BACK = -1.0, -2.0, -3.0
"""What stands for an instant once the lease is lost: another launch holds it; the store was emptied; the store went
back, and is refused for that."""


_OF_PROCESSES = ("namespace", "births")
_DESCRIBING = ("role", "queues", "host", "pid", "config", "handlers", *_OF_PROCESSES)
Sighting = tuple[str, str, str, float, float]
"""Handler, queue, id of a message in hand, when it was first seen, and when it must have ended, on the boot clock."""


class Counts(NamedTuple):
    handled: int = 0
    failed: int = 0
    released: int = 0
    yielded: int = 0
    average: float = 0.0
    margin: float = 0.0
    longer_than_window: int = 0

    def of_messages(self) -> tuple[int, int, int, int]:
        return self.handled, self.failed, self.released, self.yielded


class LaunchProgress:
    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, Flight.SIZE + Stops.SIZE)
        self.trusted = memoryview(self._memory)[:_COUNTS_AT].cast("d")
        """What `trusted_until` returns."""
        self.flight = Flight(self._memory)
        self.stops = Stops(self._memory, Flight.SIZE)
        self.end(None, 0)
        self.facts: dict[str, Any] = {}
        """Fields of the ledger's entry that tell which launch it is, where, and by which launcher; and the namespace
        and the births of its processes, see `process.all_gone`."""
        self.waited = self.since = 0.0
        """Seconds from the launch's start until it held the lease, and when that was, on the boot clock."""

    def hold(self, waited: float, since: float) -> None:
        """Begin to hold the lease."""
        self.waited, self.since = waited, since

    def ran(self, now: float) -> float:
        """Seconds from the launch's start until ``now``, on the boot clock."""
        return self.waited + now - self.since

    def trust_until(self, boot_time: float) -> None:
        self.trusted[0] = boot_time

    def trusted_until(self) -> float:
        """The instant of the boot clock until which the lease can be trusted; or LOST, EMPTIED, ROLLED_BACK."""
        return self.trusted[0]

    def count(self, counts: Counts) -> None:
        _COUNTS.pack_into(self._memory, _COUNTS_AT, *counts)

    def counts(self) -> Counts:
        return Counts(*_COUNTS.unpack_from(self._memory, _COUNTS_AT))

    def end(self, reason: StopReason | None, exit_code: int) -> None:
        """Record why the launch ends, even if it is killed right after."""
        at = -1 if reason is None else _REASONS.index(reason)
        _END.pack_into(self._memory, _END_AT, at, exit_code)

    def ended(self) -> tuple[StopReason | None, int]:
        at, exit_code = _END.unpack_from(self._memory, _END_AT)
        return (None if at < 0 else _REASONS[at]), exit_code

    def description(self) -> str:
        """The launch, for `lease show` and for launches that find the lease held."""
        return json.dumps({name: self.facts.get(name) for name in _DESCRIBING})

    def entry(
        self,
        claim: Claim | None,
        now: float,
        leaving: float | None = None,
        in_hand: Sequence[Sighting] = (),
        *,
        beyond: bool = False,
    ) -> str:
        """The ledger's entry as of ``now``, on the boot clock; of a launch that waits, without a claim. ``leaving``:
        seconds from its end until its process was about to exit. ``in_hand``: messages that take long. ``beyond``: the
        launch's window is over."""
        counts, (reason, exit_code) = self.counts(), self.ended()
        entry: dict[str, Any] = {name: value for name, value in self.facts.items() if name not in _OF_PROCESSES}
        entry |= {
            "running_seconds": 0.0 if claim is None else round(self.ran(now), 3),
            "stop_reason": reason,
            "exit_code": None if reason is None else exit_code,
            "handled": counts.handled,
            "failed": counts.failed,
            "released": counts.released,
            "yielded": counts.yielded,
            "average_seconds": counts.average,
            "margin_seconds": counts.margin,
            "longer_than_window": counts.longer_than_window,
            "exit_seconds": None if leaving is None else round(leaving, 3),
        }
        if claim is None:
            return json.dumps(entry)

        def at(instant: float) -> int:
            return claim.at + int((instant - self.since) * 1000)

        entry |= {
            "fence": int(claim.fence),
            "slot": claim.slot,
            "lineage": claim.lineage,
            "started_ms": claim.at - int(self.waited * 1000),
            "acquired_ms": claim.at,
            "ended_ms": at(now),
        }
        if in_hand:
            shown = [(handler, queue, name, at(began), at(until)) for handler, queue, name, began, until in in_hand]
            entry["in_hand"] = [(queue, name, began) for _, queue, name, began, _ in shown]
            if beyond:
                entry["working_on"] = shown
        return json.dumps(entry)
