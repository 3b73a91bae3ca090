"""The checker notices what it is there for: each invariant, on a history that was doctored for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.core.recurrence import MOST_CAUGHT_UP
from pollconsumer.store.records.rows import SPENT
from tests.faults.about_queues import first_in_is_first_out
from tests.faults.checker import INVARIANTS, violations
from tests.faults.handlers_known import AFTER_END, PERIOD_MS, SIGNAL
from tests.faults.history import (
    Batch,
    Counted,
    Execution,
    Followed,
    HandlerPause,
    History,
    Lease,
    Operation,
    Queue,
    Ran,
    Recurred,
    Stored,
)

if TYPE_CHECKING:
    from collections.abc import Callable

T = 1_800_000_000_000
"""An instant in epoch ms."""
CALL = Execution("a", "plain", "default", 1, 0, 7, 100, "d", T * 1000, T * 1000 + 5000, "ok")
ASKED = Operation("enqueue", "default", "a", T * 1000 - 9000, T * 1000 - 8000, "ok", "plain", "d")
HELD = Stored("a", "default", "plain", "completed", 1, 0, 0, 7, T - 9, T, T + 5, "d", None, ("completed",))
BURIED = HELD._replace(state="dead", places=("dead_letters",))
IN_SITE = Ran(
    ("-q", "run"), 100, 0.1, 1, "", "Fatal Python error: init_import_site: Failed\nTraceback\nKeyboardInterrupt\n"
)
BEFORE_MAIN = IN_SITE._replace(errors="Could not import runpy module\nTraceback\nKeyboardInterrupt\n")
LAUNCH = Ran(("-q", "run"), 100, 2.0, 0, "", "")


def history(**changes: Any) -> History:
    """One message, enqueued, handled, completed; with ``changes``."""
    found = History(
        executions=[CALL],
        operations=[ASKED],
        stored=[HELD],
        queues=[Queue("default", {"completed": 1, "dead": 0}, {})],
        commands=[LAUNCH],
        leases=[Lease("consumer:default:0", fence, T - 1000 + fence) for fence in (6, 7, 8)],
    )
    return replace(found, **changes)


def two(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """The message's calls and row, were it called twice."""
    later = CALL._replace(attempt=2, started=CALL.started + 60_000, ended=CALL.started + 65_000)
    calls = [CALL._replace(outcome="ValueError")._replace(**first), later._replace(**second)]
    return {"executions": calls, "stored": [HELD._replace(attempts=2, fence=max(call.fence for call in calls))]}


def of_two(first: dict[str, Any], second: dict[str, Any], **asked: Any) -> dict[str, Any]:
    """Two messages that have ``asked`` in common, ``first`` and ``second`` being what their calls were."""
    calls = [CALL._replace(**first), CALL._replace(id="a-2", **second)]
    held = [HELD._replace(fence=call.fence, attempts=call.attempt, id=call.id) for call in calls]
    operations = [ASKED._replace(**asked), ASKED._replace(id="a-2", invoked=ASKED.invoked + 1, **asked)]
    queues = [Queue("default", {"completed": 2, "dead": 0}, {})]
    return {"executions": calls, "stored": held, "operations": operations, "queues": queues}


FOLLOW_UP = {"id": "kid", "queue": "default", "handler": "plain", "digest": "d"}
OCCURRED = CALL._replace(id="each_second@1", handler="each_second", occurrence=T)
HELD_OCCURRENCE = HELD._replace(id="each_second@1", handler="each_second")
OF_TWO_GROUPS = [Lease("consumer:default:0", 7, T - 200), Lease("consumer:default,second:0", 8, T - 100)]
COMPLETING = CALL._replace(attempt=2, fence=8)
SECOND = {"stored": [HELD._replace(attempts=2, fence=8)]}
"""It was completed in its second attempt."""
SOON, LATE = CALL.started + 1000, CALL.started + 9000

REDRIVEN = {"executions": [CALL._replace(generation=1)], "stored": [HELD._replace(generation=1)]}


