"""The latest end of a launch. Everything that must be over by then asks a `LaunchEnd`, and so do the retries of calls
to the store.

A launch begins messages until its window's end, and lets each go on until the message's own limit. So the end depends
on the messages in flight, which are read from the memory that the launch shares with its heartbeat."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf

from pollconsumer.core.errors import shown
from pollconsumer.core.events import Event, StoreAwaited
from pollconsumer.core.notation.text import printable
from pollconsumer.core.retry import HandlerTimeout
from pollconsumer.core.spans import format_duration
from pollconsumer.runtime.launch.board import Flight, MessageInFlight
from pollconsumer.store.client.patience import COMMAND_TIMEOUT, Clocks, Patience, answer_within

MOST_NAMED = 3
KILLED = "killed: "
"""The prefix of a message's error if the launch was killed because the message did not stop."""
REMEDY = 'give it isolation="process", or a timeout that it keeps'
"""The fix, for a handler that cannot be interrupted."""
END_BUDGET = 2.0
"""Maximum seconds of retries after the window's end, and at most a third of the grace: a call that is in progress at
the window's end may take as long again."""
FOR_EXIT = 0.5
"""The last seconds before the hard end, at most a fifth of the grace, in which no answer of the store is awaited."""
LONG_WAIT = 3.0
"""Seconds without an answer of the store after which the log says so."""
LEAST_FOR_ANSWER = 0.01
"""The least timeout of an answer, in seconds. It lets a reachable store settle the last messages."""


class LaunchEnd:
    """The end of a launch; instants on the monotonic clock, durations in seconds."""

    def __init__(
        self, flight: Flight, stop_before: float, grace: float, handler_limit: float = 0.0, *, bounded: bool = False
    ) -> None:
        """``stop_before``: the window's end. ``handler_limit``: the limit of a handler without a timeout. ``bounded``:
        the platform ends the launch at ``stop_before``, so no message may go on after that."""
        self.flight, self.stop_before, self.grace = flight, stop_before, grace
        self.handler_limit, self._bounded = handler_limit, bounded
        self._longest = 0.0
        self.when_longer: Callable[[], None] = lambda: None
        """Called when `farthest` moves to a later instant, because a handler has a longer limit than all before."""

    def outlasts(self, timeout: float, window: float) -> bool:
        """Whether the platform ends launches, and a launch's whole ``window`` is shorter than the ``timeout`` of a
        handler. False for a timeout that equals `consumer.handler_limit`, which counts as not declared."""
        return self._bounded and timeout != self.handler_limit and timeout > window

    def verdict(self, began: float, timeout: float | None) -> HandlerTimeout:
        """The error of a handler that was stopped at its limit. ``timeout``: the handler's; None without one."""
        limit, left = self.handler_limit if timeout is None else timeout, self.stop_before - began
        if self._bounded and left < limit:
            return HandlerTimeout(round(left, 1), "all that a launch by a URL had left")
        if timeout is None:
            return HandlerTimeout(limit, "from consumer.handler_limit; give it timeout= if it needs longer")
        return HandlerTimeout(limit)

    def ends_by(self, began: float, limit: float | None) -> float:
        """When a handler that began at ``began`` must have ended. ``limit``: its timeout; None without one."""
        limit = self.handler_limit if limit is None else limit
        if limit > self._longest:
            self._longest = limit
            self.when_longer()
        return min(began + limit, self.stop_before) if self._bounded else began + limit

    def expect(self, timeouts: Iterable[float | None]) -> None:
        """Set the timeouts of all handlers of the launch, from which `farthest` follows."""
        limits = (self.handler_limit if each is None else each for each in timeouts)
        self.ends_by(0.0, max(limits, default=0.0))

    def farthest(self) -> float:
        """The latest instant until which a message that begins within the window may go on."""
        return self.stop_before if self._bounded else self.stop_before + self._longest

    def latest(self) -> float:
        """The instant at which the launch must have ended its work: the latest of the window's end, the limits of the
        messages in flight, and the end of the last handler."""
        return max(self.stop_before, self.flight.ends_by())

    def hard_end(self) -> float:
        """The instant at which the process is killed."""
        return self.latest() + self.grace

    def what_resisted(self, now: float) -> str:
        """Why the process is killed, for a line in the log. If a message did not stop, it is named, with the fix."""
        doing = while_what(self.flight.left_behind())
        window_line = f"watchdog: launch killed, it ran longer than its window and grace, {doing}"
        return next(iter(self.resisted(now).values()), window_line)

    def resisted(self, now: float) -> dict[tuple[str, bytes], str]:
        """For each message that has not stopped at its limit, by queue and id, the error to store."""
        lines, within = dict[tuple[str, bytes], str](), format_duration(self.grace)
        for each in self.flight.left_behind():
            if 0.0 < each.ends_by <= now:
                limit = format_duration(round(each.ends_by - each.began, 1))
                what = f"{each.handler} did not stop within {within} after its limit of {limit} (message {_name(each)})"
                lines[each.queue, each.id] = printable(f"{KILLED}{what}; {REMEDY}")
        return lines

    def lasts_until(self, now: float, called: float = inf) -> float:
        """The instant until which free slots may begin messages after the window's end, because long messages keep the
        launch alive; 0 if none do. Long messages have run longer than the grace, and began before the window's end and
        before the next launch ``called`` for the lease. The instant is the latest of their limits."""
        closes = min(called, self.stop_before)
        return 0.0 if self._bounded else self.flight.ends_by(before=closes, since=now - self.grace)


