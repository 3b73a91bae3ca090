"""In the loop of several slots, a coroutine's first step is run as its slot becomes free, not in a turn of its own."""

from __future__ import annotations

import asyncio
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pollconsumer.runtime.handling.event_loop import EventLoop
from pollconsumer.runtime.handling.outcome import Outcome
from pollconsumer.runtime.handling.quick_loop import QuickLoop
from tests.runtime.coroutine_traces import ACTS, Trace, of
from tests.site import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


class Relay:
    """Handles coroutines in one slot of a loop's thread, each as soon as the one before has ended."""

    def __init__(self, begins: list[Callable[[], Coroutine[Any, Any, Any]]], timeout: float | None = None) -> None:
        self.loop, self.outcomes = EventLoop(thread=True), list[Outcome]()
        self.at_once: list[bool] = []
        """Whether each had begun as soon as its slot had taken it."""
        self._begins, self._handler, self._ended, self._begun = begins, of(timeout), threading.Event(), 0
        self._start(0)

    def wait(self) -> list[Outcome]:
        assert self._ended.wait(PATIENCE)
        self.loop.close()
        return self.outcomes

    def _start(self, n: int) -> None:
        if n == len(self._begins):
            self._ended.set()
            return

        def end(outcome: Outcome) -> None:
            self.outcomes.append(outcome)
            self._start(n + 1)

        before = self._begun
        self.loop.start(n, lambda: self._counted(self._begins[n]()), self._handler, end)
        self.at_once.append(self._begun > before)

    async def _counted(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        self._begun += 1
        return await coroutine


def in_a_turn(
    self: QuickLoop, coroutine: Coroutine[Any, Any, Any], name: str
) -> tuple[asyncio.Task[Any], Callable[[], object]]:
    """`QuickLoop.make`, as asyncio makes tasks."""
    return self.create_task(coroutine, name=name), lambda: None


def traced(messages: list[list[str]], timeout: float | None, *, quickly: bool) -> list[Any]:
    """What each message's handler saw, and its outcome."""
    trace = Trace()
    with pytest.MonkeyPatch.context() as patch:
        if not quickly:
            patch.setattr(QuickLoop, "make", in_a_turn)
        relay = Relay([partial(trace.handle, n, acts) for n, acts in enumerate(messages)], timeout)
        outcomes = [(n, type(outcome.error), outcome.result) for n, outcome in enumerate(relay.wait())]
    return outcomes + sorted(trace.seen, key=lambda noted: noted[0] if isinstance(noted, tuple) else -1)


@pytest.mark.parametrize("timeout", [None, 30.0])
@given(messages=st.lists(st.lists(st.sampled_from(ACTS), max_size=3), max_size=6))
def test_handlers_of_one_slot_see_what_they_see_in_turns_of_their_own(
    messages: list[list[str]], timeout: float | None
) -> None:
    assert traced(messages, timeout, quickly=True) == traced(messages, timeout, quickly=False)


def test_a_slot_runs_the_first_step_of_its_next_message_at_once() -> None:
    relay = Relay([lambda: asyncio.sleep(0)] * 3)
    assert [outcome.error for outcome in relay.wait()] == [None] * 3
    assert relay.at_once[1:] == [True, True]


def test_any_number_of_messages_with_invalid_arguments_end_in_one_slot() -> None:
    def refuse() -> Coroutine[Any, Any, Any]:
        raise TypeError("handler() missing 1 required positional argument: 'n'")

    outcomes = Relay([refuse] * 2 * sys.getrecursionlimit()).wait()
    assert {type(outcome.error) for outcome in outcomes} == {TypeError}


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_a_first_step_that_ends_its_process_fails_its_message_alone(error: type[BaseException]) -> None:
    async def leave() -> None:
        raise error

    outcomes = Relay([lambda: asyncio.sleep(0), leave, lambda: asyncio.sleep(0)]).wait()
    assert [type(outcome.error) for outcome in outcomes] == [type(None), error, type(None)]
