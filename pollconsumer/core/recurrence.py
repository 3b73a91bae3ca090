"""Recurrence rules: cron expressions in a time zone, and periods."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from pollconsumer.core.choices import Missed, Overlap
from pollconsumer.core.message import check_handler, check_id, check_priority, check_queue, encode_payload
from pollconsumer.core.notation.cron import Cron
from pollconsumer.core.notation.timespan import YEAR

ON_TIME = 90.0
"""Seconds by which an occurrence may be late without counting as missed: a platform may skip one launch a minute."""
MOST_CAUGHT_UP = 100
"""Maximum missed occurrences enqueued at once."""
MOST_LOOKED_AT = 100_000
"""Maximum missed occurrences counted; beyond it, the count is a lower bound."""
LEAST_PERIOD, MOST_PERIOD = 1.0, 5 * YEAR


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A recurring message. Exactly one of ``cron`` and ``every`` (seconds) is set. If it is not ``enabled``, it is
    listed and yields nothing."""

    name: str
    handler: str
    cron: str | None = None
    every: float | None = None
    timezone: str = "UTC"
    queue: str = "default"
    payload: dict[str, Any] = field(default_factory=dict)
    priority: int = 0
    missed: Missed = Missed.ONCE
    overlap: Overlap = Overlap.ALLOW
    enabled: bool = True
    occurrence_wanted: bool = False
    """Whether the handler takes its nominal instant as the argument ``occurrence``."""

    def as_json(self) -> str:
        """The same text for equal recurrences."""
        return json.dumps(asdict(self), sort_keys=True)

    def instants(self, after_ms: int) -> Iterator[int]:
        """Nominal instants later than ``after_ms``, in epoch milliseconds, ascending.

        ValueError if the time zone is not known here.
        """
        if self.every is not None:
            step = round(self.every * 1000)
            instant = after_ms // step * step
            while True:
                instant += step
                yield instant
        assert self.cron is not None
        yield from Cron(self.cron).instants(after_ms, zone_of(self.timezone))

    def next_after(self, after_ms: int) -> int | None:
        """The first instant later than ``after_ms``; None if there is none."""
        return next(self.instants(after_ms), None)


def zone_of(name: str) -> tzinfo:
    """ValueError for an unknown time zone. UTC is always known."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (LookupError, OSError, ValueError):
        raise ValueError(f"time zone {name!r} is not known here; install tzdata") from None


def of_json(definition: str | bytes) -> Recurrence:
    """Inverse of ``as_json``. ValueError for text that is corrupt, or of a newer version."""
    try:
        values = json.loads(definition)
    except (ValueError, RecursionError):
        raise ValueError("its definition is not JSON") from None
    if type(values) is not dict:
        raise ValueError("its definition is not a JSON object")
    if unknown := values.keys() - {each.name for each in fields(Recurrence)}:
        raise ValueError(f"its definition has unknown keys ({', '.join(sorted(unknown))}), perhaps of a newer version")
    for name, kind in (("missed", Missed), ("overlap", Overlap)):
        if name in values:
            try:
                values[name] = kind(values[name])
            except ValueError:
                raise ValueError(f"{name} is {values[name]!r}, not one of {', '.join(kind)}") from None
    try:
        recurrence = Recurrence(**values)
    except TypeError:
        raise ValueError("its definition has no name or no handler") from None
    try:
        _check(recurrence)
    except TypeError as error:
        raise ValueError(str(error)) from None
    return recurrence


def _check(recurrence: Recurrence) -> None:
    """ValueError or TypeError for an invalid value."""
    check_id(recurrence.name)
    check_handler(recurrence.handler)
    check_queue(recurrence.queue)
    check_priority(recurrence.priority)
    encode_payload(recurrence.payload)
    cron, every = recurrence.cron, recurrence.every
    if (cron is None) == (every is None):
        raise ValueError("its definition has not one of cron and every")
    if cron is not None and not isinstance(cron, str):
        raise ValueError(f"cron is {cron!r}, not text")
    if cron is not None:
        Cron(cron)
    if every is not None and (type(every) not in (int, float) or not LEAST_PERIOD <= every <= MOST_PERIOD):
        raise ValueError(f"every is {every!r}, not a number of seconds from 1 to {MOST_PERIOD:.0f}")
    if not isinstance(recurrence.timezone, str):
        raise ValueError(f"timezone is {recurrence.timezone!r}, not text")
    for name, flag in (("enabled", recurrence.enabled), ("occurrence_wanted", recurrence.occurrence_wanted)):
        if not isinstance(flag, bool):
            raise ValueError(f"{name} is {flag!r}, not true or false")


@dataclass(frozen=True, slots=True)
class Tick:
    """What to do now: ``enqueue`` these instants, count ``skipped`` ones, look again at ``next``."""

    enqueue: tuple[int, ...]
    skipped: int
    next: int | None


def tick(recurrence: Recurrence, due_ms: int, now_ms: int, attended_since_ms: int) -> Tick:
    """What to do with the occurrences from ``due_ms``, the first pending one, until ``now_ms``.

    Those from ``attended_since_ms`` on were not missed, only late: a launch was there, behind a long handler.
    """
    passed, ahead = [due_ms], recurrence.instants(due_ms)
    following = next(ahead, None)
    while following is not None and following <= now_ms and len(passed) < MOST_LOOKED_AT:
        passed.append(following)
        following = next(ahead, None)
    if following is not None and following <= now_ms:
        following = recurrence.next_after(now_ms)
    missed = [instant for instant in passed if instant < attended_since_ms]
    attended = passed[len(missed) :]
    if recurrence.missed is not Missed.ALL:
        made_up_for = recurrence.missed is Missed.ONCE or (missed and now_ms - missed[-1] <= ON_TIME * 1000)
        missed = missed[-1:] if made_up_for else []
    enqueue = [*missed, *attended][-MOST_CAUGHT_UP:]
    return Tick(tuple(enqueue), len(passed) - len(enqueue), following)
