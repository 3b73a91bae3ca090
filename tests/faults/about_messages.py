"""Invariants of single messages: what becomes of each, and which calls of its handler there may be."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

from pollconsumer.core.recurrence import MOST_CAUGHT_UP
from pollconsumer.store.records.rows import SPENT
from tests.faults.handlers_known import (
    AT_MOST_ONCE,
    BACKOFF_MS,
    BULK_ISOLATED,
    MAX_ATTEMPTS,
    RECURRING,
    SIGNAL,
    UNCHARGED,
)
from tests.faults.history import ENDED, in_turn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.history import Execution, History, Operation, Stored

MOST_CRASHES = 3
WITHOUT_SIGNAL = ("Asleep", "Yield", "ValueError", "PutOff")
"""Outcomes of calls that have recorded no signal, nor that none came."""
MOMENT = 500_000
"""Microseconds."""
LONGEST_RESERVATION = 60_000_000
"""Microseconds, before its handler starts."""


def accepted_is_accounted_for(history: History) -> Iterator[str]:
    """1. What was accepted is in the store, and after the drain it has ended."""
    stored = {(each.queue, each.id) for each in history.stored} | history.forgotten
    for each in history.enqueued():
        if (each.queue, each.id) not in stored:
            yield f"{each.id} was accepted by {each.queue} and is lost"
    for message in history.stored:
        if message.state not in ENDED:
            yield f"{message.id} is still {message.state} in {message.queue}"


def nothing_comes_from_nowhere(history: History) -> Iterator[str]:
    """2. No message and no execution but of what was asked for: enqueued, a follow-up, or an occurrence."""
    known = {each.id for each in history.operations if each.what == "enqueue"}
    known |= {each["id"] for execution in history.executions for each in execution.follow_ups}
    known |= history.brought_about()
    found = {message.id for message in history.stored} | {execution.id for execution in history.executions}
    for name in found - known:
        if name.partition("@")[0] not in RECURRING:
            yield f"{name} was never asked for"
    stored = {message.id for message in history.stored}
    for each in history.operations:
        if each.outcome == "duplicate" and each.id in stored:
            yield f"{each.id} is in the store, though its producer was told that {each.holder} is held instead"


def nothing_follows_an_end(history: History) -> Iterator[str]:
    """3. Each generation of a message ends once, and is not handled after that.

    (The instant of an end is reckoned by the launch, and less exact than the order of calls: so that is compared. What
    is resumed between being told to handle and doing so, its reservation long lost, begins late: no fence hinders it.)
    """
    executions = history.of_message()
    for message in history.stored:
        ours = executions.get((message.queue, message.id), [])
        completing = completing_call(message, executions)
        for each in ours:
            charged = each.outcome not in UNCHARGED and not _called_alone_next(each)
            if charged and each.generation == message.generation and each.attempt > message.attempts:
                yield f"{message.id} ended at attempt {message.attempts}, and was begun at {each.attempt}"
            if completing is None or completing.ended is None or each.started < completing.ended:
                continue
            earlier = (each.generation, each.attempt) < (completing.generation, completing.attempt)
            if not (earlier and _was_resumed(each, history)):
                yield f"{message.id} was begun {(each.started - completing.ended) / 1000:.1f} ms after its completion"


def completed_means_handled(history: History) -> Iterator[str]:
    """4. A completed message was handled to its end, under the fence that completed it."""
    executions = history.of_message()
    skipped = {(each.queue, each.id) for each in history.operations if each.skips}
    for message in history.stored:
        if (message.queue, message.id) in skipped:
            continue
        if message.state == "completed" and completing_call(message, executions) is None:
            call = f"attempt {message.attempts}, fence {message.fence}"
            yield f"{message.id} is completed, and no call of {call} has ended well"


def attempts_do_not_overlap(history: History) -> Iterator[str]:
    """5. A call begins after the one before it has ended, or under a higher fence: that reservation was lost.

    (Fences rise along a line of holders. Another group's launch, or another instance, may have begun earlier or later.)
    """
    lines = {each.fence: each.lease_name for each in history.leases}
    for (_, name), executions in history.of_message().items():
        for before, after in pairwise(executions):
            of_one_line = lines.get(before.fence) == lines.get(after.fence)
            if of_one_line and before.fence > after.fence and (before.ended is None or after.started < before.ended):
                yield f"{name} was begun under fence {after.fence} after it was begun under {before.fence}"
            if before.fence == after.fence and before.ended is not None and after.started < before.ended:
                yield f"{name} was begun twice at one time under fence {after.fence}"
            if before.fence == after.fence and before.ended is None and before.pid == after.pid:
                yield f"{name} was begun again by process {after.pid}, in which it had not ended"


def no_stale_write_is_accepted(history: History) -> Iterator[str]:
    """7. The row of a message carries the highest fence, along its line of holders, under which it was handled."""
    executions = history.of_message()
    lines = {each.fence: each.lease_name for each in history.leases}
    for message in history.stored:
        ours = [each.fence for each in executions.get((message.queue, message.id), [])]
        highest = max((fence for fence in ours if lines.get(fence) == lines.get(message.fence)), default=0)
        if message.fence < highest:
            yield f"{message.id} has fence {message.fence}, and was handled under {highest}"


def nothing_is_early(history: History) -> Iterator[str]:
    """8. No call before the due time, or the one that it was rescheduled to; no retry before its backoff."""
    executions = history.of_message()
    dues: dict[tuple[str, str], list[int]] = {}
    for each in history.operations:
        if each.what in ("enqueue", "reschedule"):
            # A refused reschedule may be the repetition of one that was carried out, and whose reply was lost.
            refused = each.outcome == "refused" and each.what == "enqueue"
            due = 1 << 60 if refused else history.first_shown(each.due or 0, each.invoked, each.answered)
            dues.setdefault((each.queue, each.id), []).append(due)
    moves = _moves(history)
    for key, those in moves.items():
        dues.get(key, []).extend(due for _, due in those)
    for (queue, name), given in dues.items():
        first = next(iter(executions.get((queue, name), [])), None)
        if first is not None and first.started // 1000 < min(given):
            yield f"{name} was begun {min(given) - first.started / 1000:.1f} ms before it was due"
    for key, those in moves.items():
        *others, (last, due) = those
        between = any(each.answered is None or each.answered > last.invoked for each, _ in others)
        for execution in executions.get(key, []):
            if last.certain() and not between and last.answered and last.answered < execution.started < due * 1000:
                yield f"{execution.id} was begun before the due time that it was given"
    for (queue, name), calls in executions.items():
        for before, after in pairwise(calls):
            # Under another fence the failure may never have been settled: then the attempt is made up for at once. So
            # it is if its launch stood still after it had reserved the message, which others recovered meanwhile.
            settled = before.fence == after.fence and before.attempt + _costs(before) == after.attempt
            settled = settled and not stood_still(before, history)
            if settled and before.outcome in BACKOFF_MS and before.ended is not None and (queue, name) not in moves:
                # The instant of a failure is reckoned from that of its reservation.
                set_forward = history.set_forward(before.started - LONGEST_RESERVATION, after.started)
                waited = (after.started - before.ended + set_forward) / 1000
                if waited < BACKOFF_MS[before.outcome] - 1:
                    yield f"{name} was tried again {waited:.1f} ms after it had failed"


def _moves(history: History) -> dict[tuple[str, str], list[tuple[Operation, int]]]:
    """What has, or may have, given a message another due time, in the order of asking, with the earliest one."""
    asked = {(each.queue, each.id): each for each in history.operations if each.what == "enqueue"}
    moves = [((each.queue, each.id), each) for each in history.operations if each.what == "reschedule"]
    moves += [(key, each) for key, those in history.replacements().items() for each in those]
    found: dict[tuple[str, str], list[tuple[Operation, int]]] = {}
    for key, each in sorted(moves, key=lambda move: move[1].invoked):
        due = each.due or 0
        if each.replaces() and (longest := int(each.key_rule[1:])) and key in asked:
            since = asked[key].invoked
            due = min(due, (since + history.ahead_at(since)) // 1000 + longest)
        found.setdefault(key, []).append((each, history.first_shown(due, each.invoked, each.answered)))
    return found


def _costs(call: Execution) -> int:
    """The attempts that a call costs."""
    return call.outcome not in UNCHARGED or call.handler in AT_MOST_ONCE


def occurrences_are_unique_and_complete(history: History) -> Iterator[str]:
    """9. Each instant of a recurrence has one message at most; where missed ones are made up for, exactly one."""
    counts = {each.name: each.enqueued for each in history.recurrences}
    stored: dict[str, set[str]] = {}
    for message in history.stored:
        name, at, _ = message.id.partition("@")
        if at:
            stored.setdefault(name, set()).add(message.id)
    for name, enqueued in counts.items():
        if enqueued != len(stored.get(name, ())):
            yield f"{name} has enqueued {enqueued} occurrences, and {len(stored.get(name, ()))} are in the store"
    instants: dict[str, dict[int, str]] = {}
    for each in history.executions:
        if each.occurrence is not None:
            other = instants.setdefault(each.handler, {}).setdefault(each.occurrence, each.id)
            if other != each.id:
                yield f"{each.handler} has two messages for one instant: {other} and {each.id}"
    # The one of them that makes up for what it missed, once a second; of more than it makes up for, the last ones.
    complete = sorted(instants.get("each_second", {}))
    left_out = sum(each.skipped for each in history.recurrences if each.name == "each_second")
    for number, (one, following) in enumerate(pairwise(complete), 1):
        missing = (following - one) // 1000 - 1
        made_up_for = complete[number : number + MOST_CAUGHT_UP]
        known = missing <= left_out and made_up_for[-1] - following == (MOST_CAUGHT_UP - 1) * 1000
        if missing and not known:
            yield f"each_second has no occurrence in the {following - one} ms after {one}"
        left_out -= missing


def attempts_count_calls(history: History) -> Iterator[str]:
    """11. No more calls than attempts, no attempt begun twice but after a yield; attempts and crashes are bounded."""
    executions = history.of_message()
    # One whose first reply was lost finds nothing to be redriven when it is repeated.
    asked = [each for each in history.operations if each.what == "redrive"]
    redrives = Counter((each.queue, each.id) for each in asked)
    confirmed = Counter((each.queue, each.id) for each in asked if each.outcome == "ok")
    begun_anew = history.replacements()
    for message in history.stored:
        ours = [
            each for each in executions.get((message.queue, message.id), []) if each.generation == message.generation
        ]
        begun = Counter(each.attempt for each in ours if each.outcome not in UNCHARGED and not _called_alone_next(each))
        for attempt, times in begun.items():
            if times > 1:
                yield f"attempt {attempt} of {message.id} was begun {times} times"
        if len(begun) > message.attempts:
            yield f"{message.id} has {message.attempts} attempts, and was begun at {sorted(begun)}"
        if message.attempts > MAX_ATTEMPTS + MOST_CRASHES:
            yield f"{message.id} has {message.attempts} attempts, {MAX_ATTEMPTS} at most"
        key = (message.queue, message.id)
        if message.generation > redrives[key] + len(begun_anew.get(key, ())):
            yield f"{message.id} is in generation {message.generation}, and was redriven less often"
        if message.generation < confirmed[message.queue, message.id]:
            yield f"{message.id} is in generation {message.generation}, and was redriven more often"
        if message.crashes > MOST_CRASHES and not _spent(message):
            yield f"{message.id} is blamed for {message.crashes} deaths"


def payloads_are_unchanged(history: History) -> Iterator[str]:
    """13. What a handler is given, and what the store keeps, is what the producer sent, or somebody gave it since."""
    sent: dict[str, set[str]] = {}
    for each in history.operations:
        if each.what in ("enqueue", "change") and each.digest:
            sent.setdefault(each.id, set()).add(each.digest)
    for (_, name), those in history.replacements().items():
        sent.setdefault(name, set()).update(each.digest for each in those)
    for one in history.executions:
        for child in one.follow_ups:
            sent.setdefault(child["id"], set()).add(child["digest"])
    for execution in history.executions:
        if execution.digest not in sent.get(execution.id, {execution.digest}):
            yield f"{execution.id} was handled with another payload than it was sent with"
    for message in history.stored:
        if message.digest is not None and message.digest not in sent.get(message.id, {message.digest}):
            yield f"{message.id} is stored with another payload than it was sent with"


def at_most_once_never_begins_twice(history: History) -> Iterator[str]:
    """17. What is delivered at most once is begun once, until a person redrives it."""
    for (_, name), executions in history.of_message().items():
        for generation, times in Counter(each.generation for each in executions).items():
            if executions[0].handler in AT_MOST_ONCE and times > 1:
                yield f"{name} is delivered at most once, and was begun {times} times in generation {generation}"


def follow_ups_come_with_the_completion(history: History) -> Iterator[str]:
    """18. Of a completed message, the follow-ups of the call that completed it are there, and no others."""
    stored = {(each.queue, each.id) for each in history.stored} | history.forgotten
    executions = history.of_message()
    for message in history.stored:
        completing = completing_call(message, executions)
        for each in executions.get((message.queue, message.id), []):
            for child in each.follow_ups:
                there = (child["queue"], child["id"]) in stored
                wanted = completing is not None and child in completing.follow_ups
                if wanted != there:
                    yield f"{child['id']} {'is there' if there else 'is missing'}: {message.id} is {message.state}"


def checkpoints_are_kept(history: History) -> Iterator[str]:
    """19. A call begins with the last checkpoint that an earlier one was told is kept."""
    begun_anew = history.replacements()
    for key, executions in history.of_message().items():
        kept = generation = 0
        for each in in_turn(executions):
            if key in begun_anew and each.generation > generation:
                kept, generation = 0, each.generation
            if each.found < kept:
                yield f"{each.id} had kept {kept}, and was begun with {each.found}"
            kept = max(kept, each.kept or 0)


def each_step_has_one_result(history: History) -> Iterator[str]:
    """27. Whatever attempts of a message were given as the result of a step is the same, until it begins anew."""
    begun_anew = history.replacements()
    for key, executions in history.of_message().items():
        results: dict[tuple[int, str], str] = {}
        for each in executions:
            generation = each.generation if key in begun_anew else 0
            for step, result in each.given.items():
                if (other := results.setdefault((generation, step), result)) != result:
                    yield f"{each.id} was given {other}, then {result}, as the result of {step}"


def the_first_signal_of_a_name_holds(history: History) -> Iterator[str]:
    """28. One value is kept at most; a wait that goes on is given that, and one that has its time no other."""
    executions = history.of_message()
    sent: dict[tuple[str, str], list[Operation]] = {}
    for each in history.operations:
        if each.what == "signal":
            sent.setdefault((each.queue, each.id), []).append(each)
    for message, calls in executions.items():
        signals = sent.get(message, [])
        kept = [each for each in signals if each.outcome == "ok"]
        if len(kept) > 1:
            yield f"{message[1]} has kept several signals: {', '.join(each.digest for each in kept)}"
        possible = {"None", *(each.digest for each in signals if each.outcome in ("ok", "unknown"))}
        for call in calls:
            if call.given.get(SIGNAL, "None") not in possible:
                yield f"{call.id} was given the signal {call.given[SIGNAL]}, that was not kept"
        for before, after in pairwise(calls):
            if before.outcome not in WITHOUT_SIGNAL or SIGNAL in before.given:
                break  # it may have been recorded that none came
            there = [each.digest for each in kept if each.answered and each.answered < before.started]
            if there and after.given.get(SIGNAL, there[0]) != there[0]:
                yield f"{after.id} had kept the signal {there[0]}, and was given {after.given[SIGNAL]}"


def what_was_cancelled_stays_so(history: History) -> Iterator[str]:
    """20. A message whose cancelling was confirmed is cancelled, and no call of it begins after that."""
    stored = {(each.queue, each.id): each for each in history.stored}
    executions = history.of_message()
    asked = {(each.queue, each.id) for each in history.operations if each.what == "cancel"}
    for each in history.operations:
        if each.what != "cancel" or each.outcome != "ok" or each.answered is None:
            continue
        key = (each.queue, each.id)
        if key in stored and stored[key].state != "cancelled":
            yield f"{each.id} was cancelled, and is {stored[key].state}"
        if any(execution.started > each.answered for execution in executions.get(key, [])):
            yield f"{each.id} was begun after it had been cancelled"
    for key, message in stored.items():
        if message.state == "cancelled" and key not in asked:
            yield f"{message.id} is cancelled, and nobody asked for that"


def ends_have_their_reasons(history: History) -> Iterator[str]:
    """21. A dead letter has failed for good, has no attempt left, has crashed, or was to be handled once."""
    executions = history.of_message()
    for message in history.stored:
        if message.state != "dead":
            continue
        every = executions.get((message.queue, message.id), [])
        ours = [each for each in every if each.generation == message.generation]
        failures = sum(each.outcome not in ("ok", *UNCHARGED, None) for each in ours)
        fatal = any(each.outcome == "Fatal" for each in ours)
        crashed = message.crashes == MOST_CRASHES or _spent(message)
        reasons = (fatal, failures > 0 and message.attempts >= MAX_ATTEMPTS, crashed)
        if not any(reasons) and message.handler not in AT_MOST_ONCE:
            yield f"{message.id} is dead after {failures} failures and {message.crashes} deaths: {message.last_error}"


def _was_resumed(call: Execution, history: History) -> bool:
    """Whether anything had been resumed a moment before."""
    return any(0 <= call.started - resumed < MOMENT for resumed in history.resumed)


def stood_still(call: Execution, history: History) -> bool:
    """Whether its launch may have, between its reservation and its end."""
    reserved = call.started - LONGEST_RESERVATION
    return call.ended is not None and any(reserved < resumed < call.ended for resumed in history.resumed)


def _called_alone_next(call: Execution) -> bool:
    """Whether its messages are called one after the other then, in the same attempt: its process died."""
    return call.handler == BULK_ISOLATED and call.together > 1 and call.ended is None


def _spent(message: Stored) -> bool:
    """Whether its launch died in its last attempt: no launch hands it to a handler again."""
    in_the_last = message.attempts >= MAX_ATTEMPTS and message.handler not in AT_MOST_ONCE
    return message.crashes == SPENT and in_the_last and message.state in ("dead", "cancelled")


def completing_call(message: Stored, executions: dict[tuple[str, str], list[Execution]]) -> Execution | None:
    """The call that completed a message."""
    if message.state != "completed":
        return None
    for each in reversed(executions.get((message.queue, message.id), [])):
        here = (each.generation, each.attempt, each.fence) == (message.generation, message.attempts, message.fence)
        if here and each.outcome == "ok":
            return each
    return None
