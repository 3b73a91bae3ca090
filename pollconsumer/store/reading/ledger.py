"""The ledger: recent launches, current leases, and the totals of all launches, which never decrease. Corrupt entries
are skipped.

The scripts that settle messages count them in a hash of each queue (`lua/parts/totals.lua`). A field's name has three
parts: how messages were settled, their handler, and the bucket of their durations, empty if they were not handled. For
waits and lateness the parts are ``waiting`` or ``lateness``, nothing, and the bucket. ``ms`` instead of a bucket means
the sum. Skipped occurrences are counted under ``skipped``; with ``at`` instead of a bucket it is when the last one was
skipped. The ends of launches are counted in a hash of the namespace, by role and stop reason. This hash also has the
handler's own name for each alias.

A duration counts in the first bucket of a histogram that fits: bucket n, from 0, has durations below 2ⁿ milliseconds,
and the last one all others."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pollconsumer.core import json_values
from pollconsumer.core.coverage import holes_of, read_work
from pollconsumer.core.notation.instants import LAST_MILLISECOND
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.records.rows import id_text
from pollconsumer.store.server import count_of, readable_queues

InFlightSince = dict[tuple[str, str, int], int]

_COUNTS = ("handled", "failed", "released", "yielded", "longer_than_window")
_NUMBERS = ("running_seconds", *_COUNTS, "average_seconds", "margin_seconds", "pid")
_INSTANTS = ("started_ms", "acquired_ms", "ended_ms")
_MAYBE = ("launch_offset_seconds", "next_tick_seconds", "exit_seconds")
_TEXTS = ("platform", "launcher", "run_id", "host", "config", "handlers")
_BLANK: dict[str, Any] = {
    "role": "",
    "queues": [],
    "exit_code": None,
    **dict.fromkeys(_TEXTS, ""),
    **dict.fromkeys(_NUMBERS, 0),
    **dict.fromkeys(("run_id", *_MAYBE)),
}
PAGE = 1000
"""Number of entries that are read in one call."""
LAST_BUCKET = 24
"""The number of the last bucket, for 2.3 hours and more."""
SKIPPED, SKIPPED_AT = "skipped\n\n", "skipped\n\nat"
"""Fields of a queue's totals: how many occurrences were skipped, and when the last one was, in epoch ms."""
OUTCOMES = {
    "complete": "completed",
    "retry": "retried",
    "dead": "dead",
    "cancel": "stopped",
    "expire": "expired",
    "release": "released",
    "park": "parked",
    "asleep": "asleep",
}
"""For each way to settle a message, the outcome that is counted."""


def launches_of(wire: Wire, keys: Keys, limit: int, of_each: int = 0) -> list[dict[str, Any]]:
    """The entries of the newest launches in the ledger, newest first, ``limit`` at most. Then come earlier ones of each
    group that has fewer than ``of_each`` among these, until it has so many. Added to each: ``gap_seconds``, from the
    previous holder's end to the lease; ``waited_seconds``, from the start to the lease; ``skipped``: launches that left
    because it was held; ``missed_ticks`` before; ``working_on``: messages that the launch handles beyond its window."""
    entries = [*_entries(wire, keys, 0, limit + 200)]
    if of_each:
        entries = entries[:limit]
        entries += _rare_entries(wire, keys, limit, of_each, Counter(map(_group_of, entries)))
        limit = len(entries)
    live = {lease["fence"] for lease in leases_of(wire, keys)}
    before: dict[str | None, dict[str, Any]] = {}
    for entry in reversed(entries):
        earlier = before.get(entry.get("lineage"), {})
        if entry["stop_reason"] is None and entry.get("fence") not in live:
            entry |= {"stop_reason": "died", "exit_code": -1}
        entry["working_on"] = read_work(entry.get("working_on")) if entry["stop_reason"] is None else []
        acquired = entry.get("acquired_ms")
        entry["waited_seconds"] = _seconds(entry.get("started_ms"), acquired)
        entry["gap_seconds"] = _seconds(earlier.get("ended_ms"), acquired)
        if "ended_ms" in entry:
            before[entry["lineage"]] = entry
    missed = {hole.before: hole.ticks for hole in holes_of(entries, LAST_MILLISECOND)}
    return [entry | {"missed_ticks": missed.get(entry["launch_id"], 0)} for entry in entries[:limit]]


