"""Executors call handlers: with one slot in the launch's thread; with more in threads, or in tasks of an event loop."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

from pollconsumer.core.users_code import TimeIsUp
from pollconsumer.runtime.handling import interrupts
from pollconsumer.runtime.handling.context import LaunchContext
from pollconsumer.runtime.handling.handler import Handler, Outcome
from pollconsumer.runtime.handling.shield import in_force
from pollconsumer.runtime.handling.slot_waits import IN_SLOT
from pollconsumer.runtime.system.own_threads import start_for_others
from pollconsumer.runtime.system.signals import end_stray
from pollconsumer.store.client.own_descriptors import Opened, above_standard, wait_readable
from pollconsumer.store.records.reservations import Reservation

if TYPE_CHECKING:
    from pollconsumer.runtime.handling.event_loop import EventLoop


class Attempt(NamedTuple):
    reservation: Reservation
    handler: Handler
    payload: dict[str, Any]
    context: LaunchContext | None = None

    def handle(self) -> Outcome:
        return self.handler.handle(self.payload, self.context)


class Handled(NamedTuple):
    """An attempt that has ended. ``started`` and ``ended``: on the monotonic clock, in seconds."""

    attempt: Attempt
    started: float
    ended: float
    outcome: Outcome


def executor_of(slots: int) -> Executor:
    return Executor() if slots == 1 else ThreadExecutor(slots)


class Executor:
    """The executor for one slot. Its `start` handles the message before it returns."""

    slots = 1
    busy = 0
    """The number of slots that handle a message."""

    def __init__(self, clock: Any = time.monotonic) -> None:
        self._clock = clock
        self._finished: list[Handled] = []
        self._loop: EventLoop | None = None
        self._pid = os.getpid()

    def start(self, attempt: Attempt) -> None:
        """Handle a message. The caller makes sure that a slot is free."""
        token = IN_SLOT.set(attempt.reservation)
        started = self._clock()
        _, handler, payload, context = attempt
        handle = self._turning(handler) if handler.asynchronous else handler.handle
        outcome = handle(payload, context)
        end_stray(self._pid, outcome.error)
        ended = self._clock()
        IN_SLOT.reset(token)
        self._finished.append(Handled(attempt, started, ended, outcome))

    def _turning(self, handler: Handler) -> Callable[[dict[str, Any], LaunchContext | None], Outcome]:
        if self._loop is None:
            from pollconsumer.runtime.handling.event_loop import EventLoop

            try:
                self._loop = EventLoop(thread=False)
            except (RuntimeError, OSError):
                return handler.handle  # `handle` tries again to make a loop, and has the error as its outcome
        return partial(self._loop.turn, handler)

    def finished(self) -> list[Handled]:
        """The attempts that have ended since the last call."""
        finished, self._finished = self._finished, []
        return finished

    def wait(self, seconds: float, descriptor: int | None = None) -> None:  # noqa: ARG002  of several slots
        """Wait until a handler ends or ``descriptor`` is readable, at most ``seconds``."""
        raise AssertionError("there is nothing to wait for")

    def stop(
        self,
        reservation: Reservation,  # noqa: ARG002  the one in hand
        seconds: float,
        in_flight: Callable[[], bool],
    ) -> None:
        """If the handler of ``reservation`` can be interrupted, interrupt it after ``seconds``, as its timeout would,
        and again while ``in_flight()`` returns True. With one slot, a signal handler calls this."""
        limit = in_force.get(threading.get_ident())
        if limit is not None:
            limit.hasten(seconds)
            return
        if not interrupts.interrupt(seconds, in_flight) and self._loop is not None:
            self._loop.stop(None, seconds)

    def close(self) -> None:
        """Free what the executor holds. No attempt is started after that."""
        if self._loop is not None:
            self._loop.close()

    def lock(self) -> AbstractContextManager[Any]:
        """A lock that a handler's context holds while it calls the store, since several handlers share a connection."""
        return threading.Lock()


