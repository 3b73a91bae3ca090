"""How long a launch waits for its store."""

from __future__ import annotations

from collections.abc import Callable

from pollconsumer.core.news.events import Event, StoreAwaited
from pollconsumer.runtime.launch.launch_end import LaunchEnd
from pollconsumer.store.client.patience import COMMAND_TIMEOUT, Clocks, Patience, answer_within

END_BUDGET = 2.0
"""Maximum seconds spent on an unreachable store after the window's end; at most a third of the grace, since an answer
that is awaited when the window ends may take as long again."""
FOR_EXIT = 0.5
"""Seconds before the hard end, at most a fifth of the grace, from which on no answer is awaited."""
LONG_WAIT = 3.0
"""Seconds of waiting for the store that are worth a line."""
LEAST_FOR_ANSWER = 0.01
"""Least seconds for an answer, so that a server that is there can settle what was handled last."""


class WindowPatience(Patience):
    """Repeats calls to the store until the launch's end, or until a signal comes. After that, calls are repeated
    for a short time in total, which is over before the hard end. A message that ends later still is settled
    all the same: its outcome may be the work of many minutes."""

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
        """Seconds for which calls are still repeated. The first question after the launch's end, or after a signal,
        sets the instant at which that is over. A message that ends after that instant sets it again."""
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
