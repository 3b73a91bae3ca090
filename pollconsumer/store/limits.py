"""What is limited in a queue: messages in flight and handed out, and those kept that have ended."""

from __future__ import annotations

from typing import NamedTuple


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


class Retention(NamedTuple):
    """Of one queue. ``finished``: of completed, cancelled and expired messages each, None for the default."""

    finished: Kept | None = None
    dead: Kept = Kept()
