"""Reservations, settlements, and the arguments and results of a step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

from pollconsumer.store import rows
from pollconsumer.store.id_text import id_text
from pollconsumer.store.occurrences import Occurrence, occurrence_of


class Holder(NamedTuple):
    """The holder of a lease: the lease's lineage, the holder's fence, and its group."""

    lineage: str
    fence: str
    group: str


class Lot:
    """What messages of one reply have in common: all but id and payload. ``options`` are encoded.

    ``reserved_at`` is the server's, in epoch ms, and ``read_at`` when its reply was read, on the monotonic clock; later
    instants are computed from these, without this host's wall clock.
    """

    __slots__ = ("expires", "handler", "options", "queue", "read_at", "reserved_at", "row")

    def __init__(
        self, queue: str, row: bytes, handler: str, options: bytes, expires: int, reserved_at: int, read_at: float
    ) -> None:
        self.queue, self.row, self.handler, self.options, self.expires = queue, row, handler, options, expires
        self.reserved_at, self.read_at = reserved_at, read_at


class Reservation:
    """A message that a launch has reserved. Its row is its lot's until it is begun or has a checkpoint."""

    __slots__ = ("handler", "id", "lot", "payload", "row")

    def __init__(self, lot: Lot, id: bytes, payload: bytes) -> None:  # noqa: A002  a field
        self.lot, self.id, self.payload, self.row, self.handler = lot, id, payload, lot.row, lot.handler

    @classmethod
    def alone(
        cls, queue: str, message_id: bytes, row: bytes, record: bytes, reserved_at: int = 0, read_at: float = 0.0
    ) -> Reservation:
        """The only one of its lot."""
        handler, payload, options, expires = rows.content(record)
        return cls(Lot(queue, row, handler, options, expires, reserved_at, read_at), message_id, payload)

    @property
    def queue(self) -> str:
        return self.lot.queue

    @property
    def options(self) -> bytes:
        return self.lot.options

    @property
    def expires(self) -> int:
        """In epoch ms; 0 for never."""
        return self.lot.expires

    @property
    def reserved_at(self) -> int:
        return self.lot.reserved_at

    @property
    def name(self) -> str:
        """The id as text, even if it is corrupt."""
        return id_text(self.id)

    @property
    def attempt(self) -> int:
        """From 1; this one counts."""
        return rows.attempts(self.row)

    @property
    def crashes(self) -> int:
        """How often its process died while it was in flight; 255 if `spent`."""
        return self.row[rows.CRASHES]

    @property
    def spent(self) -> bool:
        """Whether its launch died before its last attempt was settled."""
        return self.crashes == rows.SPENT

    @property
    def generation(self) -> int:
        """The number of redrives."""
        return rows.generation(self.row)

    @property
    def fence(self) -> int:
        return rows.fence(self.row)

    @property
    def has_checkpoint(self) -> bool:
        return bool(self.row[rows.FLAGS] & rows.CHECKPOINT)

    @property
    def may_occur(self) -> bool:
        """Whether it may be an occurrence, by its id."""
        return self.id.endswith(b"Z")

    @property
    def occurrence(self) -> Occurrence | None:
        return occurrence_of(self.id) if self.may_occur else None

    def has_expired(self, monotonic: float) -> bool:
        """Whether it is too late to begin. A redriven message does not expire: a person asked for it."""
        return 0 < self.expires <= self.server_ms(monotonic) and self.generation == 0

    def server_ms(self, monotonic: float) -> int:
        lot = self.lot
        return lot.reserved_at + int((monotonic - lot.read_at) * 1000)


def reservations_of(queue: str, reply: Sequence[bytes], reserved_at: int, read_at: float) -> list[Reservation]:
    """Those in a step's reply: id, row and record of each, the row empty if it is the same as the last."""
    reservations = []
    lot, last_row, head, size = None, b"", b"", 0
    for name, row, record in zip(reply[::3], reply[1::3], reply[2::3], strict=True):
        if row or lot is None or not record.startswith(head):
            handler, payload, options, expires = rows.content(record)
            size = len(record) - len(payload)
            last_row, head = row or last_row, record[:size]
            if row or lot is None or (handler, options, expires) != (lot.handler, lot.options, lot.expires):
                lot = Lot(queue, last_row, handler, options, expires, reserved_at, read_at)
        reservations.append(Reservation(lot, name, record[size:]))
    return reservations


