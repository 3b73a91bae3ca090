"""Memory that a launch shares with its heartbeat: what is in flight, how far the launch has come, what is to stop.

It can be read after the launch has died. The heartbeat writes until when the lease can be trusted, and the stops and
pauses that it learns from the store. The launch writes the rest. The heartbeat copies that to the ledger with every
renewal, and when the launch dies.
"""

import json
import mmap
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import RLock
from typing import Any, NamedTuple

from pollconsumer.core.window import StopReason
from pollconsumer.store.records.reservations import Claim, Reservation

_HEAD = struct.Struct("BBBB")
"""The head of an entry: whether it is the last attempt, and the lengths of handler, queue and id, which follow."""
LONGEST = 255
"""Maximum size of an id, or of a name, in bytes. Valid ones are shorter."""
_LENGTHS = struct.Struct("HH")
_NO_QUEUE, _ALL_RESUMED = "", b""
"""These stand where a queue's name, or a handler's, would stand otherwise."""
_COUNTS = struct.Struct("qqqqddq")
"""The fields of `Counts`."""
_END = struct.Struct("qq")
_COUNTS_AT = 8
"""The offset of the counts. A double stands before them: the instant until which the lease can be trusted."""
_END_AT = _COUNTS_AT + _COUNTS.size
_REASONS = list(StopReason)
LOST, EMPTIED, ROLLED_BACK = -1.0, -2.0, -3.0
"""These stand for that instant once the lease is lost: another launch holds it; the store was emptied; or the store
went back, and is refused for that."""
_OF_PROCESSES = ("namespace", "births")
_DESCRIBING = ("role", "queues", "host", "pid", "config", "handlers", *_OF_PROCESSES)
LongRunning = tuple[str, str, str, float, float]
"""Handler, queue and id of a message in flight; when it was first seen, and must have ended, on the boot clock."""


class MessageInFlight(NamedTuple):
    """A message that is being handled, or is not settled yet. ``ended``: its handler has ended. ``last``: it is its
    last attempt. ``began`` and ``ends_by``: when its handler began, and must have ended, on the monotonic clock."""

    queue: str
    id: bytes
    handler: str
    ended: bool
    last: bool
    began: float = 0.0
    ends_by: float = 0.0