def _entries(
    wire: Wire, keys: Keys, first: int, last: int, is_wanted: Callable[[bytes], bool] = bool
) -> Iterator[dict[str, Any]]:
    """The ledger's entries from number ``first`` to ``last`` whose text ``is_wanted``, with what they have skipped."""
    ids = wire.command("LRANGE", keys.control("launches"), first, last)
    skipped = [b"skipped:" + each for each in ids]
    found = wire.command("HMGET", keys.control("ledger"), *ids, *skipped) if ids else []
    for text, count in zip(found, found[len(ids) :], strict=False):
        if text and is_wanted(text) and (entry := _read_entry(text)):
            yield entry | {"skipped": count_of(count)}


def _rare_entries(
    wire: Wire, keys: Keys, first: int, of_each: int, known: Mapping[str, int]
) -> Iterator[dict[str, Any]]:
    """The entries from number ``first`` on of groups that have fewer than ``of_each``, of which ``known`` has some."""
    groups = {id_text(name).rpartition(":")[0] for name in wire.command("SMEMBERS", keys.control("leases"))}
    missing = {group: of_each - known[group] for group in groups if known[group] < of_each}
    for start in range(first, wire.command("LLEN", keys.control("launches")), PAGE):
        # Most entries are of other groups: parsing them would take twenty times as long as reading them.
        marks = [f'"lineage": "{group}:'.encode() for group in missing]
        for entry in _entries(wire, keys, start, start + PAGE - 1, lambda text: any(mark in text for mark in marks)):  # noqa: B023
            if missing.get(group := _group_of(entry), 0):
                missing[group] -= 1
                yield entry
        missing = {group: count for group, count in missing.items() if count}
        if not missing:
            return


def _group_of(entry: Mapping[str, Any]) -> str:
    return str(entry.get("lineage")).rpartition(":")[0]


def _seconds(since_ms: int | None, until_ms: int | None) -> float | None:
    """The seconds between two instants; 0 if a clock was set back in between; None if one is None."""
    return None if since_ms is None or until_ms is None else max(0, until_ms - since_ms) / 1000


def in_flight_of(wire: Wire, keys: Keys) -> InFlightSince:
    """By queue, id and the launch's fence, when the handlers that take long began, in epoch ms."""
    begun: InFlightSince = {}
    for lease, entry in _held(wire, keys):
        with suppress(ValueError, TypeError):
            begun |= {
                (queue, name, lease["fence"]): at for queue, name, at in entry.get("in_hand", ()) if _is_instant(at)
            }
    return begun


def working_leases_of(wire: Wire, keys: Keys) -> list[dict[str, Any]]:
    """`leases_of`, with the messages that each launch handles beyond its window as ``working_on``."""
    return [lease | {"working_on": read_work(entry.get("working_on"))} for lease, entry in _held(wire, keys)]


def _held(wire: Wire, keys: Keys) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The leases, each with its launch's entry in the ledger; an empty one if that is corrupt."""
    leases = leases_of(wire, keys)
    ids = [lease["holder"] for lease in leases]
    found = wire.command("HMGET", keys.control("ledger"), *ids) if ids else []
    return [(lease, (stored and _read_entry(stored)) or {}) for lease, stored in zip(leases, found, strict=True)]


def leases_of(wire: Wire, keys: Keys) -> list[dict[str, Any]]:
    """The leases that are held, each with its holder, its fence, and since when, in epoch ms."""
    lease_names = sorted(map(id_text, wire.command("SMEMBERS", keys.control("leases"))))
    if not lease_names:
        return []
    answers = wire.all([("HGETALL", keys.control(f"lease:{lease_name}")) for lease_name in lease_names])
    held = zip(lease_names, answers, strict=True)
    return [lease for lease_name, fields in held if fields and (lease := _read_lease(lease_name, fields))]


def _read_entry(stored: bytes) -> dict[str, Any] | None:
    """An entry of the ledger, parsed; None if it is corrupt."""
    entry = _BLANK | (json_values.object_in(stored) or {})
    if not entry.keys() >= {"launch_id", "stop_reason"}:
        return None
    return entry if all(is_sound(entry[name]) for name, is_sound in _SOUND.items() if name in entry) else None


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and abs(value) <= LAST_MILLISECOND  # type: ignore[arg-type]  # a number, no bool


def _is_instant(value: object) -> bool:
    """Whether ``value`` is a number of epoch ms that is a valid date."""
    return type(value) is int and 0 <= value <= LAST_MILLISECOND


