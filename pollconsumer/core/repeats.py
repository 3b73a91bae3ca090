"""Damps warnings and failures that repeat from launch to launch.

Cron mails all output, so a store that is down for a day would cause 1,440 mails. A streak is a series of launches that
met the same problem. Its 1st, 2nd, 5th, 15th and 60th launch prints the problem, then one launch an hour. When the
streak is over, a launch prints that. If launches are rare, each prints the problem when an hour has passed since the
last line. A problem that returns within an hour resumes its streak, so a problem of every other launch is damped, too.

When a streak is over depends on its kind:

- ``failure``: the problem ended the launch. Over when a launch that asked for the lease, in vain or not, ends with 0.
- ``standing``: every working launch checks for the problem. Over when a launch has worked and not met it.
- ``lasting``: as ``standing``, but printed only from the second launch in a row on, however rare launches are. A launch
  that began before a change of the configuration may meet the problem once.
- ``met``: the problem depends on a message, as an unknown handler does. Over when a launch has worked and not met it,
  and it was last met more than two minutes ago: twice the time for which a message without a handler is parked. If only
  one launch met it, its end is not reported."""

import json
from typing import NamedTuple, Self

from pollconsumer.core import json_values
from pollconsumer.core.notation.text import counted
from pollconsumer.core.spans import DAY, format_duration

PRINTED_AT = (1, 2, 5, 15, 60)
HOUR = 3570.0
"""Seconds; a little less than an hour, since launches start at slightly irregular times."""
RESUMED_WITHIN = 3600.0
FORGOTTEN_AFTER = DAY
MET_AGAIN_WITHIN = 120.0
MOST_STREAKS = 100
MOST_CHARACTERS = 200
"""Maximum length of a streak's name, and of its text, which the line at its end repeats."""
MOST_LAUNCHES = 10**9
LATEST = 1e12
"""A stored streak with a later instant, in epoch seconds, is corrupt: JSON may have numbers too large for a time."""


class Streak(NamedTuple):
    """A series of launches that met the same problem; ``launches`` is their number. In epoch seconds: ``began`` is when
    the first launch met the problem, ``met`` when the last one did, ``printed`` when a line about it was last printed.
    ``reported``: whether a line was printed since the streak was last over. ``launch``: the last launch that met the
    problem; it has printed a line if ``met`` equals ``printed``."""

    kind: str
    launches: int
    began: float
    met: float
    printed: float
    reported: bool
    over: bool
    text: str
    launch: str


_TYPES = [str, int, float, float, float, bool, bool, str, str]


class Streaks:
    """The streaks of one configuration, by name."""

    def __init__(self, known: dict[str, Streak] | None = None) -> None:
        self.known = known or {}

    def meet(self, name: str, kind: str, text: str, launch: str, now: float) -> str | None:
        """Record that ``launch`` met the problem ``name``. Returns the line to print, or None for no line. The line is
        ``text``, with the streak's duration from its second launch on. If ``launch`` has met the problem before, the
        decision stays the same."""
        before = self.known.get(name[:MOST_CHARACTERS])
        if before is None or _is_gone(before, now) or (before.over and not before.printed):
            before = Streak(kind, 0, now, now, 0.0, False, False, "", "")
        if before.launch == launch:
            return text if before.printed == before.met else None
        launches = before.launches + 1
        due = launches in PRINTED_AT or not 0 <= now - before.printed < HOUR
        prints = due and (launches > 1 or kind != "lasting")
        kept = text.partition("; ")[0][:MOST_CHARACTERS]
        printed = now if prints else before.printed
        streak = Streak(kind, launches, before.began, now, printed, before.reported or prints, False, kept, launch)
        self.known[name[:MOST_CHARACTERS]] = streak
        if not prints:
            return None
        return text if launches == 1 else f"{text} ({_span(streak)})"

    def end(self, launch: str, now: float, *, worked: bool) -> list[str]:
        """Record that ``launch`` ended normally. ``worked``: whether it had the lease and worked. Returns a line for
        each streak that is over now; streaks with the same text share a line. A streak whose problem this launch met is
        not over."""
        lines = dict[str, str]()
        for name, streak in self.known.items():
            lasts = streak.kind not in ("standing", "lasting") and 0 <= now - streak.met < MET_AGAIN_WITHIN
            is_over = streak.kind == "failure" or (worked and not lasts)
            if streak.launch != launch and not streak.over and is_over:
                self.known[name] = streak._replace(over=True, reported=False)
                if streak.reported and (streak.launches > 1 or streak.kind != "met"):
                    verb = "failed" if streak.kind == "failure" else "seen"
                    lines[streak.text] = f"resolved: {streak.text} ({verb} in {_span(streak, ', for ')})"
        return [*lines.values()]

    def encode(self, now: float) -> bytes:
        """The streaks for the next launch, as JSON: the latest ones, without expired ones. Empty if there are none."""
        kept = [(name, streak) for name, streak in self.known.items() if not _is_gone(streak, now)]
        kept.sort(key=lambda each: each[1].met)
        return json.dumps(dict(kept[-MOST_STREAKS:])).encode() if kept else b""

    @classmethod
    def decode(cls, stored: bytes | None) -> Self:
        """Inverse of ``encode``; skips invalid entries."""
        found = json_values.object_in(stored or b"") or {}
        return cls({name: streak for name, fields in found.items() if (streak := _read(fields))})


def _read(fields: object) -> Streak | None:
    """A streak as ``encode`` wrote it; None if invalid."""
    if not isinstance(fields, list) or [type(field) for field in fields] != _TYPES:
        return None
    streak = Streak(*fields)
    instants = (streak.began, streak.met, streak.printed)
    sound = 0 < streak.launches <= MOST_LAUNCHES and all(0 <= instant <= LATEST for instant in instants)
    return streak._replace(text=streak.text[:MOST_CHARACTERS]) if sound else None


def _is_gone(streak: Streak, now: float) -> bool:
    """Whether the problem, if a launch met it now, would start a new streak. After a change of the clock ``met`` may be
    in the future."""
    if streak.kind == "lasting" and not streak.over:
        return False
    return abs(now - streak.met) > (RESUMED_WITHIN if streak.over else FORGOTTEN_AFTER)


def _span(streak: Streak, lasting: str = " in ") -> str:
    launches = counted(streak.launches, "launch")
    if streak.launches == 1:
        return launches
    return f"{launches}{lasting}{format_duration(max(0.0, streak.met - streak.began))}"
