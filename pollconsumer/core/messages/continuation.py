"""A message's continuation: what is enqueued or counted when the message ends. It is stored with the message. The
script that ends the message puts what follows, or a report of the end, into the outbox.

The id of a member of a batch consists of the batch's id and the member's number: ``import-42.7``. The id of a link of a
chain consists of the first link's id and the number of the link: ``import-42.7+2``. So a batch or a chain that is
enqueued again has the same ids. All members without links and callbacks of their own have the same continuation."""

import json
import re
from functools import lru_cache
from typing import Any, NamedTuple, get_args, get_origin

from pollconsumer.core import json_values
from pollconsumer.core.errors import BadData, NotFound
from pollconsumer.core.lifecycle import State
from pollconsumer.core.messages.message import (
    EXTENSION,
    LONGEST_ID,
    NO_EXTENSION,
    NewMessage,
    check_queue,
    check_stem,
    checked,
    options_of,
)
from pollconsumer.core.messages.payloads import Malformed
from pollconsumer.core.notation.instants import LAST_MILLISECOND

Packed = dict[str, Any]
REQUIRED = ("id", "queue", "handler", "payload")
FIRST = {
    *REQUIRED, "priority", "due", "delay", "key", "key_lifetime", "concurrency_key", "concurrency_limit", "digest",
    "headers", "timeout", "max_attempts", "retry", "lifetime", "ping", "rate_key", "rate",
}  # fmt: skip
"""The fields that the first versions know. If an entry has a later field, those versions leave it to a newer version,
but only if all of these fields are there; otherwise they drop the entry. So `packed` then writes all of these."""
INNER = ":batch"
"""The id of an inner batch is its id as a member of the outer batch, with this ending."""
DIGEST_DIGITS = (0, 16)
UNPACKABLE = (ValueError, TypeError, KeyError, AttributeError, RecursionError, Malformed)
MOST_ADDED_AT_ONCE = 256
"""How many member numbers a member reserves at a time when it adds further members."""
MOST_CHARACTERS = 4 << 20
"""Maximum length of a continuation, in characters."""
_MEMBER = re.compile(r"(.+)\.(\d{1,8})(?:\+\d{1,3})?")
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _types_of(declared: Any) -> tuple[type, ...]:
    """The types that values of a field may have, given ``declared``, the field's annotation."""
    kinds = [get_origin(each) or each for each in get_args(declared) or (declared,)]
    return (*kinds, int) if float in kinds else (*kinds,)


_TYPES = {name: _types_of(declared) for name, declared in NewMessage.__annotations__.items()}
STORED_AS = {"continuation": "sequel"}
"""Fields of a message that have another name in entries of outboxes and spools. Stored names never change."""
FIELDS = {STORED_AS.get(name, name): name for name in NewMessage._fields}
"""Stored name → field."""


def packed(message: NewMessage) -> Packed:
    """``message`` as a dict. Fields with their default value are left out, so a version that does not know a field can
    still send on each message that does not use it."""
    given, defaults = message._asdict() | {"payload": message.payload.decode()}, message._field_defaults
    wanted = {name for name, value in given.items() if name not in defaults or value != defaults[name]}
    if not wanted <= FIRST:
        wanted |= FIRST
    return {STORED_AS.get(name, name): value for name, value in given.items() if name in wanted}


def unpacked(given: Packed) -> NewMessage:
    """The inverse of `packed`: a message that the store accepts. Raises one of `UNPACKABLE` for anything else."""
    given = {FIELDS[name]: value for name, value in given.items()} | {"payload": given["payload"].encode()}
    for name, value in given.items():
        kinds = _TYPES[name]
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):  # GUARD types of fields
            raise TypeError(f"{name} is {value!r}")
    message = checked(NewMessage(**given))
    if message[EXTENSION] != NO_EXTENSION:
        options_of(message)
    if len(message.digest) not in DIGEST_DIGITS or len(bytes.fromhex(message.digest)) * 2 != len(message.digest):
        raise ValueError(message)
    if not 0 <= (message.due or 0) <= LAST_MILLISECOND:
        raise ValueError(message)
    if not re.fullmatch(r"s?|r\d{1,15}", message.key_rule):
        raise ValueError(message)
    for number in (message.key_lifetime, message.lifetime, message.delay or 0):
        whole(number)
    return message


def whole(number: object) -> int:
    """``number``, if it is a whole number of at most 46 bits and not negative. ValueError for anything else."""
    if type(number) is not int or not 0 <= number < 1 << 46:
        raise ValueError(number)
    return number


class Continuation(NamedTuple):
    """What happens when a message ends.

    When the message is completed, the first of ``links`` is enqueued, and carries the others; without links, ``then``
    is enqueued. If the message ends otherwise, ``failed`` is enqueued. ``batch``: the queue of the batch that the
    message is a member of. ``called_by``: for a callback of a batch, the queue of that batch. ``previous``: the ended
    message after which this link, or this callback of a message, comes. ``answers``: the message whose handler called
    this one: its ``queue``, its ``id``, and ``as``, the name of the signal that will carry the result."""

    batch: str = ""
    called_by: str = ""
    then: Packed | None = None
    failed: Packed | None = None
    links: list[Packed] = []  # noqa: RUF012  it is never changed
    previous: Packed | None = None
    answers: Packed | None = None

    def following(self, message_id: str, queue: str, state: State, at: int, result: Any = None) -> list[NewMessage]:
        """The messages to enqueue when the message with this continuation ends. ``at``: the instant of that end, in
        epoch ms."""
        previous = {"id": message_id, "queue": queue, "state": str(state), "at": at, "result": result}
        if state is not State.COMPLETED:  # GUARD a link follows a completed one
            return [] if self.failed is None else [_follow_up(self.failed, Continuation(previous=previous))]
        if self.links:
            link, *rest = self.links
            return [_follow_up(link, self._replace(links=rest, previous=previous))]
        return [] if self.then is None else [_follow_up(self.then, Continuation(previous=previous))]

    def ends_member(self, state: State) -> bool:
        """Whether a member of a batch ends when this message ends in ``state``. A chain is one member: its last link or
        a failed one ends it."""
        # GUARD a chain goes on after a link
        return bool(self.batch) and not (state is State.COMPLETED and self.links)


