"""The loop decides as its source does; and what was added to it keeps its promises."""

from __future__ import annotations

import hashlib
import heapq
import random
import re
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from pollconsumer.core.choices import HandOff, Loop
from pollconsumer.core.errors import LeaseLost
from pollconsumer.core.events import WindowTooShort
from pollconsumer.core.window import StopReason
from pollconsumer.runtime import consumer
from pollconsumer.runtime.session.exchange import TRIM_EVERY
from pollconsumer.runtime.session.pace import MAX_PAGE_MESSAGES
from tests.runtime.virtual import TICK, Arrival, Arrivals, Clock, Settings, VirtualLaunch, whole_ticks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pollconsumer.store.records.reservations import Claim
    from pollconsumer.store.records.steps import QueueStep, Stepped

Decision = tuple[str | int | float, ...]


def article(settings: Settings, script: Sequence[Arrival]) -> list[Decision]:
    """What the source's recursion decides.

    Source: Mark Seemann, "Faking a continuously Polling Consumer with scheduled tasks", 2014, transcribed literally:
    the functions are his, with the measured durations as their argument and the clock as an effect.
    """
    now = clock = Clock()
    queue = Arrivals(script)
    decided: list[Decision] = []
    stop_before, idle_time = settings.stop_before, settings.idle_time
    estimated_duration, tolerance_factor = settings.estimated_duration, settings.tolerance_factor

    def calculate_average(durations: list[float]) -> float:
        return estimated_duration if not durations else sum(durations) / len(durations)

    def dequeue() -> int | None:
        taken = queue.take(now(), 1)
        return taken[0] if taken else None

    def handle(message: int) -> float:
        decided.append(("handle", message, now()))
        started = now()
        clock.advance(script[message].duration)
        return now() - started

    def should_idle() -> bool:
        return now() + idle_time < stop_before

    def idle() -> None:
        decided.append(("idle", now()))
        clock.advance(idle_time)

    def handle_until_timed_out(durations: list[float]) -> StopReason:
        average_duration = calculate_average(durations)
        margin = average_duration * tolerance_factor
        if now() + margin < stop_before:
            message = dequeue()
            if message is not None:
                duration = handle(message)
                return handle_until_timed_out([duration, *durations])
            if should_idle():
                idle()
                return handle_until_timed_out(durations)
            return StopReason.NO_TIME_TO_IDLE
        return StopReason.NO_TIME_TO_HANDLE

    reason = handle_until_timed_out([])
    return [*decided, ("stop", now(), reason)]


def ticks(least: int, most: int) -> st.SearchStrategy[float]:
    return st.integers(least, most).map(lambda n: n * TICK)


def arrivals(*outcomes: str) -> st.SearchStrategy[list[Arrival]]:
    arrival = st.builds(Arrival, ticks(0, 6000), ticks(0, 12) | ticks(0, 1500), st.sampled_from(outcomes))
    return st.lists(arrival, max_size=40).map(lambda found: sorted(found, key=lambda arrival: arrival.at))


HANDLED = arrivals("completed", "retry")
ANY = arrivals("completed", "completed", "retry", "dead", "park")
PLAIN = st.builds(
    Settings,
    stop_before=ticks(1, 5000),
    idle_time=ticks(40, 2000),
    estimated_duration=ticks(0, 1000),
    tolerance_factor=st.integers(0, 24).map(lambda n: n / 4),
    loop=st.just(Loop.ARTICLE),
)
EXTENDED = st.builds(
    Settings,
    stop_before=ticks(1, 5000),
    idle_time=ticks(40, 2000),
    estimated_duration=ticks(0, 1000),
    tolerance_factor=st.integers(0, 24).map(lambda n: n / 4),
    min_margin=ticks(0, 1000),
    slots=st.integers(1, 4),
    learned=st.none() | st.tuples(ticks(0, 500), st.integers(1, 300)),
    overrun_target=st.sampled_from([0.01, 0.1, 1.0]),
    waking=st.booleans(),
    max_messages=st.none() | st.integers(1, 30),
    loop=st.sampled_from(Loop),
)

CASES = st.tuples(EXTENDED, ANY)


