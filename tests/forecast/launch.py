"""A launch in a forecast: messages become ready, and its loop takes them as the consumer does."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pollconsumer.core.choices import Loop
from pollconsumer.core.durations import Durations, Histogram, MarginRule, margin_in
from pollconsumer.core.retry import MOST_CRASHES
from pollconsumer.core.window import Window
from tests.forecast.consumer_rules import Rules
from tests.forecast.distributions import Arrival, Demand
from tests.forecast.figures import Record

HANDLER = "handler"


class ForecastMessage(NamedTuple):
    due: float
    scheduled: bool
    handling: Demand
    crashes: int = 0


class ForecastQueue:
    """Messages that become ready one after the other."""

    def __init__(self, stream: Iterator[Arrival]) -> None:
        self._stream = stream
        self._next = next(stream, None)
        self._later: list[tuple[float, int, ForecastMessage]] = []
        self._again = deque[ForecastMessage]()
        self._number = 0

    def next_at(self) -> float:
        """When the next message is ready, infinity without any."""
        if self._again:
            return -math.inf
        while self._next is not None and (not self._later or self._next[0] <= self._later[0][0]):
            sent, due, handling = self._next
            self._number += 1
            heapq.heappush(self._later, (due, self._number, ForecastMessage(due, due > sent, handling)))
            self._next = next(self._stream, None)
        return self._later[0][0] if self._later else math.inf

    def take(self, now: float) -> ForecastMessage | None:
        if self.next_at() > now:
            return None
        return self._again.popleft() if self._again else heapq.heappop(self._later)[2]

    def put_back(self, orphans: Sequence[ForecastMessage]) -> None:
        """Make messages ready again that were in flight when their launch died."""
        again = (each._replace(crashes=each.crashes + 1) for each in orphans)
        self._again.extendleft(each for each in again if each.crashes < MOST_CRASHES)


class ForecastLaunch:
    """A process; with a lease it takes messages as the consumer's loop does."""

    def __init__(self, started: float, rules: Rules, queue: ForecastQueue, record: Record) -> None:
        self.started, self.now = started, started
        self.acquired: float | None = None
        self.ended: float | None = None
        self.asked_at = math.inf
        """When the launch is asked to stop: by a successor, or a signal."""
        self._rules, self._queue, self._record = rules, queue, record
        self._running: list[tuple[float, int, ForecastMessage, float]] = []
        """Messages in flight, each after the instant of its end and a number, and before that of its start."""
        self._count = 0
        self._idles_until: float | None = None
        self._stopping = False

    def bound(self, window: Window, min_margin: float) -> None:
        """Set the launch's window, and its least margin."""
        self.window, self.min_margin = window, min_margin

    def acquire(self, now: float, learned: Histogram) -> None:
        self.acquired = self.now = now
        rules = self._rules
        self.durations = Durations({HANDLER: learned}, self.window.length, rules.loop)
        self._rule = MarginRule(
            rules.estimated_duration, rules.tolerance_factor, self.min_margin, rules.overrun_target, rules.loop
        )

    def work(self, until: float) -> bool:
        """Go on until ``until``. Returns whether it has released its lease before that, at ``now``."""
        while self.now < until:
            if self._crashed() or (self._stopping and not self._running):
                return True
            if self.now >= self._ended_by_force_at():
                self._record.ended_by_force += 1
                return True
            if self._stopping:
                self._await_end(until)
            elif self._idles_until is not None:
                self._idle(self._idles_until, until)
            else:
                self._decide(until)
        return False

    def _decide(self, until: float) -> None:
        """Do what one pass of the consumer's loop does."""
        if self.asked_at <= self.now:
            self._stopping = True
        elif len(self._running) == self._rules.slots:
            self._await_end(until)
        elif not self.window.has_time(self.now, self._margin()):
            self._stopping = True
        elif (message := self._queue.take(self.now)) is not None:
            self._handle(message)
        elif self._rules.loop is Loop.WOKEN or self.window.has_time(self.now, self._rules.idle_time):
            self._idles_until = self.window.wait_until(self.now, self._longest_idle())
        else:
            self._stopping = True

    def _longest_idle(self) -> float:
        longest = min(self._rules.idle_time, self._rules.longest_wait if self._running else math.inf)
        if self._rules.loop is Loop.WOKEN:
            longest = min(longest, self.window.left(self.now) - self._margin())
        return longest

    def _idle(self, idles_until: float, until: float) -> None:
        if self._pass_to(min(idles_until, self._queue.next_at(), self.asked_at, self._first_end()), until):
            self._idles_until = None

    def _await_end(self, until: float) -> None:
        """Wait for a message in flight to end, at most until the launch is ended by force."""
        self._pass_to(min(self._first_end(), self._ended_by_force_at()), until)

    def _ended_by_force_at(self) -> float:
        """When the launch is ended, since a message hangs; infinity if none does: what ends goes on until then."""
        hanging = [began + self._rules.handler_limit for ends, _, _, began in self._running if ends == math.inf]
        return max(self.window.stop_before, *hanging) + self._rules.grace if hanging else math.inf

    def in_flight(self) -> list[ForecastMessage]:
        return [message for _, _, message, _ in self._running]

    def handled_in_vain(self) -> float:
        """Seconds that the messages in flight have taken."""
        return sum(self.now - started for _, _, _, started in self._running)

    def _margin(self) -> float:
        return margin_in(self.window, self.durations, self._rule, self._rules.slots)

    def _pass_to(self, instant: float, until: float) -> bool:
        """Let time pass until ``instant``, at most until ``until``. Returns whether it is ``instant`` by then."""
        self.now = max(self.now, min(instant, until))
        return instant <= until

    def _first_end(self) -> float:
        return self._running[0][0] if self._running else math.inf

    def _handle(self, message: ForecastMessage) -> None:
        self.now += self._rules.call
        self._record.handled(self.now - message.due, scheduled=message.scheduled)
        self._count += 1
        heapq.heappush(self._running, (self.now + message.handling.seconds, self._count, message, self.now))

    def _crashed(self) -> bool:
        """Take note of what has ended. Returns whether one of these messages killed the process: it stays in flight."""
        while self._running and self._running[0][0] <= self.now:
            handling = self._running[0][2].handling
            if handling.crashes:
                return True
            heapq.heappop(self._running)
            self.durations.add(HANDLER, handling.seconds)
        return False
