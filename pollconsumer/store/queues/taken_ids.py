"""Ids of what follows a message or a batch: links and callbacks have ids made of its own. If a queue has one of them
already, what follows would be taken for a duplicate, and dropped. Imported lazily: few ids are chosen by users."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pollconsumer.core.errors import UsageError
from pollconsumer.core.messages.message import NewMessage
from pollconsumer.core.messages.sequel import decoded
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.keyspace import Keys

_HELD, _REMEMBERED = ("records", "rows"), ("id_memory", "id_memory_before")
Place = tuple[str, str]
"""A queue, and an id there."""


def refuse_followed(wire: Wire, keys: Keys, messages: Iterable[NewMessage]) -> None:
    """Raise UsageError for a new message with an id of the user's, if a queue has the id of what is to follow it."""
    for message in messages:
        sequel, _ = decoded(message.sequel.encode())
        following = [each for each in (*sequel.links, sequel.then, sequel.failed) if each is not None]
        refuse_taken(
            wire, keys, "message", (message.queue, message.id), [(each["queue"], each["id"]) for each in following]
        )


def refuse_taken(wire: Wire, keys: Keys, what: str, owner: Place, following: Sequence[Place]) -> None:
    """Raise UsageError if the queues have any ids that are to follow ``owner``, a ``batch`` or a ``message`` that is
    not there yet. One that is there has what follows it, too."""
    if not following:
        return
    queue, name = owner
    is_there = [("HEXISTS", keys.queue(queue, "batches"), name)] if what == "batch" else _looks(keys, owner)
    answers = wire.all([*is_there, *(look for each in following for look in _looks(keys, each))])
    if any(answers[: len(is_there)]):
        return
    size = len(_HELD + _REMEMBERED)
    for number, (_, taken) in enumerate(following):
        at = len(is_there) + number * size
        if any(answers[at : at + size]):  # GUARD an id of what follows
            fix = f"give the {what} another id; or purge that message, and 20 minutes later run this again"
            raise UsageError(
                what, name, f"there was a message {taken} before, which would be in place of what follows: {fix}"
            )


def _looks(keys: Keys, place: Place) -> list[tuple[str, str, str]]:
    """Whether a queue keeps or remembers an id."""
    queue, message_id = place
    return [
        *(("HEXISTS", keys.queue(queue, word), message_id) for word in _HELD),
        *(("SISMEMBER", keys.queue(queue, word), message_id) for word in _REMEMBERED),
    ]
