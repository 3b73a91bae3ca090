"""The time span that a launch may use.

Source: Mark Seemann, "Faking a continuously Polling Consumer with scheduled tasks", 2014."""

from __future__ import annotations

from enum import StrEnum
from math import ceil, inf, nextafter
from typing import NamedTuple

from pollconsumer.core.choices import HandOff

OUR_OWN = 1.0
"""Seconds. A launch time that is at most so far ahead belongs to this launch, which started a little early."""


class StopReason(StrEnum):
    """Why a launch ended. `LEASE_HELD` and the reasons before it are normal ends, with exit code 0. See
    docs/reference/internals.md for who decides each."""

    NO_TIME_TO_HANDLE = "no_time_to_handle"
    """The time left in the consumer's window is shorter than its margin."""
    NO_TIME_TO_IDLE = "no_time_to_idle"
    """A mover's window is over. Or, with ``loop="article"``, the idle time does not fit into a consumer's window."""
    EMPTY = "empty"
    """Nothing is left to handle. Only with ``until_empty``."""
    HELD_BACK = "held_back"
    """Messages are ready, but a limit, a pause, a concurrency key or an order key holds them back. Only with
    ``until_empty``."""
    MAX_MESSAGES = "max_messages"
    """The launch has begun as many messages as ``max_messages`` allows."""
    MEMORY = "memory"
    """The process uses more memory than ``memory_limit``."""
    DESCRIPTORS = "descriptors"
    """Handlers have leaked descriptors up to the limit. The next launch starts without them."""
    INTERRUPTED = "interrupted"
    """A signal, or the platform's stop file, asked the launch to stop."""
    HANDED_OVER = "handed_over"
    """The next launch asked for the lease, as it does with the hand-off ``baton``."""
    LEASE_HELD = "lease_held"
    """The launch did not get the lease: another launch held it until this one's window was over, or was waiting for it
    already; or this launch was asked to stop, or not to wait; or the store is about to close. It has no entry in the
    ledger."""
    LEASE_LOST = "lease_lost"
    """Another launch has the lease, or the heartbeat is gone. Exit code 75."""
    STORE_UNREACHABLE = "store_unreachable"
    """The store did not answer within the launch's patience. Exit code 69."""
    FAILED = "failed"
    """Another error ended the launch. The exit code is that of the error; 1 for a bug in pollconsumer."""
    WATCHDOG = "watchdog"
    """The launch still ran at its hard end, and was killed. Exit code 124; 1 or 134 if it held the GIL."""
    DIED = "died"
    """The process ended in another way, such as a kill. The ledger has -1 as its exit code."""


def why_stopped(reason: str | None) -> str:
    """A stop reason for people: ``window over`` for either end of a window, ``running`` if ``reason`` is empty."""
    if reason in (StopReason.NO_TIME_TO_HANDLE, StopReason.NO_TIME_TO_IDLE):
        return "window over"
    return (reason or "running").replace("_", " ")


class Window(NamedTuple):
    """The time in which a launch may work, from ``start`` to ``stop_before``, in seconds of one monotonic clock."""

    start: float
    stop_before: float

    @property
    def length(self) -> float:
        return self.stop_before - self.start

    def has_time(self, now: float, needed: float) -> bool:
        """Whether ``needed`` seconds from ``now`` are over before ``stop_before``."""
        return now + needed < self.stop_before

    def left(self, now: float) -> float:
        return max(0.0, self.stop_before - now)

    @staticmethod
    def wait_until(now: float, longest: float) -> float:
        """When a wait of ``longest`` seconds ends: later than ``now``, even if rounding loses ``longest``."""
        return max(now + longest, nextafter(now, inf))


def predict_stop(
    start: float, timeout: float, next_launches: tuple[float, float] | None, handoff: HandOff, late: float = 0.0
) -> float:
    """The instant before which a launch started at ``start`` must have stopped; all in seconds of one clock.

    ``late``: how long after its launch time the next launch starts; negative if this launch must stop before that.

    ``next_launches``: the next two launch times of the schedule, if there is one. With ``deadline`` the launch must
    have ended by the first of them, and after ``timeout`` at the latest. With ``baton`` it works on until a successor
    waits, at most until the second, and for twice ``timeout``: a platform that skips one launch costs nothing."""
    launches = 2 if handoff.on_call else 1
    latest = start + launches * timeout
    return latest if next_launches is None else min(latest, next_launches[launches - 1] + late)


def tick_from(now: float, ticks: tuple[float, float]) -> float:
    """The first tick at or after ``now`` of the schedule that has the successive ``ticks``. In seconds of one clock."""
    first, second = ticks
    return first + max(0, ceil((now - first) / (second - first))) * (second - first)
