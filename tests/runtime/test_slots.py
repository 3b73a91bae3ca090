"""Several slots: how many messages are reserved ahead for them, and when the launch hears that one is free."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pollconsumer.core.window import StopReason
from pollconsumer.runtime.handling.executors import Attempt, ThreadExecutor
from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.store.records.reservations import CommonFields, Reservation
from tests.runtime.virtual import TICK, Arrival, Settings, VirtualLaunch, whole_ticks
from tests.site import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pollconsumer.runtime.handling.executors import Handled


@pytest.fixture(name="exact")
def _exact() -> Iterator[None]:
    with whole_ticks():
        yield


@pytest.mark.usefixtures("exact")
def test_brief_messages_in_several_slots_are_reserved_and_settled_several_at_a_time() -> None:
    script = [Arrival(0.0, (8 + n % 5) * TICK) for n in range(200)]
    launch = VirtualLaunch(Settings(60.0, 1.0, TICK, 1.0, min_margin=5.0, slots=8, until_empty=True), script)
    steps, step = [], launch.store.step

    def counted(*arguments: Any, **options: Any) -> Any:
        steps.append(arguments[1][0].completed)
        return step(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch.store, "step", counted)
        assert launch.consumer.run() is StopReason.EMPTY
    assert [n for n, _, _ in launch.started] == list(range(200))
    assert sum(steps) == 200
    assert len(steps) < 100
    free = sorted(at + script[n].duration for n, at, _ in launch.started)
    assert [at for _, at, _ in launch.started[8:]] == free[:-8], "a slot has waited"


@pytest.mark.usefixtures("exact")
@given(
    st.integers(2, 8), st.lists(st.integers(0, 40), min_size=1, max_size=80), st.integers(1, 300), st.integers(0, 60)
)
def test_no_message_begins_within_the_margin_or_is_lost(
    slots: int, durations: list[int], window: int, margin: int
) -> None:
    script = [Arrival(0.0, duration * TICK) for duration in durations]
    launch = VirtualLaunch(
        Settings(window * TICK, TICK, TICK, 1.0, min_margin=margin * TICK, slots=slots, until_empty=True), script
    )
    launch.consumer.run()
    assert all(at + least < window * TICK for _, at, least in launch.started)
    kinds = [kind for kind, _ in launch.store.settled.values()]
    assert launch.store.settled.keys() == launch.store.reserved
    assert kinds.count("completed") == len(launch.started)


def test_a_slot_whose_message_closed_the_bell_still_wakes_the_launch() -> None:
    executor = ThreadExecutor(1)

    def handled(run: Callable[[], None]) -> Handled:
        reservation = Reservation(CommonFields("mail", bytes(62), "plain", b"", 0, 0, 0.0), b"m", b"{}")
        executor.start(Attempt(reservation, Handler("plain", lambda *_: run()), {}))
        until = time.monotonic() + PATIENCE
        while not (done := executor.finished()) and time.monotonic() < until:
            executor.wait(1.0)
        return done[0]

    def close() -> None:
        os.close(executor._ring.number)  # noqa: SLF001  what a daemonizing handler does to each

    assert [handled(run).outcome.error for run in (close, lambda: None)] == [None, None]
    executor.close()
