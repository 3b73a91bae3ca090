"""The limits of a queue: messages in flight, messages handed out, and ended messages that are kept."""

from typing import NamedTuple


class Limits(NamedTuple):
    """The limits of a queue. ``max_in_flight``: messages of a queue in flight at one time; ``quota``: messages handed
    out in any ``period_ms``; ``rate``: messages with one rate key, and no rate of their own, in any ``rate_period_ms``.
    None for no limit."""

    max_in_flight: int | None = None
    quota: int | None = None
    period_ms: int | None = None
    rate: int | None = None
    rate_period_ms: int | None = None

    def packed(self) -> str:
        """The limits as `step.lua` takes them."""
        return " ".join("" if limit is None else str(limit) for limit in self) if any(self) else ""


class Kept(NamedTuple):
    """How many messages that have ended are kept at most, and for how many ms; None for no limit."""

    number: int | None = None
    ms: int | None = None


class Retention(NamedTuple):
    """What one queue keeps. ``finished``: of completed, cancelled and expired messages each, None for the default."""

    finished: Kept | None = None
    dead: Kept = Kept()
