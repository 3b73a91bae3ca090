"""Invariants of what is more than one message: batches, chains, callbacks, and calls of bulk handlers."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from pollconsumer.core.messages.continuation import INNER, member_of
from pollconsumer.store.reading.batch_reader import COMPLETED, DEAD, FIRST_ADDED, OTHERWISE
from tests.faults.about_messages import stood_still
from tests.faults.handlers_known import BULK, UNCHARGED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.faults.history import Counted, History, Stored

DIED = ("launch killed ", "skipped: its process died")
"""How the error begins of a message whose launch died before the end that was said was settled."""
CODES = {"completed": COMPLETED, "dead": DEAD, "cancelled": OTHERWISE, "expired": OTHERWISE}
SHUT = {
    "closed": {"ended", "expired"},
    "open": {"abandoned"},
    "started": {"ended"},
    "refused": {"abandoned", "expired", "ended"},
    "unknown": {"ended", "abandoned", "expired"},
}
"""How a batch may end, by the fate of its producer."""


def no_batch_waits_for_ever(history: History) -> Iterator[str]:
    """29. Each batch ends: abandoned if it was not closed, expired only if it may."""
    miscounted = _miscounted(history)
    counted = {each.id: each for each in history.counted}
    for each in history.batches:
        batch = counted.get(each.id)
        if each.id in miscounted:
            continue
        if batch is None:
            if each.fate == "closed":
                yield f"the batch {each.id} was closed, and is lost"
        elif batch.state not in SHUT[each.fate] or (batch.state == "expired" and not each.expires):
            yield f"the batch {each.id} is {batch.state}; by its producer {each.fate}"
    for name in counted.keys() - {each.id for each in history.batches}:
        yield f"the batch {name} was never asked for"
    for name in _members(history).keys() - counted.keys() - miscounted:
        yield f"the batch {name} is lost, and has members"


def batches_count_their_members(history: History) -> Iterator[str]:
    """30. Each member that the store has counts once, as that as which it ended; and so does a batch within it."""
    made, members = {each.id: each for each in history.batches}, _members(history)
    miscounted, inner = _miscounted(history), _inner(history)
    for batch in history.counted:
        if batch.id in miscounted:
            continue
        ends = {number: _end_of(links) for number, links in members.get(batch.id, {}).items()}
        ends |= {number: _end_of_inner(each) for number, each in inner.get(batch.id, {}).items()}
        if batch.codes != {number: CODES.get(end) for number, end in ends.items()}:
            yield f"the batch {batch.id} knows of {dict(batch.codes)}, and its members are {ends}"
        counts = {name: getattr(batch, name) for name in CODES}
        if counts != {name: [*ends.values()].count(name) for name in CODES}:
            yield f"the batch {batch.id} counts {counts}, and its members are {ends}"
        expected = len(ends) if batch.closed else sum(number >= FIRST_ADDED for number in ends)
        if batch.state == "abandoned":
            expected = max(expected, len(batch.codes))
        if batch.total != expected:
            yield f"the batch {batch.id} counts {batch.total} members, and has {expected}"
        of_producer = sum(number < FIRST_ADDED for number in ends)
        if batch.closed and batch.id in made and made[batch.id].members != of_producer:
            yield f"the batch {batch.id} was closed with {of_producer} of {made[batch.id].members} members"


def callbacks_come_once(history: History) -> Iterator[str]:
    """31. ``failed`` if a member was ever dead, cancelled or expired, or the batch is shut; ``then`` if all are
    completed; ``ended`` in any case. One of a message or a chain if that has ended so."""
    stored, members = _stored(history), _members(history)
    miscounted, inner = _miscounted(history), _inner(history)
    counted = {each.id: each for each in history.counted}
    wanted = dict[tuple[str, str], bool | None]()
    for each in history.batches:
        batch = counted.get(each.id)
        if each.id in miscounted:
            continue
        called = _called(batch, members.get(each.id, {})) if batch else {}
        if called:
            called |= _called_for_inner(called, [*inner.get(each.id, {}).values()], members)
        wanted |= {(queue, f"{each.id}:{name}"): called.get(name, False) for name, queue in each.callbacks.items()}
    for followed in history.followed:
        if followed.id in history.miscounted:
            continue
        links = [stored.get(name, ()) for name in _links(followed.id, max(1, len(followed.links)))]
        ever = [message for link in links for message in link]
        by_name = {"failed": any(map(_was_no_success, ever)), "then": _is_completed(links[-1])}
        wanted |= {(queue, f"{followed.id}:{name}"): by_name[name] for name, queue in followed.callbacks.items()}
    for (queue, name), expected in wanted.items():
        there = [message.queue for message in stored.get(name, ())]
        if there not in ([[], [queue]] if expected is None else [[queue]] if expected else [[]]):
            yield f"{name} is {'' if expected else 'not '}to be in {queue}, and is in {', '.join(there) or 'none'}"
    for execution in history.executions:
        found = execution.given.get("then")
        batch_id = execution.id.rpartition(":")[0]
        if found is not None and batch_id not in miscounted:
            count = int(found.partition(" ")[0])
            if found != f"{count} of {count}, {count - len(inner.get(batch_id, ()))} results":
                yield f"{execution.id} was called with {found}"


def chains_go_on_link_by_link(history: History) -> Iterator[str]:
    """32. A link is there once the one before is completed, and is given its result."""
    stored = _stored(history)
    for followed in history.followed:
        names = [] if followed.id in history.miscounted else _links(followed.id, len(followed.links))
        for before, after in pairwise(names):
            is_there, expected = bool(stored.get(after)), _is_completed(stored.get(before, ()))
            if is_there != expected:
                yield f"{after} {'is there' if is_there else 'is missing'}: {before} is {stored.get(before)}"
    for execution in history.executions:
        number = int(execution.id.rpartition("+")[2]) if "+" in execution.id else 1
        if (before := execution.given.get("links", str(number - 1))) != str(number - 1):
            yield f"{execution.id} was given {before} as the result of the link before"


def messages_of_a_call_end_as_it_says(history: History) -> Iterator[str]:
    """33. Each message of a bulk handler's call has the result or the error that is said of it; one that has ended well
    is not called again by that launch, unless it stood still and its reservation was lost.

    (A result may have lapsed once the server's clock was set.)
    """
    executions = history.of_message()
    for message in history.stored:
        calls = executions.get((message.queue, message.id), []) if message.handler in BULK else []
        for before, after in pairwise(calls):
            settled = before.outcome == "ok" and not stood_still(before, history)
            if settled and (before.generation, before.fence) == (after.generation, after.fence):
                yield f"{message.id} was called again, {before.together - 1} beside it, after it had ended well"
        ending = (message.generation, message.attempts, message.fence)
        for each in calls:
            if (each.generation, each.attempt, each.fence) != ending or each.outcome in UNCHARGED:
                continue
            if message.state == "completed" and each.outcome == "ok":
                lapsed = message.result is None and history.clock_steps
                if message.result != each.said and not lapsed:
                    yield f"{message.id} has the result {message.result}, and was said to have {each.said}"
            elif message.state == "dead" and each.said:
                error = message.last_error or ""
                if not error.startswith(DIED) and not error.endswith(each.said):
                    yield f"{message.id} is dead of {error}, and was said to be of {each.said}"


def _stored(history: History) -> dict[str, list[Stored]]:
    found: dict[str, list[Stored]] = {}
    for message in history.stored:
        found.setdefault(message.id, []).append(message)
    return found


def _links(name: str, count: int) -> list[str]:
    return [name, *(f"{name}+{number}" for number in range(2, count + 1))]


def _members(history: History) -> dict[str, dict[int, list[Stored]]]:
    """By batch and number: the message, or the links of a chain in their order."""
    found: dict[str, dict[int, list[Stored]]] = {}
    for message in sorted(history.stored, key=lambda each: (len(each.id), each.id)):
        if (member := member_of(message.id)) is not None:
            found.setdefault(member[0], {}).setdefault(member[1], []).append(message)
    return found


def _end_of(links: list[Stored]) -> str:
    return links[-1].state


def _is_completed(messages: Sequence[Stored]) -> bool:
    return bool(messages) and all(each.state == "completed" for each in messages)


def _was_no_success(message: Stored) -> bool:
    """Whether it has ended otherwise, now or before it was redriven."""
    return message.state != "completed" or message.generation > 0


def _inner(history: History) -> dict[str, dict[int, Counted]]:
    """By batch and number: the batches that are its members."""
    found: dict[str, dict[int, Counted]] = {}
    for each in history.counted:
        if each.id.endswith(INNER) and (member := member_of(each.id.removesuffix(INNER))) is not None:
            found.setdefault(member[0], {})[member[1]] = each
    return found


def _end_of_inner(batch: Counted) -> str:
    if batch.state not in ("ended", "abandoned", "expired"):
        return batch.state
    return "completed" if batch.state == "ended" and batch.completed == batch.total else "dead"


def _miscounted(history: History) -> set[str]:
    """The batches of which a part was lost, and those within them, or which they are within."""
    outermost = {_outermost(each) for each in history.miscounted}
    known = {each.id for each in history.batches} | {each.id for each in history.counted}
    return history.miscounted | {each for each in known if _outermost(each) in outermost}


def _outermost(batch_id: str) -> str:
    return re.split(rf"\.\d+{INNER}", batch_id)[0]


def _called_for_inner(
    called: Mapping[str, bool | None], inner: Sequence[Counted], members: Mapping[str, Mapping[int, list[Stored]]]
) -> dict[str, bool | None]:
    """What a batch with these within it has called, where ``called`` is what it has without them. ``failed`` may be
    called if a member of an inner one was redriven: before the inner one had ended, or after it."""
    ends = [_end_of_inner(each) for each in inner]
    failed = called["failed"] or any(end != "completed" for end in ends)
    messages = [message for each in inner for links in members.get(each.id, {}).values() for message in links]
    unknown = not failed and any(message.generation for message in messages)
    return {
        "then": bool(called["then"]) and all(end == "completed" for end in ends),
        "failed": None if unknown else failed,
    }


def _called(batch: Counted, members: Mapping[int, list[Stored]]) -> dict[str, bool | None]:
    failed = any(_was_no_success(link) for links in members.values() for link in links)
    completed = all(_end_of(links) == "completed" for links in members.values())
    return {
        "then": batch.closed and completed,
        "failed": failed or batch.state in ("abandoned", "expired"),
        "ended": batch.state != "open",
    }
