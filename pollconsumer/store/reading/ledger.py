"""The ledger: recent launches, and the current leases. Corrupt entries are skipped."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pollconsumer.core import json_values
from pollconsumer.core.launcher.coverage import holes_of, read_work
from pollconsumer.core.notation.instants import LAST_MILLISECOND
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.records.id_text import id_text
from pollconsumer.store.server import count_of

InHand = dict[tuple[str, str, int], int]

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


def launches_of(wire: Wire, keys: Keys, limit: int) -> list[dict[str, Any]]:
    """The ledger, newest first; each with the gap in seconds since the previous holder released the lease, with how
    long it took from its start until it had the lease, None if it is not known to have had it, with how many launches
    found that it held the lease, and left, with how many ticks before it had no launch, and with what it works on
    beyond its window."""
    ids = wire.command("LRANGE", keys.control("launches"), 0, limit + 200)
    skipped = [b"skipped:" + each for each in ids]
    found = wire.command("HMGET", keys.control("ledger"), *ids, *skipped) if ids else []
    counted = zip(found, found[len(ids) :], strict=False)
    entries = [entry | {"skipped": count_of(count)} for text, count in counted if text and (entry := _read_entry(text))]
    live = {lease["fence"] for lease in leases_of(wire, keys)}
    before: dict[str | None, dict[str, Any]] = {}
    for entry in reversed(entries):
        earlier = before.get(entry.get("lineage"))
        if entry["stop_reason"] is None and entry.get("fence") not in live:
            entry |= {"stop_reason": "died", "exit_code": -1}
        entry["working_on"] = read_work(entry.get("working_on")) if entry["stop_reason"] is None else []
        known = earlier is not None and "acquired_ms" in entry
        began, acquired = entry.get("started_ms"), entry.get("acquired_ms")
        entry["waited_seconds"] = None if began is None or acquired is None else max(0, acquired - began) / 1000
        entry["gap_seconds"] = max(0, entry["acquired_ms"] - earlier["ended_ms"]) / 1000 if known and earlier else None
        if "ended_ms" in entry:
            before[entry["lineage"]] = entry
    missed = {hole.before: hole.ticks for hole in holes_of(entries, LAST_MILLISECOND)}
    return [entry | {"missed_ticks": missed.get(entry["launch_id"], 0)} for entry in entries[:limit]]


def in_hand_of(wire: Wire, keys: Keys) -> InHand:
    """The instants at which messages that take long were begun, in epoch ms, by queue, id, and the fence of the
    launch."""
    begun: InHand = {}
    for lease, entry in _held(wire, keys):
        with suppress(ValueError, TypeError):
            begun |= {
                (queue, name, lease["fence"]): at for queue, name, at in entry.get("in_hand", ()) if _is_instant(at)
            }
    return begun


def working_leases_of(wire: Wire, keys: Keys) -> list[dict[str, Any]]:
    """`leases_of`, each with what its launch works on beyond its window."""
    return [lease | {"working_on": read_work(entry.get("working_on"))} for lease, entry in _held(wire, keys)]


def _held(wire: Wire, keys: Keys) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Leases, each with its launch's entry of the ledger; empty if that is corrupt."""
    leases = leases_of(wire, keys)
    ids = [lease["holder"] for lease in leases]
    found = wire.command("HMGET", keys.control("ledger"), *ids) if ids else []
    return [(lease, (stored and _read_entry(stored)) or {}) for lease, stored in zip(leases, found, strict=True)]


def leases_of(wire: Wire, keys: Keys) -> list[dict[str, Any]]:
    """Leases with holder, fence, and since when they are held (epoch ms)."""
    lineages = sorted(map(id_text, wire.command("SMEMBERS", keys.control("leases"))))
    if not lineages:
        return []
    answers = wire.all([("HGETALL", keys.control(f"lease:{lineage}")) for lineage in lineages])
    held = zip(lineages, answers, strict=True)
    return [lease for lineage, fields in held if fields and (lease := _read_lease(lineage, fields))]


def _read_entry(stored: bytes) -> dict[str, Any] | None:
    """An entry of the ledger; None if it is corrupt."""
    try:
        entry = json_values.parse(stored)
    except ValueError:
        return None
    if not isinstance(entry, dict) or not entry.keys() >= {"launch_id", "stop_reason"}:
        return None
    entry = _BLANK | entry
    return entry if all(is_sound(entry[name]) for name, is_sound in _SOUND.items() if name in entry) else None


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and abs(value) <= LAST_MILLISECOND  # type: ignore[arg-type]  # a number, no bool


def _is_instant(value: object) -> bool:
    """Whether ``value`` is a time in epoch ms that has a date."""
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
"""Whether the value of a field, by its name, is what others take it for."""


def _read_lease(lineage: str, fields: list[bytes]) -> dict[str, Any] | None:
    """A lease; None if it is corrupt."""
    lease = dict(zip(fields[::2], fields[1::2], strict=True))
    try:
        holder = json_values.parse(lease[b"holder"])
        read = {
            "role": holder["role"],
            "slot": int(lineage.rpartition(":")[2]),
            "queues": holder["queues"],
            "holder": lease[b"launch"].decode(),
            "host": holder["host"],
            "pid": holder["pid"],
            "fence": int(lease[b"fence"]),
            "since_ms": int(lease[b"since"]),
            "lineage": lineage,
        }
    except (ValueError, KeyError, TypeError):
        return None
    queues = read["queues"]
    sound = isinstance(queues, list) and all(isinstance(name, str) for name in (*queues, read["role"], read["host"]))
    return read if sound and _is_instant(read["since_ms"]) else None
