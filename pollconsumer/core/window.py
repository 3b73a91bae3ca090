"""The time span that a launch may use.

Source: Mark Seemann, "Faking a continuously Polling Consumer with scheduled tasks", 2014.
"""

from __future__ import annotations

from enum import StrEnum
from math import ceil, inf, nextafter
from typing import NamedTuple

from pollconsumer.core.choices import HandOff

OUR_OWN = 1.0
"""Seconds: a launch time at most this far ahead is the one that started us, a little early."""


class StopReason(StrEnum):
    """Why a launch ended. `LEASE_HELD` and those before it are normal ends, with exit code 0. Who decides each stands
    in docs/reference/internals.md."""

    NO_TIME_TO_HANDLE = "no_time_to_handle"
    """The margin does not fit into the window any more: the consumer's loop."""
    NO_TIME_TO_IDLE = "no_time_to_idle"
    """The window is over for a mover, or for a consumer with ``loop="article"`` the idle time does not fit."""
    EMPTY = "empty"
    """Nothing is left to handle, which ends a launch with ``until_empty``."""
    HELD_BACK = "held_back"
    """Messages are ready, but a limit, a pause, a concurrency key or an order key holds them back. This ends a launch
    with ``until_empty``."""
    MAX_MESSAGES = "max_messages"
    """The launch has begun as many messages as ``max_messages`` allows."""
    MEMORY = "memory"
    """The process has more memory than ``memory_limit``."""
    DESCRIPTORS = "descriptors"
    """Handlers have leaked descriptors up to the limit: a later launch begins with none."""
    INTERRUPTED = "interrupted"
    """A signal, or the platform's file, asked the launch to stop."""
    HANDED_OVER = "handed_over"
    """The next launch called for the lease, under the hand-off ``baton``."""
    LEASE_HELD = "lease_held"
    """Another launch held the lease until this one's window was over, or another one was waiting for it already. Or the
    launch was asked to stop, or not to wait, or the store is about to close. The ledger has no entry of it."""
    LEASE_LOST = "lease_lost"
    """The lease is another launch's, or the heartbeat is gone: exit code 75."""
    STORE_UNREACHABLE = "store_unreachable"
    """The store did not answer for the whole patience of the launch: exit code 69."""
    FAILED = "failed"
    """Another error ended the launch, with that error's exit code; a bug of ours with 1."""
    WATCHDOG = "watchdog"
    """The launch was there at its hard end, and was killed: exit code 124. If it held the GIL, 1 or 134."""
    DIED = "died"
    """The process ended in no other way, as when it was killed: the ledger has -1 as its exit code."""


def why_stopped(reason: str | None) -> str:
    """A stop reason for people: ``window over`` for either end of a window; without a reason the launch runs."""
    if reason in (StopReason.NO_TIME_TO_HANDLE, StopReason.NO_TIME_TO_IDLE):
        return "window over"
    return (reason or "running").replace("_", " ")


class Window(NamedTuple):
    """The time from ``start`` to ``stop_before``, in seconds of one monotonic clock."""

    start: float
    stop_before: float

    @property
    def length(self) -> float:
        return self.stop_before - self.start

    def has_time(self, now: float, needed: float) -> bool:
        """Whether ``needed`` seconds from ``now`` end before stop_before."""
        return now + needed < self.stop_before

    def left(self, now: float) -> float:
        return max(0.0, self.stop_before - now)

    @staticmethod
    def wait_until(now: float, longest: float) -> float:
        """When a wait ends: later than ``now``, even if ``longest`` is lost by rounding, or no time would ever pass."""
        return max(now + longest, nextafter(now, inf))


def predict_stop(
    start: float, timeout: float, next_launches: tuple[float, float] | None, handoff: HandOff, late: float = 0.0
) -> float:
    """The instant before which a launch started at ``start`` must have stopped; all in seconds of one clock.

    ``late``: seconds by which the next launch starts after its time; negative, if this one must have stopped before.

    ``next_launches`` are the next two launch times of the schedule, where there is one. In deadline mode the launch
    must be gone by the first of them, and never outlives ``timeout``. Under the baton it works on until a successor
    waits, at most until the launch after that, so that a platform that skipped one launch costs nothing.
    """
    launches = 2 if handoff.on_call else 1
    latest = start + launches * timeout
    return latest if next_launches is None else min(latest, next_launches[launches - 1] + late)


def tick_from(now: float, ticks: tuple[float, float]) -> float:
    """The first tick of a schedule at ``now`` or later, by two of its ``ticks``; in seconds of one clock."""
    first, second = ticks
    return first + max(0, ceil((now - first) / (second - first))) * (second - first)