Extra = tuple[int, bytes, bytes]
"""What a completion leaves in addition to its row: a result, with the ms to keep it before it, and follow-ups; each b""
for none."""

_NOTHING: Extra = (0, b"", b"")

Done = tuple[Reservation, float, float, Extra | None]
"""A reservation whose handler has returned, and when it started and ended, on the monotonic clock."""


Run = tuple[bytes, bytes, list[bytes]]
"""The row and the new row of completed messages, and their ids."""


class Settlement(NamedTuple):
    """The settlement of a reservation that is not completed, made by one of the constructors, which define ``ms`` and
    ``text``."""

    id: bytes
    row: bytes
    new_row: bytes
    kind: str
    ms: int = 0
    text: str = ""
    took: int | str = ""
    """Milliseconds that its handler took; "" if it was not handled."""

    @classmethod
    def retrying(cls, reservation: Reservation, started: int, failed: int, *, delay_ms: int, error: str) -> Settlement:
        row = reservation.row
        return cls(reservation.id, row, rows.retrying(row, failed), "retry", delay_ms, error, failed - started)

    @classmethod
    def dead(
        cls, reservation: Reservation, started: int, failed: int, *, error: str, counted: bool = True
    ) -> Settlement:
        """A dead letter; ``counted``: the attempt was made."""
        row = reservation.row
        new_row = rows.dead(row if counted else rows.unstarted(row), started, failed)
        return cls(reservation.id, row, new_row, "dead", 0, error, failed - started if counted else "")

    @classmethod
    def expired(cls, reservation: Reservation, now: int) -> Settlement:
        """Uncharged, and not handled."""
        return cls(reservation.id, reservation.row, rows.expired(reservation.row, now), "expire")

    @classmethod
    def stopped(cls, reservation: Reservation, started: int, ended: int, *, error: str) -> Settlement:
        """Cancelled, since a person asked for it while it was in hand."""
        row = reservation.row
        return cls(reservation.id, row, rows.stopped(row, started, ended), "cancel", 0, error, ended - started)

    @classmethod
    def released(cls, reservation: Reservation) -> Settlement:
        """Uncharged, to the head of the queue."""
        return cls(reservation.id, reservation.row, rows.released(reservation.row), "release")

    @classmethod
    def parked(cls, reservation: Reservation, *, offered_in_ms: int, problem: str) -> Settlement:
        """Uncharged, until a consumer knows its handler."""
        row = reservation.row
        return cls(reservation.id, row, rows.parked(row), "park", offered_in_ms, problem)


class Limits(NamedTuple):
    """Most messages of a queue in flight at one time, and handed out in any ``period_ms``; ``rate`` of those with one
    rate key, unless they have a rate of their own, in any ``rate_period_ms``. None for no limit."""

    max_in_flight: int | None = None
    quota: int | None = None
    period_ms: int | None = None
    rate: int | None = None
    rate_period_ms: int | None = None

    def packed(self) -> str:
        """For `step.lua`."""
        return " ".join("" if limit is None else str(limit) for limit in self) if any(self) else ""


class Kept(NamedTuple):
    """How many messages that have ended are kept at most, and for how many ms; None for no limit."""

    number: int | None = None
    ms: int | None = None


class Keeping(NamedTuple):
    """Of one queue. ``finished``: of completed, cancelled and expired messages each, None for the default."""

    finished: Kept | None = None
    dead: Kept = Kept()