def recurred(times: int, *, gap: int, skipped: int) -> dict[str, Any]:
    """One occurrence of each second, and so many after a gap of so many; the last number is what was counted."""
    instants = [T, *(T + (gap + 1 + n) * 1000 for n in range(times))]
    calls = [OCCURRED._replace(id=f"each_second@{at}", occurrence=at) for at in instants]
    return {
        "executions": [CALL, *calls],
        "stored": [HELD, *(HELD_OCCURRENCE._replace(id=call.id) for call in calls)],
        "recurrences": [Recurred("each_second", len(calls), skipped)],
        "queues": [],
    }


def batched(*left_out: str, counted: dict[str, Any] | None = None, **made: Any) -> dict[str, Any]:
    """A batch of one member, completed, and its callbacks; without the messages ``left_out``, and with changes of what
    is counted, and of what its producer made."""
    calls = [
        CALL._replace(id="b.0"),
        CALL._replace(id="b:then", given={"then": "1 of 1, 1 results"}),
        CALL._replace(id="b:ended"),
    ]
    calls = [each for each in calls if each.id not in left_out]
    return {
        "executions": calls,
        "stored": [HELD._replace(id=each.id) for each in calls],
        "operations": [ASKED._replace(id="b.0")],
        "queues": [Queue("default", {"completed": len(calls), "dead": 0}, {})],
        "batches": [
            Batch("b", "default", dict.fromkeys(("then", "failed", "ended"), "default"), 1, "closed")._replace(**made)
        ],
        "counted": [
            Counted("b", "default", "ended", 1, 1, 0, 0, 0, closed=True, codes={0: 1})._replace(**counted or {})
        ],
    }


def nested(
    *left_out: str, inner: dict[str, Any] | None = None, outer: dict[str, Any] | None = None, results: int = 0
) -> dict[str, Any]:
    """A batch whose only member is a batch of one member, and the callbacks of both; without the messages ``left_out``,
    and with changes of what is counted. ``results``: what ``then`` found, which has none of the inner batch."""
    calls = [
        CALL._replace(id="b.0:batch.0"),
        CALL._replace(id="b.0:batch:ended"),
        CALL._replace(id="b:then", given={"then": f"1 of 1, {results} results"}),
        CALL._replace(id="b:ended"),
    ]
    calls = [each for each in calls if each.id not in left_out]
    one = Counted("b", "default", "ended", 1, 1, 0, 0, 0, closed=True, codes={0: 1})
    return {
        "executions": calls,
        "stored": [HELD._replace(id=each.id) for each in calls],
        "operations": [ASKED._replace(id="b.0:batch.0")],
        "queues": [Queue("default", {"completed": len(calls), "dead": 0}, {})],
        "batches": [
            Batch("b", "default", dict.fromkeys(("then", "failed", "ended"), "default"), 1, "closed"),
            Batch("b.0:batch", "default", {"ended": "default"}, 1, "closed"),
        ],
        "counted": [one._replace(**outer or {}), one._replace(id="b.0:batch")._replace(**inner or {})],
    }


def signalled(sent: list[str], *given: str | None) -> dict[str, Any]:
    """The message slept, and went on, and was ``given`` these signals."""
    calls = two({"outcome": "Asleep", "attempt": 1}, {"attempt": 1})
    calls["executions"] = [
        each._replace(given={} if value is None else {SIGNAL: value})
        for each, value in zip(calls["executions"], given, strict=True)
    ]
    signals = [ASKED._replace(what="signal", digest=value) for value in sent]
    return calls | {"operations": [ASKED, *signals], "stored": [HELD]}


def bulk(*, stored: dict[str, Any] | None = None, **called: Any) -> dict[str, Any]:
    """One call of a bulk handler with the message and another, which has ended well; with changes of what is held and
    what was said."""
    call = CALL._replace(handler="bulk", together=2, said="a, attempt 1")._replace(**called)
    return {
        "executions": [call, call._replace(id="a-2", outcome="ok", said="a-2, attempt 1")],
        "stored": [
            HELD._replace(handler="bulk", result="a, attempt 1")._replace(**stored or {}),
            HELD._replace(id="a-2", handler="bulk", result="a-2, attempt 1"),
        ],
        "operations": [ASKED._replace(handler="bulk"), ASKED._replace(id="a-2", handler="bulk")],
        "queues": [],
    }


