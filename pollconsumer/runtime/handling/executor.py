"""Executors: handlers run in the launch's thread with one slot, on threads with more."""

from __future__ import annotations

import errno
import os
import select
import threading
import time
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pollconsumer.runtime.handling.descriptors import Outputs, Reserve, Table
from pollconsumer.runtime.handling.in_hand import IN_SLOT
from pollconsumer.runtime.handling.outcome import Outcome
from pollconsumer.runtime.handling.shield import in_force
from pollconsumer.runtime.handling.stray_forks import end_stray
from pollconsumer.store.own_descriptors import STANDARD, Opened, above_standard

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from pollconsumer.runtime.handling.context import Context
    from pollconsumer.runtime.handling.event_loop import EventLoop
    from pollconsumer.runtime.handling.handler import Handler
    from pollconsumer.store.reservations import Reservation


class Attempt(NamedTuple):
    reservation: Reservation
    handler: Handler
    payload: dict[str, Any]
    context: Context | None = None

    def handle(self) -> Outcome:
        return self.handler.handle(self.payload, self.context)

    def begin(self) -> Any:
        """The coroutine of an asynchronous handler."""
        return self.handler.begin(self.payload, self.context)


NONE = False, False
"""What `Inline.checked` returns mostly."""


class Handled(NamedTuple):
    """An attempt that has ended, its times on the monotonic clock in seconds, and its outcome. ``closed``: it, or a
    concurrent handler, closed descriptors of ours. ``leaking``: the limit of open descriptors is reached."""

    attempt: Attempt
    started: float
    ended: float
    outcome: Outcome
    closed: bool = False
    leaking: bool = False


class Inline(Protocol):
    """Of an executor whose caller may itself run handlers, in its thread, if these need nothing of an executor."""

    def turn(self, handler: Handler, payload: dict[str, Any], context: Context | None = None) -> Outcome:
        """Run an asynchronous handler."""

    def checked(self, error: BaseException | None) -> tuple[bool, bool]:
        """To be called after each of them, with what it raised. Returns `Handled.closed` and `Handled.leaking`."""

    def add(self, handled: Handled) -> None:
        """An attempt that the caller made, for `finished`."""


class Executor(Protocol):
    slots: int

    @property
    def inline(self) -> Inline | None:
        """None if handlers run elsewhere."""

    def busy(self) -> int:
        """Messages being handled."""

    def start(self, attempt: Attempt) -> None:
        """Handle a message. There must be a free slot."""

    def relay(self, take: Callable[[Handled], Attempt | None]) -> None:
        """From now on a slot in which an attempt has ended asks ``take``, in its thread, which it handles next. None:
        it is free."""

    def finished(self) -> list[Handled]:
        """Attempts that have ended since the last call."""

    def wait(self, seconds: float, descriptor: int | None = None) -> None:
        """Wait until a slot has become free, `wake` is called, ``descriptor`` is readable, or ``seconds`` have
        passed."""

    def wake(self) -> None:
        """End a `wait`, the next if there is none; from any thread."""

    def stop(self, reservation: Reservation, seconds: float) -> None:
        """Interrupt its handler after so many seconds, as its timeout would, if it is in hand and can be. With one slot
        from a signal handler."""

    def close(self) -> None:
        """No more attempts will be started."""

    def lock(self) -> AbstractContextManager[Any]:
        """A lock for what handlers share; it may be held during a call of the store."""


def executor_of(slots: int) -> Executor:
    return InlineExecutor() if slots == 1 else ThreadExecutor(slots)


def _event_loop(*, thread: bool) -> EventLoop:
    from pollconsumer.runtime.handling.event_loop import EventLoop

    return EventLoop(thread=thread)


class InlineExecutor:
    """One slot: `start` returns after the message was handled."""

    slots = 1

    def __init__(self, clock: Any = time.monotonic, table: Table | None = None) -> None:
        self._clock = clock
        self._finished: list[Handled] = []
        self._loop: EventLoop | None = None
        self._table = table or Table()
        self._pid = os.getpid()

    @property
    def inline(self) -> Inline:
        return self

    def busy(self) -> int:
        return 0

    def start(self, attempt: Attempt) -> None:
        IN_SLOT.set(attempt.reservation)
        started = self._clock()
        _, handler, payload, context = attempt
        outcome = self.turn(handler, payload, context) if handler.asynchronous else handler.handle(payload, context)
        end_stray(self._pid, outcome.error)
        ended = self._clock()
        IN_SLOT.set(None)
        closed, leaking = self._table.checked()
        self.add(Handled(attempt, started, ended, outcome, closed, leaking))

    def turn(self, handler: Handler, payload: dict[str, Any], context: Context | None = None) -> Outcome:
        try:
            if self._loop is None:
                self._loop = _event_loop(thread=False)
            coroutine = handler.begin(payload, context)
        except BaseException as error:
            return Outcome(error)
        return self._loop.handle(coroutine, handler.timeout)

    def checked(self, error: BaseException | None) -> tuple[bool, bool]:
        if os.getpid() != self._pid:
            end_stray(self._pid, error)
        return NONE if self._table.looks_unchanged() else self._table.checked()

    def add(self, handled: Handled) -> None:
        self._finished.append(handled)

    def finished(self) -> list[Handled]:
        finished, self._finished = self._finished, []
        return finished

    def lock(self) -> AbstractContextManager[Any]:
        return threading.Lock()

    def relay(self, take: Callable[[Handled], Attempt | None]) -> None:
        """There is no slot beside the caller."""

    def wait(self, seconds: float, descriptor: int | None = None) -> None:  # noqa: ARG002  the protocol's
        raise AssertionError("there is nothing to wait for")

    def wake(self) -> None:
        """Nobody waits."""

    def stop(self, reservation: Reservation, seconds: float) -> None:  # noqa: ARG002  the one in hand
        limit = in_force.get(threading.get_ident())
        if limit is not None:
            limit.hasten(seconds)
        elif self._loop is not None:
            self._loop.stop(None, seconds)

    def close(self) -> None:
        if self._loop is not None:
            self._loop.close()
        self._table.close()


