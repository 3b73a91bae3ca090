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
    """Why a launch ended. All but the last five are normal ends."""

    NO_TIME_TO_HANDLE = "no_time_to_handle"
    NO_TIME_TO_IDLE = "no_time_to_idle"
    EMPTY = "empty"
    HELD_BACK = "held_back"
    """Nothing can be handed out, but messages are ready: a limit, a pause or a concurrency key holds them back."""
    MAX_MESSAGES = "max_messages"
    MEMORY = "memory"
    DESCRIPTORS = "descriptors"
    """Handlers have leaked descriptors up to the limit: a later launch begins with none."""
    INTERRUPTED = "interrupted"
    HANDED_OVER = "handed_over"
    LEASE_HELD = "lease_held"
    LEASE_LOST = "lease_lost"
    STORE_UNREACHABLE = "store_unreachable"
    FAILED = "failed"
    WATCHDOG = "watchdog"
    DIED = "died"


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