def replaced(payload: str, **call: Any) -> dict[str, Any]:
    """The message was replaced before it began, due an hour later, and handled with this ``payload``."""
    asked = ASKED._replace(key="k", key_rule="r9000000")
    later = asked._replace(
        id="a-2", outcome="duplicate", holder="a", digest="e", invoked=T * 1000 - 7000, answered=T * 1000 - 6000
    )
    calls = [CALL._replace(digest=payload, **call)]
    return {"operations": [asked, later], "executions": calls, "stored": [HELD._replace(digest=payload)]}


def recurring(after_ms: int) -> dict[str, Any]:
    """Two occurrences, of which the second came so long after the end of the first."""
    first = HELD._replace(id=f"{AFTER_END}@1", handler=AFTER_END)
    second = first._replace(id=f"{AFTER_END}@2", scheduled_at=(first.ended_at or 0) + after_ms)
    calls = [CALL._replace(id=each.id) for each in (first, second)]
    return {"stored": [first, second], "executions": calls, "operations": [], "queues": []}


FAILED = {"outcome": "Fatal", "said": "no luck with a"}
SKIPPED = "skipped: its process died after it was recorded as begun, and it is delivered at most once"
DIED_TOGETHER = CALL._replace(handler="bulk_isolated", together=2, ended=None, outcome=None)

A_CHAIN = Followed("b.0", ("default", "default"), {})

