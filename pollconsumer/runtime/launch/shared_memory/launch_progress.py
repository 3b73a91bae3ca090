"""A launch's progress, in memory shared with its heartbeat.

The heartbeat writes until when the lease can be trusted; the launch writes the rest, which the heartbeat copies to the
ledger with every renewal, and when the launch dies.
"""

import json
import mmap
import struct
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from pollconsumer.core.launcher.observed import Observed
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


class Identity(NamedTuple):
    """``namespace`` and ``births`` identify its processes: see `process.all_gone`. ``run_id``: the platform's.
    ``launch_offset``: seconds from its tick to its start; ``next_tick``: from there to the tick after that. ``config``
    and ``handlers`` tell projects apart: the path of the configuration, and a digest of the handlers' names."""

    launch: str
    role: str
    queues: tuple[str, ...]
    host: str
    pid: int
    namespace: str = ""
    births: Mapping[str, str] = MappingProxyType({})
    platform: str = ""
    launcher: str = ""
    run_id: str | None = None
    launch_offset: float | None = None
    next_tick: float | None = None
    observed: Observed | None = None
    config: str = ""
    handlers: str = ""

    def description(self) -> str:
        """The holder, for `lease show` and for launches that find the lease held."""
        names = {"role": self.role, "queues": self.queues, "host": self.host, "pid": self.pid}
        names |= {"config": self.config, "handlers": self.handlers}
        return json.dumps(names | {"namespace": self.namespace, "births": dict(self.births)})

    def entry(
        self,
        claim: Claim | None,
        waited: float,
        held: float,
        progress: LaunchProgress,
        leaving: float | None = None,
        in_hand: Sequence[tuple[str, str, str, int, int]] = (),
        *,
        beyond: bool = False,
    ) -> str:
        """The ledger's entry; durations in seconds, instants in epoch ms of the server's clock. ``waited``: from the
        launch's start until it held the lease; ``leaving``: from its end until its process was about to exit.
        ``in_hand``: handler, queue and id of messages that take long, when they were begun, and when they must have
        ended. ``beyond``: the launch's window is over."""
        counts, (reason, exit_code) = progress.counts(), progress.ended()
        entry: dict[str, Any] = {
            "launch_id": self.launch,
            "role": self.role,
            "queues": self.queues,
            "host": self.host,
            "pid": self.pid,
            "running_seconds": round(waited + held, 3),
            "stop_reason": reason,
            "exit_code": None if reason is None else exit_code,
            "handled": counts.handled,
            "failed": counts.failed,
            "released": counts.released,
            "yielded": counts.yielded,
            "average_seconds": counts.average,
            "margin_seconds": counts.margin,
            "longer_than_window": counts.longer_than_window,
            "launch_offset_seconds": _rounded(self.launch_offset),
            "next_tick_seconds": _rounded(self.next_tick),
            "exit_seconds": _rounded(leaving),
            "observed": self.observed,
            "platform": self.platform,
            "launcher": self.launcher,
            "run_id": self.run_id,
            "config": self.config,
            "handlers": self.handlers,
        }
        if claim is not None:
            entry |= {
                "fence": int(claim.fence),
                "slot": claim.slot,
                "lineage": claim.lineage,
                "started_ms": claim.at - int(waited * 1000),
                "acquired_ms": claim.at,
                "ended_ms": claim.at + int(held * 1000),
            }
        if in_hand:
            entry["in_hand"] = [(queue, name, began) for _, queue, name, began, _ in in_hand]
        if beyond and in_hand:
            entry["working_on"] = in_hand
        return json.dumps(entry)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