@pytest.fixture(autouse=True, scope="module")
def exact() -> Iterator[None]:
    with whole_ticks():
        yield


@pytest.mark.crossing
@hypothesis_settings(max_examples=250)
@given(PLAIN, HANDLED)
def test_the_loop_decides_like_the_recursion_of_the_article(settings: Settings, script: list[Arrival]) -> None:
    launch = VirtualLaunch(settings, script)
    launch.handle_until_stopped()
    assert launch.decisions == article(settings, script)


@given(st.lists(ticks(0, 8), min_size=1, max_size=40), PLAIN)
def test_it_does_so_for_messages_reserved_ahead_in_pages(durations: list[float], settings: Settings) -> None:
    script = [Arrival(0.0, duration) for duration in durations]
    launch = VirtualLaunch(settings, script)
    launch.handle_until_stopped()
    assert launch.decisions == article(settings, script)


def test_each_branch_of_the_recursion_is_taken() -> None:
    idles = Settings(4.0, idle_time=1.0, estimated_duration=0.5, tolerance_factor=2.0, loop=Loop.ARTICLE)
    script = [Arrival(0.0, 0.5), Arrival(0.75, 0.25)]
    launch = VirtualLaunch(idles, script)
    launch.handle_until_stopped()
    assert launch.decisions == [
        ("handle", 0, 0.0),
        ("idle", 0.5),
        ("handle", 1, 1.5),
        ("idle", 1.75),
        ("idle", 2.75),
        ("stop", 3.75, StopReason.NO_TIME_TO_HANDLE),
    ]
    no_time = VirtualLaunch(Settings(4.0, 3.75, 0.5, 1.0, loop=Loop.ARTICLE), [Arrival(0.0, 0.25)])
    no_time.handle_until_stopped()
    assert no_time.decisions == [("handle", 0, 0.0), ("stop", 0.25, StopReason.NO_TIME_TO_IDLE)]


def test_both_uses_of_the_inequality_are_strict() -> None:
    exactly = VirtualLaunch(Settings(1.0, 0.25, 1.0, 1.0, loop=Loop.ARTICLE), [Arrival(0.0, 0.25)])
    assert exactly.handle_until_stopped() is StopReason.NO_TIME_TO_HANDLE
    assert exactly.started == []
    idle = VirtualLaunch(Settings(1.0, 1.0, 0.25, 1.0, loop=Loop.ARTICLE), [])
    assert idle.handle_until_stopped() is StopReason.NO_TIME_TO_IDLE
    assert idle.waits == []


# What was added


@given(CASES)
def test_nothing_starts_without_the_margin_before_the_end_of_the_window(case: tuple[Settings, list[Arrival]]) -> None:
    settings, script = case
    launch = VirtualLaunch(settings, script)
    launch.consumer.run()
    for _, at, margin in launch.started:
        assert at + margin < settings.stop_before
        assert margin >= settings.min_margin


@given(CASES)
def test_no_wait_outlasts_the_window(case: tuple[Settings, list[Arrival]]) -> None:
    settings, script = case
    launch = VirtualLaunch(settings, script)
    launch.consumer.run()
    assert all(until <= settings.stop_before for _, until in launch.waits)


@given(CASES)
def test_what_was_reserved_is_settled_once_and_released_uncharged_where_it_was_not_started(
    case: tuple[Settings, list[Arrival]],
) -> None:
    settings, script = case
    launch = VirtualLaunch(settings, script)
    launch.consumer.run()
    started = {n for n, _, _ in launch.started}
    assert set(launch.store.settled) == launch.store.reserved
    assert started <= launch.store.reserved
    for n, (kind, attempts) in launch.store.settled.items():
        if n in started or (script[n].outcome in ("dead", "park") and kind != "release"):
            assert (kind, attempts) == (script[n].outcome, 0 if kind == "park" else 1)
        else:
            assert (kind, attempts) == ("release", 0)
    assert launch.store.head == sorted(launch.store.head)


