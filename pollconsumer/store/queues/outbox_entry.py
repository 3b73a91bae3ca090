"""An entry of an outbox: messages for other queues, and what their queues or the homes of batches are to be told."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from pollconsumer.core.lifecycle import State
from pollconsumer.core.messages.message import NewMessage, check_id, check_queue
from pollconsumer.core.messages.sequel import (
    FIRST,
    REQUIRED,
    UNPACKABLE,
    Packed,
    member_of,
    packed,
    sequel_of,
    sound,
    whole,
)
from pollconsumer.store.queues.batches import CALLBACKS, Ends, NewBatch

MOST_SAID = 160
"""Characters of what is said of a corrupt entry."""
_NUMBERED = rb"(\d{1,16})\n"
_STATES = {"c": State.COMPLETED, "d": State.DEAD, "x": State.CANCELLED, "e": State.EXPIRED}
"""The states by their letters in rows."""
_ENDED = {"as", "ids", "sequel", "home", "added"}
"""What is told of ends: see ``lua/parts/ends.lua``."""


class Entry(NamedTuple):
    """What an entry of the outbox of ``queue`` has; its ``number`` is 0 if it has none. A corrupt one has a
    ``problem`` alone."""

    queue: str
    number: int
    messages: Sequence[NewMessage] = ()
    ends: Sequence[Ends] = ()
    opened: Sequence[NewBatch] = ()
    problem: str = ""


def pack(messages: Sequence[NewMessage], now_ms: int, opened: Sequence[NewBatch] = ()) -> bytes:
    """``messages`` as one entry of the outbox, and batches to be opened before them; delays count from ``now_ms``, the
    server's."""
    entries = [_noted(opens=batch._asdict()) for batch in opened]
    for message in messages:
        due = message.due if message.delay is None else now_ms + message.delay
        entries.append(packed(message._replace(due=due, delay=None)))
    return json.dumps(entries).encode()


def told_of_member(home: str, added: int = 0) -> bytes:
    """What a step tells of the completion of members of a batch, before their ids."""
    return b'"home":"%b","added":%d,' % (home.encode(), added)


def read_entry(queue: str, entry: bytes) -> Entry | None:
    """An entry; None if a newer version wrote it."""
    found = re.match(_NUMBERED, entry)
    number, content = (int(found[1]), entry[found.end() :]) if found else (0, entry)
    try:
        given = json.loads(content)
        if not isinstance(given, list):
            raise TypeError("it is no list")
        if _is_newer(given):  # GUARD entries of a newer version
            return None
        messages, ends, opened = list[NewMessage](), list[Ends](), list[NewBatch]()
        for each in given:
            if "ended" in each:
                more, end = _ended(queue, number, each["ended"])
                messages += more
                ends += end
            elif "opens" in each:
                opened.append(_opened(each["opens"]))
            else:
                messages.append(_message(each, number))
        return Entry(queue, number, messages, ends, opened)
    except UNPACKABLE as error:
        return Entry(queue, number, problem=f"{type(error).__name__}: {error}"[:MOST_SAID])


def _noted(**note: Packed) -> Packed:
    """A note beside messages. Versions before leave it: it looks like a message with a field that they do not know."""
    return dict.fromkeys(FIRST) | dict.fromkeys(REQUIRED, "") | note


def _is_newer(given: list[Packed]) -> bool:
    """Whether anything in an entry is not known to this version."""
    if not all(each.keys() >= set(REQUIRED) for each in given):
        return False
    known = {*NewMessage._fields, "ended", "opens"}
    return any(
        each.keys() - known
        or each.get("ended", {}).keys() - _ENDED
        or each.get("opens", {}).keys() - set(NewBatch._fields)
        or sequel_of(each.get("ended", {}).get("sequel", {}))[1]
        for each in given
    )


def _ended(queue: str, number: int, told: Packed) -> tuple[list[NewMessage], list[Ends]]:
    """The messages to enqueue for messages that have ended, and what their batches are told."""
    letter, ids = told["as"], told["ids"].split(" ")
    state = _STATES[letter]
    if "sequel" not in told:
        return [], _ends(told["home"], letter, ids, whole(told["added"]))
    sequel = sequel_of(told["sequel"])[0]
    messages = sequel.following(ids[0], queue, state, number // 1000)
    return messages, _ends(sequel.batch, letter, ids) if sequel.ends_member(state) else []


def _ends(home: str, letter: str, ids: Sequence[str], added: int = 0) -> list[Ends]:
    """What each batch is told of the members with these ids."""
    numbers = dict[str, list[int]]()
    for batch, number in filter(None, map(member_of, ids)):
        numbers.setdefault(batch, []).append(number)
    return [Ends(check_queue(home), batch, letter, of_batch, added) for batch, of_batch in numbers.items()]


def _opened(given: Packed) -> NewBatch:
    """A batch that a completion opens."""
    batch = NewBatch(**given)
    check_queue(batch.home)
    check_id(batch.id)
    for name, message in batch.callbacks.items():
        if name not in CALLBACKS:
            raise ValueError(name)
        sound(message)
    for number in (batch.expires, 0 if batch.total is None else batch.total):
        whole(number)
    if type(batch.spares_cancelled) is not bool:
        raise TypeError(f"spares_cancelled is {batch.spares_cancelled!r}")
    return batch


def _message(given: dict[str, Any], number: int) -> NewMessage:
    """A message that `enqueue` accepts. The delay of one that was written before the entry counts from that."""
    message = sound(given)
    if message.delay is None:
        return message
    if not number:
        raise ValueError(message)
    return message._replace(due=number // 1000 + message.delay, delay=None)
