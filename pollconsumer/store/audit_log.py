"""What people did, when, and who they were: the last 10,000 interventions.

Each is noted once it is done, by a script of its own, since it concerns a queue and the note belongs to the namespace.
What a program does without naming a person is not noted, and costs nothing. The rights of producers and of launches
leave out the key of the notes; they did not leave out the one of earlier versions.
"""

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
"""Names that a note has, at most."""
LONGEST_WHO = 200
_WHO: ContextVar[str] = ContextVar("who", default="")


class Intervention(NamedTuple):
    """What somebody did. ``at``: when, by the server's clock; ``what``: as ``cancel`` or ``redrive``;
    ``names``: ids of messages, a recurrence, or a handler or lease, which have no queue; the first twenty of
    ``number``; none of a whole queue. ``verified``: False where a producer's login may have written the note, as those
    of earlier versions."""

    at: datetime
    who: str
    what: str
    queue: str
    names: tuple[str, ...]
    number: int
    verified: bool = True

    @property
    def shown_who(self) -> str:
        """``who`` as people are shown it."""
        return self.who if self.verified else f"{self.who} (unverified)"


@contextmanager
def acting_as(who: str) -> Iterator[None]:
    """Note what is done within the ``with`` block as done by ``who``: messages cancelled, stopped, changed,
    redriven, rerun or purged, queues and handlers paused or resumed, recurrences put, removed, paused, resumed or
    triggered, leases broken. Nothing is done, and an error says so, where the store's user may not write notes."""
    before = _WHO.set(who[:LONGEST_WHO])
    try:
        yield
    finally:
        _WHO.reset(before)


def demand_operator(wire: Wire, keys: Keys, key: str, rights: str = OPERATOR) -> None:
    """Check ``rights`` to ``key``, and to note what a person does, before the first write. PermissionDenied."""
    demand(wire, rights, key)
    demand_noting(wire, keys)


def demand_noting(wire: Wire, keys: Keys) -> None:
    """Check the rights to note what is done, if a person does it. PermissionDenied."""
    if _WHO.get() and lacking(wire, NOTING, keys.control("audit")):  # GUARD rights to note
        fix = "give the store's user the rights of an operator: see docs/reference/rights.md"
        raise PermissionDenied("not permitted to write the audit log", keys.control("audit"), fix)


def note(wire: Wire, keys: Keys, what: str, queue: str, names: Sequence[str] = ()) -> None:
    """Note what was done to ``names`` of ``queue``, or to all of it, if a person did it."""
    if who := _WHO.get():
        entry = {"who": who, "what": what, "queue": queue, "names": [*names[:NAMED]], "number": len(names)}
        wire.call("note", [keys.control("audit"), keys.control("answered")], [MOST_NOTED, json.dumps(entry)])


def audit_of(wire: Wire, namespace: str, limit: int) -> list[Intervention]:
    """The last interventions, newest first; after them those that earlier versions noted. Corrupt ones are left out."""
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