@given(CASES)
def test_messages_start_once_and_in_their_order(case: tuple[Settings, list[Arrival]]) -> None:
    settings, script = case
    launch = VirtualLaunch(settings, script)
    launch.consumer.run()
    order = [n for n, _, _ in launch.started]
    assert order == [n for n, arrival in enumerate(script) if arrival.outcome in ("completed", "retry")][: len(order)]
    assert settings.max_messages is None or len(order) <= settings.max_messages


@given(CASES)
def test_a_message_starts_the_instant_that_it_is_there_and_a_slot_is_free(case: tuple[Settings, list[Arrival]]) -> None:
    settings, script = case
    launch = VirtualLaunch(replace(settings, waking=True), script)
    launch.consumer.run()
    free = [0.0] * settings.slots
    for n, at, _ in launch.started:
        assert at == max(script[n].at, heapq.heappop(free))
        heapq.heappush(free, at + script[n].duration)


@given(st.lists(ticks(0, 4500), max_size=20), ticks(40, 5000), ticks(0, 500))
def test_a_message_is_started_until_the_margin_begins_however_long_a_launch_may_idle(
    instants: list[float], idle_time: float, margin: float
) -> None:
    settings = Settings(4.5, idle_time, estimated_duration=0.0, tolerance_factor=0.0, min_margin=margin, waking=True)
    script = [Arrival(at, 0.0) for at in sorted(instants)]
    launch = VirtualLaunch(settings, script)
    assert launch.handle_until_stopped() is StopReason.NO_TIME_TO_HANDLE
    assert [at for _, at, _ in launch.started] == [each.at for each in script if each.at + margin < 4.5]
    assert launch.clock.now == 4.5 - margin


