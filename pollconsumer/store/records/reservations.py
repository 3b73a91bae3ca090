"""Reservations: messages that a launch has taken to handle. Dead letters: messages that could not be taken."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

from pollconsumer.store.records import rows
from pollconsumer.store.records.occurrences import Occurrence, occurrence_of
from pollconsumer.store.records.rows import id_text


class Claim(NamedTuple):
    """A held lease: its name, its holder's fence, and its group.

    ``slot``: which of the group's leases. ``at``: when it was acquired, in epoch ms of the server's clock. ``launch``:
    the holder's id. ``description``: JSON about the holder, for `lease show` and for launches that find the lease
    held."""

    lease_name: str
    fence: str
    group: str
    slot: int = 0
    at: int = 0
    launch: str = ""
    description: str = "{}"

    @property
    def role(self) -> str:
        return self.group.partition(":")[0]


class CommonFields:
    """The fields that messages of one reply have in common: all but id, payload and keys. ``options`` and
    ``continuation`` are encoded. ``expires``: in epoch ms; 0 for never.

    ``reserved_at``: when they were reserved, in epoch ms of the server's clock. ``shown_at``: the same instant on this
    host's monotonic clock. Later instants are computed from these two: this host's wall clock is not used."""

    __slots__ = ("continuation", "expires", "handler", "options", "queue", "reserved_at", "row", "shown_at")

    def __init__(
        self,
        queue: str,
        row: bytes,
        handler: str,
        options: bytes,
        expires: int,
        reserved_at: int,
        shown_at: float,
        continuation: bytes = b"",
    ) -> None:
        self.queue, self.row, self.handler, self.options, self.expires = queue, row, handler, options, expires
        self.reserved_at, self.shown_at, self.continuation = reserved_at, shown_at, continuation


class Reservation:
    """A message that a launch has reserved. It shares its row with others until it is begun or has a checkpoint. A
    missing key is empty. ``concurrency_key``: if there is an order key, it follows after a zero byte."""

    __slots__ = ("common", "concurrency_key", "handler", "id", "payload", "row", "unique_key")

    def __init__(
        self,
        common: CommonFields,
        message_id: bytes,
        payload: bytes,
        unique_key: bytes = b"",
        concurrency_key: bytes = b"",
    ) -> None:
        self.common, self.id, self.payload = common, message_id, payload
        self.row, self.handler = common.row, common.handler
        self.unique_key, self.concurrency_key = unique_key, concurrency_key

    @classmethod
    def alone(
        cls, queue: str, message_id: bytes, row: bytes, record: bytes, reserved_at: int = 0, shown_at: float = 0.0
    ) -> Self:
        """A reservation whose fields are shared with no other."""
        handler, payload, options, expires, continuation = rows.content(record)
        return cls(
            CommonFields(queue, row, handler, options, expires, reserved_at, shown_at, continuation),
            message_id,
            payload,
        )

    @property
    def queue(self) -> str:
        return self.common.queue

    @property
    def reserved_at(self) -> int:
        return self.common.reserved_at

    @property
    def name(self) -> str:
        """The id as text; corrupt bytes are escaped."""
        return id_text(self.id)

    @property
    def attempt(self) -> int:
        """The number of the current attempt, from 1."""
        return rows.attempts(self.row)

    @property
    def crashes(self) -> int:
        """How often a process died while it handled the message; 255 if the message is `spent`."""
        return self.row[rows.CRASHES]

    @property
    def spent(self) -> bool:
        """Whether a launch died before the last permitted attempt was settled."""
        return self.crashes == rows.SPENT

    @property
    def begun(self) -> bool:
        """Whether the message is recorded as begun, which happens only for delivery at most once."""
        return bool(self.row[rows.FLAGS] & rows.BEGUN)

    @property
    def has_checkpoint(self) -> bool:
        return bool(self.row[rows.FLAGS] & rows.CHECKPOINT)

    @property
    def occurrence(self) -> Occurrence | None:
        return occurrence_of(self.id)

    def has_expired(self, monotonic: float) -> bool:
        """Whether the message's expiry has passed at ``monotonic``. Never for a redriven one: a person asked for it."""
        # GUARD a redriven message does not expire
        return 0 < self.common.expires <= self.server_ms(monotonic) and not rows.generation(self.row)

    def server_ms(self, monotonic: float) -> int:
        common = self.common
        return common.reserved_at + int((monotonic - common.shown_at) * 1000)


def reservations_of(
    queue: str,
    ids: Sequence[bytes],
    records: Sequence[bytes],
    changes: Sequence[Any],
    reserved_at: int,
    shown_at: float,
) -> list[Reservation]:
    """The reservations in a step's reply. ``changes``: rows, each after the position, from 1, of its first message."""
    reservations: list[Reservation] = []
    ends = (*changes[2::2], len(ids) + 1)  # without changes this end is not used
    for first, row, end in zip(changes[::2], changes[1::2], ends, strict=False):
        last = None
        for at in range(first - 1, end - 1):
            handler, payload, options, expires, continuation = rows.content(records[at])
            if last != (handler, options, expires, continuation):
                last = handler, options, expires, continuation
                common = CommonFields(queue, row, handler, options, expires, reserved_at, shown_at, continuation)
            reservations.append(Reservation(common, ids[at], payload, *rows.keys(records[at])))
    return reservations


class DeadLetter(NamedTuple):
    """A message that the store made a dead letter instead of handing it out. ``problem``: why."""

    message: Reservation
    problem: str


def dead_letters_of(queue: str, reply: Sequence[bytes]) -> list[DeadLetter]:
    """The dead letters in a script's reply: id, row and problem of each."""
    triples = zip(reply[::3], reply[1::3], reply[2::3], strict=True)
    return [
        DeadLetter(Reservation.alone(queue, name, row, rows.bare_record(row)), problem.decode())
        for name, row, problem in triples
    ]
