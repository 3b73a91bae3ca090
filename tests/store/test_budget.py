"""What a call costs whose server does not answer, and what it leaves to the next one."""

from __future__ import annotations

from errno import ETIMEDOUT
from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.errors import StoreUnreachable
from pollconsumer.store.client.patience import STEP, Budget
from pollconsumer.store.client.wire import Wire
from tests.interface.away import Clock, Connection

if TYPE_CHECKING:
    from collections.abc import Callable


def greet(wire: Wire) -> None:
    wire.once([("PING",)])


def greet_patiently(wire: Wire) -> None:
    wire.command("PING")


@pytest.mark.parametrize("greeting", [None, greet, greet_patiently])
@pytest.mark.parametrize("url", ["unix:///s", "redis://h"])
@pytest.mark.parametrize("seconds", [0.5, 3.0, 5.0])
def test_a_server_that_accepts_and_never_answers_costs_the_budget_of_one_call(
    seconds: float, url: str, greeting: Callable[[Wire], None] | None
) -> None:
    clock = Clock()

    def never(timeout: float) -> None:
        clock.now += timeout
        raise TimeoutError(ETIMEDOUT, "no answer")

    wire = Wire(url, lambda: Budget(seconds, clock), greet=greeting, connect=lambda: Connection(never))
    with pytest.raises(StoreUnreachable):
        wire.command("PING")
    assert seconds <= clock.now <= seconds + STEP


def test_a_call_has_its_own_budget_however_long_those_before_it_took() -> None:
    clock = Clock()

    def slow(timeout: float) -> bytes:  # noqa: ARG001  within it
        clock.now += 1.5
        return b"PONG"

    wire = Wire("unix:///s", lambda: Budget(2.0, clock), connect=lambda: Connection(slow))
    assert [wire.command("PING") for _ in range(10)] == [b"PONG"] * 10


@pytest.mark.parametrize(("each", "seconds"), [(1.0, 28.0), (1.2, 30.0)])
def test_the_answers_to_one_call_may_come_until_its_patience_ends(
    monkeypatch: pytest.MonkeyPatch, each: float, seconds: float
) -> None:
    clock = Clock()
    monkeypatch.setattr("pollconsumer.store.client.wire.monotonic", clock.monotonic)
    monkeypatch.setattr("pollconsumer.store.client.patience.time", clock)

    def slow(timeout: float) -> bytes:
        clock.now += min(each, timeout)
        if timeout < each:
            raise TimeoutError(ETIMEDOUT, "no answer")
        return b"PONG"

    wire = Wire("unix:///s", lambda: Budget(30.0, clock), connect=lambda: Connection(slow))
    pings = [("PING",)] * 28
    if seconds < 30.0:
        assert wire.all(pings) == [b"PONG"] * 28
    else:
        with pytest.raises(StoreUnreachable):
            wire.all(pings)
    assert seconds <= clock.now <= seconds + STEP


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit, MemoryError])
def test_a_call_that_is_interrupted_leaves_no_reply_to_the_next(interruption: type[BaseException]) -> None:
    connections: list[Connection] = []

    def interrupted(timeout: float) -> None:  # noqa: ARG001  by a signal
        raise interruption

    def connect() -> Connection:
        connections.append(Connection((lambda _: b"PONG") if connections else interrupted))
        return connections[-1]

    wire = Wire("unix:///s", lambda: Budget(1.0, Clock()), connect=connect)
    with pytest.raises(interruption):
        wire.command("PING")
    assert wire.command("PING") == b"PONG"
    assert len(connections) == 2