class ThreadExecutor(Executor):
    """An executor for several slots. Each is a thread or, for an ``async def`` handler, a task of one event loop. The
    threads are daemons, so that one that hangs does not keep the process from exiting."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._pid = os.getpid()
        self.busy = 0
        self._given: SimpleQueue[Attempt] = SimpleQueue()
        self._done: SimpleQueue[Handled] = SimpleQueue()
        self._threads: dict[Reservation, int] = {}
        """The thread of each message in flight whose handler is synchronous."""
        self._loop: EventLoop | None = None
        self._bell_lock = threading.Lock()
        self._make_bell()
        self._context = copy_context()
        for n in range(slots):
            serve = partial(self._context.copy().run, self._serve)
            start_for_others(f"handler-{n}", serve)

    def start(self, attempt: Attempt) -> None:
        self.busy += 1
        if attempt.handler.asynchronous:
            self._turn(attempt)
        else:
            self._given.put(attempt)

    def finished(self) -> list[Handled]:
        finished: list[Handled] = []
        try:
            while True:
                finished.append(self._done.get_nowait())
                self.busy -= 1
        except Empty:
            return finished

    def wait(self, seconds: float, descriptor: int | None = None) -> None:
        bell = self._bell.number
        watched = [bell] if descriptor is None else [bell, descriptor]
        with self._bell_lock:
            if not self._bell.is_open():
                self._make_bell()
                return  # attempts may have used the closed one
        try:
            if bell in wait_readable(watched, seconds):
                os.read(bell, 65536)
                self._rung = False  # set before the caller looks for what woke it
        except BlockingIOError:
            pass
        except OSError as error:  # closed concurrently by a handler
            if error.errno != errno.EBADF:
                raise

    def _wake(self) -> None:
        """End the current `wait`; if there is none, the next one returns at once. May be called in any thread."""
        if self._rung:
            return
        with self._bell_lock:
            if not self._ring.is_open():
                self._make_bell()
            self._rung = True
            with suppress(OSError):  # if the pipe is full, the waiter wakes anyway; if it is closed, the waiter notices
                os.write(self._ring.number, b"\0")

    def stop(self, reservation: Reservation, seconds: float, in_flight: Callable[[], bool]) -> None:
        thread = self._threads.get(reservation)
        limit = None if thread is None else in_force.get(thread)
        if limit is not None and self._threads.get(reservation) == thread:  # not the limit of its next message
            limit.hasten(seconds)
        elif thread is not None:
            interrupts.interrupt_in(thread, seconds, lambda: in_flight() and self._threads.get(reservation) == thread)
        elif self._loop is not None:
            self._loop.stop(reservation, seconds)

    def _serve(self) -> None:
        while True:
            attempt = self._given.get()
            reservation = attempt.reservation
            IN_SLOT.set(reservation)
            self._threads[reservation] = threading.get_ident()
            started = time.monotonic()
            outcome = _handled(attempt)
            del self._threads[reservation]
            self._end(Handled(attempt, started, time.monotonic(), outcome))

    def _turn(self, attempt: Attempt) -> None:
        if self._loop is None:
            from pollconsumer.runtime.handling.event_loop import EventLoop

            self._loop = self._context.copy().run(EventLoop, thread=True)
        started = time.monotonic()

        def begin() -> Any:
            nonlocal started
            IN_SLOT.set(attempt.reservation)  # in the context that the task copies
            started = time.monotonic()
            return attempt.handler.begin(attempt.payload, attempt.context)

        def end(outcome: Outcome) -> None:
            self._end(Handled(attempt, started, time.monotonic(), outcome))

        self._loop.start(attempt.reservation, begin, attempt.handler, end)

    def _end(self, handled: Handled) -> None:
        """Hand an ended attempt to `finished`, and end the current `wait`."""
        end_stray(self._pid, handled.outcome.error)
        self._done.put(handled)
        self._wake()

    def _make_bell(self) -> None:
        """Make the pipe that ends a `wait`. An earlier pipe stays open: its numbers may lead to other files by now."""
        with above_standard():
            bell, ring = os.pipe()
        os.set_blocking(bell, False)
        os.set_blocking(ring, False)
        self._bell, self._ring = Opened.now(bell), Opened.now(ring)
        self._rung = False


def _handled(attempt: Attempt) -> Outcome:
    """The outcome of ``attempt``. It also catches an interruption that arrives just after the handler has ended."""
    outcome: Outcome | None = None
    try:
        outcome = attempt.handle()
        _end_interruption()
    except TimeIsUp as late:
        _end_interruption()
        outcome = outcome or Outcome(late)
    return outcome


def _end_interruption() -> None:
    """End what `Executor.stop` began for a handler without a timeout. A timeout ends by itself."""
    limit = in_force.get(threading.get_ident())
    if limit is not None:
        limit.end()