class ThreadExecutor:
    """n slots, each a thread or, for ``async def`` handlers, a task of one event loop. The threads are daemons, so that
    a hanging one does not prevent the process from exiting."""

    inline = None

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._pid = os.getpid()
        self._busy = 0
        self._given: SimpleQueue[Attempt] = SimpleQueue()
        self._take: Callable[[Handled], Attempt | None] = lambda _: None
        self._done: SimpleQueue[tuple[Handled, bool]] = SimpleQueue()
        """Each with whether its slot is free."""
        self._threads: dict[Reservation, int] = {}
        """In which each is handled, if it is not asynchronous."""
        self._loop: EventLoop | None = None
        self._outputs, self._reserve = Outputs(), Reserve()
        self._bell_lock = threading.Lock()
        self._closed = False
        self._make_bell()
        for n in range(slots):
            threading.Thread(target=self._serve, name=f"handler-{n}", daemon=True).start()

    def busy(self) -> int:
        return self._busy

    def start(self, attempt: Attempt) -> None:
        self._busy += 1
        self._begin(attempt)

    def relay(self, take: Callable[[Handled], Attempt | None]) -> None:
        self._take = take

    def finished(self) -> list[Handled]:
        finished: list[Handled] = []
        try:
            while True:
                handled, free = self._done.get_nowait()
                finished.append(handled)
                self._busy -= free
        except Empty:
            return finished

    def lock(self) -> AbstractContextManager[Any]:
        return threading.Lock()

    def wait(self, seconds: float, descriptor: int | None = None) -> None:
        bell = self._bell.number
        watched = [bell] if descriptor is None else [bell, descriptor]
        with self._bell_lock:
            if not self._bell.is_open():
                self._make_bell()
                self._closed = True  # reported with the next attempt that ends
                return  # attempts may have rung the closed one
        try:
            if bell in select.select(watched, [], [], seconds)[0]:
                os.read(bell, 65536)
                self._rung = False  # before what rang is looked for
        except BlockingIOError:
            pass
        except OSError as error:  # closed concurrently by a handler
            if error.errno != errno.EBADF:
                raise

    def wake(self) -> None:
        if self._rung:
            return
        with self._bell_lock:
            if not self._ring.is_open():
                self._make_bell()
                self._closed = True
            self._rung = True
            with suppress(OSError):  # a full pipe wakes the waiter anyway; a closed one is noticed there
                os.write(self._ring.number, b"\0")

    def stop(self, reservation: Reservation, seconds: float) -> None:
        thread = self._threads.get(reservation)
        limit = None if thread is None else in_force.get(thread)
        if limit is not None and self._threads.get(reservation) == thread:  # not of the thread's next message
            limit.hasten(seconds)
        elif self._loop is not None:
            self._loop.stop(reservation, seconds)

    def close(self) -> None:
        if self._loop is not None:
            self._loop.close()
        self._outputs.close()
        self._reserve.close()

    def _serve(self) -> None:
        while True:
            attempt: Attempt | None = self._given.get()
            while attempt is not None:
                if attempt.handler.asynchronous:
                    self._turn(attempt)
                    break
                reservation = attempt.reservation
                IN_SLOT.set(reservation)
                self._threads[reservation] = threading.get_ident()
                started = time.monotonic()
                outcome = attempt.handle()
                del self._threads[reservation]
                attempt = self._end(Handled(attempt, started, time.monotonic(), outcome))

    def _begin(self, attempt: Attempt) -> None:
        if attempt.handler.asynchronous:
            self._turn(attempt)
        else:
            self._given.put(attempt)

    def _turn(self, attempt: Attempt) -> None:
        if self._loop is None:
            self._loop = _event_loop(thread=True)
        started = time.monotonic()

        def begin() -> Any:
            nonlocal started
            IN_SLOT.set(attempt.reservation)  # in the context that the task copies
            started = time.monotonic()
            return attempt.begin()

        def end(outcome: Outcome) -> None:
            following = self._end(Handled(attempt, started, time.monotonic(), outcome))
            if following is not None:
                self._begin(following)

        self._loop.start(attempt.reservation, begin, attempt.handler.timeout, end)

    def _end(self, handled: Handled) -> Attempt | None:
        """Returns what its slot handles next."""
        end_stray(self._pid, handled.outcome.error)
        closed, leaking = self._checked()
        if closed or leaking:
            handled = handled._replace(closed=closed, leaking=leaking)
        following = self._take(handled)
        self._done.put((handled, following is None))
        if following is None:
            self.wake()
        return following

    def _checked(self) -> tuple[bool, bool]:
        """Whether a handler has closed descriptors of ours, and whether they are used up."""
        if not self._closed and self._reserve.lowest_free() > STANDARD[-1]:
            return NONE  # a quick look; `wake` and `wait` look closely at the bell
        closed = self._outputs.restore()
        with self._bell_lock:
            if not self._ring.is_open():
                self._make_bell()
                self._closed = True
            closed, self._closed = closed or self._closed, False
            return closed, self._reserve.freed()

    def _make_bell(self) -> None:
        """Does not close an earlier bell, whose numbers may have been reused."""
        with above_standard():
            bell, ring = os.pipe()
        os.set_blocking(bell, False)
        os.set_blocking(ring, False)
        self._bell, self._ring = Opened.now(bell), Opened.now(ring)
        self._rung = False
