"""How long the mover waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from hypothesis import given
from hypothesis import strategies as st

from pollconsumer.core.window import Window
from pollconsumer.runtime.launch.progress import Progress
from pollconsumer.runtime.mover import MARGIN, Mover, MoverOptions
from pollconsumer.store.reservations import Holder

if TYPE_CHECKING:
    from pollconsumer.runtime.consuming.wake import Wake


class Waits:
    def __init__(self) -> None:
        self.seconds: list[float] = []

    def wait(self, seconds: float) -> bool:
        self.seconds.append(seconds)
        return False


@given(
    now=st.floats(0, 100),
    stop_before=st.floats(0, 100),
    idle_time=st.floats(0.001, 60),
    next_due=st.none() | st.floats(0, 1000),
)
def test_no_wait_is_negative_or_outlasts_idle_time_due_time_or_window(
    now: float, stop_before: float, idle_time: float, next_due: float | None
) -> None:
    waits = Waits()
    mover = Mover(
        MoverOptions(idle_time, 100),
        Window(0.0, stop_before),
        cast("Any", None),
        cast("Any", None),
        Holder("mover::0", "1", "mover:"),
        wake=cast("Wake", waits),
        progress=Progress(),
        interrupted=lambda: False,
        check_lease=lambda: None,
        live_fences=list,
        successor_waits=lambda: False,
        emit=lambda _: None,
        clock=lambda: now,
    )
    mover.idle(next_due)
    (seconds,) = waits.seconds
    assert 0 <= seconds <= idle_time
    assert seconds <= max(0.0, stop_before - now - MARGIN)
    assert next_due is None or seconds <= next_due
