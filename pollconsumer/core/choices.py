"""Enums of settings whose value is one of a few words. They stand apart from the code that they choose between, since
every command imports them, and few commands import that code."""

from __future__ import annotations

from enum import StrEnum


class HandOff(StrEnum):
    """The moment at which a launch makes way for the next one."""

    DEADLINE = "deadline"
    """The launch ends before the next one starts."""
    BATON = "baton"
    """The launch works on until the next one waits for the lease and calls it."""

    @property
    def on_call(self) -> bool:
        """Whether a launch that waits for the lease calls the holder, which then makes way."""
        return self is HandOff.BATON


class Loop(StrEnum):
    """How a launch's loop decides."""

    WOKEN = "woken"
    """A wait may be cut short, so the last wait lasts until the margin begins."""
    ARTICLE = "article"
    """The rule of the article: a launch idles only if idle_time fits. An enqueue ends a wait under either rule."""


class LauncherRule(StrEnum):
    """What the platform does at a tick while the launch before is alive."""

    AUTO = "auto"
    """The launch finds the rule out: see ``core/launcher.py``."""
    PARALLEL = "parallel"
    """The platform starts another launch beside it."""
    QUEUE = "queue"
    """The platform starts another launch as soon as that one ends."""
    DROP = "drop"
    """The platform starts no launch at that tick."""

    def handoff(self, chosen: HandOff) -> HandOff:
        """The hand-off that is in force if the settings choose ``chosen``. A baton needs a successor that waits while
        its predecessor works, and only ``parallel`` starts one. Under the other rules a launch would outlast its tick
        in vain, and the platform would drop the next launch."""
        return chosen if self is LauncherRule.PARALLEL else HandOff.DEADLINE


class Dialect(StrEnum):
    """How a monitor wants to be told of a launch."""

    AUTO = "auto"
    """Recognised by host and path of the monitor's URL."""
    HEALTHCHECKS = "healthchecks"
    CRONITOR = "cronitor"
    SENTRY = "sentry"
    SNITCH = "snitch"
    PLAIN = "plain"
    """Any URL: a GET at the start, a POST at the end."""


class Missed(StrEnum):
    """The policy for missed occurrences: skip all, enqueue the last one, or enqueue all."""

    SKIP = "skip"
    ONCE = "once"
    ALL = "all"


class Overlap(StrEnum):
    """What becomes of an occurrence that is due while the one before is unfinished."""

    SKIP = "skip"
    ALLOW = "allow"
    """Enqueue it."""
    QUEUE = "queue"
    """Enqueue it. It begins when the one before has ended. Skip it if another occurrence waits already."""
    REPLACE = "replace"
    """Stop the one before. This one begins when that has ended."""

    @property
    def in_order(self) -> bool:
        """Whether an occurrence begins when the one before has ended."""
        return self in (Overlap.QUEUE, Overlap.REPLACE)


class After(StrEnum):
    """The instant from which a recurrence counts its period: the due time of its last occurrence, or its end."""

    DUE = "due"
    END = "end"