def _follow_up(message: Packed, continuation: Continuation) -> NewMessage:
    return unpacked(message)._replace(continuation=encoded(continuation))


def encoded(continuation: Continuation) -> str:
    """The continuation as a JSON object; empty text if nothing is to happen."""
    given = {name: value for name, value in continuation._asdict().items() if value}
    return _encode(given) if given else ""


@lru_cache(maxsize=64)
def decoded(stored: bytes) -> tuple[Continuation, bool]:
    """The inverse of `encoded`, and whether ``stored`` has unknown fields, of a newer version. Malformed if invalid."""
    if not stored:
        return Continuation(), False
    try:
        return continuation_of(dict(**json_values.parse(stored)))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Malformed(f"malformed: its continuation: {error}"[:300]) from None


def continuation_of(given: dict[str, Any]) -> tuple[Continuation, bool]:
    known = {name: given[name] for name in given.keys() & set(Continuation._fields)}
    continuation = Continuation(**known)
    for name, kind in (("batch", str), ("called_by", str), ("links", list), ("previous", dict | None)):
        if not isinstance(getattr(continuation, name), kind):
            raise TypeError(name)
    for batch_queue in filter(None, (continuation.batch, continuation.called_by)):
        check_queue(batch_queue)
    if continuation.answers is not None:
        check_queue(continuation.answers["queue"])
        for name in ("id", "as"):
            if not isinstance(continuation.answers[name], str):
                raise TypeError(f"answers: {name}")
    for message in (continuation.then, continuation.failed, *continuation.links):
        if message is not None:
            unpacked(message)
    return continuation, len(known) < len(given)


def sound(given: Packed) -> NewMessage:
    """`unpacked`, which also checks the continuation."""
    message = unpacked(given)
    decoded(message.continuation.encode())  # GUARD a continuation that is none
    return message


def member_of(message_id: str) -> tuple[str, int] | None:
    """The batch's id and the member's number, both read from a member's id. None if ``message_id`` is no member's."""
    found = _MEMBER.fullmatch(message_id)
    return (found[1], int(found[2])) if found else None


def not_there(message_id: str, where: str = "list shows those that are kept") -> NotFound:
    """The error for an id without a message. ``where``: what the user can do. If the id looks like that of a link or a
    callback that is not enqueued yet, a hint about that replaces ``where``."""
    if found := re.fullmatch(r"(.+)\+(\d{1,3})", message_id):
        before = found[1] if found[2] == "2" else f"{found[1]}+{int(found[2]) - 1}"
        where = f"a link of a chain is enqueued when the one before, {before}, is completed"
    elif found := re.fullmatch(r"(.+):(then|failed|ended)", message_id):
        where = f"a callback is enqueued once its batch or its message, {found[1]}, has ended in that way"
    return NotFound("no such message", message_id, where)


def following_id(message_id: str, ending: str) -> str:
    """The id of a link or callback: ``message_id`` with ``ending``. BadData if the id would be too long."""
    since = f", since its callbacks or links get this id with {ending}"
    return check_stem(message_id, "message id", LONGEST_ID - len(ending), since) + ending


def identified(message: NewMessage, message_id: str, batch: str = "") -> NewMessage:
    """``message`` with this id. Its callbacks and links get ids that follow from it. ``batch``: the queue of the batch
    of which the message is a member. BadData if an id is too long, or the continuation too large."""
    if not message.continuation:
        return message._replace(id=message_id, continuation=_member_continuation(batch))
    continuation, _ = decoded(message.continuation.encode())
    links = [link | {"id": following_id(message_id, f"+{number}")} for number, link in enumerate(continuation.links, 2)]
    callbacks = {
        name: callback | {"id": following_id(message_id, f":{name}")}
        for name in ("then", "failed")
        if (callback := getattr(continuation, name)) is not None
    }
    whole = encoded(continuation._replace(batch=batch, links=links, previous=None, **callbacks))
    if len(whole) > MOST_CHARACTERS:
        raise BadData(
            "callbacks and links", f"{len(whole)} characters", f"at most {MOST_CHARACTERS}; store it elsewhere"
        )
    return message._replace(id=message_id, continuation=whole)


def followed_again(message: NewMessage, message_id: str) -> NewMessage:
    """``message`` with another id, for a rerun. Its callbacks and links get ids that follow from the new id. Its
    predecessor in a chain stays the same. The rerun belongs to no batch, and its result goes to no handler that called
    the original."""
    before, _ = decoded(message.continuation.encode())
    follows = Continuation(then=before.then, failed=before.failed, links=before.links)
    again = identified(message._replace(continuation=encoded(follows)), message_id)
    if before.previous is None:
        return again
    follows, _ = decoded(again.continuation.encode())
    return again._replace(continuation=encoded(follows._replace(previous=before.previous)))


@lru_cache(maxsize=8)
def _member_continuation(batch: str) -> str:
    return encoded(Continuation(batch=batch))
