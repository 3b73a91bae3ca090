"""What launches on a platform would do: the loop's decisions over drawn messages, in virtual time and without a store.

Windows, margins and reasons to stop are the consumer's own. Messages that come due are ready at once; the store takes
no time but ``Rules.call`` for each message; a launch that dies gives its lease back at once.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC
from functools import partial
from itertools import takewhile
from math import inf

from pollconsumer.core.durations import GENERATION, Histogram
from pollconsumer.core.launcher import LAUNCHES, Punctuality, allowance, given_launcher, punctuality_of
from pollconsumer.core.window import OUR_OWN, Window, predict_stop
from tests.forecast.consumer_rules import Rules
from tests.forecast.distributions import Arrival, Chance, draw
from tests.forecast.figures import LeaseSpan, Record
from tests.forecast.launch import HANDLER, ForecastLaunch, ForecastQueue
from tests.forecast.launchers import SEEN_FOR, Decision, LaunchedProcess, Platform, ticks

HAND_OVER = 0.002
"""Seconds from the release of a lease until its waiting successor has it."""


class Forecast:
    """``seconds`` of launches on a platform, from the epoch on.

    ``messages`` are a workload's; ``chance`` draws what varies between launchers and launches.
    """

    def __init__(
        self,
        platform: Platform,
        rules: Rules,
        messages: Iterator[Arrival],
        chance: Chance,
        seconds: float,
    ) -> None:
        self.record = Record()
        self._found = given_launcher(rules.launcher, platform.found)
        rules = rules._replace(handoff=self._found.rule.handoff(rules.handoff))
        self._platform, self._rules, self._chance = platform, rules, chance
        self._offsets = deque[float](maxlen=LAUNCHES)
        self._exits = deque[float](maxlen=LAUNCHES)
        self._end = seconds
        self._launcher = platform.launcher(chance)
        self._queue = ForecastQueue(messages)
        self._recent, self._before = Histogram(), Histogram()
        self._launches: list[ForecastLaunch] = []
        """Launches that are alive, and the last ones that have ended."""
        self._holder: ForecastLaunch | None = None
        self._waiting: ForecastLaunch | None = None
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        beyond = self._end + 3 * platform.period
        self._ticks = [*takewhile(lambda tick: tick < beyond, ticks(platform.schedule, -1.0, UTC))]
        for tick in self._ticks:
            if (now := tick + self._launcher.offset) < self._end:
                self._at(now, partial(self._look, tick))

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

    def _look(self, tick: float) -> None:
        self._apply(self._launcher.look(self.now, (tick,), self._seen()))

    def _seen(self) -> list[LaunchedProcess]:
        self._launches = [each for each in self._launches if each.ended is None or each.ended > self.now - SEEN_FOR]
        return [LaunchedProcess(each.started, each.ended) for each in self._launches]

    def _apply(self, decision: Decision) -> None:
        self.record.dropped += decision.dropped
        if decision.kills:
            for each in self._launches:
                self._kill(each)
        for at in decision.starts:
            self._at(at, self._start)

    def _start(self) -> None:
        self.record.launches += 1
        launch = ForecastLaunch(self.now, self._rules, self._queue, self.record)
        self._bound(launch, Punctuality())
        self._launches.append(launch)
        self._at(self.now + draw(self._platform.start_up, self._chance), partial(self._ask, launch))

    def _bound(self, launch: ForecastLaunch, punctuality: Punctuality) -> None:
        following = bisect_right(self._ticks, launch.started + OUR_OWN)
        knows = self._rules.scheduled and following + 1 < len(self._ticks)
        ahead = (self._ticks[following], self._ticks[following + 1]) if knows else None
        late, margin = allowance(self._found, punctuality, self._rules.min_margin)
        stop_before = predict_stop(launch.started, self._rules.timeout, ahead, self._rules.handoff, late)
        if self._rules.min_margin is None:
            margin = min(margin, (stop_before - launch.started) / 2)
        launch.bound(Window(launch.started, stop_before), margin)

    def _kill(self, launch: ForecastLaunch) -> None:
        if launch.ended is not None:
            return
        launch.asked_at = min(launch.asked_at, self.now)
        if launch is self._holder:
            self._at(self.now + self._platform.kill_after, partial(self._end_at_once, launch))
        elif launch is self._waiting:
            self._withdraw(launch)

    # The lease

    def _ask(self, launch: ForecastLaunch) -> None:
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

    def _acquire(self, launch: ForecastLaunch, now: float) -> None:
        self._holder = launch
        learned = Histogram()
        learned.include(self._recent)
        learned.include(self._before)
        due = bisect_right(self._ticks, launch.started + OUR_OWN)
        offset = launch.started - self._ticks[due - 1] if due > 0 else None
        self._bound(launch, punctuality_of(self._offsets, self._exits, offset))
        if offset is not None:
            self._offsets.append(offset)
        launch.acquire(now, learned)

    def _withdraw(self, launch: ForecastLaunch) -> None:
        if self._waiting is launch:
            self._waiting = None
            self._leave(launch)

    def _leave(self, launch: ForecastLaunch) -> None:
        self._at(self.now + draw(self._platform.exit, self._chance), partial(self._ended, launch))

    def _end_at_once(self, launch: ForecastLaunch) -> None:
        if self._holder is launch:
            self._release(launch)

    def _release(self, launch: ForecastLaunch) -> None:
        """Take the lease from a launch that has finished, or is dead, and let the one that waits have it."""
        assert launch.acquired is not None
        # As in health: a message that is longer than the window may outlast it.
        until = inf if launch.durations.longer_than_window else launch.window.stop_before
        self.record.tenures.append(LeaseSpan(launch.acquired, self.now, until))
        self._learn(launch.durations.measured[HANDLER])
        self.record.cut_off += launch.handled_in_vain()
        self._queue.put_back(launch.in_flight())
        self._holder, waiting, self._waiting = None, self._waiting, None
        self._leave(launch)
        if waiting is not None:
            self._acquire(waiting, self.now + HAND_OVER)

    def _learn(self, measured: Histogram) -> None:
        """Include what a launch has measured, as ``learn.lua`` does."""
        self._recent.include(measured)
        if self._recent.count >= GENERATION:
            self._recent, self._before = Histogram(), self._recent

    def _ended(self, launch: ForecastLaunch) -> None:
        launch.ended = self.now
        if launch.acquired is not None:
            self._exits.append(self.now - launch.now)
        self._apply(self._launcher.ended(self.now, self._seen()))