def while_what(left_behind: list[MessageInFlight]) -> str:
    """Which messages a killed launch had in flight, for a line in the log."""
    in_flight = [message for message in left_behind if not message.ended]
    shown_ids = [f"{_name(message)} ({message.handler})" for message in in_flight[:MOST_NAMED]]
    if len(in_flight) > MOST_NAMED:
        shown_ids.append(f"{len(in_flight) - MOST_NAMED} more")
    return printable(f"while handling {', '.join(shown_ids)}") if in_flight else "with no message in flight"


def _name(message: MessageInFlight) -> str:
    return shown(message.id.decode("utf-8", "replace"))


class WindowPatience(Patience):
    """Repeats failed calls to the store until the launch's end, or until a signal comes. After that it repeats them for
    a short time in total, which ends before the hard end. If a message ends later still, its outcome gets such a time
    again, since it may be the work of many minutes."""

    def __init__(
        self,
        end: LaunchEnd,
        interrupted: Callable[[], bool],
        clocks: Clocks,
        emit: Callable[[Event], None] = lambda _: None,
    ) -> None:
        """``emit`` is called with `StoreAwaited` once, if the store does not answer for `LONG_WAIT`."""
        self._end, self._interrupted, self._clocks = end, interrupted, clocks
        self._end_budget, self._last = min(END_BUDGET, end.grace / 3), end.grace - min(FOR_EXIT, end.grace / 5)
        self._until: float | None = None
        self._first_pause: float | None = None
        self._emit, self._missed_since, self._has_reported = emit, 0.0, False
        self.waited = 0.0
        """Seconds from the first wait for the store to the end of the last one."""

    def left(self) -> float:
        """Seconds for which failed calls are still repeated. The first call after the launch's end, or after a signal,
        sets the instant of the last repetition. If a message ends after that instant, the next call sets a new one."""
        now, latest, ended = self._clocks.monotonic(), self._end.latest(), self._end.flight.last_ended()
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
        if now - self._missed_since >= LONG_WAIT and not self._has_reported:  # GUARD a launch that waits in silence
            self._has_reported = True
            self._emit(StoreAwaited(address, reason, now - self._missed_since, self.left()))

    def for_one_answer(self, blocking: float = 0.0) -> float:
        """Timeout of one command, in seconds, ``blocking`` included. Near the launch's end it is shorter, so that
        a server that does not answer cannot keep the launch beyond its grace."""
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
        """Timeout of a new connection, in seconds. 0 once `left` is 0: nobody waits again for a silent server."""
        return self.for_one_answer() if self.left() > 0 else 0.0
