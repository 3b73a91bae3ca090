"""What launches on a platform would do: the loop's decisions over drawn messages, in virtual time and without a store.

Windows, margins and reasons to stop are the consumer's own. Messages that come due are ready at once; the store takes
no time but ``Rules.call`` for each message; a launch that dies gives its lease back at once.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, tzinfo
from functools import partial
from itertools import takewhile
from typing import NamedTuple

from pollconsumer.core.choices import HandOff, LauncherRule, Loop
from pollconsumer.core.detection import given_launcher
from pollconsumer.core.distributions import Arrival, Chance, Handling, draw
from pollconsumer.core.durations import Durations, margin_in
from pollconsumer.core.figures import Held, Record
from pollconsumer.core.histogram import GENERATION, Histogram
from pollconsumer.core.launchers import Decision, Launched, Outage, looks, ticks
from pollconsumer.core.platforms import Platform
from pollconsumer.core.punctuality import LAUNCHES, Punctuality, allowance, punctuality_of
from pollconsumer.core.retry import MOST_CRASHES
from pollconsumer.core.window import OUR_OWN, Window, predict_stop

HANDLER = "handler"
HAND_OVER = 0.002
"""Seconds from the release of a lease until its waiting successor has it."""
SEEN_FOR = 60.0
"""Seconds for which a launcher is shown launches that have ended."""


class Rules(NamedTuple):
    """The settings of a consumer that decide; durations in seconds. ``min_margin`` None: learned."""

    handoff: HandOff = HandOff.DEADLINE
    timeout: float = 60.0
    grace: float = 10.0
    idle_time: float = 5.0
    estimated_duration: float = 2.0
    tolerance_factor: float = 5.0
    min_margin: float | None = None
    overrun_target: float = 0.01
    launcher: LauncherRule = LauncherRule.AUTO
    slots: int = 1
    loop: Loop = Loop.WOKEN
    longest_wait: float = 0.8
    call: float = 0.0005


class Margin(NamedTuple):
    """As `durations.MarginRule`."""

    estimated_duration: float
    tolerance_factor: float
    min_margin: float
    overrun_target: float
    loop: Loop = Loop.WOKEN


class Message(NamedTuple):
    due: float
    scheduled: bool
    handling: Handling
    crashes: int = 0


class Queue:
    """Messages that become ready one after the other."""

    def __init__(self, stream: Iterator[Arrival]) -> None:
        self._stream = stream
        self._next = next(stream, None)
        self._later: list[tuple[float, int, Message]] = []
        self._again = deque[Message]()
        self._number = 0

    def next_at(self) -> float:
        """When the next message is ready, infinity without any."""
        if self._again:
            return -math.inf
        while self._next is not None and (not self._later or self._next[0] <= self._later[0][0]):
            sent, due, handling = self._next
            self._number += 1
            heapq.heappush(self._later, (due, self._number, Message(due, due > sent, handling)))
            self._next = next(self._stream, None)
        return self._later[0][0] if self._later else math.inf

    def take(self, now: float) -> Message | None:
        if self.next_at() > now:
            return None
        return self._again.popleft() if self._again else heapq.heappop(self._later)[2]

    def put_back(self, orphans: Sequence[Message]) -> None:
        """Those that were in hand when their launch died."""
        again = (each._replace(crashes=each.crashes + 1) for each in orphans)
        self._again.extendleft(each for each in again if each.crashes < MOST_CRASHES)


class Launch:
    """A process; with a lease it takes messages as the consumer's loop does."""

    def __init__(self, started: float, rules: Rules, queue: Queue, record: Record) -> None:
        self.started, self.now = started, started
        self.acquired: float | None = None
        self.ended: float | None = None
        self.asked_at = math.inf
        """When it is asked to stop: by a successor, or a signal."""
        self._rules, self._queue, self._record = rules, queue, record
        self._running: list[tuple[float, int, Message, float]] = []
        """Each with its end, a number, and its start."""
        self._count = 0
        self._idles_until: float | None = None
        self._stopping = False

    def bound(self, window: Window, min_margin: float) -> None:
        """Set its window, and its least margin."""
        self.window, self.min_margin = window, min_margin
        self._last = window.stop_before + self._rules.grace

    def acquire(self, now: float, learned: Histogram) -> None:
        self.acquired = self.now = now
        self.durations, rules = Durations({HANDLER: learned}), self._rules
        self._rule = Margin(
            rules.estimated_duration, rules.tolerance_factor, self.min_margin, rules.overrun_target, rules.loop
        )

    def work(self, until: float) -> bool:
        """Go on until then. Whether it has released its lease before, ``now``."""
        while self.now < until:
            if self._crashed() or (self._running and self.now >= self._last):
                return True
            if self._stopping:
                if not self._running:
                    return True
                self._pass_to(min(self._first_end(), self._last), until)
            elif self._idles_until is not None:
                first = min(self._idles_until, self._queue.next_at(), self.asked_at, self._first_end())
                if self._pass_to(first, until):
                    self._idles_until = None
            elif self.asked_at <= self.now:
                self._stopping = True
            elif len(self._running) == self._rules.slots:
                self._pass_to(min(self._first_end(), self._last), until)
            elif not self.window.has_time(self.now, self._margin()):
                self._stopping = True
            elif (message := self._queue.take(self.now)) is not None:
                self._handle(message)
            elif self._rules.loop is Loop.WOKEN or self.window.has_time(self.now, self._rules.idle_time):
                longest = self._rules.longest_wait if self._running else math.inf
                if self._rules.loop is Loop.WOKEN:
                    longest = min(longest, self.window.left(self.now) - self._margin())
                self._idles_until = self.now + min(self._rules.idle_time, longest)
            else:
                self._stopping = True
        return False

    def in_hand(self) -> list[Message]:
        return [message for _, _, message, _ in self._running]

    def handled_in_vain(self) -> float:
        """Seconds that those in hand have taken."""
        return sum(self.now - started for _, _, _, started in self._running)

    def _margin(self) -> float:
        return margin_in(self.window, self.durations, self._rule, self._rules.slots)

    def _pass_to(self, instant: float, until: float) -> bool:
        """Whether the instant comes before ``until``."""
        self.now = max(self.now, min(instant, until))
        return instant <= until

    def _first_end(self) -> float:
        return self._running[0][0] if self._running else math.inf

    def _handle(self, message: Message) -> None:
        self.now += self._rules.call
        self._record.handled(self.now - message.due, scheduled=message.scheduled)
        self._count += 1
        heapq.heappush(self._running, (self.now + message.handling.seconds, self._count, message, self.now))

    def _crashed(self) -> bool:
        """Take note of what has ended. Whether one of these killed the process: it stays in hand."""
        while self._running and self._running[0][0] <= self.now:
            handling = self._running[0][2].handling
            if handling.crashes:
                return True
            heapq.heappop(self._running)
            self.durations.add(HANDLER, handling.seconds)
        return False


