"""Recurrences: cron expressions in a time zone, periods, and what to do when an occurrence is due."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, tzinfo
from itertools import count, islice, takewhile
from typing import Any, Literal, NamedTuple
from zoneinfo import ZoneInfo

from pollconsumer.core.choices import After, Missed, Overlap
from pollconsumer.core.messages.message import LONGEST_CREATOR, NewMessage, checked, options_of
from pollconsumer.core.messages.payloads import encode_payload
from pollconsumer.core.notation.cron_expression import Cron
from pollconsumer.core.notation.digests import sha256
from pollconsumer.core.notation.instants import LAST_MILLISECOND, datetime_of, epoch_ms
from pollconsumer.core.spans import DAY, YEAR, format_duration

ON_TIME = 90.0
"""Seconds by which an occurrence may be late without counting as missed: a platform may skip a minute's launch."""
MOST_CAUGHT_UP = 100
"""Maximum number of due occurrences, missed or late, that are enqueued at once."""
MOST_LOOKED_AT = 100_000
"""Maximum number of due occurrences that are counted: the last ones of a period, the first of a cron expression."""
_LAST = LAST_MILLISECOND - int(DAY * 1000)
"""The last instant of any recurrence. Some time zones have no local time for a later one."""
LEAST_PERIOD, MOST_PERIOD = 1.0, 5 * YEAR
LONGEST_NAME = 100
"""Maximum length of the name of a recurrence put at run time: an occurrence's id is this name and its instant."""
MOST_TIMES = 10**9
First = Literal["now", "next"] | int
"""The first instant of a recurrence put at run time: ``now``, ``next`` (by its rule), or an instant in epoch ms."""
MOST_JITTER = DAY
LONGEST_EXPIRY = 1000 * YEAR
_RULE = ("every", "cron", "timezone", "enabled", "after", "offset")
_OF_PUT = (
    "handler", "payload", "priority", "missed", "overlap", "occurrence_wanted", "times", "until", "headers",
    "created_by", "created", "ping", "rate_key", "rate", "options",
)  # fmt: skip
_OF_EITHER = ("ping", "rate_key", "rate", "after", "offset", "headers", "options")
"""Fields that a recurrence defined by a configuration stores only if they are set."""
OF_MESSAGES = ("expires", "timeout", "max_attempts", "retry", "concurrency_key", "concurrency_limit", "order_key")
"""Options of a recurrence's messages. A definition stores only those that are given."""
_OF_CONFIGURATION = (
    "name", "handler", "cron", "every", "timezone", "queue", "payload", "priority", "missed", "overlap", "enabled",
    "occurrence_wanted",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A recurring message. Exactly one of ``cron`` and ``every`` (seconds) is set. A recurrence that is not ``enabled``
    is listed, but enqueues nothing.

    If ``at_run_time``, a program or a person has put it, and its periods count from its first instant. Otherwise a
    configuration defines it, its periods count from the epoch, and ``times``, ``until``, ``created_by`` and ``created``
    are unset."""

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
    """Whether the handler takes the nominal instant as the argument ``occurrence``."""
    at_run_time: bool = False
    times: int | None = None
    """How many occurrences the recurrence yields; None for no limit."""
    until: datetime | None = None
    """The latest instant at which it may recur; None for no limit."""
    headers: dict[str, str] = field(default_factory=dict)
    created_by: str | None = None
    created: datetime | None = None
    """When the recurrence was first put at run time; None before."""
    ping: str | None = field(default=None, repr=False)
    """Secret URL of a monitor that gets reports of each occurrence's begin and end. Configurations may set it, too."""
    rate_key: str = ""
    """The rate key of the occurrences; ``rate`` is their rate. Configurations may set both, too."""
    rate: str = ""
    after: After = After.DUE
    """The instant from which the period counts. Configurations may set it, too."""
    offset: int = 0
    """Delay of each instant, in ms: the part of the jitter that `offset_of` chooses. Configurations may set it, too."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options of the messages, some of `OF_MESSAGES`. Times are in seconds. ``expires`` counts from the instant.
    Configurations may set them, too."""

    def as_json(self) -> str:
        """The stored definition, if a configuration defines the recurrence. Equal recurrences have the same text."""
        values = {name: getattr(self, name) for name in _OF_CONFIGURATION}
        values |= {name: value for name in _OF_EITHER if (value := getattr(self, name)) not in (_DEFAULTS[name], {})}
        return json.dumps(values, sort_keys=True)

    @property
    def rule(self) -> str | None:
        """The rule in words, such as ``every 5m``; None without a rule."""
        later = f", {format_duration(self.offset / 1000)} later" if self.offset else ""
        if self.every is None:
            return None if self.cron is None else f"{self.cron}{later}"
        return f"every {format_duration(self.every)}{' after the end' * (self.after is After.END)}{later}"

    def as_put(self) -> tuple[str, str]:
        """The stored definition of a recurrence put at run time, without ``created`` and defaults; and the beginning of
        that text, which all recurrences with the same rule share. Equal recurrences have the same text."""
        rule = {name: getattr(self, name) for name in _RULE if getattr(self, name) != _DEFAULTS[name]}
        head = f'{{"rule":{_compact(rule)},"handler":'
        names = [name for name in _OF_PUT if name not in ("handler", "created")]
        rest = [(name, getattr(self, name)) for name in names]
        given = "".join(
            f',"{name}":{_compact(epoch_ms(value) if isinstance(value, datetime) else value)}'
            for name, value in rest
            if value != _DEFAULTS[name] and value != {}
        )
        return f"{head}{_compact(self.handler)}{given}}}", head

    def message(self, payload: bytes) -> NewMessage:
        """A message of the recurrence with this ``payload``. Its id is the recurrence's name."""
        options = dict(self.options)
        lifetime = round(options.pop("expires", 0) * 1000)
        message = NewMessage(self.name, self.queue, self.handler, payload, self.priority, lifetime=lifetime, **options)
        return message._replace(headers=self.headers or None, ping=self.ping, rate_key=self.rate_key, rate=self.rate)

    def rated_as(self, message: NewMessage) -> Recurrence:
        """The recurrence, with the rate and the rate key of ``message`` for its occurrences."""
        return replace(self, rate_key=message.rate_key, rate=message.rate)

    def instants(self, after_ms: int, phase_ms: int = 0) -> Iterator[int]:
        """Nominal instants later than ``after_ms``, in epoch ms, ascending. ``phase_ms``: the instant from which the
        periods of a recurrence put at run time count. If periods count from ends, each occurrence is assumed to end at
        once.

        ValueError if this machine does not know the time zone."""
        counts_from = (self.at_run_time and phase_ms) or self.offset
        if self.after is After.END:
            counts_from = phase_ms or after_ms
        if self.every is not None:
            step = round(self.every * 1000)
            found: Iterator[int] = count(after_ms - (after_ms - counts_from) % step + step, step)
        else:
            assert self.cron is not None
            found = map(self.offset.__add__, Cron(self.cron).instants(after_ms - self.offset, zone_of(self.timezone)))
        until = latest_ms(self)
        return takewhile(lambda instant: instant <= until, found)

    def next_after(self, after_ms: int, phase_ms: int = 0) -> int | None:
        """The first instant later than ``after_ms``; None if there is none."""
        return next(self.instants(after_ms, phase_ms), None)

    def due(self, first_ms: int, until_ms: int) -> list[int]:
        """The recurrence's instants from ``first_ms``, itself one, until ``until_ms``: `MOST_LOOKED_AT` at most."""
        if first_ms > until_ms:
            return []
        if self.after is After.END:
            return [first_ms]
        step, last = round((self.every or 0) * 1000), min(until_ms, latest_ms(self))
        after_ms = max(first_ms, last - (MOST_LOOKED_AT - 1) * step) if step else first_ms
        later = takewhile(lambda instant: instant <= until_ms, self.instants(after_ms, first_ms))
        return [first_ms, *islice(later, MOST_LOOKED_AT - 1)]

    def begins(self, first: First, now_ms: int) -> int | None:
        """The first instant of a recurrence that is put now. None if there is none, or if it is not enabled."""
        if not self.enabled:
            return None
        if first == "now":
            instant = now_ms + self.offset
            return instant if instant <= latest_ms(self) else None
        if first == "next":
            return self.next_after(now_ms)
        return self.next_after(max(now_ms, first) - 1, first + self.offset)


def latest_ms(recurrence: Recurrence) -> int:
    """The latest instant that the recurrence may yield, in epoch ms."""
    return _LAST if recurrence.until is None else min(_LAST, epoch_ms(recurrence.until))


def offset_of(jitter: float, namespace: str, name: str) -> int:
    """The offset in ms of the recurrence ``name``: less than its ``jitter`` (in seconds), and the same on each host."""
    return int(sha256(f"{namespace}\n{name}".encode())[:12], 16) % int(jitter) * 1000


_DEFAULTS = {each.name: each.default for each in fields(Recurrence)}


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def zone_of(name: str) -> tzinfo:
    """The time zone ``name``. ValueError if this machine does not know it; UTC is always known."""
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (LookupError, OSError, ValueError):
        raise ValueError(f"time zone {name!r} is not known here; install tzdata") from None


def recurrence_from_json(definition: str | bytes, name: str = "", queue: str = "default") -> Recurrence:
    """The inverse of ``as_json``; and of ``as_put``, given the name and the queue under which the definition is stored.
    ValueError if the text is corrupt, or of a newer version."""
    try:
        values = json.loads(definition)
    except (ValueError, RecursionError):
        raise ValueError("its definition is not JSON") from None
    if type(values) is not dict:
        raise ValueError("its definition is not a JSON object")
    if type(values.get("rule")) is dict:
        rule = values.pop("rule")
        _refuse_others(values.keys(), _OF_PUT)
        _refuse_others(rule.keys(), _RULE)
        values |= rule | {"name": name, "queue": queue, "at_run_time": True}
    else:
        _refuse_others(values.keys(), (*_OF_CONFIGURATION, *_OF_EITHER))
    for key, kind in (("missed", Missed), ("overlap", Overlap), ("after", After)):
        if key in values:
            try:
                values[key] = kind(values[key])
            except ValueError:
                raise ValueError(f"{key} is {values[key]!r}, not one of {', '.join(kind)}") from None
    for name in ("until", "created"):
        if (instant := values.get(name)) is not None:
            if type(instant) is not int or not 0 <= instant <= LAST_MILLISECOND:
                raise ValueError(f"{name} is {instant!r}, not an instant in milliseconds")
            values[name] = datetime_of(instant)
    try:
        recurrence = Recurrence(**values)
    except TypeError:
        raise ValueError("its definition has no name or no handler") from None
    try:
        _check(recurrence)
    except TypeError as error:
        raise ValueError(str(error)) from None
    return recurrence


def _refuse_others(names: Collection[str], known: Collection[str]) -> None:
    if unknown := set(names) - set(known):
        raise ValueError(f"its definition has unknown keys ({', '.join(sorted(unknown))}), perhaps of a newer version")


def _check(recurrence: Recurrence) -> None:
    """Raise ValueError or TypeError for an invalid value."""
    if type(recurrence.options) is not dict:
        raise ValueError(f"options is {recurrence.options!r}, not an object")
    _refuse_others(recurrence.options.keys(), OF_MESSAGES)
    expires = recurrence.options.get("expires")
    if expires is not None and (type(expires) not in (int, float) or not 0 < expires <= LONGEST_EXPIRY):
        raise ValueError(f"expires is {expires!r}, not a number of seconds from 0 to {LONGEST_EXPIRY:.0f}")
    message = checked(recurrence.message(encode_payload(recurrence.payload)))
    options_of(message)
    _check_rule(recurrence)
    for name, flag in (("enabled", recurrence.enabled), ("occurrence_wanted", recurrence.occurrence_wanted)):
        if not isinstance(flag, bool):
            raise ValueError(f"{name} is {flag!r}, not true or false")
    if recurrence.at_run_time:
        _check_put(recurrence)


def _check_rule(recurrence: Recurrence) -> None:
    """Raise ValueError for an invalid value of a field that determines the instants."""
    cron, every = recurrence.cron, recurrence.every
    if (cron is None) == (every is None):
        raise ValueError("its definition needs either cron or every")
    if cron is not None and not isinstance(cron, str):
        raise ValueError(f"cron is {cron!r}, not text")
    if cron is not None:
        Cron(cron)
    if recurrence.after is After.END and every is None:
        raise ValueError("after is end, which needs every")
    if every is not None and (type(every) not in (int, float) or not LEAST_PERIOD <= every <= MOST_PERIOD):
        raise ValueError(f"every is {every!r}, not a number of seconds from 1 to {MOST_PERIOD:.0f}")
    if type(recurrence.offset) is not int or not 0 <= recurrence.offset < MOST_JITTER * 1000:
        raise ValueError(f"offset is {recurrence.offset!r}, not a number of ms less than a day's")
    if not isinstance(recurrence.timezone, str):
        raise ValueError(f"timezone is {recurrence.timezone!r}, not text")


def _check_put(recurrence: Recurrence) -> None:
    """Raise ValueError for an invalid value of a field that only recurrences put at run time have."""
    if len(recurrence.name) > LONGEST_NAME:
        raise ValueError(f"its name has {len(recurrence.name)} characters, more than {LONGEST_NAME}")
    times, created_by = recurrence.times, recurrence.created_by
    if times is not None and (type(times) is not int or not 1 <= times <= MOST_TIMES):
        raise ValueError(f"times is {times!r}, not a whole number from 1 to {MOST_TIMES}")
    if created_by is not None and (not isinstance(created_by, str) or not 0 < len(created_by) <= LONGEST_CREATOR):
        raise ValueError(f"created_by is {created_by!r}, not text of 1 to {LONGEST_CREATOR} characters")


@dataclass(frozen=True, slots=True)
class Tick:
    """What a launch does about a recurrence now: enqueue an occurrence for each instant in ``enqueue``, report that
    ``skipped`` occurrences are skipped, and look again at the instant ``next`` (None: never)."""

    enqueue: tuple[int, ...]
    skipped: int
    next: int | None


class Replaced(NamedTuple):
    """An earlier definition of a recurrence. It held until the instant ``until``. The next definition begins with the
    instant ``first``."""

    until: int
    first: int
    recurrence: Recurrence


def tick(
    recurrence: Recurrence, due_ms: int, now_ms: int, attended_since_ms: int, before: Sequence[Replaced] = ()
) -> Tick:
    """What to do with the occurrences from ``due_ms``, the first pending one, until ``now_ms``.

    Occurrences after ``attended_since_ms`` are late, not missed: launches ran, but a long handler delayed them. One at
    exactly ``attended_since_ms`` counts as missed: else a launch that starts at an instant would also make up for the
    instant before. ``before``: earlier definitions by which the first occurrences are due, oldest first."""
    passed = list[int]()
    for until, first, replaced in [each for each in before if due_ms <= each.until]:
        passed += replaced.due(due_ms, until)
        due_ms = first
    passed = sorted({*passed, *recurrence.due(due_ms, now_ms)})
    following = due_ms if due_ms > now_ms else recurrence.next_after(now_ms, due_ms)
    return _made_up_for(recurrence, passed, following, now_ms, attended_since_ms)


def tick_after_end(
    recurrence: Recurrence, due_ms: int, now_ms: int, attended_since_ms: int, ended_ms: int | None
) -> Tick:
    """`tick` for a recurrence whose period counts from the end of its last occurrence. ``ended_ms``: that end; None
    while the occurrence is unfinished, 0 if there was none or it was forgotten. If a launch's clock runs fast, the end
    may be a little ahead of now. An end more than a period ahead counts as 0: it is corrupt, or the clock was set back.

    While an occurrence is unfinished, a launch looks again after a period: the next one is not due before."""
    assert recurrence.every is not None
    period, due = round(recurrence.every * 1000), due_ms
    if ended_ms is not None and 0 < ended_ms <= now_ms + period:  # GUARD a period after the end
        due = max(due_ms, ended_ms + period)
    if ended_ms is None or due > now_ms:  # GUARD an unfinished one is waited for
        again = now_ms + period if ended_ms is None else due
        return Tick((), 0, None if again > latest_ms(recurrence) else again)
    return _made_up_for(recurrence, [due], recurrence.next_after(now_ms), now_ms, attended_since_ms)


def _made_up_for(
    recurrence: Recurrence, passed: list[int], following: int | None, now_ms: int, attended_since_ms: int
) -> Tick:
    """What to do about the due instants ``passed``, some of which may have been missed. ``following``: the next one."""
    missed = [instant for instant in passed if instant <= attended_since_ms]
    attended = passed[len(missed) :]
    if recurrence.missed is not Missed.ALL:
        made_up_for = recurrence.missed is Missed.ONCE or (missed and now_ms - missed[-1] <= ON_TIME * 1000)
        missed = missed[-1:] if made_up_for else []
    enqueue = [*missed, *attended][-MOST_CAUGHT_UP:]
    return Tick(tuple(enqueue), len(passed) - len(enqueue), following)
