"""The interface of a launch that holds its lease: in a process, in a sandbox, in a test."""

from typing import NamedTuple, Protocol

from pollconsumer.core.choices import HandOff
from pollconsumer.core.durations import HANDLER_LIMIT
from pollconsumer.core.launcher.detection import UNKNOWN, Found
from pollconsumer.core.news.events import Event
from pollconsumer.core.notation.instants import ceil_ms
from pollconsumer.core.window import Window
from pollconsumer.runtime.launch.launch_end import LaunchEnd
from pollconsumer.runtime.launch.shared_memory.launch_progress import LaunchProgress
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.leases import Leases
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.records.reservations import Claim

STEP_MS = 1000
"""Milliseconds by which the server's clock may differ from the monotonic clock without having been set: clocks are
slewed."""


class LaunchPlan(NamedTuple):
    """The limits of a launch; durations in seconds. ``next_launches`` counts from now, ``launched_ago`` to now from the
    time of the schedule at which this one was due. ``observes``: the ledger decides about the launcher's rule.
    ``min_margin`` is None to learn it. ``reports_completed``: the log shows each completed message.
    ``config``: the path of its configuration. ``if_free``: it leaves where the lease is held. ``handler_limit``: how
    long a message may be handled whose handler has no timeout. ``window_is_budget``: the platform ends the launch at
    the end of its window."""

    timeout: float
    grace: float
    handoff: HandOff = HandOff.DEADLINE
    next_launches: tuple[float, float] | None = None
    launched_ago: float | None = None
    launcher: Found = UNKNOWN
    observes: bool = False
    min_margin: float | None = None
    run_id: str | None = None
    reports_completed: bool = False
    config: str = ""
    if_free: bool = False
    handler_limit: float = HANDLER_LIMIT
    window_is_budget: bool = False


class Attendance:
    """Since when a launch has been there to enqueue occurrences, by the server's clock, which may be set meanwhile."""

    def __init__(self, since_ms: int, asked: float) -> None:
        """``since_ms``: when the launch took the lease; ``asked``: when it asked for that, on the monotonic clock."""
        self._since = since_ms
        self.seen_ms = since_ms
        """What the server's clock showed when it was last asked."""
        self._asked = asked

    def since(self, now_ms: int, asked: float, answered: float) -> int:
        """Return since when the launch has been there, in epoch ms, now that the server's clock shows ``now_ms``. If
        that clock was set forward since it was last asked, nobody was there in the time that it skipped."""
        present_since = max(0, now_ms - ceil_ms(answered - self._asked))
        if present_since > self.seen_ms + STEP_MS:
            self._since = present_since
        elif now_ms < self.seen_ms:
            self._since = min(self._since, present_since)
        self.seen_ms, self._asked = now_ms, asked
        return self._since


class Launch(Protocol):
    id: str
    plan: LaunchPlan
    window: Window
    end: LaunchEnd
    min_margin: float
    """The margin of the plan, or the one that was learned."""
    waited: bool
    """Whether another launch held the lease when this one came for it, or the store was away for long."""
    progress: LaunchProgress
    holder: Claim
    attendance: Attendance
    leases: Leases
    store: RedisStore

    def clock(self) -> float:
        """The instant, in seconds of the clock by which the window is measured."""

    def chance(self) -> float:
        """A random number in [0, 1)."""

    def emit(self, event: Event) -> None: ...

    def interrupted(self) -> bool:
        """Whether the launch was asked to stop."""

    def check_lease(self) -> bool:
        """Wait until the lease can be trusted. Returns whether that took a wait, in which others may have recovered
        what is reserved. LeaseLost if another launch holds it."""

    def lease_is_trusted(self) -> bool: ...

    def bare_wire(self) -> Wire:
        """Another connection to the same store, not opened yet."""