class Forecast:
    """``seconds`` of launches on a platform, from ``begin``, in seconds since the epoch.

    ``messages`` are recorded ones, or a workload's; ``chance`` draws what varies between launchers and launches.
    """

    def __init__(
        self,
        platform: Platform,
        rules: Rules,
        messages: Iterator[Arrival],
        chance: Chance,
        seconds: float,
        *,
        begin: float = 0.0,
        zone: tzinfo = UTC,
        outages: Sequence[Outage] = (),
    ) -> None:
        self.record = Record()
        self._found = given_launcher(rules.launcher, platform.found)
        if self._found.rule is LauncherRule.DROP:
            rules = rules._replace(handoff=HandOff.DEADLINE)
        self._platform, self._rules, self._chance = platform, rules, chance
        self._offsets = deque[float](maxlen=LAUNCHES)
        self._exits = deque[float](maxlen=LAUNCHES)
        self._end = begin + seconds
        self._launcher = platform.launcher(chance)
        self._queue = Queue(messages)
        self._recent, self._before = Histogram(), Histogram()
        self._launches: list[Launch] = []
        """Those alive, and the last ones that have ended."""
        self._holder: Launch | None = None
        self._waiting: Launch | None = None
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        beyond = self._end + 3 * platform.period
        self._ticks = [*takewhile(lambda tick: tick < beyond, ticks(platform.schedule, begin - 1, zone))]
        for now, missed in looks(self._ticks, self._launcher.offset, outages):
            if now < self._end:
                self._at(now, partial(self._look, missed))

    def run(self) -> Record:
        while True:
            at = min(self._due[0][0], self._end) if self._due else self._end
            if self._holder is not None and self._holder.work(at):
                self.now = self._holder.now
                self._release(self._holder)
            elif at >= self._end:
                return self.record
            else:
                self.now = at
                heapq.heappop(self._due)[2]()

    def _at(self, instant: float, do: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._due, (instant, self._count, do))

    # The launcher

    def _look(self, missed: tuple[float, ...]) -> None:
        self._apply(self._launcher.look(self.now, missed, self._seen()))

    def _seen(self) -> list[Launched]:
        self._launches = [each for each in self._launches if each.ended is None or each.ended > self.now - SEEN_FOR]
        return [Launched(each.started, each.ended) for each in self._launches]

    def _apply(self, decision: Decision) -> None:
        self.record.dropped += decision.dropped
        if decision.kills:
            for each in self._launches:
                self._kill(each)
        for at in decision.starts:
            self._at(at, self._start)

    def _start(self) -> None:
        self.record.launches += 1
        launch = Launch(self.now, self._rules, self._queue, self.record)
        self._bound(launch, Punctuality())
        self._launches.append(launch)
        self._at(self.now + draw(self._platform.start_up, self._chance), partial(self._ask, launch))

    def _bound(self, launch: Launch, punctuality: Punctuality) -> None:
        following = bisect_right(self._ticks, launch.started + OUR_OWN)
        ahead = (self._ticks[following], self._ticks[following + 1]) if following + 1 < len(self._ticks) else None
        late, margin = allowance(self._found, punctuality, self._rules.min_margin)
        stop_before = predict_stop(launch.started, self._rules.timeout, ahead, self._rules.handoff, late)
        if self._rules.min_margin is None:
            margin = min(margin, (stop_before - launch.started) / 2)
        launch.bound(Window(launch.started, stop_before), margin)

    def _kill(self, launch: Launch) -> None:
        if launch.ended is not None:
            return
        launch.asked_at = min(launch.asked_at, self.now)
        if launch is self._holder:
            self._at(self.now + self._platform.kill_after, partial(self._end_at_once, launch))
        elif launch is self._waiting:
            self._withdraw(launch)

    # The lease

    def _ask(self, launch: Launch) -> None:
        if launch.asked_at <= self.now:
            self._leave(launch)
        elif self._holder is None:
            self._acquire(launch, self.now)
        elif self._waiting is not None:
            self._leave(launch)
        else:
            self._waiting = launch
            self._at(launch.window.stop_before, partial(self._withdraw, launch))
            if self._rules.handoff.on_call:
                self._holder.asked_at = min(self._holder.asked_at, self.now)

    def _acquire(self, launch: Launch, now: float) -> None:
        self._holder = launch
        learned = Histogram()
        learned.include(self._recent)
        learned.include(self._before)
        self._bound(launch, punctuality_of(self._offsets, self._exits))
        if (own := bisect_right(self._ticks, launch.started + OUR_OWN)) > 0:
            self._offsets.append(launch.started - self._ticks[own - 1])
        launch.acquire(now, learned)

    def _withdraw(self, launch: Launch) -> None:
        if self._waiting is launch:
            self._waiting = None
            self._leave(launch)

    def _leave(self, launch: Launch) -> None:
        self._at(self.now + draw(self._platform.exit, self._chance), partial(self._ended, launch))

    def _end_at_once(self, launch: Launch) -> None:
        if self._holder is launch:
            self._release(launch)

    def _release(self, launch: Launch) -> None:
        """It has finished, or is dead."""
        assert launch.acquired is not None
        self.record.tenures.append(Held(launch.acquired, self.now, launch.window.stop_before))
        self._learn(launch.durations.measured[HANDLER])
        self.record.cut_off += launch.handled_in_vain()
        self._queue.put_back(launch.in_hand())
        self._holder, waiting, self._waiting = None, self._waiting, None
        self._leave(launch)
        if waiting is not None:
            self._acquire(waiting, self.now + HAND_OVER)

    def _learn(self, measured: Histogram) -> None:
        """As ``learn.lua`` does."""
        self._recent.include(measured)
        if self._recent.count >= GENERATION:
            self._recent, self._before = Histogram(), self._recent

    def _ended(self, launch: Launch) -> None:
        launch.ended = self.now
        if launch.acquired is not None:
            self._exits.append(self.now - launch.now)
        self._apply(self._launcher.ended(self.now, self._seen()))
