"""Enums of settings whose value is one of a few words. They stand apart from the code that they choose between, since
every command imports them, and few commands import that code."""

from __future__ import annotations

from enum import StrEnum


class HandOff(StrEnum):
    """When a launch makes way for the next one."""

    DEADLINE = "deadline"
    """Before the next one starts."""
    BATON = "baton"
    """As soon as the next one waits, which calls it."""

    @property
    def on_call(self) -> bool:
        """Whether a launch that waits for the lease calls its holder, which then makes way."""
        return self is HandOff.BATON


class Loop(StrEnum):
    """How a launch's loop decides."""

    WOKEN = "woken"
    """A wait may be cut short, so the last one lasts until the margin begins."""
    ARTICLE = "article"
    """Plain, as in its source: it idles only if idle_time fits. An enqueue ends a wait in either."""


class LauncherRule(StrEnum):
    """What the platform does at a tick while the launch before is alive."""

    AUTO = "auto"
    """Found out: see ``core/launcher/detection.py``."""
    PARALLEL = "parallel"
    """It starts another beside it."""
    QUEUE = "queue"
    """It starts one as soon as that one ends."""
    DROP = "drop"
    """It drops the tick."""

    def handoff(self, chosen: HandOff) -> HandOff:
        """The hand-off in force where ``chosen`` is chosen. A baton needs a successor that waits while its predecessor
        works. Only ``parallel`` starts one: elsewhere a launch would outlast a tick in vain, and have another one
        dropped."""
        return chosen if self is LauncherRule.PARALLEL else HandOff.DEADLINE


class Dialect(StrEnum):
    """How a monitor wants to be told of a launch."""

    AUTO = "auto"
    """By the host and path of its URL."""
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
    """Enqueue it, to begin when that one has ended; skip it if another waits already."""
    REPLACE = "replace"
    """Stop that one, and begin when it has ended."""

    @property
    def in_order(self) -> bool:
        """Whether an occurrence begins when the one before has ended."""
        return self in (Overlap.QUEUE, Overlap.REPLACE)


class After(StrEnum):
    """The instant from which a recurrence's period counts: the due time of its last occurrence, or the end of that."""

    DUE = "due"
    END = "end"