class Share:
    """One queue's part of a step: settlements, and how many messages to reserve within which limits."""

    __slots__ = ("claim", "completed", "extras", "limits", "occurred", "queue", "runs", "settlements")

    def __init__(self, queue: str, claim: int = 0, limits: str = "") -> None:
        self.queue, self.claim, self.limits = queue, claim, limits
        self.completed = 0
        """How many messages are."""
        self.runs: list[Run] = []
        self.extras: list[int | bytes] = []
        """Of some of those completed: the position, from 1, an `Extra`, and which occurrence it is (b"" for none)."""
        self.settlements: list[Settlement] = []
        self.occurred: set[bytes] = set()
        """The recurrences of which occurrences are completed."""

    def complete(self, done: Iterable[Done]) -> None:
        """Those of this queue, in the order in which they ended. Hot path: brief messages that were enqueued together
        differ in nothing but their ids."""
        last_row, until, ids, number = b"", 0.0, list[bytes](), self.completed
        for reservation, started, ended, extra in done:
            row = reservation.row
            if row is not last_row or ended >= until:
                lot = reservation.lot
                at, read_at = lot.reserved_at, lot.read_at
                started_ms, ended_ms = at + int((started - read_at) * 1000), at + int((ended - read_at) * 1000)
                # Until a millisecond is over, all that follows starts and ends in it.
                until = read_at + (ended_ms + 1 - at) / 1000 if started_ms == ended_ms else 0.0
                last_row, ids = row, []
                self.runs.append((row, rows.completed(row, started_ms, ended_ms), ids))
            ids.append(reservation.id)
            number += 1
            if extra is not None or reservation.id.endswith(b"Z"):
                self._add_extra(reservation, number, extra, ended)
        self.completed = number

    def _add_extra(self, reservation: Reservation, number: int, extra: Extra | None, ended: float) -> None:
        """What this one leaves, if it is an occurrence or leaves anything else."""
        occurrence = reservation.occurrence
        if extra is not None or occurrence is not None:
            which = b""
            if occurrence is not None:
                which = occurrence.completed(reservation.server_ms(ended))
                self.occurred.add(occurrence.recurrence)
            self.extras += (number, *(extra or _NOTHING), which)

    def has_outgoing(self) -> bool:
        """Whether a completion leaves follow-ups."""
        return any(self.extras[3::5])

    def is_bare(self) -> bool:
        """Whether all of it is completions that leave and free nothing, as `RedisStore.begin` takes them."""
        freeing = ~rows.BEGUN & 255
        return not (self.extras or self.settlements or any(row[rows.FLAGS] & freeing for row, _, _ in self.runs))

    def packed(self) -> list[Any]:
        """The settlements, for `step.lua`."""
        packed: list[Any] = [self.completed, len(self.runs), len(self.extras) // 5]
        for row, new_row, ids in self.runs:
            packed += (len(ids), row, new_row)
            packed += ids
        packed += self.extras
        packed += chain.from_iterable(self.settlements)
        return packed

    def ids(self) -> list[bytes]:
        return [*chain.from_iterable(ids for _, _, ids in self.runs), *(each.id for each in self.settlements)]


class DeadLetter(NamedTuple):
    """A dead letter that the store made of a message that cannot be reserved, and the problem."""

    message: Reservation
    problem: str


def dead_letters_of(queue: str, reply: Sequence[bytes]) -> list[DeadLetter]:
    """Those in a script's reply: id, row and problem of each."""
    triples = zip(reply[::3], reply[1::3], reply[2::3], strict=True)
    return [
        DeadLetter(Reservation.alone(queue, name, row, rows.bare_record(row)), problem.decode())
        for name, row, problem in triples
    ]


class Promoted(NamedTuple):
    """``next_due``: seconds until the next due time, or None. ``recurring``: a recurrence is due now. ``to_repair``:
    messages are in flight, wait for a place, or are in the outbox, perhaps of a launch that died."""

    moved: int
    next_due: float | None
    recurring: bool
    to_repair: bool

    @classmethod
    def of(cls, answer: Sequence[int]) -> Promoted:
        """The answer of `promote.lua`."""
        moved, next_due, recurring, to_repair = answer
        return cls(moved, None if next_due < 0 else next_due / 1_000_000, bool(recurring), bool(to_repair))


class Stepped(NamedTuple):
    """``stale``: ids whose reservations were stale. ``successor``: the next launch waits for the lease.

    ``more_in``: seconds until limits allow more, 0 to ask again at once, None if nothing was held back, or if that
    depends on messages in flight. ``held_back``: nothing was reserved of a queue with ready messages. ``newer``: queues
    in which messages of a newer version were set aside. ``promoted``: what became of the queues in which due messages
    were to be promoted, in their order. ``dead_letters``: malformed messages, now dead letters.
    """

    reserved: list[Reservation]
    stale: list[bytes]
    successor: bool
    more_in: float | None = None
    held_back: bool = False
    newer: tuple[str, ...] = ()
    promoted: Sequence[Promoted] = ()
    dead_letters: Sequence[DeadLetter] = ()
