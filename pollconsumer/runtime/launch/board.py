"""Memory that a launch shares with its heartbeat: messages in flight, the launch's counts, and messages to stop.

It can be read after the launch has died. The heartbeat writes the instant until which the lease can be trusted, and the
requests to stop and the paused handlers that it reads from the store. The launch writes the rest, which the heartbeat
copies to the ledger at each renewal, and when the launch dies."""

import json
import mmap
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import RLock
from typing import Any, NamedTuple

from pollconsumer.core.window import StopReason
from pollconsumer.store.records.reservations import Claim, Reservation

_HEAD = struct.Struct("BBBB")
"""The head of an entry: whether it is the last attempt; the lengths of handler, queue and id, whose texts follow."""
LONGEST = 255
"""Maximum size of an id, or of a name, in bytes. Valid ones are shorter; invalid ones are cut."""
_LENGTHS = struct.Struct("HH")
_NO_QUEUE, _ALL_RESUMED = "", b""
"""An entry of `Stops` without a queue is no request: it resumes all handlers, or pauses the one that it names."""
_COUNTS = struct.Struct("qqqqddq")
"""The fields of `Counts`."""
_END = struct.Struct("qq")
_COUNTS_AT = 8
"""The offset of the counts. Before them is a double: the instant until which the lease can be trusted."""
_END_AT = _COUNTS_AT + _COUNTS.size
_REASONS = list(StopReason)
LOST, EMPTIED, ROLLED_BACK = -1.0, -2.0, -3.0
"""Values of `LaunchProgress.trusted` once the lease is lost: another launch took it; the store was emptied; the store
was rolled back, and the settings refuse such a store."""
_OF_PROCESSES = ("namespace", "births")
_DESCRIBING = ("role", "queues", "host", "pid", "config", "handlers", *_OF_PROCESSES)
LongRunning = tuple[str, str, str, float, float]
"""A message in flight: handler, queue, id; first seen at, must have ended at, both on the boot clock."""


class MessageInFlight(NamedTuple):
    """A message whose outcome is not settled yet. ``ended``: its handler has ended. ``last``: this is the message's
    last attempt. ``began``, ``ends_by``: when its handler began, and must have ended, on the monotonic clock."""

    queue: str
    id: bytes
    handler: str
    ended: bool
    last: bool
    began: float = 0.0
    ends_by: float = 0.0


