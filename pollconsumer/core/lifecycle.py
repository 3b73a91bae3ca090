"""The states of a message, derived from its timestamps and never stored."""

from datetime import datetime
from enum import StrEnum
from typing import Generic, Literal, NamedTuple, TypeVar

I = TypeVar("I", int, datetime)  # noqa: E741  an instant


class State(StrEnum):
    """The phase of life that a message is in."""

    SCHEDULED = "scheduled"
    READY = "ready"
    RESERVED = "reserved"
    COMPLETED = "completed"
    DEAD = "dead"
    CANCELLED = "cancelled"
    EXPIRED = "expired"

    @property
    def has_ended(self) -> bool:
        return self in (State.COMPLETED, State.DEAD, State.CANCELLED, State.EXPIRED)


StateName = Literal["scheduled", "ready", "reserved", "completed", "dead", "cancelled", "expired"]


class Timestamps(NamedTuple, Generic[I]):
    """The times at which a message entered each phase, by the server's clock; None for a phase that it has not entered.
    In epoch milliseconds, or as datetimes for programs."""

    scheduled_at: I | None = None
    due_at: I | None = None
    enqueued_at: I | None = None
    reserved_at: I | None = None
    started_at: I | None = None
    completed_at: I | None = None
    failed_at: I | None = None
    next_attempt_at: I | None = None
    dead_at: I | None = None
    cancelled_at: I | None = None
    expired_at: I | None = None

    @property
    def ended_at(self) -> I | None:
        return self.completed_at or self.dead_at or self.cancelled_at or self.expired_at


def state_of(t: Timestamps[int]) -> State:
    """The state that follows from the timestamps: how the message ended, else the latest phase that it has entered."""
    if t.completed_at:
        return State.COMPLETED
    if t.dead_at:
        return State.DEAD
    if t.cancelled_at:
        return State.CANCELLED
    if t.expired_at:
        return State.EXPIRED
    if t.reserved_at:
        return State.RESERVED
    return State.READY if t.enqueued_at else State.SCHEDULED


def durations_of(t: Timestamps[int]) -> dict[str, float | None]:
    """Seconds that a message spent in its phases: ``waited`` from ready to reserved, ``handled`` from start to end."""
    ended = t.ended_at or (t.failed_at if t.failed_at and not t.reserved_at else None)
    return {"waited_seconds": _seconds(t.enqueued_at, t.reserved_at), "handled_seconds": _seconds(t.started_at, ended)}


def _seconds(start: int | None, end: int | None) -> float | None:
    return None if start is None or end is None else max(0, end - start) / 1000
