"""What people did, when, and who they were: the last 10,000 interventions.

Each is noted once it is done, by a script of its own, since it concerns a queue and the note belongs to the namespace.
What a program does without naming a person is not noted, and costs nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from pollconsumer.core.notation import strict_json
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.records.id_text import id_text

MOST_NOTED = 10_000
NAMED = 20
"""Names that a note has, at most."""
LONGEST_WHO = 200
_WHO: ContextVar[str] = ContextVar("who", default="")


class Intervention(NamedTuple):
    """What somebody did. ``at``: when, in epoch ms of the server's clock; ``what``: as ``cancel`` or ``redrive``;
    ``names``: ids of messages, a recurrence, or a handler, which has no queue; the first twenty of ``number``; none of
    a whole queue."""

    at: int
    who: str
    what: str
    queue: str
    names: tuple[str, ...]
    number: int


@contextmanager
def acting_as(who: str) -> Iterator[None]:
    """Note what is done within the ``with`` block as done by ``who``: messages cancelled, stopped, changed,
    redriven or purged, queues and handlers paused or resumed, recurrences removed, paused, resumed or triggered."""
    before = _WHO.set(who[:LONGEST_WHO])
    try:
        yield
    finally:
        _WHO.reset(before)


def note(wire: Wire, keys: Keys, what: str, queue: str, names: Sequence[str] = ()) -> None:
    """Note what was done to ``names`` of ``queue``, or to all of it, if a person did it."""
    if who := _WHO.get():
        said = {"who": who, "what": what, "queue": queue, "names": [*names[:NAMED]], "number": len(names)}
        mark = os.urandom(6).hex()
        wire.call("note", [keys.control("interventions")], [MOST_NOTED, f"{mark}\n{json.dumps(said)}"])


def interventions_of(wire: Wire, namespace: str, limit: int) -> list[Intervention]:
    """The last interventions, newest first. Corrupt ones are left out."""
    keys = Keys(namespace)
    found = wire.command("ZRANGE", keys.control("interventions"), -limit, -1, "WITHSCORES")
    read = [_read(stored, at) for stored, at in zip(found[::2], found[1::2], strict=True)]
    return [each for each in reversed(read) if each is not None]


def _read(stored: bytes, at: bytes) -> Intervention | None:
    try:
        said = strict_json.parse(id_text(stored).partition("\n")[2].encode())
        names, number = said["names"], said["number"]
        texts = [said["who"], said["what"], said["queue"], *names]
        if type(number) is int and all(isinstance(each, str) for each in texts):
            return Intervention(int(float(at)), said["who"], said["what"], said["queue"], tuple(names), number)
    except (KeyError, TypeError, ValueError):
        pass
    return None
