"""Warnings and failures that go on from launch to launch, said often enough and no oftener.

Cron mails whatever a launch prints: a store that is down for a day would make 1,440 mails. A streak is the launches
that met the same thing; it is printed at its 1st, 2nd, 5th, 15th and 60th, then hourly, and once when it is over. For
rarer launches it is printed at each that comes an hour after the last one that printed it, so that nothing keeps
silent for much longer than that. What comes back within an hour goes on where it was: what comes and goes with every
other launch is damped as what stays.

What a launch needs to know to call a streak over depends on its kind:

- ``failure``: it ended the launch. Over when a launch gets as far as the lease, whether it gets it or not.
- ``standing``: every launch that works looks at it. Over when one has worked and not met it.
- ``met``: it is met by chance, as an unknown handler is with a message. Over when a launch has worked and not met it,
  and it was last met more than two minutes ago, twice as long as a message without a handler is set aside for. Met by
  one launch alone, it is an incident, of whose end there is nothing to say.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from pollconsumer.core import strict_json
from pollconsumer.core.timespan import DAY, format_duration

PRINTED_AT = (1, 2, 5, 15, 60)
HOUR = 3570.0
"""Seconds; a little less than an hour, since a launch may start a little earlier than the one an hour before it."""
RESUMED_WITHIN = 3600.0
FORGOTTEN_AFTER = DAY
MET_AGAIN_WITHIN = 120.0
MOST_STREAKS = 100
MOST_CHARACTERS = 200
"""Of a streak's name, and of its text, which is kept to be shown when it is over."""
MOST_LAUNCHES = 10**9
LATEST = 1e12
"""Beyond these a stored streak is not one of ours: there are numbers in JSON that cannot be printed."""


class Streak(NamedTuple):
    """Instants in epoch seconds. ``told``: something was printed of it since it was last over. ``launch``: the last
    that met it, in which it was printed if ``met`` and ``printed`` are one instant."""

    kind: str
    launches: int
    began: float
    met: float
    printed: float
    told: bool
    over: bool
    text: str
    launch: str


_TYPES = [str, int, float, float, float, bool, bool, str, str]


class Streaks:
    """The streaks of one configuration, by what they are about."""

    def __init__(self, known: dict[str, Streak] | None = None) -> None:
        self.known = known or {}

    def meet(self, name: str, kind: str, text: str, launch: str, now: float) -> str | None:
        """``launch`` has met it. Returns what to print: ``text``, after the first launch with how long it has gone on;
        None where nothing is to be printed. What a launch meets again, with another message, goes the same way."""
        before = self.known.get(name[:MOST_CHARACTERS])
        if before is None or _is_gone(before, now):
            before = Streak(kind, 0, now, now, 0.0, False, False, "", "")
        if before.launch == launch:
            return text if before.printed == before.met else None
        launches = before.launches + 1
        news = launches in PRINTED_AT or not 0 <= now - before.printed < HOUR
        kept = text.partition("; ")[0][:MOST_CHARACTERS]
        printed = now if news else before.printed
        streak = Streak(kind, launches, before.began, now, printed, before.told or news, False, kept, launch)
        self.known[name[:MOST_CHARACTERS]] = streak
        if not news:
            return None
        return text if launches == 1 else f"{text} ({_span(streak)})"

    def end(self, launch: str, now: float, *, worked: bool) -> list[str]:
        """``launch`` has ended well; without having ``worked``, it got no further than the lease. Returns what to print
        of the streaks that are over, of which none is that it met itself."""
        lines = []
        for name, streak in self.known.items():
            if streak.launch != launch and not streak.over and _is_over(streak, now, worked):
                self.known[name] = streak._replace(over=True, told=False)
                if streak.told and (streak.launches > 1 or streak.kind != "met"):
                    lines.append(f"over, after {_span(streak)}: {streak.text}")
        return lines

    def encode(self, now: float) -> bytes:
        """To be kept for the next launch: nothing that is gone, and no more than can be read; empty for none."""
        kept = [(name, streak) for name, streak in self.known.items() if not _is_gone(streak, now)]
        kept.sort(key=lambda each: each[1].met)
        return json.dumps(dict(kept[-MOST_STREAKS:])).encode() if kept else b""

    @classmethod
    def decode(cls, stored: bytes | None) -> Streaks:
        """What ``encode`` made; of anything else, the part that it may have made."""
        try:
            found = strict_json.parse(stored or b"{}")
        except ValueError:
            return cls()
        if not isinstance(found, dict):
            return cls()
        return cls({name: streak for name, fields in found.items() if (streak := _read(fields))})


def _read(fields: object) -> Streak | None:
    """A streak as ``encode`` wrote it; None for anything else."""
    if not isinstance(fields, list) or [type(field) for field in fields] != _TYPES:
        return None
    streak = Streak(*fields)
    if not 0 < streak.launches <= MOST_LAUNCHES:
        return None
    if not all(0 <= instant <= LATEST for instant in (streak.began, streak.met, streak.printed)):
        return None
    return streak._replace(text=streak.text[:MOST_CHARACTERS])


def _is_over(streak: Streak, now: float, worked: bool) -> bool:
    if streak.kind == "failure":
        return True
    return worked and (streak.kind == "standing" or not 0 <= now - streak.met < MET_AGAIN_WITHIN)


def _is_gone(streak: Streak, now: float) -> bool:
    """Whether what comes now begins anew. A clock that was set makes an instant of either side of now too far off."""
    return abs(now - streak.met) > (RESUMED_WITHIN if streak.over else FORGOTTEN_AFTER)


def _span(streak: Streak) -> str:
    if streak.launches == 1:
        return "1 launch"
    return f"{streak.launches} launches in {format_duration(max(0.0, streak.met - streak.began))}"
