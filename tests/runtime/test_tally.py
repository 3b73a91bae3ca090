"""What a launch settles is in the totals, by queue, handler and outcome, with how long it waited."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pollconsumer.core.histogram import Histogram
from pollconsumer.runtime.consuming.tally import EVERY, Tally, _OfQueue
from pollconsumer.store import rows
from pollconsumer.store.inspector import Inspector
from pollconsumer.store.reservations import Share
from pollconsumer.store.rows import HANDLER
from pollconsumer.store.totals import LAST_BUCKET
from pollconsumer.store.totals_reading import Spans, Totals
from tests.conftest import NAMESPACE
from tests.runtime.test_exchange import Exchanging
from tests.store.acting import chosen, die, expire, finish, message, park, release, retry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pollconsumer.runtime.launch.held import Launch
    from pollconsumer.store.reservations import Reservation


class Counting:
    def __init__(self) -> None:
        self.exchanging = Exchanging()
        self.clock = self.exchanging.clock
        self.launch, self.store = self.exchanging.launch, self.exchanging.launch.store
        self.measured: dict[str, Histogram] = {}
        self.tally = Tally(self.launch, {"handler"}, self.measured)

    def reserve(self, *names: str, handler: str = "handler", delay: float = 0.0) -> list[Reservation]:
        due = int(delay * 1000) or None
        self.store.enqueue([message(name, handler=handler, delay=due) for name in names])
        if delay:
            self.pass_time(delay + 0.25)
            self.store.promote(self.launch.holder, "mail", 9)
        else:
            self.pass_time(0.5)
        now = self.launch.clock
        return self.store.step(self.launch.holder, [Share("mail", len(names))], lasts_ms=60_000, now=now).reserved

    def pass_time(self, seconds: float) -> None:
        self.clock.wait(seconds, lambda: False)

    def totals(self) -> Totals:
        return Inspector(self.store.wire, NAMESPACE).totals()


@pytest.fixture
def counting() -> Iterator[Counting]:
    counting = Counting()
    yield counting
    counting.exchanging.opener.close()


def test_each_outcome_is_counted(counting: Counting) -> None:
    a, b, c, d, e, f, g = counting.reserve(*"abcdefg")
    share = Share("mail")
    share.complete([finish(a), finish(b)])
    share.settlements += [retry(c), die(d), release(e), park(f), expire(g)]
    counting.tally.settled([share], [])
    counting.tally.died("mail", "handler")
    counting.tally.send()
    outcomes = {"completed": 2, "retried": 1, "dead": 2, "released": 1, "parked": 1, "expired": 1}
    assert counting.totals().settled == {("mail", "handler", name): count for name, count in outcomes.items()}
    assert counting.totals().waits == {"mail": Spans(2.0, {9: 4})}  # half a second each, of those handled


def test_the_digest_behind_the_name_of_a_handler_is_no_part_of_it(counting: Counting) -> None:
    counting.store.enqueue([chosen("a", b'{"x":"%b"}' % (b"x" * 2000))])
    (a,) = counting.reserve("b")[:1]
    share = Share("mail")
    share.complete([finish(a)])
    assert b"\0" in a.row[HANDLER:]
    counting.tally.settled([share], [])
    counting.tally.send()
    assert counting.totals().settled == {("mail", "handler", "completed"): 1}


def test_what_another_launch_had_is_not_counted(counting: Counting) -> None:
    a, b, c = counting.reserve(*"abc")
    share = Share("mail")
    share.complete([finish(a), finish(b)])
    share.settlements.append(die(c))
    counting.tally.settled([share], [b"b", b"c"])
    counting.tally.send()
    assert counting.totals().settled == {("mail", "handler", "completed"): 1}


def test_names_of_handlers_that_nobody_has_do_not_fill_the_store(counting: Counting) -> None:
    (a,) = counting.reserve("a", handler="x" * 90)
    share = Share("mail")
    share.settlements.append(park(a))
    counting.tally.settled([share], [])
    counting.tally.send()
    assert counting.totals().settled == {("mail", "", "parked"): 1}


def test_lateness_is_that_of_the_first_attempt_at_a_message_with_a_due_time(counting: Counting) -> None:
    (at_once,) = counting.reserve("a")
    (late,) = counting.reserve("b", delay=2.0)
    share = Share("mail")
    share.complete([finish(at_once), finish(late)])
    counting.tally.settled([share], [])
    again = Share("mail")
    late.row = late.row[:5] + b"\2" + late.row[6:]
    again.complete([finish(late)])
    counting.tally.settled([again], [])
    counting.tally.send()
    assert counting.totals().lateness == {"mail": Spans(0.25, {8: 1})}


def test_durations_are_added_as_they_were_measured_each_once(counting: Counting) -> None:
    counting.measured["handler"] = Histogram()
    counting.measured["handler"].add_all([0.0005, 0.0011, 0.003])
    counting.tally.send()
    counting.tally.send()
    counting.measured["handler"].add_all([0.003, 1e6])
    counting.tally.send()
    (found,) = counting.totals().durations.values()
    assert found.counts == {0: 1, 1: 1, 2: 2, LAST_BUCKET: 1}
    assert found.total == pytest.approx(1e6 + 0.0076)


def test_counts_are_sent_from_time_to_time_and_not_with_each_step(counting: Counting) -> None:
    for name in "ab":
        (reservation,) = counting.reserve(name)
        share = Share("mail")
        share.complete([finish(reservation)])
        counting.tally.settled([share], [])
        assert counting.totals().settled == ({} if name == "a" else {("mail", "handler", "completed"): 2})
        counting.pass_time(EVERY)


def test_nothing_is_sent_if_nothing_was_counted(counting: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting.launch.leases, "count", pytest.fail)
    counting.tally.send()


MOMENT = 1_790_000_000_000
ROWS = st.builds(
    lambda attempts, generation, reserved, due, ready, handler: (
        rows.BLANK[: rows.ATTEMPTS]
        + attempts.to_bytes(2, "big")
        + bytes([0, generation])
        + bytes(6)
        + rows.pack6(MOMENT + reserved)
        + bytes(rows.DUE - rows.STARTED)
        + (rows.pack6(MOMENT + due) if due else rows.NEVER)
        + rows.pack6(MOMENT + ready)
        + bytes(rows.HANDLER - rows.FAILED)
        + handler
    ),
    st.sampled_from([1, 1, 2, 257]),
    st.sampled_from([0, 0, 1]),
    st.integers(0, 100_000),
    st.just(0) | st.integers(1, 100_000),
    st.integers(0, 100_000),
    st.sampled_from([b"mail", b"send", b"report", b"mail\0digested"]),
)


@given(st.lists(st.tuples(ROWS, st.integers(1, 3)), max_size=20), st.sets(st.integers(0, 30)), st.booleans())
def test_rows_are_counted_together_as_they_are_one_by_one(
    runs: list[tuple[bytes, int]], lost: set[int], alone: bool
) -> None:
    share, together, one_by_one, number = Share("mail"), _OfQueue(), _OfQueue(), 0
    stale = [b"%d" % each for each in lost if not alone]
    for row, length in runs:
        ids = [b"%d" % (number + at) for at in range(1 if alone else length)]
        share.runs.append((row, row, ids))
        share.completed += len(ids)
        number += len(ids)
        for name in ids:
            if name not in stale:
                one_by_one.completed_alike(row, 1)
    tally = Tally(cast("Launch", SimpleNamespace(clock=lambda: 0.0)), (), {})
    tally._queues["mail"] = together  # noqa: SLF001  what is sent of it is a sum
    tally.settled([share], stale)
    known = {"mail", "report"}
    assert together.increments("mail", known) == one_by_one.increments("mail", known)
    assert together.outcomes == one_by_one.outcomes