class Flight:
    """The entries, in shared memory, of the launch's messages that are in flight, or ended and not settled."""

    MOST, _ENTRY, _FROM = 1024, 1024, 4096
    _TIMES_AT = _FROM + MOST * _ENTRY
    _LAST = 2 * MOST
    """The index in `_times` of the instant at which a handler ended last."""
    SIZE = _TIMES_AT + (8 * (_LAST + 1) + 4095 & ~4095)
    _FREE, _IN_FLIGHT, _ENDED = range(3)
    """States of an entry, in its first byte."""

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self._entries: dict[Reservation, int] = {}
        self._ended: list[Reservation] = []
        self.free = list(range(self._FROM, self._TIMES_AT, self._ENTRY))[::-1]
        """Offsets of the entries that are free."""
        self._heads: dict[tuple[str, str, int, bool], bytes] = {}
        """Encoded entries without their ids, kept for reuse. The key: handler, queue, length of the id, and whether it
        is the last attempt."""
        self._times = memoryview(memory)[self._TIMES_AT : self._TIMES_AT + 8 * (self._LAST + 1)].cast("d")
        """For each entry, when its handler began and must have ended, on the monotonic clock."""

    def enter(self, reservation: Reservation, *, last: bool, began: float = 0.0, ends_by: float = 0.0) -> None:
        """Record that the handler of ``reservation`` began, and must have ended by ``ends_by``, on the monotonic clock.
        ``last``: it is the last attempt. Needs a free entry."""
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
        """Replace the instant by which the handler must have ended, because its timeout begins only now."""
        if (at := self._entries.get(reservation)) is not None:
            self._times[2 * ((at - self._FROM) // self._ENTRY) + 1] = ends_by

    def end(self, reservation: Reservation, ended: float = 0.0) -> None:
        """Record that the handler ended, at ``ended``. A later death of the process adds no death to the message."""
        self._times[self._LAST] = ended
        self._memory[self._entries[reservation]] = self._ENDED
        self._ended.append(reservation)

    def last_ended(self) -> float:
        """The instant at which a handler ended last; 0 if none has ended."""
        return self._times[self._LAST]

    def ends_by(self, before: float | None = None, since: float = 0.0) -> float:
        """The latest instant at which a message in flight must have ended, or at which a handler ended. With
        ``before``, only messages in flight count, if they began before ``before`` and ``since``; 0 if there are none.
        It reads the shared memory, so any process may call it."""
        times, found = self._times, [] if before is not None else [self.last_ended()]
        states = self._memory[self._FROM : self._TIMES_AT : self._ENTRY]
        for number, state in enumerate(states.rstrip(b"\0")):
            began, ends_by = times[2 * number], times[2 * number + 1]
            if state == self._IN_FLIGHT and (before is None or began < min(before, since)):
                found.append(ends_by)
        return max(found, default=0.0)

    def overdue(self, now: float) -> list[Reservation]:
        """Messages in flight in this process whose limits have passed at ``now``, on the monotonic clock."""
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
        """Free the entries of all messages that have ended: their outcomes are settled."""
        memory, entries, free = self._memory, self._entries, self.free
        for reservation in self._ended:  # does what `leave` does, for many
            at = entries.pop(reservation)
            memory[at] = self._FREE
            free.append(at)
        self._ended.clear()

    def in_flight(self) -> list[Reservation]:
        """Messages of this process whose handlers have not ended. May be called in any thread."""
        return [each for each, at in [*self._entries.items()] if self._memory[at] == self._IN_FLIGHT]

    def ids(self, queue: str) -> set[bytes]:
        """The ids of this process's messages of ``queue`` that are in flight, or ended and not settled."""
        return {reservation.id for reservation in self._entries if reservation.queue == queue}

    def the_one(self) -> Reservation | None:
        """The message in flight in this process, if it is the only one. May be called in any thread."""
        in_flight = self.in_flight()
        return in_flight[0] if len(in_flight) == 1 else None

    def left_behind(self) -> list[MessageInFlight]:
        """Messages in flight, or ended and not settled. It reads the shared memory, so any process may call it."""
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
    MOST, _ENTRY, _FROM = Flight.MOST, 1024, 8
    SIZE = _FROM + MOST * _ENTRY
    """Bytes of shared memory: the number of requests so far, and the last `MOST` requests."""

    def __init__(self, memory: mmap.mmap, at: int) -> None:
        self._memory, self._at = memory, at
        self._count = memoryview(memory)[at : at + self._FROM].cast("Q")
        self._seen = 0
        self._asked: set[tuple[str, bytes]] = set()
        self._handlers: Mapping[bytes, str] = {}
        """Name or alias of a handler of the launch → the handler's own name. Pauses of other handlers are ignored."""
        self.paused = frozenset[str]()
        """Own names of the paused handlers, as of the last call of `pending`."""
        self.called: Callable[[], None] = lambda: None
        """Called in the main thread at `CALL`, which the heartbeat sends for a request to stop or a passed limit."""
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
        """Record that the handlers with these names, and no others, are paused. Called in the heartbeat."""
        self.ask((_NO_QUEUE, _ALL_RESUMED), *((_NO_QUEUE, name) for name in names))

    def serve(self, handlers: Mapping[str, str], paused: Iterable[str]) -> None:
        """Set ``handlers``: for each name or alias, the own name; and ``paused``: the own names of paused handlers."""
        self._handlers = {name.encode(): own for name, own in handlers.items()}
        self.paused = frozenset(paused)

    def any(self) -> bool:
        """Whether `pending` may return a request, or may change `paused`."""
        return bool(self._asked) or self._count[0] != self._seen

    def asked(self, reservation: Reservation) -> bool:
        """Whether this message was asked to stop."""
        if self._count[0] != self._seen:
            self._read()
        return (reservation.queue, reservation.id) in self._asked

    def pending(self) -> set[tuple[str, bytes]]:
        """Queue and id of each message that was asked to stop."""
        with self._lock:
            self._read()
            return set(self._asked)

    def _read(self) -> None:
        """Read the requests that have come since the last call."""
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

    def forget(self, queue: str, message_id: bytes) -> None:
        """Drop the request for a message that is not in flight."""
        with self._lock:
            self._asked.discard((queue, message_id))

    def _entry_at(self, number: int) -> int:
        return self._at + self._FROM + number % self.MOST * self._ENTRY


class Counts(NamedTuple):
    handled: int = 0
    failed: int = 0
    released: int = 0
    yielded: int = 0
    average_seconds: float = 0.0
    margin_seconds: float = 0.0
    longer_than_window: int = 0


class LaunchProgress:
    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, Flight.SIZE + Stops.SIZE)
        self.trusted = memoryview(self._memory)[:_COUNTS_AT].cast("d")
        """When trust in the lease ends, on the boot clock; LOST, EMPTIED or ROLLED_BACK if the lease is lost."""
        self.flight = Flight(self._memory)
        self.stops = Stops(self._memory, Flight.SIZE)
        self.end(None, 0)
        self.facts: dict[str, Any] = {}
        """Fields of the ledger's entry that stay the same: where the launch runs, and which launcher started it. Also
        the pid namespace and the births of its processes, see `process.all_gone`, which the ledger does not store."""
        self.waited = self.since = 0.0
        """Seconds from the launch's start until it took the lease; and when it took it, on the boot clock."""

    def ran(self, now: float) -> float:
        """Seconds from the launch's start until ``now``, on the boot clock."""
        return self.waited + now - self.since

    def trust_until(self, boot_time: float) -> None:
        self.trusted[0] = boot_time

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
        """The launch as JSON, which the lease records for `lease show`, and for launches that find the lease held."""
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
        """The launch's entry in the ledger, as JSON, at ``now`` on the boot clock. ``claim``: None while the launch
        waits for the lease. ``leaving``: seconds from the end of the launch's work to the exit of its process.
        ``in_flight``: messages that take long. ``beyond``: the launch's window is over."""
        reason, exit_code = self.ended()
        entry: dict[str, Any] = {name: value for name, value in self.facts.items() if name not in _OF_PROCESSES}
        entry |= {
            "running_seconds": 0.0 if claim is None else round(self.ran(now), 3),
            "stop_reason": reason,
            "exit_code": None if reason is None else exit_code,
            **self.counts()._asdict(),
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