def _or_none(is_sound: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or is_sound(value)


_SOUND: dict[str, Callable[[object], bool]] = {
    "role": _is_text,
    **dict.fromkeys(("stop_reason", "lineage", *_TEXTS), _or_none(_is_text)),
    **dict.fromkeys(_NUMBERS, _is_number),
    **dict.fromkeys(_INSTANTS, _is_instant),
    **dict.fromkeys(_MAYBE, _or_none(_is_number)),
}
"""For each field of an entry, whether a value has the form that readers expect."""


def _read_lease(lease_name: str, fields: list[bytes]) -> dict[str, Any] | None:
    """A lease from its stored fields; None if they are corrupt."""
    lease = dict(zip(fields[::2], fields[1::2], strict=True))
    try:
        holder = json_values.parse(lease[b"holder"])
        read = {
            "role": holder["role"],
            "slot": int(lease_name.rpartition(":")[2]),
            "queues": holder["queues"],
            "holder": lease[b"launch"].decode(),
            "host": holder["host"],
            "pid": holder["pid"],
            "fence": int(lease[b"fence"]),
            "since_ms": int(lease[b"since"]),
            "lineage": lease_name,
        }
    except (ValueError, KeyError, TypeError):
        return None
    queues = read["queues"]
    sound = isinstance(queues, list) and all(isinstance(name, str) for name in (*queues, read["role"], read["host"]))
    return read if sound and _is_instant(read["since_ms"]) else None


@dataclass
class Spans:
    """A histogram: the sum of durations in seconds, and how many are in each bucket."""

    total: float = 0.0
    counts: Counter[int] = field(default_factory=Counter)

    def add(self, bucket: str, number: int) -> None:
        if bucket == "ms":
            self.total += number / 1000
        else:
            self.counts[int(bucket)] += number


@dataclass
class Totals:
    """The totals of a store. ``settled``: by queue, handler and outcome. ``launches``: by role and stop reason.
    ``durations``: by handler. ``waits``, ``lateness``, ``skipped``: by queue."""

    settled: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    launches: dict[tuple[str, str], int] = field(default_factory=dict)
    durations: defaultdict[str, Spans] = field(default_factory=lambda: defaultdict(Spans))
    waits: defaultdict[str, Spans] = field(default_factory=lambda: defaultdict(Spans))
    lateness: defaultdict[str, Spans] = field(default_factory=lambda: defaultdict(Spans))
    skipped: Counter[str] = field(default_factory=Counter)

    def add(self, queue: str, fields: Sequence[bytes], renamed: Mapping[str, str]) -> None:
        """Add the stored ``fields`` of ``queue``. ``renamed``: own names by alias."""
        for name, text in zip(fields[::2], fields[1::2], strict=True):
            number = max(0, count_of(text))
            match id_text(name).split("\n"):
                case ["waiting", "", bucket] if _is_bucket(bucket):
                    self.waits[queue].add(bucket, number)
                case ["lateness", "", bucket] if _is_bucket(bucket):
                    self.lateness[queue].add(bucket, number)
                case ["skipped", "", ""]:
                    self.skipped[queue] = number
                case [kind, handler, bucket] if kind in OUTCOMES and (not bucket or _is_bucket(bucket)):
                    handler = renamed.get(handler, handler)
                    if bucket:
                        self.durations[handler].add(bucket, number)
                    if bucket != "ms":
                        self.settled[queue, handler, OUTCOMES[kind]] += number


def _is_bucket(bucket: str) -> bool:
    return bucket == "ms" or (bucket.isdecimal() and int(bucket) <= LAST_BUCKET)


def all_names(wire: Wire, keys: Keys, handlers: Collection[str]) -> set[str]:
    """All names of ``handlers``, each given by its own name or an alias, as far as launches stored aliases."""
    aliases = _aliases_in(wire.command("HGETALL", keys.control("totals")))
    own = {aliases.get(name, name) for name in handlers}
    return own | {alias for alias, name in aliases.items() if name in own}


def _aliases_in(fields: Sequence[bytes]) -> dict[str, str]:
    """The own names by alias, in the fields of the namespace's totals."""
    split = (id_text(name).partition("\n") for name in fields[::2])
    return {
        alias: id_text(text) for (kind, _, alias), text in zip(split, fields[1::2], strict=True) if kind == "renamed"
    }


def totals_of(wire: Wire, keys: Keys) -> Totals:
    """The totals of a store, except corrupt fields and unreadable queues. With such a queue, durations are empty."""
    queues = readable_queues(wire, keys)
    commands = [("HGETALL", keys.queue(queue, "totals")) for queue in queues]
    launches, *settled = wire.all([("HGETALL", keys.control("totals")), *commands])
    found, renamed = Totals(), _aliases_in(launches)
    for name, text in zip(launches[::2], launches[1::2], strict=True):
        match id_text(name).split("\n"):
            case ["launches", role, reason]:
                found.launches[role, reason] = max(0, count_of(text))
    for queue, fields in zip(queues, settled, strict=True):
        found.add(queue, fields, renamed)
    if wire.unread:
        found.durations.clear()  # totals must not fall, and the durations are those of all queues
    return found
