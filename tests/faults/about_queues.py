"""Invariants of what messages have in common: keys, limits, order, and the sums."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

from pollconsumer.core.lifecycle import State
from tests.faults.handlers_known import BULK, ISOLATED
from tests.faults.history import ENDED, in_turn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.history import Execution, History, Operation

PLACES = {
    State.COMPLETED: "completed",
    State.DEAD: "dead_letters",
    State.CANCELLED: "cancelled",
    State.EXPIRED: "expired",
}
"""Index of each state in which a message has ended."""


def unique_keys_have_one_holder(history: History) -> Iterator[str]:
    """10. Of the messages with one unique key, each is accepted after the one before it has ended.

    (The order of instants in the store tells nothing once the server's clock was set.)
    """
    if history.clock_steps:
        return
    stored = {(each.queue, each.id): each for each in history.stored}
    holders: dict[tuple[str, str], list[tuple[int, int | None, str]]] = {}
    for each in history.operations:
        message = stored.get((each.queue, each.id))
        # A redriven message holds its key for a second time; when that began, its row does not tell.
        if each.what != "enqueue" or not each.key or each.key_rule or message is None or message.generation > 0:
            continue
        if message.scheduled_at is not None:
            entry = (message.scheduled_at, message.ended_at, message.id)
            holders.setdefault((each.queue, each.key), []).append(entry)
    for (_, key), intervals in holders.items():
        for (_, ended, name), (began, _, following) in pairwise(sorted(intervals, key=lambda entry: entry[0])):
            if ended is None or began < ended:
                yield f"{following} was accepted with the unique key {key}, that {name} still held"
    for each in history.operations:
        holder = stored.get((each.queue, each.holder))
        if each.outcome == "duplicate" and holder is None:
            yield f"{each.id} was said to be a duplicate of {each.holder}, that nobody knows"
        # The call may have been repeated: its answer was true when the last of its tries began, at the earliest.
        elif (
            holder is not None
            and holder.ended_at is not None
            and holder.ended_at + history.settled_within < each.invoked // 1000
        ):
            yield f"{each.id} was said to be a duplicate of {each.holder}, that had ended"


def every_message_stands_in_one_place(history: History) -> Iterator[str]:
    """12. Each id is in the index of its state alone; counts are those of the contents; a drained queue is empty."""
    tally: dict[str, Counter[str]] = {}
    for message in history.stored:
        tally.setdefault(message.queue, Counter())[message.state] += 1
        place = PLACES[State(message.state)] if message.state in ENDED else None
        if place is not None and message.places != (place,):
            yield f"{message.id} is {message.state}, and stands in {', '.join(message.places) or 'no index'}"
    for queue in history.queues:
        for state, count in queue.counts.items():
            if tally.get(queue.name, Counter())[state] != count:
                yield f"{queue.name} counts {count} {state}, and holds {tally.get(queue.name, Counter())[state]}"
        for name, count in queue.leftovers.items():
            yield f"{queue.name} is drained, and holds {count} in {name}"


def first_in_is_first_out(history: History) -> Iterator[str]:
    """15. Equals are begun in the order in which they were accepted. (With one slot; of priority 0, due at once.)

    The order between priorities is checked by the state machine (tests/store/machine); the clock has the last word.
    A program or an isolated process may be killed before it has recorded that it began: when that was, nobody knows.
    """
    if not history.one_at_a_time:
        return
    changed = {(each.queue, each.id) for each in history.operations if each.what != "enqueue"}
    changed |= history.replacements().keys()
    apart = {each.handler for each in history.handler_pauses}
    if any("isolated" in fault for fault in history.faults):
        apart.update(ISOLATED)  # no attempt is charged if the process dies while it starts
    executions = history.of_message()
    first = {key: calls[0].started for key, calls in executions.items() if calls[0].attempt == 1}
    # A producer's own messages: between two producers, and where a call was repeated, nobody knows the order. A bulk
    # handler's wait for more.
    lines: dict[tuple[str, str, str], list[Operation]] = {}
    for each in sorted(history.enqueued(), key=lambda each: each.invoked):
        plain = not (each.priority or each.due or each.concurrency_key or each.order_key)
        plain = plain and (each.queue, each.id) not in changed
        if plain and each.handler not in apart and (each.queue, each.id) in first:
            gathered = each.handler if each.handler in BULK else ""
            lines.setdefault((each.queue, each.id.partition("-")[0], gathered), []).append(each)
    for (queue, _, _), line in lines.items():
        for one, other in pairwise(line):
            if first[queue, other.id] < first[queue, one.id]:
                yield f"{other.id} was begun before {one.id}, that {queue} accepted before it"


def messages_of_an_order_key_begin_one_after_the_other(history: History) -> Iterator[str]:
    """41. What was begun ends before another with its order key begins; and equals begin in the order in which they
    were accepted, however many slots there are."""
    asked = {(each.queue, each.id): each for each in history.enqueued() if each.order_key}
    moved = {(each.queue, each.id) for each in history.operations if each.what == "reschedule"}
    moved |= history.replacements().keys()
    lines: dict[tuple[str, str], list[Execution]] = {}
    for message, calls in history.of_message().items():
        if (operation := asked.get(message)) is not None:
            lines.setdefault((operation.queue, operation.order_key), []).extend(in_turn(calls))
    for (queue, key), calls in lines.items():
        begun, before = set[tuple[str, int]](), None
        for each in sorted(calls, key=lambda each: each.started):
            turn = each.id, each.generation
            if before is None or (before.id, before.generation) != turn:
                if turn in begun and (queue, each.id) not in moved:
                    yield f"{each.id} of {key} in {queue} had not ended when another began"
                if before is not None and _same_launch(before, each) and (before.ended or 0) > each.started:
                    yield f"{each.id} began beside {before.id}, both of {key} in {queue}"
            begun.add(turn)
            before = each
        first = {each.id: each.started for each in sorted(calls, key=lambda each: -each.started)}
        plain = [each for each in asked.values() if (each.queue, each.order_key) == (queue, key) and each.id in first]
        plain = [each for each in plain if not each.due and (queue, each.id) not in moved and each.outcome == "ok"]
        for one, other in pairwise(sorted(plain, key=lambda each: each.invoked)):
            if (one.answered or math.inf) < other.invoked and first[other.id] < first[one.id]:
                yield f"{other.id} of {key} was begun before {one.id}, that {queue} accepted before it"


def places_are_not_exceeded(history: History) -> Iterator[str]:
    """22. With one concurrency key no more calls are under way than there are places, but for reservations lost."""
    keys = {(each.queue, each.id): each for each in history.operations if each.concurrency_key}
    groups: dict[tuple[str, str], list[Execution]] = {}
    limits: dict[tuple[str, str], int] = {}
    for message, calls in history.of_message().items():
        if (operation := keys.get(message)) is not None:
            group = (operation.queue, operation.concurrency_key)
            limits[group] = operation.concurrency_limit
            groups.setdefault(group, []).extend(calls)
    newest = {name: calls[-1].fence for name, calls in history.of_message().items()}
    for group, calls in groups.items():
        queue, key = group
        # A call whose message was offered to another launch may go on: its place was given away with the reservation.
        rightful = [each for each in calls if each.ended is not None and each.fence == newest[queue, each.id]]
        for each in rightful:
            beside = sum(
                other.started <= each.started < (other.ended or 0) and _same_launch(other, each) for other in rightful
            )
            if beside > limits[group]:
                yield f"{beside} calls with {key} were under way at once in {queue}, {limits[group]} at most"


def _same_launch(one: Execution, other: Execution) -> bool:
    """Calls of another launch may go on after their lease, and with it their places, went to this one."""
    return one.fence == other.fence


def quotas_hold(history: History) -> Iterator[str]:
    """23. No span of a quota's period sees more handed out. (As far as it shows: a message keeps its last hand-out.)"""
    if history.quota is None:
        return
    queue, most, period = history.quota
    handed = sorted(each.reserved_at for each in history.stored if each.queue == queue and each.reserved_at)
    for first, last in zip(handed, handed[most:], strict=False):
        if last - first < period:
            yield f"{queue} handed out {most + 1} messages in {last - first} ms, {most} at most in {period}"


def a_paused_queue_hands_out_nothing(history: History) -> Iterator[str]:
    """26. Between a pause that was confirmed and its end. (As far as it shows: a message keeps its last hand-out.)"""
    for queue, since, until in () if history.clock_steps else history.pauses:
        for each in history.stored:
            if each.queue == queue and each.reserved_at is not None and since <= each.reserved_at <= until:
                yield f"{each.id} was handed out {each.reserved_at - since} ms after {queue} was paused"