DOCTORED: list[tuple[str, dict[str, Any]]] = [
    ("accepted_is_accounted_for", {"stored": [], "executions": [], "queues": []}),
    ("accepted_is_accounted_for", {"stored": [HELD._replace(state="ready")], "queues": []}),
    ("nothing_comes_from_nowhere", {"operations": []}),
    ("nothing_comes_from_nowhere", {"operations": [ASKED._replace(outcome="duplicate", holder="a")]}),
    ("nothing_follows_an_end", {"executions": [CALL, CALL._replace(attempt=2, started=LATE)]}),
    ("nothing_follows_an_end", {"executions": [CALL, CALL._replace(started=LATE, ended=LATE + 1, outcome="Yield")]}),
    (
        "nothing_follows_an_end",
        {"executions": [CALL, CALL._replace(started=LATE, outcome="ValueError")], "resumed": [LATE - 9]},
    ),
    (
        "nothing_follows_an_end",
        {"executions": [COMPLETING, CALL._replace(started=LATE + 600_000)], "resumed": [LATE]} | SECOND,
    ),
    ("completed_means_handled", {"executions": [CALL._replace(outcome="ValueError")]}),
    ("completed_means_handled", {"executions": [CALL._replace(fence=6)]}),
    ("completed_means_handled", {"executions": []}),
    ("attempts_do_not_overlap", two({}, {"started": SOON})),
    ("attempts_do_not_overlap", two({"fence": 8, "ended": None, "outcome": None}, {"fence": 7})),
    ("attempts_do_not_overlap", two({"ended": None, "outcome": None}, {})),
    ("fences_rise", {"leases": [Lease("mover::0", 9, T), Lease("mover::0", 8, T + 1)]}),
    ("fences_rise", {"leases": [Lease("mover::0", 9, T), Lease("consumer:default:0", 9, T + 1)]}),
    ("no_stale_write_is_accepted", {"executions": [CALL, CALL._replace(fence=8, ended=None, outcome=None, attempt=2)]}),
    ("nothing_is_early", {"operations": [ASKED._replace(due=T + 1)]}),
    ("nothing_is_early", two({}, {"started": CALL.started + 40_000})),
    (
        "nothing_is_early",
        {"operations": [ASKED, ASKED._replace(what="reschedule", answered=CALL.started - 1, due=T + 9)]},
    ),
    ("occurrences_are_unique_and_complete", {"recurrences": [Recurred("each_second", 2, 0)]}),
    (
        "occurrences_are_unique_and_complete",
        {"executions": [OCCURRED, OCCURRED._replace(id="each_second@2")], "stored": [HELD_OCCURRENCE]},
    ),
    (
        "occurrences_are_unique_and_complete",
        {"executions": [OCCURRED, OCCURRED._replace(id="each_second@2", occurrence=T + 2000)]},
    ),
    ("occurrences_are_unique_and_complete", recurred(MOST_CAUGHT_UP, gap=2, skipped=1)),
    ("occurrences_are_unique_and_complete", recurred(MOST_CAUGHT_UP - 1, gap=2, skipped=2)),
    ("unique_keys_have_one_holder", of_two({}, {}, key="k")),
    (
        "unique_keys_have_one_holder",
        {"operations": [ASKED, ASKED._replace(id="b", outcome="duplicate", holder="a", invoked=LATE + 900_000)]},
    ),
    ("attempts_count_calls", two({"attempt": 1}, {"attempt": 1, "pid": 2})),
    ("attempts_count_calls", {"stored": [HELD._replace(attempts=0)]}),
    ("attempts_count_calls", {"stored": [HELD._replace(attempts=8)]}),
    ("attempts_count_calls", {"stored": [HELD._replace(crashes=4)]}),
    ("attempts_count_calls", {"stored": [HELD._replace(attempts=4, crashes=SPENT)]}),
    ("attempts_count_calls", {"stored": [BURIED._replace(attempts=3, crashes=SPENT)]}),
    ("attempts_count_calls", {"stored": [HELD._replace(generation=1)]}),
    ("attempts_count_calls", {"operations": [ASKED, ASKED._replace(what="redrive")]}),
    ("every_message_stands_in_one_place", {"stored": [HELD._replace(places=("completed", "dead_letters"))]}),
    ("every_message_stands_in_one_place", {"queues": [Queue("default", {"completed": 2}, {})]}),
    ("every_message_stands_in_one_place", {"queues": [Queue("default", {"completed": 1}, {"in_flight": 1})]}),
    ("payloads_are_unchanged", {"executions": [CALL._replace(digest="e")]}),
    ("payloads_are_unchanged", {"stored": [HELD._replace(digest="e")]}),
    ("no_process_stays", {"strays": ["4711: sleep"]}),
    ("first_in_is_first_out", of_two({"started": LATE, "ended": LATE + 1}, {})),
    ("secrets_are_kept", {"secrets": ["0001.err"]}),
    ("at_most_once_never_begins_twice", two({"handler": "once"}, {"handler": "once"})),
    ("follow_ups_come_with_the_completion", {"executions": [CALL._replace(follow_ups=(FOLLOW_UP,))]}),
    (
        "follow_ups_come_with_the_completion",
        {
            "executions": [CALL._replace(follow_ups=(FOLLOW_UP,), outcome="Fatal")],
            "stored": [BURIED, HELD._replace(id="kid")],
        },
    ),
    ("checkpoints_are_kept", two({"kept": 2}, {"found": 1})),
    ("each_step_has_one_result", two({"given": {"1": "a"}}, {"given": {"1": "b"}})),
    ("the_first_signal_of_a_name_holds", signalled(["x", "y"], None, "x")),
    ("the_first_signal_of_a_name_holds", signalled(["x"], None, "y")),
    ("the_first_signal_of_a_name_holds", signalled(["x"], None, "None")),
    ("no_batch_waits_for_ever", batched(counted={"state": "closed"})),
    ("no_batch_waits_for_ever", batched(counted={"state": "expired"})),
    ("no_batch_waits_for_ever", batched(fate="open")),
    ("no_batch_waits_for_ever", batched() | {"counted": []}),
    ("no_batch_waits_for_ever", batched(fate="unknown") | {"counted": []}),
    ("no_batch_waits_for_ever", batched() | {"batches": []}),
    ("batches_count_their_members", batched("b.0")),
    ("batches_count_their_members", batched(counted={"codes": {0: 2}})),
    ("batches_count_their_members", batched(counted={"completed": 2})),
    ("batches_count_their_members", batched(counted={"total": 2})),
    ("batches_count_their_members", batched(members=2)),
    ("callbacks_come_once", batched("b:then")),
    ("callbacks_come_once", batched("b:ended")),
    ("callbacks_come_once", batched(callbacks={"then": "second"})),
    ("callbacks_come_once", batched(counted={"state": "abandoned"})),
    ("callbacks_come_once", batched() | {"executions": [CALL._replace(given={"then": "1 of 2, 1 results"})]}),
    ("callbacks_come_once", {"followed": [Followed("a", (), {"then": "default"})]}),
    ("chains_go_on_link_by_link", batched() | {"followed": [A_CHAIN]}),
    ("chains_go_on_link_by_link", {"executions": [CALL._replace(id="a+2", given={"links": "2"})]}),
    ("messages_of_a_call_end_as_it_says", bulk(stored={"result": "a-2, attempt 1"})),
    ("messages_of_a_call_end_as_it_says", bulk(stored={"result": None})),
    ("messages_of_a_call_end_as_it_says", bulk(stored={"state": "dead", "last_error": "Fatal: no luck"}, **FAILED)),
    (
        "messages_of_a_call_end_as_it_says",
        {
            "executions": [CALL._replace(handler="bulk"), CALL._replace(handler="bulk", attempt=2, started=LATE)],
            "stored": [HELD._replace(handler="bulk", attempts=2)],
        },
    ),
    ("what_was_cancelled_stays_so", {"operations": [ASKED, ASKED._replace(what="cancel")]}),
    ("what_was_cancelled_stays_so", {"stored": [HELD._replace(state="cancelled", places=("cancelled",))]}),
    ("ends_have_their_reasons", {"stored": [BURIED]}),
    ("ends_have_their_reasons", {"stored": [BURIED._replace(attempts=3, crashes=SPENT)]}),
    ("places_are_not_exceeded", of_two({}, {}, concurrency_key="p")),
    ("messages_of_an_order_key_begin_one_after_the_other", of_two({}, {}, order_key="o")),
    (
        "messages_of_an_order_key_begin_one_after_the_other",
        of_two({"started": LATE, "ended": LATE + 9}, {}, order_key="o", answered=ASKED.invoked),
    ),
    (
        "messages_of_an_order_key_begin_one_after_the_other",
        {
            "executions": [
                CALL._replace(ended=CALL.started + 1),
                CALL._replace(id="a-2", started=SOON, ended=SOON + 1),
                COMPLETING._replace(started=LATE, ended=LATE + 1),
            ],
            "operations": [ASKED._replace(order_key="o"), ASKED._replace(id="a-2", order_key="o")],
            "stored": [HELD._replace(attempts=2, fence=8), HELD._replace(id="a-2")],
            "queues": [Queue("default", {"completed": 2, "dead": 0}, {})],
        },
    ),
    ("a_paused_queue_hands_out_nothing", {"pauses": [("default", T - 1, T + 1)]}),
    ("the_last_payload_is_handled", replaced("d")),
    (
        "the_last_payload_is_handled",
        replaced("d") | {"executions": [], "stored": [BURIED]},
    ),
    ("what_is_replaced_begins_anew", replaced("e", found=1)),
    ("what_is_replaced_begins_anew", replaced("e", attempt=2)),
    (
        "nothing_is_early",
        replaced("e") | {"operations": [each._replace(due=T + 9) for each in replaced("e")["operations"]]},
    ),
    (
        "a_key_until_the_start_is_held_no_longer",
        {
            "operations": [
                ASKED,
                ASKED._replace(
                    id="b",
                    key_rule="s",
                    outcome="duplicate",
                    holder="a",
                    invoked=CALL.started + 1,
                    answered=CALL.started + 2,
                ),
            ]
        },
    ),
    ("what_costs_no_attempt_counts_for_none", two({"outcome": "PutOff"}, {})),
    ("what_is_skipped_is_not_handled", {"operations": [ASKED._replace(skips=True)]}),
    (
        "what_is_skipped_is_not_handled",
        {"operations": [ASKED._replace(skips=True)], "executions": [], "stored": [HELD._replace(result=1)]},
    ),
    ("batches_count_their_members", nested(outer={"total": 2, "completed": 2})),
    ("batches_count_their_members", nested(outer={"codes": {}, "completed": 0})),
    ("batches_count_their_members", nested(inner={"state": "closed"})),
    ("batches_count_their_members", nested(inner={"completed": 0, "dead": 1})),
    ("no_batch_waits_for_ever", nested(inner={"state": "closed"})),
    ("callbacks_come_once", nested("b:ended")),
    ("callbacks_come_once", nested("b.0:batch:ended")),
    ("callbacks_come_once", nested(results=1)),
    ("callbacks_come_once", nested(inner={"state": "abandoned"})),
    ("a_paused_handler_is_not_called", {"handler_pauses": [HandlerPause("plain", T - 1001, T + 1, frozenset({7}))]}),
    ("a_paused_handler_is_not_called", {"handler_pauses": [HandlerPause("plain", T - 999, T + 1, frozenset())]}),
    ("a_period_counts_from_the_end", recurring(PERIOD_MS - 1)),
    ("quotas_hold", of_two({}, {}) | {"quota": ("default", 1, 10)}),
    ("exit_codes_are_those_of_the_contract", {"commands": [LAUNCH._replace(code=1)]}),
    ("nothing_is_printed_but_warnings", {"commands": [LAUNCH._replace(code=75, errors="Traceback (most recent")]}),
    ("exit_codes_are_those_of_the_contract", {"commands": [IN_SITE._replace(errors=IN_SITE.errors + "OSError")]}),
    ("nothing_is_printed_but_warnings", {"commands": [IN_SITE._replace(output="hello")]}),
    ("nothing_is_printed_but_warnings", {"commands": [LAUNCH._replace(output="hello")]}),
    ("nothing_is_printed_but_warnings", {"commands": [LAUNCH._replace(errors="warning of a library")]}),
]


