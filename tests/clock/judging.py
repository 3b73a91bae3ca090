"""What must hold of occurrences, rates, the schedule, the ledger and `doctor` when the wall clock was set."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from itertools import pairwise
from math import ceil, floor
from typing import TYPE_CHECKING

from pollconsumer.core.choices import Missed
from pollconsumer.core.recurrence import MOST_CAUGHT_UP
from pollconsumer.store.leases import UNNOTICED
from tests.clock.stepped import EVERY, LAUNCHES, MOST, NAMES, PERIOD, RATED, WINDOW

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.clock.stepped import Seen

SOON = WINDOW + 5.0
"""Seconds after a step within which all goes on: the launch after begins at the latest."""
SPARE = 3
"""Occurrences more or fewer, by when launches begin."""
BUSY = 2.0
"""Seconds by which this machine may be late."""
SMALL = 60.0
"""A smaller step may pass as a late launch does."""
DAY = 86400.0


def judge(seen: Seen) -> list[str]:
    of_all = [_of_launches(seen), _of_rates(seen), _of_schedule(seen), _of_ledger(seen), _of_doctor(seen)]
    return [problem for of_one in (*(_of_occurrences(seen, name) for name in NAMES), *of_all) for problem in of_one]


def instant_of(occurrence: str) -> float:
    return _seconds(occurrence.rpartition("@")[2])


def _of_occurrences(seen: Seen, name: str) -> Iterator[str]:
    begun = [(instant_of(each), at) for each, at in seen.begun if each.startswith(f"{name}@")]
    if twice := [instant for instant, count in Counter(instant for instant, _ in begun).items() if count > 1]:
        yield f"{name}: began twice: {twice[:3]}"
    if not begun:
        yield f"{name}: did not occur"
        return
    if early := [instant for instant, at in begun if instant > max(end for _, end in _shown(seen, at)) + EVERY / 8]:
        yield f"{name}: began before the server's clock showed it: {early[:3]}"
    numbers, skipped = {floor(instant / EVERY) for instant, _ in begun}, seen.recurrences[name]["skipped"]
    shown = {number for since, end in _shown(seen, seen.ended) for number in _numbers(since, end + WINDOW)}
    for left_out in _left_out(seen):
        caught_up = len(numbers & {*left_out} - shown)
        allowed = MOST_CAUGHT_UP if name.endswith(Missed.ALL) else SMALL / EVERY
        if caught_up > allowed + SPARE:
            yield f"{name}: {caught_up} of {len(left_out)} that the clock left out were caught up, not {allowed:.0f}"
    came = {number for since, end in _calm(seen, begun[0][0]) for number in _numbers(since, end)}
    lacking = sorted(came - numbers)
    if lacking and name.endswith(Missed.ALL):
        yield f"{name}: {len(lacking)} of {len(came)} instants that came while no clock was set did not occur"
    came = came.union(*_left_out(seen))
    if len(came - numbers) - skipped > SPARE:
        yield f"{name}: {len(came - numbers)} instants came and did not occur; only {skipped} are said to be skipped"


def _numbers(since: float, end: float) -> range:
    """Those of the instants between two that the server's clock shows."""
    return range(ceil(since / EVERY), floor(end / EVERY))


def _shown(seen: Seen, until: float) -> Iterator[tuple[float, float]]:
    """What the server's clock showed between one set and the next, first and last, until that monotonic instant."""
    since, offset = seen.began, 0.0
    for set_at, after in (*seen.sets, (until, 0.0)):
        yield since + seen.wall + offset, min(set_at, until) + seen.wall + offset
        if set_at >= until:
            return
        since, offset = set_at, after


def _left_out(seen: Seen) -> Iterator[range]:
    """What the clock left out when it was set forward, less what a launch may be late."""
    spans = [*_shown(seen, seen.ended)]
    for (_, end), (since, _) in pairwise(spans):
        if since - end > SMALL:
            yield _numbers(end + WINDOW, since - WINDOW)


def _calm(seen: Seen, first: float) -> Iterator[tuple[float, float]]:
    """By the server's clock, when all goes on as if no clock was ever set; ``first``: with this instant."""
    for number, (since, end) in enumerate(_shown(seen, seen.ended)):
        yield (since + SOON if number else first), end - (WINDOW if number == len(seen.sets) else EVERY)


def _of_rates(seen: Seen) -> Iterator[str]:
    began = sorted((at, name) for name, at in seen.begun if name.startswith("rated-"))
    handed_out = {each["id"]: each["timestamps"]["reserved_at"] for each in seen.completed}
    # A clock that is set by more than a day has the store forget what was completed before.
    listed = [each for each in began if each[1] in handed_out]
    if listed != began and abs(seen.step.seconds) <= DAY:
        yield f"{len(began) - len(listed)} messages with a rate began and are not listed"
    for (first, name), (after, later) in zip(listed, listed[MOST:], strict=False):
        between = _seconds(handed_out[later]) - _seconds(handed_out[name])
        if between < PERIOD - 0.1 and not any(first - BUSY < set_at <= after for set_at, _ in seen.sets):
            yield f"{MOST + 1} messages with a rate were handed out within {between:.2f} s"
    if len(began) != RATED:
        yield f"{len(began)} of {RATED} messages with a rate began"


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _of_schedule(seen: Seen) -> Iterator[str]:
    began = dict(seen.begun)
    if "soon" not in began:
        yield "what was due soon did not begin"
    if ("tomorrow" in began) != (seen.step.seconds > DAY):
        yield "what was due tomorrow began" if "tomorrow" in began else "what was due tomorrow did not begin"


def _of_ledger(seen: Seen) -> Iterator[str]:
    if len(seen.ledger) != 2 * LAUNCHES + 1:
        yield f"the ledger has {len(seen.ledger)} launches, not {2 * LAUNCHES + 1}"
    for entry in seen.ledger:
        if not 0.0 <= entry["running_seconds"] < WINDOW + BUSY or entry["stop_reason"] in ("died", "watchdog"):
            yield f"the ledger has {entry}"
    for message in seen.completed:
        lasted = message["durations"]["handled_seconds"]
        if lasted is None or not 0.0 <= lasted < BUSY:
            yield f"{message['id']} is said to have lasted {lasted} s"


def _of_launches(seen: Seen) -> Iterator[str]:
    if any(seen.codes):
        yield f"launches ended with {seen.codes}"
    if said := [line for line in seen.printed if "error" in line or "Traceback" in line]:
        yield f"printed: {said[:3]}"


def _of_doctor(seen: Seen) -> Iterator[str]:
    before = 0.0
    for found, (_, offset) in zip(seen.found, seen.sets, strict=True):
        expected = {
            "clock_set_back": offset - before < -UNNOTICED,
            "clock_skew": seen.step.alone and abs(offset) > UNNOTICED,
        }
        for finding, is_there in expected.items():
            if (finding in found) != is_there:
                yield f"doctor says {', '.join(sorted(found)) or 'nothing'} after {offset - before:+.0f} s"
        before = offset
