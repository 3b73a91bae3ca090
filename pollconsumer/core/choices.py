"""Enums of settings whose value is one of a few words. They have a module of their own because every command imports
them, and few commands import the code that acts on them."""

from __future__ import annotations

from enum import StrEnum


class HandOff(StrEnum):
    """When a launch makes way: before the next one starts (``deadline``), or when it asks for the lease (``baton``)."""

    DEADLINE = "deadline"
    """The launch ends before the next one starts."""
    BATON = "baton"
    """The launch works on until the next one waits for the lease and asks for it."""

    @property
    def on_call(self) -> bool:
        """Whether a launch that waits for the lease asks the holder for it, which then makes way."""
        return self is HandOff.BATON


class Loop(StrEnum):
    """The rule by which a launch decides how long to wait for messages."""

    WOKEN = "woken"
    """A new message ends a wait, so a launch may wait until its margin begins."""
    ARTICLE = "article"
    """The rule of the article of `window.py`: a launch waits only if ``idle_time`` fits. A message ends the wait."""


class LauncherRule(StrEnum):
    """What the launcher does at a tick while the previous launch still runs."""

    AUTO = "auto"
    """The launch finds out which of the other rules holds: see ``core/launcher.py``."""
    PARALLEL = "parallel"
    """The launcher starts another launch beside the running one."""
    QUEUE = "queue"
    """The launcher starts another launch as soon as the running one ends."""
    DROP = "drop"
    """The launcher starts no launch at that tick."""

    def handoff(self, chosen: HandOff) -> HandOff:
        """The hand-off in force if the settings choose ``chosen``: ``chosen`` under ``parallel``, else ``deadline``.
        With ``baton`` a launch works on until the next launch waits for the lease, and only ``parallel`` starts the
        next launch while the first one works."""
        return chosen if self is LauncherRule.PARALLEL else HandOff.DEADLINE


class Dialect(StrEnum):
    """The protocol in which a launch reports its start and its end to a monitor's URL."""

    AUTO = "auto"
    """Recognised by host and path of the monitor's URL."""
    HEALTHCHECKS = "healthchecks"
    CRONITOR = "cronitor"
    SENTRY = "sentry"
    SNITCH = "snitch"
    PLAIN = "plain"
    """Any URL: a GET at the start, a POST at the end."""


class Missed(StrEnum):
    """What happens to missed occurrences: skip all, enqueue only the last one (``once``), or enqueue all."""

    SKIP = "skip"
    ONCE = "once"
    ALL = "all"


class Overlap(StrEnum):
    """What happens to an occurrence that is due while the previous one is unfinished."""

    SKIP = "skip"
    ALLOW = "allow"
    """Enqueue the new occurrence."""
    QUEUE = "queue"
    """Enqueue the new occurrence; it begins when the previous one has ended. Skip it if another one waits already."""
    REPLACE = "replace"
    """Stop the previous occurrence. The new one begins when the previous one has ended."""

    @property
    def in_order(self) -> bool:
        """Whether an occurrence begins only when the previous one has ended."""
        return self in (Overlap.QUEUE, Overlap.REPLACE)


class After(StrEnum):
    """The instant from which a recurrence counts its period: the due time, or the end, of its last occurrence."""

    DUE = "due"
    END = "end"
