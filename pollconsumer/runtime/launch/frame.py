"""What a launch has from its start on, with or without a lease: its window, its patience, its progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pollconsumer.core.choices import LauncherRule
from pollconsumer.core.launcher.punctuality import FLOOR_OF_DROP, Punctuality, allowance
from pollconsumer.core.news.events import Event, StoreAwaited
from pollconsumer.core.window import OUR_OWN, StopReason, Window, predict_stop, tick_from
from pollconsumer.runtime.launch.held import LaunchPlan
from pollconsumer.runtime.launch.host import Host
from pollconsumer.runtime.launch.launch_end import LaunchEnd
from pollconsumer.runtime.launch.shared_memory.launch_progress import LaunchProgress
from pollconsumer.runtime.store_opener import StoreOpener
from pollconsumer.runtime.system.process_exit import EXIT_WITHIN
from pollconsumer.runtime.system.start_limit import EXIT_CODE
from pollconsumer.store.client.patience import COMMAND_TIMEOUT, Clocks, Patience, answer_within

if TYPE_CHECKING:
    from pollconsumer.runtime.launch.pings import Pinger

END_BUDGET = 2.0
"""Maximum seconds spent on an unreachable store after the window's end; at most a third of the grace, since an answer
that is awaited when the window ends may take as long again."""
FOR_EXIT = 0.5
"""Seconds before the hard end, at most a fifth of the grace, from which on no answer is awaited."""
LONG_WAIT = 3.0
"""Seconds of waiting for the store that are worth a line."""
LEAST_FOR_ANSWER = 0.01
"""Least seconds for an answer, so that a server that is there can settle what was handled last."""


class Frame:
    def __init__(
        self,
        plan: LaunchPlan,
        opener: StoreOpener,
        emit: Callable[[Event], None],
        host: Host,
        pinger: Pinger | None = None,
    ) -> None:
        self.plan, self.opener, self.emit, self.host, self.pinger = plan, opener, emit, host, pinger
        self._start, now = host.started_at(), host.monotonic()
        self._ahead = plan.next_launches and (now + plan.next_launches[0], now + plan.next_launches[1])
        offset = None if plan.launched_ago is None else plan.launched_ago - (now - self._start)
        # A launch suspended before it planned knows only ticks later than its own: others would learn from them.
        passed = offset is not None and offset < -OUR_OWN
        self.launch_offset = None if passed else offset
        self.next_tick = None if passed or self._ahead is None else self._ahead[0] - self._start
        self.interruption = host.catch_signals()
        self.progress = LaunchProgress()
        self.end = LaunchEnd(
            self.progress.flight, self._start, plan.grace, plan.handler_limit, bounded=plan.window_is_budget
        )
        self.window = Window(self._start, self._start)
        self._patience = WindowPatience(self.end, self.interruption.__bool__, host, emit)
        self.learn(Punctuality(), plan.launcher.rule)
        self.id = host.new_id()

    def learn(self, punctuality: Punctuality, rule: LauncherRule) -> bool:
        """Set window and margin by what is known of earlier launches and their launcher. Returns whether the window
        has changed."""
        plan, before = self.plan, self.window
        found = plan.launcher._replace(rule=rule)
        self.plan = plan = plan._replace(launcher=found, handoff=rule.handoff(plan.handoff))
        late, margin = allowance(plan.launcher, punctuality, plan.min_margin)
        self.window = Window(self._start, predict_stop(self._start, plan.timeout, self._ahead, plan.handoff, late))
        self.end.stop_before = self.window.stop_before
        # What is only remembered never closes more than half of a window.
        self.min_margin = margin if plan.min_margin is not None else min(margin, self.window.left(self._start) / 2)
        return self.window != before

    def exit_by(self) -> float:
        """The instant of the monotonic clock by which the process must have ended if its work ends now. A launcher that
        drops the tick of a launch that still runs must not drop the next one."""
        now = self.host.monotonic()
        until = min(now + EXIT_WITHIN, self.end.hard_end())
        if self.plan.launcher.rule is LauncherRule.DROP and self._ahead:
            tick = tick_from(now, self._ahead)  # earlier ones are dropped already: a message took long
            until = min(until, tick - self.plan.launcher.reaped_late - FLOOR_OF_DROP)
        return until

    def interrupted(self) -> bool:
        return bool(self.interruption)

    def outlived(self) -> str:
        """Record that the watchdog ends the launch. Returns its message."""
        self.progress.end(StopReason.WATCHDOG, EXIT_CODE)
        return self.end.what_resisted(self.host.monotonic())

    def patience(self) -> WindowPatience:
        return self._patience


class WindowPatience(Patience):
    """Retry until the launch's end, while no signal has come; then for a short time in total, before its hard end. A
    message that ends after that is settled all the same: its outcome may be the work of many minutes."""

    def __init__(
        self,
        end: LaunchEnd,
        interrupted: Callable[[], bool],
        clocks: Clocks,
        emit: Callable[[Event], None] = lambda _: None,
    ) -> None:
        """``emit``: told once of a store that is away for long."""
        self._end, self._interrupted, self._clocks = end, interrupted, clocks
        self._end_budget, self._last = min(END_BUDGET, end.grace / 3), end.grace - min(FOR_EXIT, end.grace / 5)
        self._until: float | None = None
        self._first_pause: float | None = None
        self._emit, self._missed_since, self._has_told = emit, 0.0, False
        self.waited = 0.0
        """Seconds from the first wait for the store to the end of the last one."""

    def left(self) -> float:
        now, latest, ended = self._clocks.monotonic(), self._end.latest(), self._end.last_ended()
        if self._until is None or ended > self._until:
            if now < latest and not self._interrupted():
                self._until = None
                return latest - now + self._end_budget
            over = self._end.stop_before + self._end_budget if self._until is None else self._until
            # GUARD the outcome of a long handling is settled
            self._until = ended + self._last if ended > over else now + self._end_budget
        return max(0.0, min(self._until, latest + self._last) - now)

    def pause(self, seconds: float) -> None:
        left, now = self.left(), self._clocks.monotonic()
        latest = self._end.latest()
        if self._until is None and now + seconds >= latest:
            self._until = max(now, latest) + self._end_budget  # the short time begins with the launch's end
        self._clocks.sleep(min(seconds, left))
        self._first_pause = now if self._first_pause is None else self._first_pause
        self.waited = self._clocks.monotonic() - self._first_pause

    def missed(self, address: str, reason: str, *, first: bool) -> None:
        now = self._clocks.monotonic()
        self._missed_since = now if first else self._missed_since
        if now - self._missed_since >= LONG_WAIT and not self._has_told:  # GUARD a launch that waits in silence
            self._has_told = True
            self._emit(StoreAwaited(address, reason, now - self._missed_since, self.left()))

    def for_one_answer(self, blocking: float = 0.0) -> float:
        """Timeout of one command, in seconds. It is shorter at the launch's end: a server that does not answer must not
        keep the launch beyond its grace."""
        is_open = self._until is None and not self._interrupted()
        if is_open and blocking == 0 and self._clocks.monotonic() + COMMAND_TIMEOUT < self._end.stop_before:
            return COMMAND_TIMEOUT  # hot path: long before the end
        left = self.left()
        timeout = answer_within(left) + blocking
        if timeout <= left:
            return timeout
        last = self._end.latest() + self._last - self._clocks.monotonic()
        return min(timeout, max(LEAST_FOR_ANSWER, last))

    def to_connect(self) -> float:
        """Timeout of a new connection, in seconds; 0 once patience is over: a server that did not answer is not waited
        for again."""
        return self.for_one_answer() if self.left() > 0 else 0.0
