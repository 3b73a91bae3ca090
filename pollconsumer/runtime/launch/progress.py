"""A launch's progress, in memory shared with its heartbeat.

The heartbeat writes until when the lease can be trusted; the launch writes the rest, which the heartbeat copies to the
ledger with every renewal, and when the launch dies.
"""

from __future__ import annotations

import json
import mmap
import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from pollconsumer.core.launcher.observing import Observed
from pollconsumer.core.window import StopReason
from pollconsumer.runtime.launch.stops import Stops
from pollconsumer.store.leases import Acquired
from pollconsumer.store.reservations import Reservation

_COUNTS = struct.Struct("qqqqdd")
"""As `Counts`."""
_END = struct.Struct("qq")
_COUNTS_AT = 8
"""After the instant until which the lease can be trusted, a double."""
_END_AT = _COUNTS_AT + _COUNTS.size
_REASONS = list(StopReason)


class Held(NamedTuple):
    """A message that is handled or not settled yet. ``ended``: its handler has. ``last``: its last attempt."""

    queue: str
    id: bytes
    handler: str
    ended: bool
    last: bool


class Flight:
    """Messages in hand, and those that have ended but are not settled, readable after their process has died."""

    MOST, _PLACE, _FROM = 1024, 1024, 4096
    SIZE = _FROM + MOST * _PLACE
    _HEAD = struct.Struct("BBBBB")
    """State, whether it is the last attempt, lengths of handler, queue and id; these follow."""
    _FREE, _IN_HAND, _ENDED = range(3)
    _LONGEST = 255
    """Maximum bytes of an id, or a name; valid ones are shorter."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self._places: dict[Reservation, int] = {}
        self._ended: list[Reservation] = []
        self._free = [self._FROM + n * self._PLACE for n in reversed(range(self.MOST))]
        self._heads: dict[tuple[str, str, int, bool], bytes] = {}

    def enter(self, reservation: Reservation, *, last: bool) -> None:
        """Its handler begins. Requires a free place."""
        message_id, memory, at = reservation.id, self._memory, self._free.pop()
        names = reservation.handler, reservation.queue, len(message_id), last
        text = (self._heads.get(names) or self._head(*names)) + message_id[: self._LONGEST]
        self._places[reservation] = at
        memory[at + 1 : at + 1 + len(text)] = text
        memory[at] = self._IN_HAND

    def end(self, reservation: Reservation) -> None:
        """Its handler has ended: a later death of the process is not charged to it."""
        self._memory[self._places[reservation]] = self._ENDED
        self._ended.append(reservation)

    def leave(self, reservation: Reservation) -> None:
        at = self._places.pop(reservation)
        self._memory[at] = self._FREE
        self._free.append(at)

    def settled(self) -> None:
        """The messages that had ended are settled."""
        memory, places, free = self._memory, self._places, self._free
        for reservation in self._ended:  # `leave`, for many
            at = places.pop(reservation)
            memory[at] = self._FREE
            free.append(at)
        self._ended.clear()

    def free(self) -> int:
        """How many more may be in hand or unsettled."""
        return len(self._free)

    def in_hand(self) -> list[Reservation]:
        """In this process: those whose handler has not ended."""
        return [each for each, at in list(self._places.items()) if self._memory[at] == self._IN_HAND]

    def ids(self, queue: str) -> set[bytes]:
        """In this process."""
        return {reservation.id for reservation in self._places if reservation.queue == queue}

    def the_one(self) -> Reservation | None:
        """The message in hand in this process, if it is one only. From any thread."""
        in_hand = [each for each, at in [*self._places.items()] if self._memory[at] == self._IN_HAND]
        return in_hand[0] if len(in_hand) == 1 else None

    def left_behind(self) -> list[Held]:
        """Read from the shared memory, in any process."""
        held = []
        for at in range(self._FROM, self.SIZE, self._PLACE):
            state, last, *lengths = self._HEAD.unpack_from(self._memory, at)
            if state != self._FREE:
                begin, parts = at + self._HEAD.size, []
                for length in lengths:
                    parts.append(self._memory[begin : begin + length])
                    begin += length
                handler, queue, message_id = parts
                names = queue.decode("utf-8", "replace"), handler.decode("utf-8", "replace")
                held.append(Held(names[0], message_id, names[1], state == self._ENDED, bool(last)))
        return held

    def _head(self, handler: str, queue: str, id_length: int, last: bool) -> bytes:
        texts = [name.encode("utf-8", "replace")[: self._LONGEST] for name in (handler, queue)]
        lengths = [*map(len, texts), min(id_length, self._LONGEST)]
        head = self._heads[handler, queue, id_length, last] = bytes([last, *lengths]) + b"".join(texts)
        return head


LOST, EMPTIED = -1.0, -2.0
"""Another holds the lease; the store was emptied."""


class Counts(NamedTuple):
    handled: int = 0
    failed: int = 0
    released: int = 0
    yielded: int = 0
    average: float = 0.0
    margin: float = 0.0

    def of_messages(self) -> tuple[int, int, int, int]:
        return self.handled, self.failed, self.released, self.yielded


class Progress:
    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, Flight.SIZE + Stops.SIZE)
        self._trusted = memoryview(self._memory)[:_COUNTS_AT].cast("d")
        self.flight = Flight(self._memory)
        self.stops = Stops(self._memory, Flight.SIZE)
        self.end(None, 0)

    def trust_until(self, boot_time: float) -> None:
        self._trusted[0] = boot_time

    def trusted_until(self) -> float:
        """On the boot clock; or LOST or EMPTIED."""
        return self._trusted[0]

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
    ``launch_offset``: seconds from its tick to its start; ``next_tick``: from there to the tick after that."""

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

    def description(self) -> str:
        """The holder, for `lease show`."""
        names = {"role": self.role, "queues": self.queues, "host": self.host, "pid": self.pid}
        return json.dumps(names | {"namespace": self.namespace, "births": dict(self.births)})

    def entry(
        self, acquired: Acquired | None, waited: float, held: float, progress: Progress, leaving: float | None = None
    ) -> str:
        """The ledger's entry; durations in seconds, instants in epoch ms of the server's clock. ``waited``: from the
        launch's start until it held the lease; ``leaving``: from its end until its process was about to exit."""
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
            "launch_offset_seconds": _rounded(self.launch_offset),
            "next_tick_seconds": _rounded(self.next_tick),
            "exit_seconds": _rounded(leaving),
            "observed": self.observed,
            "platform": self.platform,
            "launcher": self.launcher,
            "run_id": self.run_id,
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


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
