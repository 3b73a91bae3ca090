"""How a launch fares, in memory that it shares with its heartbeat.

The heartbeat writes how far the lease can be trusted; the launch writes the rest, which the heartbeat puts into the
ledger: with every renewal, and for the last time when the launch dies without a word.
"""

from __future__ import annotations

import json
import mmap
import os
import socket
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from pollconsumer.core.window import StopReason

if TYPE_CHECKING:
    from pollconsumer.store.leases import Acquired

_TRUST = struct.Struct("d")
_COUNTS = struct.Struct("qqqqdd")
_END = struct.Struct("qq")
_REASONS = list(StopReason)


class Flight:
    """Ids of the messages being handled, where they can be read after the process that handles them has died."""

    MOST, _PLACE, _FROM = 256, 136, 4096
    SIZE = _FROM + MOST * _PLACE

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self._places: dict[bytes, int] = {}
        self._free = [self._FROM + n * self._PLACE for n in reversed(range(self.MOST))]

    def enter(self, message_id: bytes) -> None:
        at = self._places[message_id] = self._free.pop()
        fitting = message_id[: self._PLACE - 1]  # an id of ours is shorter; one that somebody else wrote may not be
        self._memory[at + 1 : at + 1 + len(fitting)] = fitting
        self._memory[at] = len(fitting)

    def leave(self, message_id: bytes) -> None:
        at = self._places.pop(message_id)
        self._memory[at] = 0
        self._free.append(at)

    def ids(self) -> set[bytes]:
        """In this process."""
        return set(self._places)

    def left_behind(self) -> list[bytes]:
        """As the memory tells, whoever wrote it."""
        places = (self._FROM + n * self._PLACE for n in range(self.MOST))
        return [self._memory[at + 1 : at + 1 + self._memory[at]] for at in places if self._memory[at]]


class Counts(NamedTuple):
    handled: int = 0
    failed: int = 0
    released: int = 0
    yielded: int = 0
    average: float = 0.0
    margin: float = 0.0


class Progress:
    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, Flight.SIZE)
        self.flight = Flight(self._memory)
        self.end(None, 0)

    def trust_until(self, boot_time: float) -> None:
        _TRUST.pack_into(self._memory, 0, boot_time)

    def trusted_until(self) -> float:
        """On the boot clock; negative when the lease is known to be lost."""
        until: float = _TRUST.unpack_from(self._memory, 0)[0]
        return until

    def count(self, counts: Counts) -> None:
        _COUNTS.pack_into(self._memory, 64, *counts)

    def counts(self) -> Counts:
        return Counts(*_COUNTS.unpack_from(self._memory, 64))

    def end(self, reason: StopReason | None, exit_code: int) -> None:
        """Why the launch ends; kept where a process that is killed right after cannot take it along."""
        _END.pack_into(self._memory, 128, -1 if reason is None else _REASONS.index(reason), exit_code)

    def ended(self) -> tuple[StopReason | None, int]:
        at, exit_code = _END.unpack_from(self._memory, 128)
        return (None if at < 0 else _REASONS[at]), exit_code


class Identity(NamedTuple):
    """Who a launch is. ``waited``: seconds from its start until it held the lease."""

    launch: str
    role: str
    queues: tuple[str, ...]
    host: str
    pid: int

    @classmethod
    def of_this_process(cls, launch: str, role: str, queues: tuple[str, ...]) -> Identity:
        return cls(launch, role, queues, socket.gethostname(), os.getpid())

    def description(self) -> str:
        """The holder, as `lease show` tells of it."""
        return json.dumps({"role": self.role, "queues": self.queues, "host": self.host, "pid": self.pid})

    def entry(self, acquired: Acquired | None, waited: float, held: float, progress: Progress) -> str:
        """The launch's line of the ledger; durations in seconds, instants in epoch ms of the server's clock."""
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
        }
        if acquired is not None:
            entry |= {
                "fence": int(acquired.holder.fence),
                "slot": acquired.slot,
                "lineage": acquired.holder.lineage,
                "started_ms": acquired.at - int(waited * 1000),
                "acquired_ms": acquired.at,
                "ended_ms": acquired.at + int(held * 1000),
            }
        return json.dumps(entry)
