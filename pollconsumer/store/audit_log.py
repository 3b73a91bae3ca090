"""The audit log: the last 10,000 interventions of people: what they did, and when.

A script of its own writes each entry after the intervention: the intervention concerns a queue, the log belongs to the
namespace, and their keys are in different slots. Actions of programs that name no person are not recorded. Producers
and launches have no right to write to the log's key. They could write to the key of earlier versions."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import NamedTuple

from pollconsumer.core import json_values
from pollconsumer.core.errors import PermissionDenied
from pollconsumer.core.notation.instants import LAST_MILLISECOND, datetime_of
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.records.rows import id_text
from pollconsumer.store.rights import NOTING, OPERATOR, demand, lacking
from pollconsumer.store.server import now_ms

MOST_NOTED = 10_000
NAMED = 20
"""Maximum number of names in an entry."""
LONGEST_WHO = 200
_WHO: ContextVar[str] = ContextVar("who", default="")


class Intervention(NamedTuple):
    """An entry of the audit log. ``at``: when, by the server's clock. ``what``: such as ``cancel`` or ``redrive``.
    ``queue``: empty for a handler or a lease. ``names``: ids of messages, or the name of a recurrence, handler or
    lease; the first twenty of ``number``; empty if the whole queue is meant. ``verified``: False for entries of earlier
    versions, which a producer's login could have written."""

    at: datetime
    who: str
    what: str
    queue: str
    names: tuple[str, ...]
    number: int
    verified: bool = True

    @property
    def shown_who(self) -> str:
        """``who``, with a mark if the entry is not `verified`."""
        return self.who if self.verified else f"{self.who} (unverified)"


@contextmanager
def acting_as(who: str) -> Iterator[None]:
    """In the ``with`` block, record ``who`` in the audit log as the author of each change: messages cancelled, stopped,
    changed, redriven, rerun, purged, or enqueued on the dashboard; queues and handlers paused or resumed; recurrences
    put, removed, paused, resumed or triggered; leases broken. A change is refused before it is made if the store's user
    may not write to the log."""
    before = _WHO.set(who[:LONGEST_WHO])
    try:
        yield
    finally:
        _WHO.reset(before)


def demand_operator(wire: Wire, keys: Keys, key: str, rights: str = OPERATOR) -> None:
    """Raise PermissionDenied if ``rights`` to ``key``, or to write to the audit log, are missing."""
    demand(wire, rights, key)
    demand_noting(wire, keys)


def demand_noting(wire: Wire, keys: Keys) -> None:
    """Raise PermissionDenied if a person acts (`acting_as`) and the right to write to the audit log is missing."""
    if _WHO.get() and lacking(wire, NOTING, keys.control("audit")):  # GUARD rights to note
        fix = "give the store's user the rights of an operator: see docs/reference/rights.md"
        raise PermissionDenied("not permitted to write the audit log", keys.control("audit"), fix)


def note(wire: Wire, keys: Keys, what: str, queue: str, names: Sequence[str] = ()) -> None:
    """If a person acts, record in the audit log ``what`` was done to ``names`` of ``queue``; without names, to the
    whole queue."""
    if who := _WHO.get():
        entry = {"who": who, "what": what, "queue": queue, "names": [*names[:NAMED]], "number": len(names)}
        wire.call("note", [keys.control("audit"), keys.control("answered")], [MOST_NOTED, json.dumps(entry)])


def audit_of(wire: Wire, namespace: str, limit: int) -> list[Intervention]:
    """The last ``limit`` interventions, newest first, then those of earlier versions. Corrupt ones are left out."""
    keys = Keys(namespace)
    stored = wire.command("LRANGE", keys.control("audit"), 0, limit - 1)
    found = [_read(text, at, verified=True) for at, _, text in (each.partition(b" ") for each in stored)]
    if limit > len(stored):
        until_now = (now_ms(wire), 0, "BYSCORE", "REV", "LIMIT", 0, limit - len(stored), "WITHSCORES")
        former = wire.command("ZRANGE", keys.control("interventions"), *until_now)
        marked = zip(former[::2], former[1::2], strict=True)
        found += [_read(each.partition(b"\n")[2], at, verified=False) for each, at in marked]
    return [each for each in found if each is not None]


def _read(text: bytes, at: bytes, *, verified: bool) -> Intervention | None:
    try:
        entry, instant = json_values.parse(id_text(text).encode()), int(float(at))
        names, number = entry["names"], entry["number"]
        texts = [entry["who"], entry["what"], entry["queue"], *names]
        if type(number) is int and all(isinstance(each, str) for each in texts) and 0 <= instant <= LAST_MILLISECOND:
            return Intervention(
                datetime_of(instant), entry["who"], entry["what"], entry["queue"], tuple(names), number, verified
            )
    except (ArithmeticError, KeyError, RecursionError, TypeError, ValueError):
        pass
    return None