class Flight:
    """Messages that are in flight or unsettled. Each has an entry."""

    MOST, _ENTRY, _FROM = 1024, 1024, 4096
    _TIMES_AT = _FROM + MOST * _ENTRY
    _LAST = 2 * MOST
    """The index, among the times, of the instant at which the last handling ended."""
    SIZE = _TIMES_AT + (8 * (_LAST + 1) + 4095 & ~4095)
    _FREE, _IN_FLIGHT, _ENDED = range(3)
    """States of an entry, in the byte before it."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self._entries: dict[Reservation, int] = {}
        self._ended: list[Reservation] = []
        self.free = list(range(self._FROM, self._TIMES_AT, self._ENTRY))[::-1]
        """Offsets of entries that are free for further messages."""
        self._heads: dict[tuple[str, str, int, bool], bytes] = {}
        """Entries without their ids, which follow: by handler, queue, length of the id, and whether it is the last
        attempt."""
        self._times = memoryview(memory)[self._TIMES_AT : self._TIMES_AT + 8 * (self._LAST + 1)].cast("d")
        """Two instants for each entry: when its handling began, and when the handling must have ended."""

    def enter(self, reservation: Reservation, *, last: bool, began: float = 0.0, ends_by: float = 0.0) -> None:
        """Record that the handler of ``reservation`` begins, and until when it may go on, on the monotonic clock. Needs
        a free entry."""
        message_id, memory, at = reservation.id, self._memory, self.free.pop()
        times, number = self._times, (at - self._FROM) // self._ENTRY
        times[2 * number], times[2 * number + 1] = began, ends_by
        of = reservation.handler, reservation.queue, len(message_id), last
        head = self._heads.get(of)
        if head is None:
            handler, queue = (name.encode("utf-8", "replace")[:LONGEST] for name in of[:2])
            head = _HEAD.pack(last, len(handler), len(queue), min(len(message_id), LONGEST)) + handler + queue
            self._heads[of] = head
        text = head + message_id[:LONGEST]
        self._entries[reservation] = at
        memory[at + 1 : at + 1 + len(text)] = text
        memory[at] = self._IN_FLIGHT

    def extend(self, reservation: Reservation, ends_by: float) -> None:
        """Record again until when a handler may go on, because its timeout begins now."""
        if (at := self._entries.get(reservation)) is not None:
            self._times[2 * ((at - self._FROM) // self._ENTRY) + 1] = ends_by

    def end(self, reservation: Reservation, ended: float = 0.0) -> None:
        """Record that its handler has ended, and when. A later death of the process is not charged to the message."""
        self._times[self._LAST] = ended
        self._memory[self._entries[reservation]] = self._ENDED
        self._ended.append(reservation)

    def last_ended(self) -> float:
        """The end of the last message; 0 if none has ended."""
        return self._times[self._LAST]

    def ends_by(self, before: float | None = None, since: float = 0.0) -> float:
        """The latest instant at which a message in flight must have ended, or at which a message did end. With
        ``before``, it considers only messages in flight that began before ``before`` and before ``since``; 0 if there
        are none. It reads the shared memory, so any process may call it."""
        times, found = self._times, [] if before is not None else [self.last_ended()]
        states = self._memory[self._FROM : self._TIMES_AT : self._ENTRY]
        for number, state in enumerate(states.rstrip(b"\0")):
            began, ends_by = times[2 * number], times[2 * number + 1]
            if state == self._IN_FLIGHT and (before is None or began < min(before, since)):
                found.append(ends_by)
        return max(found, default=0.0)

    def overdue(self, now: float) -> list[Reservation]:
        """Messages that this process has handled for longer than they may be."""
        times = self._times
        return [
            each
            for each, at in [*self._entries.items()]
            if self._memory[at] == self._IN_FLIGHT and 0.0 < times[2 * ((at - self._FROM) // self._ENTRY) + 1] <= now
        ]

    def leave(self, reservation: Reservation) -> None:
        at = self._entries.pop(reservation)
        self._memory[at] = self._FREE
        self.free.append(at)

    def settled(self) -> None:
        """Forget messages that have ended, since they are settled."""
        memory, entries, free = self._memory, self._entries, self.free
        for reservation in self._ended:  # does what `leave` does, for many
            at = entries.pop(reservation)
            memory[at] = self._FREE
            free.append(at)
        self._ended.clear()

    def in_flight(self) -> list[Reservation]:
        """Messages whose handler has not ended in this process. May be called in any thread."""
        return [each for each, at in [*self._entries.items()] if self._memory[at] == self._IN_FLIGHT]

    def ids(self, queue: str) -> set[bytes]:
        """The ids of this process's messages of ``queue`` that are in flight or unsettled."""
        return {reservation.id for reservation in self._entries if reservation.queue == queue}

    def the_one(self) -> Reservation | None:
        """The message in flight in this process, if it is the only one. May be called in any thread."""
        in_flight = self.in_flight()
        return in_flight[0] if len(in_flight) == 1 else None

    def left_behind(self) -> list[MessageInFlight]:
        """Messages that are in flight or unsettled. It reads the shared memory, so any process may call it."""
        held, states = [], self._memory[self._FROM : self._TIMES_AT : self._ENTRY]
        for number, state in enumerate(states.rstrip(b"\0") and states):
            if state == self._FREE:
                continue
            at, ended, parts = self._FROM + number * self._ENTRY + 1, state == self._ENDED, []
            last, *lengths = _HEAD.unpack_from(self._memory, at)
            at += _HEAD.size
            for length in lengths:
                parts.append(self._memory[at : at + length])
                at += length
            handler, queue = (name.decode("utf-8", "replace") for name in parts[:2])
            times = (0.0, 0.0) if ended else (self._times[2 * number], self._times[2 * number + 1])
            held.append(MessageInFlight(queue, parts[2], handler, ended, bool(last), *times))
        return held


