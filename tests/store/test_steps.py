"""What a launch tells a step of messages that are completed together is what it would tell of each of them alone."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pollconsumer.store.records import rows
from pollconsumer.store.records.reservations import CommonFields, Reservation
from pollconsumer.store.records.steps import Completion, CompletionEffects, QueueStep

IDS = ["a", "Z", "aZ", "a@Z", "daily@2026-01-01T00:00:00Z", "a@b@1999-12-31T23:59:59.500Z", "old@1969-01-01T00:00:00Z"]
EXTRAS: list[CompletionEffects | None] = [
    None,
    (1000, b"1", b"", b""),
    (1000, b"[]", b"", b""),
    (2000, b"1", b"", b""),
    (2000, b"", b"follow-ups", b""),
    (0, b"", b"follow-ups", b""),
    (1000, b"1", b"follow-ups", b""),
    (1000, b"1", b"", b"end"),
    (1000, b"", b"", b"end"),
    (1000, b"2", b"", b"another end"),
    (1000, b"1", b"follow-ups", b"end"),
]
LOTS = [
    CommonFields("default", bytes([flags]) + bytes(rows.HANDLER - 1) + handler, "", b"", 0, 1_700_000_000_000, 100.0)
    for flags, handler in (
        (0, b"x"),
        (0, b"y"),
        (rows.UNIQUE_KEY, b"x"),
        (rows.UNIQUE_KEY | rows.CONCURRENCY_KEY, b"x"),
    )
]
LASTING = st.sampled_from([0.0, 0.0001, 0.001, 0.7])


@st.composite
def completions(draw: st.DrawFn) -> list[Completion]:
    now, done = 100.0, list[Completion]()
    for number in range(draw(st.integers(1, 12))):
        reservation = Reservation(draw(st.sampled_from(LOTS)), draw(st.sampled_from(IDS)).encode(), b"{}")
        reservation.unique_key, reservation.concurrency_key = b"u%d" % number, b"c%d" % number
        started = now + draw(LASTING)
        now = started + draw(LASTING)
        done.append((reservation, started, now, draw(st.sampled_from(EXTRAS))))
    return done


@given(st.lists(completions(), min_size=1, max_size=3))
def test_together_as_alone(parts: list[list[Completion]]) -> None:
    together, alone, occurred = QueueStep("default"), list[Any](), set[bytes]()
    for done in parts:
        together.complete(done)
        for each in done:
            queue_step = QueueStep("default")
            queue_step.complete([each])
            alone += _told(queue_step)
            occurred |= queue_step.occurred
    assert (_told(together), together.occurred) == (alone, occurred)


def test_results_of_messages_in_a_row_are_one_entry() -> None:
    queue_step, results = QueueStep("default"), [b"1", b"2", b"3", b"4"]
    each = [(Reservation(LOTS[0], result, b"{}"), 100.0, 100.0, (1000, result, b"", b"")) for result in results]
    queue_step.complete(each[:3])
    queue_step.complete(each[3:])
    assert queue_step.group_effects == [(1, 1000, b"", b"", results, 0, b"")]


def _told(queue_step: QueueStep) -> list[Any]:
    """Of each message: its rows, its id and keys; its result and the ms to keep it; what else it leaves."""
    told = list[Any]()
    for row, new_row, ids, keys in queue_step.groups:
        kinds = [keys[at : at + len(ids)] for at in range(0, len(keys), len(ids))]
        told += [[row, new_row, *each, None, None, b""] for each in zip(ids, *kinds, strict=True)]
    for first, ms, outgoing, which, results, members, end in queue_step.group_effects:
        told[first - 1][-2] = outgoing, which
        assert len(results) <= 1 or not (outgoing or which)
        assert not members or len(results) in (0, members)
        for number, result in enumerate(results, first):
            told[number - 1][-3] = ms, result
        for number in range(first, first + members):
            told[number - 1][-1] = end
    assert queue_step.completed == len(told)
    return [[*each[:-2], each[-2] or (b"", b""), each[-1]] for each in told]


def test_of_messages_that_end_in_one_millisecond_each_keeps_when_it_started() -> None:
    """Several slots: one started before another, and ended after it."""
    common = CommonFields("mail", bytes(62), "send", b"", 0, 0, 0.0)
    brief, long, last = (Reservation(common, name, b"{}") for name in (b"brief", b"long", b"last"))
    queue_step = QueueStep("mail")
    queue_step.complete([(brief, 5.0001, 5.0002, None), (long, 1.0, 5.0003, None), (last, 5.0003, 5.0004, None)])
    started = [
        (ids, int.from_bytes(new_row[rows.STARTED : rows.ENDED], "big")) for _, new_row, ids, _ in queue_step.groups
    ]
    assert started == [([b"brief"], 5000), ([b"long"], 1000), ([b"last"], 5000)]
