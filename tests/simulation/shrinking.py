"""A story that violates an invariant, with as few faults and acts as still do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tests.simulation.story import Report, acts_named, faults_named, tell


def shrink(seed: int, *, messages: int, faults: int, minutes: int, queues: int) -> tuple[list[str], Report]:
    """The names that are left, and what happens then. The first invariant that the whole story violates is violated."""
    story = partial(tell, seed, messages=messages, faults=faults, minutes=minutes, queues=queues)
    invariant = _violated(story())[0]

    def fails(names: Sequence[str]) -> bool:
        return invariant in _violated(story(kept=frozenset(names)))

    left = smallest([*faults_named(faults), *acts_named(messages, faults)], fails)
    return left, story(kept=frozenset(left))


def smallest(items: list[str], fails: Callable[[list[str]], bool]) -> list[str]:
    """Some of ``items`` that still fail, of which none can be left out: delta debugging (Zeller, 1999)."""
    size = len(items) // 2
    while size:
        at, before = 0, len(items)
        while at < len(items):
            fewer = items[:at] + items[at + size :]
            if fails(fewer):
                items = fewer
            else:
                at += size
        if size > 1 or len(items) == before:
            size //= 2
    return items


def _violated(report: Report) -> list[str]:
    return [line.partition(":")[0] for line in report.violations]