def test_nothing_is_held_against_a_history_as_it_should_be() -> None:
    assert violations(history()) == []


@pytest.mark.parametrize(("invariant", "changes"), DOCTORED, ids=[f"{n}-{d[0]}" for n, d in enumerate(DOCTORED)])
def test_a_doctored_history_violates_its_invariant(invariant: str, changes: dict[str, Any]) -> None:
    names = {line.partition(":")[0] for line in violations(history(**changes))}
    assert invariant in names


def test_every_invariant_is_tried() -> None:
    tried = {invariant for invariant, _ in DOCTORED}
    known: dict[str, Callable[..., Any]] = {each.__name__: each for each in INVARIANTS}
    assert tried == known.keys()
    numbers = [int((each.__doc__ or "").partition(".")[0]) for each in INVARIANTS]
    assert sorted(numbers) == list(range(1, len(INVARIANTS) + 1))


@pytest.mark.parametrize(
    "changes",
    [
        two({"outcome": "Yield"}, {"attempt": 1}) | {"stored": [HELD]},
        two({"fence": 6, "ended": LATE + 60_000}, {"fence": 7}),
        two({"fence": 6, "ended": None, "outcome": None}, {"fence": 7, "pid": 2}),
        two({"fence": 8}, {"fence": 7}) | {"stored": [HELD._replace(attempts=2)], "leases": OF_TWO_GROUPS},
        of_two({"started": LATE, "ended": LATE + 1, "attempt": 2}, {}),
        {"executions": [COMPLETING, CALL._replace(started=LATE, ended=None, outcome=None)], "resumed": [LATE - 9]}
        | SECOND,
        two({}, {"started": CALL.started + 40_000}) | {"resumed": [CALL.started - 9_000_000]},
        recurred(MOST_CAUGHT_UP, gap=2, skipped=2),
        {"operations": [ASKED._replace(due=T + 9), ASKED._replace(what="reschedule", outcome="refused", due=T)]},
        {"operations": [ASKED, ASKED._replace(what="redrive", outcome="refused")]} | REDRIVEN,
        {"commands": [IN_SITE]},
        {"commands": [BEFORE_MAIN]},
        {
            "executions": [CALL._replace(attempt=4, ended=None, outcome=None)],
            "stored": [BURIED._replace(attempts=4, crashes=SPENT)],
            "queues": [Queue("default", {"completed": 0, "dead": 1}, {})],
        },
        replaced("e"),
        replaced("e")
        | two({"outcome": "ValueError", "digest": "e", "started": T * 1000 - 6500}, {"attempt": 2, "digest": "e"}),
        {"operations": [ASKED._replace(skips=True)], "executions": []},
        two({"outcome": "PutOff"}, {"attempt": 1, "started": LATE + 1_000_000, "ended": LATE + 1_000_001})
        | {"stored": [HELD]},
        {"handler_pauses": [HandlerPause("plain", T - 999, T + 1, frozenset({7}))]},
        recurring(PERIOD_MS),
        batched(),
        batched(counted={"state": "expired"}, expires=True, callbacks={"then": "default", "ended": "default"}),
        batched() | {"miscounted": {"b"}, "counted": []},
        nested(),
        nested(outer={"total": 2, "completed": 2}) | {"miscounted": {"b.0:batch"}},
        signalled(["x"], None, "x"),
        signalled(["x"], "None", "None"),
        bulk(),
        bulk(stored={"state": "dead", "places": ("dead_letters",), "last_error": "Fatal: no luck with a"}, **FAILED),
        bulk(stored={"state": "dead", "places": ("dead_letters",), "handler": "bulk_once", "last_error": SKIPPED}),
        {
            "executions": [DIED_TOGETHER, CALL._replace(handler="bulk_isolated", pid=2, started=LATE, ended=LATE + 1)],
            "stored": [HELD._replace(handler="bulk_isolated")],
        },
        {
            "executions": [DIED_TOGETHER],
            "operations": [
                ASKED._replace(handler="bulk_isolated"),
                ASKED._replace(handler="bulk_isolated", what="cancel", invoked=LATE, answered=LATE + 1),
            ],
            "stored": [
                HELD._replace(handler="bulk_isolated", state="cancelled", places=("cancelled",), attempts=0, crashes=1)
            ],
            "queues": [Queue("default", {"cancelled": 1}, {})],
        },
        two({"handler": "bulk", "outcome": "ok"}, {"handler": "bulk"})
        | {"stored": [HELD._replace(handler="bulk", attempts=2)], "resumed": [CALL.started - 9_000_000]},
    ],
    ids=[
        "it yielded",
        "its reservation was lost while it went on",
        "its process died",
        "another group went on",
        "its program was killed before it had recorded the first call",
        "its launch was suspended before the first call",
        "its launch was suspended between its reservation and the first call",
        "more was missed than is made up for",
        "its reschedule was carried out, and refused when it was repeated",
        "the first reply to redriving it was lost",
        "it was interrupted while what is installed was imported",
        "it was interrupted while what -m needs was imported",
        "its process died in the last attempt",
        "it was replaced before it began",
        "it was replaced, and began before the reply came",
        "a hook skipped it",
        "it was put off",
        "its launch was told a moment ago that its handler is paused",
        "its period counts from the end of the one before",
        "a batch",
        "a batch expired, and its member was completed later",
        "the server lost a batch",
        "a batch within a batch",
        "the server lost a part of a batch within a batch",
        "a signal came while it slept",
        "a signal came when it had waited in vain",
        "it was called with another",
        "it was called with another, and failed alone",
        "its process died before its end in a call was settled, at most once",
        "the process of its call died, and it was called alone",
        "the process of its call died, and it was cancelled before it was called alone",
        "its machine slept between its reservation and the call",
    ],
)
def test_what_may_happen_is_no_violation(changes: dict[str, Any]) -> None:
    assert violations(history(**changes)) == []


@pytest.mark.parametrize(("faults", "late"), [([], 1), (["kill isolated process"], 0)])
def test_the_order_of_messages_whose_process_was_killed_while_it_started_is_unknown(
    faults: list[str], late: int
) -> None:
    known = history(**of_two({"started": LATE}, {}, handler="apart"), faults=faults)
    assert len([*first_in_is_first_out(known)]) == late


def test_a_batch_within_a_batch_is_lost_with_a_part_of_its_callback() -> None:
    assert "b.0:batch" in history(undone={("default", "b.0:batch:ended")}).lost()


def test_a_checkpoint_that_a_resumed_launch_had_read_before_is_not_lost() -> None:
    resumed = two({"attempt": 2, "kept": 2}, {"attempt": 1, "found": 1})  # its reservation is long lost
    assert "checkpoints_are_kept" not in {line.partition(":")[0] for line in violations(history(**resumed))}
