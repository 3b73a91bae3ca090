"""Invariants of options: keys that are held until the start, what replaces or changes what waits, put-offs, skips, and
what is switched off."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from tests.faults.about_messages import completing_call
from tests.faults.handlers_known import AFTER_END, AT_MOST_ONCE, PERIOD_MS, UNCHARGED

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.faults.history import History, Operation

AT_THE_END = 1 << 62
WITHIN = 1000
"""Milliseconds in which a launch has been told of a pause."""


def the_last_payload_is_handled(history: History) -> Iterator[str]:
    """34. A message is completed with a payload that no later one had taken the place of before that call began."""
    executions, written = history.of_message(), history.replacements()
    for each in history.operations:
        if each.what in ("enqueue", "change") and each.digest:
            written.setdefault((each.queue, each.id), []).append(each)
    for message in history.stored:
        those = written.get((message.queue, message.id), [])
        call = completing_call(message, executions)
        given, at = (message.digest, AT_THE_END) if call is None else (call.digest, call.started)
        if given and len(those) > 1 and given not in _last_of(those, at):
            yield f"{message.id} is {message.state} with a payload that was no longer its own"


def _last_of(written: Sequence[Operation], at: int) -> set[str]:
    """Digests of the payloads that a message may have at an instant."""
    before = [each for each in written if each.invoked <= at and each.outcome != "refused"]
    certain = (each.invoked for each in before if _is_done(each) and each.answered and each.answered <= at)
    last = max(certain, default=0)
    return {each.digest for each in before if each.answered is None or each.answered >= last}


def _is_done(each: Operation) -> bool:
    return each.outcome in ("ok", "duplicate")


def what_is_replaced_begins_anew(history: History) -> Iterator[str]:
    """40. The call after a replacement is the first attempt again, and has no checkpoint."""
    executions, deaths = history.of_message(), {(each.queue, each.id): each.crashes for each in history.stored}
    for key, those in history.replacements().items():
        for each in those:
            asked = min(other.invoked for other in those if other.id == each.id)
            call = next((call for call in executions.get(key, []) if call.started > asked), None)
            if call is None or not each.certain() or not each.answered or call.started < each.answered:
                continue  # the call may have begun before it, or after it
            if call.found or (call.attempt > 1 and not deaths.get(key)):
                yield f"{call.id} was begun at attempt {call.attempt} with {call.found}, after {each.id} replaced it"


def a_key_until_the_start_is_held_no_longer(history: History) -> Iterator[str]:
    """35. No message is the duplicate of one in flight, where its key is held until the start alone."""
    executions = history.of_message()
    stored = {(each.queue, each.id): each for each in history.stored}
    for each in history.operations:
        holder = stored.get((each.queue, each.holder))
        if not each.key_rule or each.answered is None or holder is None or holder.crashes or holder.generation:
            continue
        for call in executions.get((each.queue, each.holder), []):
            if call.started < each.invoked and call.ended and each.answered < call.ended:
                yield f"{each.id} was said to be a duplicate of {each.holder}, that was in hand"


def what_costs_no_attempt_counts_for_none(history: History) -> Iterator[str]:
    """36. After a call that is not charged the next one, by the same launch is the same attempt, unless a death was."""
    executions = history.of_message()
    for message in history.stored:
        calls = [] if message.crashes else executions.get((message.queue, message.id), [])
        for before, after in pairwise(each for each in calls if each.generation == message.generation):
            charged = before.outcome not in UNCHARGED or before.handler in AT_MOST_ONCE
            if before.fence == after.fence and not charged and after.attempt != before.attempt:
                yield f"{message.id} was begun at attempt {after.attempt}, and {before.attempt} was not charged"


def what_is_skipped_is_not_handled(history: History) -> Iterator[str]:
    """37. A message that a hook has skipped is completed without a call, and without a result."""
    skipped = {(each.queue, each.id) for each in history.operations if each.skips}
    for call in history.executions:
        if (call.queue, call.id) in skipped:
            yield f"{call.id} was handled, and a hook skips it"
    for message in history.stored:
        if (message.queue, message.id) in skipped and message.result is not None:
            yield f"{message.id} has the result {message.result}, and a hook skips it"


def a_paused_handler_is_not_called(history: History) -> Iterator[str]:
    """38. Not by launches that begin while it is paused, nor, after a second, by those that were told."""
    began = {each.fence: each.acquired for each in history.leases}
    for pause in () if history.clock_steps else history.handler_pauses:
        for call in history.executions:
            if call.handler == pause.handler and call.started // 1000 < pause.until:
                since = pause.since + WITHIN if call.fence in pause.told else began.get(call.fence, 0)
                if pause.since < since < call.started // 1000:
                    yield f"{call.id} was begun, and {pause.handler} was paused for {pause.until - pause.since} ms"


def a_period_counts_from_the_end(history: History) -> Iterator[str]:
    """39. An occurrence comes a period after the end of the one before, at the earliest, if it counts from there."""
    occurred = sorted(
        (each.scheduled_at or 0, each.ended_at or 0, each.id)
        for each in history.stored
        if each.id.partition("@")[0] == AFTER_END
    )
    for (_, ended, before), (began, _, after) in () if history.clock_steps else pairwise(occurred):
        if began < ended + PERIOD_MS:
            yield f"{after} came {began - ended} ms after the end of {before}"
