"""What the producers and the handler of a trial record, and which messages were lost, or handled twice, by it."""

from __future__ import annotations

import os
import sys
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tests.trials.place import Place

ACCEPTED, EXECUTED = "accepted", "executed"


class Accepted(NamedTuple):
    """Of a message, to the producer at a place: tried ``since``, acknowledged ``at`` epoch seconds, after so many calls
    that were in doubt."""

    message: str
    since: float
    at: float
    doubts: int
    place: int = 0


class Executed(NamedTuple):
    """A call of the handler, by a launch at a place; epoch seconds. ``since``: when its producer first tried."""

    message: str
    since: float
    at: float
    attempt: int
    fence: int
    launch: str
    place: int = 0


def open_record(name: str) -> int:
    """A file in the current directory, to which concurrent processes append."""
    return os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


def append(record: int, *fields: object) -> None:
    """One line in one write, so that lines of several processes do not mix."""
    os.write(record, (" ".join(map(str, fields)) + "\n").encode())


def read_accepted(places: Iterable[Place]) -> list[Accepted]:
    return [
        Accepted(message, float(since), float(at), int(doubts), number)
        for number, place in enumerate(places)
        for message, since, at, doubts in _lines(place, ACCEPTED)
    ]


def read_executed(places: Iterable[Place]) -> list[Executed]:
    """By their instants."""
    found = [
        Executed(message, float(since), float(at), int(attempt), int(fence), sys.intern(launch), number)
        for number, place in enumerate(places)
        for message, since, at, attempt, fence, launch in _lines(place, EXECUTED)
    ]
    return sorted(found, key=lambda each: each.at)


def _lines(place: Place, name: str) -> Iterator[list[str]]:
    """One at a time: there may be a million."""
    path = place.directory / name
    if path.exists():
        with path.open() as lines:
            yield from map(str.split, lines)


def lost(accepted: Sequence[Accepted], executed: Sequence[Executed]) -> list[Accepted]:
    handled = {each.message for each in executed}
    return [each for each in accepted if each.message not in handled]


def twice(executed: Sequence[Executed]) -> list[str]:
    """Messages that were handled more than once."""
    times = Counter(each.message for each in executed)
    return [message for message, count in times.items() if count > 1]
