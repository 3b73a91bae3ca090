"""What happens while a launch lives, for whoever listens: the log, the ledger, later metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AttemptFailed:
    """``delay``: seconds until the next attempt; None where the message became a dead letter."""

    id: str
    handler: str
    attempt: int
    error: str
    delay: float | None


@dataclass(frozen=True, slots=True)
class MessageParked:
    """No handler of that name is known to this consumer; the message is offered again after ``delay`` seconds."""

    id: str
    handler: str
    delay: float


@dataclass(frozen=True, slots=True)
class OrphansRecovered:
    queue: str
    count: int


@dataclass(frozen=True, slots=True)
class ReservationsLost:
    """Settled too late: the messages had been offered to another launch, whose outcome counts."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ResultDropped:
    """The message is completed, but what its handler returned cannot be kept; ``reason`` says why."""

    id: str
    handler: str
    reason: str


@dataclass(frozen=True, slots=True)
class WindowTooShort:
    """No time to handle anything, from the launch's beginning on; both in seconds."""

    margin: float
    left: float


@dataclass(frozen=True, slots=True)
class OccurrencesSkipped:
    """Missed while no mover ran, and not made up for, as the recurrence has it."""

    recurrence: str
    count: int


@dataclass(frozen=True, slots=True)
class RecurrenceRemoved:
    """It is defined no more; no occurrence of it will be enqueued."""

    recurrence: str


@dataclass(frozen=True, slots=True)
class LaunchEnded:
    role: str
    stop_reason: str
    running_seconds: float
    handled: int
    failed: int
    released: int


Event = (
    AttemptFailed
    | MessageParked
    | OrphansRecovered
    | ReservationsLost
    | ResultDropped
    | WindowTooShort
    | OccurrencesSkipped
    | RecurrenceRemoved
    | LaunchEnded
)
