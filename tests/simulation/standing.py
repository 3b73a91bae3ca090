"""What the store and the launches must satisfy at every moment, not only at the end."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from pollconsumer.core.errors import NotFound
from pollconsumer.core.lifecycle import State
from pollconsumer.store.keyspace import QUEUE_KEYS, Keys
from pollconsumer.store.leases import TRUSTED_FOR
from pollconsumer.store.reading.batch_reader import COMPLETED, DEAD, OTHERWISE
from pollconsumer.store.reading.inspector import Inspector
from tests.faults import store_view
from tests.faults.history import ENDED
from tests.simulation.installation import NAMESPACE
from tests.store.servers import snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pollconsumer.store.client.wire import Wire
    from tests.faults.history import History, Stored
    from tests.simulation.installation import Installation

INDEX = {
    State.SCHEDULED: "schedule",
    State.RESERVED: "in_flight",
    State.COMPLETED: "completed",
    State.DEAD: "dead_letters",
    State.CANCELLED: "cancelled",
    State.EXPIRED: "expired",
}
"""Where the ids of a state stand; ready ones stand in one of several."""
READY = ("ready", "ready_by_priority", "waiting_for_place")
ID_IN_LINE = 20
"""Bytes between a concurrency key and an id: a zero, 13 digits, six bytes."""


def standing(installation: Installation, wire: Wire) -> list[str]:
    """One line for each violation."""
    try:
        content, stored = snapshot(wire), store_view.stored(wire, NAMESPACE)
    except NotFound as error:
        return [f"a row or an index has an id without a message: {error}"]
    return [
        *holders(installation),
        *_messages(installation.history, stored),
        *_places(installation, stored, content),
        *_counts(wire, stored),
        *_batches(installation.queues, content),
        *_keys(installation.queues, content),
        *until_start(installation.history, stored),
    ]


def holders(installation: Installation) -> Iterator[str]:
    """As many launches of each role as there are instances, at most, trust their lease; a broken one does until its
    next renewal."""
    if installation.world.now < installation.broken_at + TRUSTED_FOR:
        return
    trusting = [process.name for process, launch in installation.working if process.alive and launch.lease_is_trusted()]
    for role, count in Counter(name.split()[0] for name in trusting).items():
        if count > installation.instances:
            yield f"{count} valid holders of one lease: {', '.join(name for name in trusting if name.startswith(role))}"


def _messages(history: History, stored: list[Stored]) -> Iterator[str]:
    """What was accepted is stored, and stands in the index of its state alone, or in the ready list for a second
    time."""
    known = {(each.queue, each.id) for each in stored}
    for each in history.enqueued():
        if (each.queue, each.id) not in known:
            yield f"{each.id} was accepted by {each.queue} and is lost"
    for message in stored:
        state = State(message.state)
        places = {name for name in message.places if name != "ready" or state is State.READY}
        right = places <= set(READY) if state is State.READY else places == {INDEX[state]}
        if not right:
            yield f"{message.id} is {message.state}, and stands in {', '.join(message.places) or 'no index'}"


def _places(installation: Installation, stored: list[Stored], content: dict[str, Any]) -> Iterator[str]:
    """Places taken are those of messages in flight; ready messages stand somewhere; holders of keys have not ended."""
    keys, state = Keys(NAMESPACE), {(each.queue, each.id): each.state for each in stored}
    operations = installation.history.operations
    concurrency = {(each.queue, each.id): each.concurrency_key for each in operations if each.concurrency_key}
    for queue in installation.queues:
        reserved = (each for each in stored if each.queue == queue and each.state == State.RESERVED)
        expected = Counter(concurrency[queue, each.id] for each in reserved if (queue, each.id) in concurrency)
        taken = content.get(keys.queue(queue, "places_taken"), {})
        if {key.decode(): int(count) for key, count in taken.items()} != expected:
            yield f"{queue}: {taken} places are taken, {dict(expected)} in flight"
        in_line = {
            entry.partition(b"\0")[2][ID_IN_LINE - 1 :].decode()
            for entry in content.get(keys.queue(queue, "waiting_for_place"), [])[::2]
        }
        for each in stored:
            if each.queue == queue and each.state == State.READY and not each.places and each.id not in in_line:
                yield f"{each.id} is ready, and stands in no index"
        for key, head in content.get(keys.queue(queue, "order_heads"), {}).items():
            if state.get((queue, head.decode())) in (None, *(ended for ended in ENDED if ended is not State.DEAD)):
                yield f"{head!r} is the head of {key!r}, and is {state.get((queue, head.decode()))}"
        for key, value in content.get(keys.queue(queue, "unique_keys"), {}).items():
            holder = value.decode().partition("\n")[0]
            if state.get((queue, holder)) in (None, *ENDED):
                yield f"{holder} holds the unique key {key.decode()}, and is {state.get((queue, holder))}"


def until_start(history: History, stored: Sequence[Stored]) -> Iterator[str]:
    """Of messages with a key that is held until the start one waits, at most, that no launch has had; and it is due no
    later than it may be, where others replace it."""
    asked = {(each.queue, each.id): each for each in history.operations if each.key_rule}
    moved = {(each.queue, each.id) for each in history.operations if each.what == "reschedule"}
    replaced, waiting = history.replacements(), dict[tuple[str, str], str]()
    for message in stored:
        name = (message.queue, message.id)
        if name not in asked or message.fence or message.state not in (State.SCHEDULED, State.READY):
            continue
        other = waiting.setdefault((message.queue, asked[name].key), message.id)
        if other != message.id:
            yield f"{other} and {message.id} wait with the key {asked[name].key}"
        if asked[name].replaces() and name not in moved and message.due_at and message.scheduled_at:
            longest = max(int(each.key_rule[1:]) for each in [asked[name], *replaced.get(name, ())])
            if message.due_at > message.scheduled_at + longest:
                yield f"{message.id} is due {message.due_at - message.scheduled_at} ms after it was enqueued"


def _counts(wire: Wire, stored: list[Stored]) -> Iterator[str]:
    tally = Counter((each.queue, each.state) for each in stored)
    for queue in Inspector(wire, NAMESPACE).overview().queues:
        for state in State:
            count, held = getattr(queue, state), tally[queue.name, state.value]
            if count != held:
                yield f"{queue.name} counts {count} {state}, and holds {held}"


def _batches(queues: Sequence[str], content: dict[str, Any]) -> Iterator[str]:
    """What a batch counts is what it has of its members; it stands in its index."""
    keys = Keys(NAMESPACE)
    for queue in queues:
        batches, chunks = (content.get(keys.queue(queue, name), {}) for name in ("batches", "batch_members"))
        indexed = content.get(keys.queue(queue, "batch_instants"), [])[::2]
        if batches.keys() != {*indexed}:
            yield f"{queue} has the batches {[*batches]}, and {indexed} in their index"
        for name, state in batches.items():
            of_batch = {chunk.decode(): held for chunk, held in chunks.items() if chunk.partition(b"\n")[0] == name}
            codes = Counter(store_view.codes_of(of_batch).values())
            completed, dead, *others = (int.from_bytes(state[at : at + 6], "big") for at in range(7, 31, 6))
            if (codes[COMPLETED], codes[DEAD], codes[OTHERWISE]) != (completed, dead, sum(others)):
                yield f"the batch {name.decode()} counts {completed}, {dead}, {others}, and has {dict(codes)}"


def _keys(queues: Sequence[str], content: dict[str, Any]) -> Iterator[str]:
    keys = Keys(NAMESPACE)
    known = {keys.queue(queue, name) for queue in queues for name in QUEUE_KEYS}
    of_launches = [keys.queue(queue, name) for queue in queues for name in ("successor_waits", "stop_marker")]
    several = (keys.control(""), *(f"{key}:" for key in of_launches))
    for key in content:
        if key not in known and not key.startswith(several):
            yield f"nobody knows the key {key}"