@pytest.mark.parametrize("lost", [False, True], ids=["a signal", "the loss of the lease"])
def test_a_message_that_ends_a_wait_is_not_handled_after(lost: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    brief = Settings(4.5, 5.0, 0.0, 1.0, min_margin=0.25, learned=(TICK, 300), waking=True)
    launch = VirtualLaunch(brief, [Arrival(0.5, 0.0), Arrival(1.0, 0.0)])

    def is_over() -> bool:
        return launch.clock.now >= 1.0

    def check_lease() -> bool:
        if is_over():
            raise LeaseLost("lease lost", None, "by a test")
        return False

    if lost:
        monkeypatch.setattr(launch, "lease_is_trusted", lambda: not is_over())
        monkeypatch.setattr(launch, "check_lease", check_lease)
    else:
        monkeypatch.setattr(launch, "interrupted", is_over)
    with pytest.raises(LeaseLost) if lost else nullcontext():
        assert launch.consumer.run() is StopReason.INTERRUPTED
        assert launch.store.head == [1]
    assert [n for n, *_ in launch.started] == [0]


def test_a_window_that_closes_on_a_batch_gives_the_rest_back() -> None:
    script = [Arrival(0.0, TICK), Arrival(0.0, TICK), *[Arrival(0.0, 0.5)] * 4]
    launch = VirtualLaunch(Settings(0.75, 0.25, TICK, 1.0), script)
    launch.consumer.run()
    kinds = [kind for kind, _ in launch.store.settled.values()]
    assert kinds.count("release") > 1
    assert launch.store.head == sorted(launch.store.head)
    assert kinds.count("completed") == len(launch.started) < len(script)


def test_finished_messages_are_trimmed_with_a_step_once_so_many_are_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    launch = VirtualLaunch(Settings(60.0, 5.0, 0.5, 1.0, until_empty=True), [Arrival(0.0, 0.0)] * 1200)
    step, completed, trimmed = launch.store.step, [0], list[int]()

    def seen(claim: Claim, queue_steps: Sequence[QueueStep], **options: Any) -> Stepped:
        trimmed.extend(sum(completed) for queue_step in queue_steps if queue_step.trims)
        completed.extend(queue_step.completed for queue_step in queue_steps)
        return step(claim, queue_steps, **options)

    monkeypatch.setattr(launch.store, "step", seen)
    monkeypatch.setattr(launch.store.maintenance, "trim", None)  # not a round trip of its own
    launch.handle_until_stopped()
    assert sum(completed) == 1200
    between = [later - earlier for earlier, later in pairwise([0, *trimmed])]
    assert len(between) > 1
    assert all(TRIM_EVERY <= each < TRIM_EVERY + MAX_PAGE_MESSAGES for each in between)


@pytest.mark.parametrize(("size", "most"), [(10, 192), (8000, 131), (300_000, 3), (2_000_000, 1)])
def test_as_many_are_reserved_as_have_a_megabyte_of_payload_if_they_are_as_large_as_the_last(
    size: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = VirtualLaunch(Settings(60.0, 5.0, 0.5, 1.0, learned=(1e-5, 9)), [Arrival(0.0, 0.0)] * 230)
    step, claims = launch.store.step, list[int]()

    class Enough(Exception):
        pass

    def seen(claim: Claim, queue_steps: Sequence[QueueStep], **options: Any) -> Stepped:
        claims.extend(queue_step.wanted for queue_step in queue_steps)
        if len(claims) > 1:
            raise Enough
        stepped = step(claim, queue_steps, **options)
        for first in stepped.reserved[:1]:
            first.payload = first.payload.ljust(size)
        return stepped

    monkeypatch.setattr(launch.store, "step", seen)
    with pytest.raises(Enough):
        launch.handle_until_stopped()
    assert claims == [32, most]


@pytest.mark.parametrize("slots", [1, 4])
def test_all_of_a_page_is_measured_though_slots_take_messages_of_it_meanwhile(
    slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(60.0, 5.0, 0.5, 1.0, min_margin=1.0, slots=slots, learned=(0.001, 9), until_empty=True)
    launch = VirtualLaunch(settings, [Arrival(0.0, 0.001)] * 100)
    measured = list[int]()
    monkeypatch.setattr(launch.consumer._pace, "measure", lambda page: measured.append(len(page)))  # noqa: SLF001
    launch.handle_until_stopped()
    assert len(launch.started) == 100
    assert len(measured) > 1
    assert sum(measured) == 100


@pytest.mark.parametrize("slots", [1, 4])
@pytest.mark.parametrize(
    ("taken_in_at", "handled", "reason"),
    [(3.0, 2, StopReason.EMPTY), (99.0, 2, StopReason.NO_TIME_TO_HANDLE), (0.0, 1, StopReason.EMPTY)],
)
def test_a_queue_counts_as_empty_once_what_was_spooled_is_taken_in_and_is_served_meanwhile(
    taken_in_at: float, handled: int, reason: StopReason, slots: int
) -> None:
    settings = Settings(10.0, 5.0, 0.5, 1.0, slots=slots, until_empty=True, taken_in_at=taken_in_at)
    launch = VirtualLaunch(settings, [Arrival(0.0, 0.01), Arrival(2.0, 0.01)])
    assert launch.handle_until_stopped() is reason
    assert len(launch.started) == handled
    assert all(at < 2.1 for _, at, _ in launch.started)


def test_an_average_learned_by_earlier_launches_stands_in_for_the_estimate() -> None:
    settings = Settings(10.0, 0.25, estimated_duration=9.0, tolerance_factor=2.0, learned=(0.5, 4))
    launch = VirtualLaunch(settings, [Arrival(0.0, 1.0)])
    assert launch.consumer.margin() == 1.0
    launch.handle_until_stopped()
    assert [n for n, _, _ in launch.started] == [0]
    assert launch.consumer.margin() == 2 * (4 * 0.5 + 1.0) / 5


def test_too_much_memory_seen_once_ends_the_launch_though_it_is_never_seen_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = [200]
    monkeypatch.setattr(consumer, "resident_bytes", lambda: seen.pop() if seen else 0)
    launch = VirtualLaunch(Settings(60.0, 5.0, 0.5, 1.0), [])
    launch.consumer.options = launch.consumer.options._replace(memory_limit=100)
    assert launch.handle_until_stopped() is StopReason.MEMORY
    assert launch.clock.now < 5.0


def test_too_much_memory_seen_while_a_message_is_dequeued_ends_the_launch_before_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = [200, 0]  # last to first: looked at before the message is dequeued, and while it is
    monkeypatch.setattr(consumer, "resident_bytes", lambda: seen.pop() if seen else 0)
    monkeypatch.setattr(consumer, "MEMORY_CHECK_EVERY", -1.0)
    launch = VirtualLaunch(Settings(60.0, 5.0, 0.5, 1.0, until_empty=True), [Arrival(0.0, 0.25)] * 3)
    launch.consumer.options = launch.consumer.options._replace(memory_limit=100)
    assert launch.handle_until_stopped() is StopReason.MEMORY
    assert launch.started == []


@pytest.mark.parametrize("waited", [True, False])
def test_a_launch_that_had_to_wait_for_its_lease_says_nothing_of_a_window_that_is_nearly_over(waited: bool) -> None:
    launch = VirtualLaunch(Settings(60.0, 1.0, 1.0, 1.0, min_margin=2.0), [], start=59.0)
    launch.waited = waited
    assert launch.consumer.run() is StopReason.NO_TIME_TO_HANDLE
    assert [type(event) for event in launch.events] == ([] if waited else [WindowTooShort])


@pytest.mark.parametrize(
    ("ago", "timeout", "reported"),
    [
        (57.0, 60.0, []),  # by a person, at second 57 of the minute
        (0.5, 60.0, [WindowTooShort(6.0, 3.5)]),  # a schedule whose launches are so near to each other
        (57.0, 5.0, [WindowTooShort(6.0, 5.0)]),  # at any second
        (-0.5, 60.0, [WindowTooShort(6.0, 3.0)]),
        (None, 60.0, [WindowTooShort(6.0, 3.0)]),
    ],
)
def test_a_launch_without_time_to_handle_reports_its_window_unless_it_only_came_late_for_it(
    ago: float | None, timeout: float, reported: list[WindowTooShort]
) -> None:
    launch = VirtualLaunch(Settings(60.0, 1.0, 1.0, 1.0, min_margin=6.0), [], start=57.0)
    launch.plan = launch.plan._replace(timeout=timeout, launched_ago=ago)
    assert launch.consumer.run() is StopReason.NO_TIME_TO_HANDLE
    assert launch.events == reported


@pytest.mark.parametrize("step_lasts", [0.25, 0.5, 1.0])
def test_no_wait_ends_before_it_begins_where_the_margin_begins_during_a_round_trip(step_lasts: float) -> None:
    settings = Settings(4.0, 2.0, 0.0, 0.0, min_margin=1.0, slots=2, waking=True)
    launch = VirtualLaunch(settings, [Arrival(0.0, 3.5)])
    step = launch.store.step

    def slow(*arguments: Any, **options: Any) -> Stepped:
        stepped = step(*arguments, **options)
        launch.clock.advance(step_lasts)
        return stepped

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch.store, "step", slow)
        assert launch.handle_until_stopped() is StopReason.NO_TIME_TO_HANDLE
    assert launch.waits
    assert all(begin <= end for begin, end in launch.waits)


@pytest.mark.parametrize(("lasts", "begun"), [(3.0, [0, 1]), (30.0, [0, 1, 2])])
def test_once_there_was_no_time_a_margin_that_shrinks_lets_nothing_begin_but_beside_what_lasts(
    lasts: float, begun: list[int]
) -> None:
    """The second message ends when half of the window is over, and shrinks the margin, which was the other half."""
    script = [Arrival(29.0, lasts), Arrival(29.5, 0.75), Arrival(30.125, 0.25)]
    launch = VirtualLaunch(Settings(60.0, 0.75, 60.0, 1.0, slots=3, waking=True), script)
    assert launch.consumer.run() is StopReason.NO_TIME_TO_HANDLE
    assert [n for n, *_ in launch.started] == begun
    assert all(at >= 39.0 for _, at, _ in launch.started[2:])


def called_at(launch: VirtualLaunch, instant: float) -> VirtualLaunch:
    """``launch``, under the baton, which a successor calls then."""
    launch.plan, step = launch.plan._replace(handoff=HandOff.BATON), launch.store.step

    def stepping(*arguments: Any, **options: Any) -> Stepped:
        stepped = step(*arguments, **options)
        stepped.successor = launch.clock.now >= instant
        return stepped

    launch.store.step = stepping  # type: ignore[method-assign]
    return launch


@pytest.mark.parametrize(
    ("lasts", "others", "ended"),
    [
        (5.0, [], 6.0),  # shorter than the grace: nothing begins after the call
        (30.0, [11.0, 15.0], 31.0),  # longer: others begin from then on, until it ends
        (300.0, [11.0, 15.0, 299.5], 301.0),
    ],
)
def test_a_launch_that_is_called_hands_over_when_what_is_in_flight_has_ended_and_others_begin_beside_what_lasts(
    lasts: float, others: list[float], ended: float
) -> None:
    script = [Arrival(1.0, lasts), *[Arrival(at, 0.25) for at in (3.0, 15.0, 299.5, 301.5)]]
    launch = VirtualLaunch(Settings(400.0, 0.75, 0.0, 0.0, slots=2, waking=True), script)
    assert called_at(launch, 2.0).consumer.run() is StopReason.HANDED_OVER
    begun = [at for _, at, _ in launch.started]
    assert begun[0] == 1.0
    assert len(begun) == 1 + len(others)
    for at, earliest in zip(begun[1:], others, strict=True):
        assert earliest <= at < earliest + 1.0
    assert ended <= launch.clock.now < ended + 1.0


@pytest.mark.parametrize("lasts", [0.25, 100.0])
def test_beside_what_began_after_the_call_nothing_begins_and_it_is_awaited(lasts: float) -> None:
    script = [Arrival(1.0, 30.0), Arrival(15.0, lasts), Arrival(40.0, 0.25)]
    launch = VirtualLaunch(Settings(400.0, 0.75, 0.0, 0.0, slots=2, waking=True), script)
    assert called_at(launch, 2.0).consumer.run() is StopReason.HANDED_OVER
    assert [n for n, *_ in launch.started] == [0, 1]
    assert launch.clock.now >= max(31.0, 15.0 + lasts)


HISTORIES = "283f2e6692eea651eda30edca559082fde3acf6bf74664227540ef4227fccfe9"
"""Of what follows, before messages could take longer than a window."""


def to_the_microsecond(history: str) -> str:
    """From Python 3.12 on, sums of floats differ in their last digit."""
    return re.sub(r"\d+\.\d+(e-\d+)?", lambda number: f"{float(number[0]):.6f}", history)


def drawn_launch(chance: random.Random) -> VirtualLaunch:
    """Of messages that are shorter than its window, and so were those of the launches before."""

    def some_ticks(least: int, most: int) -> float:
        return chance.randint(least, most) * TICK

    window = chance.randint(1, 5000)
    most = min(1500, window)
    settings = Settings(
        stop_before=window * TICK,
        idle_time=some_ticks(40, 2000),
        estimated_duration=some_ticks(0, 1000),
        tolerance_factor=chance.randint(0, 24) / 4,
        min_margin=chance.choice([0.0, some_ticks(0, 1000)]),
        slots=chance.randint(1, 4),
        learned=chance.choice([None, (some_ticks(0, min(500, most)), chance.randint(1, 300))]),
        overrun_target=chance.choice([0.01, 0.1, 1.0]),
        waking=chance.random() < 0.5,
        max_messages=chance.choice([None, None, chance.randint(1, 30)]),
        loop=chance.choice([*Loop]),
    )
    script = [
        Arrival(
            some_ticks(0, 6000),
            some_ticks(0, chance.choice([min(12, most), most])),
            chance.choice(["completed", "completed", "retry", "dead", "park"]),
        )
        for _ in range(chance.randint(0, 40))
    ]
    return VirtualLaunch(settings, sorted(script, key=lambda arrival: arrival.at))


@pytest.mark.crossing
def test_messages_shorter_than_their_window_begin_and_end_as_before_there_were_longer_ones() -> None:
    """Which begin, when, and with which margin; how each is settled, and why the launch ends."""
    histories = hashlib.sha256()
    for seed in range(500):
        launch = drawn_launch(random.Random(seed))
        reason = launch.consumer.run()
        launch.consumer.executor.close()  # of five hundred the descriptors would be too many for select()
        history = repr((launch.started, sorted(launch.store.settled.items()), str(reason)))
        histories.update(to_the_microsecond(history).encode())
    assert histories.hexdigest() == HISTORIES