class Stops:
    MOST, _ENTRY, _FROM = 256, 1024, 8
    SIZE = _FROM + MOST * _ENTRY
    """Size of the memory: it has the number of requests so far, and the last ones of them."""

    def __init__(self, memory: mmap.mmap, at: int) -> None:
        self._memory, self._at = memory, at
        self._count = memoryview(memory)[at : at + self._FROM].cast("Q")
        self._seen = 0
        self._asked: set[tuple[str, bytes]] = set()
        self._handlers: Mapping[bytes, str] = {}
        """Each name of the launch's handlers → the handler's own name. Other pauses do not concern the launch."""
        self.paused = frozenset[str]()
        """Own names of the handlers that a person has paused, as `pending` found them last."""
        self.called: Callable[[], None] = lambda: None
        """Called in a signal handler of the main thread, when the heartbeat signals after a request."""
        self._lock = RLock()  # a signal handler may read while its thread does

    def ask(self, *requests: tuple[str, bytes]) -> None:
        """Record requests to stop, by queue and id. Called in the heartbeat. The launch sees all of them or none."""
        for number, (queue, message_id) in enumerate(requests, self._count[0]):
            texts = queue.encode()[:LONGEST], message_id[:LONGEST]
            entry = _LENGTHS.pack(*map(len, texts)) + b"".join(texts)
            at = self._entry_at(number)
            self._memory[at : at + len(entry)] = entry
        self._count[0] += len(requests)

    def pause(self, names: Iterable[bytes]) -> None:
        """Record that the handlers with these names are paused, and no others. Called in the heartbeat."""
        self.ask((_NO_QUEUE, _ALL_RESUMED), *((_NO_QUEUE, name) for name in names))

    def serve(self, handlers: Mapping[str, str], paused: Iterable[str]) -> None:
        """Set the launch's handlers, each name with the handler's own, and those that were paused before."""
        self._handlers = {name.encode(): own for name, own in handlers.items()}
        self.paused = frozenset(paused)

    def any(self) -> bool:
        """Whether there may be a request, or a change of pauses."""
        return bool(self._asked) or self._count[0] != self._seen

    def asked(self, reservation: Reservation) -> bool:
        """Whether this message was asked to stop."""
        return self.any() and (reservation.queue, reservation.id) in self.pending()

    def pending(self) -> set[tuple[str, bytes]]:
        """Queue and id of each message that was asked to stop."""
        with self._lock:
            count, paused = self._count[0], set(self.paused)
            for number in range(max(self._seen, count - self.MOST), count):
                at = self._entry_at(number)
                queue, message_id = _LENGTHS.unpack_from(self._memory, at)
                begin = at + _LENGTHS.size
                ends = begin + queue, begin + queue + message_id
                name, asked = self._memory[begin : ends[0]].decode("utf-8", "replace"), self._memory[slice(*ends)]
                if name != _NO_QUEUE:
                    self._asked.add((name, asked))
                elif asked == _ALL_RESUMED:
                    paused.clear()
                elif asked in self._handlers:
                    paused.add(self._handlers[asked])  # by any of its names
            self._seen, self.paused = count, frozenset(paused)
            return set(self._asked)

    def forget(self, queue: str, message_id: bytes) -> None:
        """Drop a request whose message is not, or no longer, in flight."""
        with self._lock:
            self._asked.discard((queue, message_id))

    def _entry_at(self, number: int) -> int:
        return self._at + self._FROM + number % self.MOST * self._ENTRY


class Counts(NamedTuple):
    handled: int = 0
    failed: int = 0
    released: int = 0
    yielded: int = 0
    average: float = 0.0
    margin: float = 0.0
    longer_than_window: int = 0


class LaunchProgress:
    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, Flight.SIZE + Stops.SIZE)
        self.trusted = memoryview(self._memory)[:_COUNTS_AT].cast("d")
        """What `trusted_until` returns."""
        self.flight = Flight(self._memory)
        self.stops = Stops(self._memory, Flight.SIZE)
        self.end(None, 0)
        self.facts: dict[str, Any] = {}
        """Fields of the ledger's entry that identify the launch: where it runs, and by which launcher. Also its pid
        namespace, and the births of its processes, see `process.all_gone`."""
        self.waited = self.since = 0.0
        """Seconds from the launch's start until it held the lease; and when that was, on the boot clock."""

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
        """Record why the launch ends, so that it is known even if it is killed right after."""
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
        in_flight: Sequence[LongRunning] = (),
        *,
        beyond: bool = False,
    ) -> str:
        """The ledger's entry at the instant ``now`` of the boot clock. A launch that waits has no claim. ``leaving``:
        seconds from the launch's end until its process was about to exit. ``in_flight``: messages that take long.
        ``beyond``: the launch's window is over."""
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
            "lineage": claim.lease_name,
            "started_ms": claim.at - int(self.waited * 1000),
            "acquired_ms": claim.at,
            "ended_ms": at(now),
        }
        if in_flight:
            shown = [(handler, queue, name, at(began), at(until)) for handler, queue, name, began, until in in_flight]
            entry["in_hand"] = [(queue, name, began) for _, queue, name, began, _ in shown]
            if beyond:
                entry["working_on"] = shown
        return json.dumps(entry)
