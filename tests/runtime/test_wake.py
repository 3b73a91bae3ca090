"""Waits for a marker."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.runtime.session.exchange import Wake

if TYPE_CHECKING:
    from collections.abc import Sequence


class Slow:
    """A connection, or an executor, in virtual time: to connect takes 0.3 s; nothing ends a wait."""

    look_every = inf

    def __init__(self) -> None:
        self.now = 5.0

    def clock(self) -> float:
        return self.now

    def send(self, _commands: Sequence[tuple[Any, ...]]) -> None:
        self.now += 0.3

    def readable(self, seconds: float) -> bool:
        self.now += seconds
        return False

    def fileno(self) -> int:
        return 3

    def wait(self, seconds: float, _descriptor: int | None) -> None:
        self.now += seconds


@pytest.mark.parametrize("seconds", [0.0, 0.2, 0.8])
@pytest.mark.parametrize("executing", [False, True])
def test_the_time_to_connect_is_a_part_of_the_wait(seconds: float, executing: bool) -> None:
    slow: Any = Slow()
    wake = Wake(slow, lambda: ["marker"], slow.clock)
    for connecting in (0.3, 0.0):
        began = slow.now
        assert not wake.wait(seconds, slow if executing else None)
        assert slow.now - began == pytest.approx(max(seconds, connecting))


def test_a_connection_without_a_descriptor_is_looked_at_while_slots_are_busy() -> None:
    slow: Any = Slow()
    slow.look_every = 0.05
    wake = Wake(slow, lambda: ["marker"], slow.clock)
    wake.wait(0.0)
    began = slow.now
    assert not wake.wait(0.8, slow)
    assert slow.now - began == pytest.approx(0.05)
