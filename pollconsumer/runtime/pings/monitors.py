"""Tells the monitors of recurrences how each attempt of an occurrence begins, and how the occurrence ends."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any

from pollconsumer.core.choices import Dialect
from pollconsumer.core.news.events import Event, PingFailed
from pollconsumer.core.news.pings import Ping, RunEnd, dialect_of, first, last
from pollconsumer.core.notation.digests import sha256
from pollconsumer.runtime.handling.context import LaunchContext
from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.runtime.handling.hooks import Hooks
from pollconsumer.runtime.handling.outcome import CallOutcomes, done_result
from pollconsumer.runtime.pings.pinger import Failed, Sender, delivered, uuid_of
from pollconsumer.store.records.reservations import Reservation

if TYPE_CHECKING:
    from collections.abc import Coroutine


AT_A_TIME = 4
"""Requests in flight. Those to one monitor are sent one after the other."""
MOST_WAITING = 100
"""Requests that may wait behind each one in flight."""
TOO_MANY = f"more than {MOST_WAITING} requests wait for an answer"


class Monitors:
    """Tells the monitors of occurrences. ``deliver`` sends a request, and returns None if the monitor took it."""

    def __init__(
        self,
        dialect: Dialect,
        clock: Callable[[], float],
        deliver: Callable[[Ping], Failed | None] = delivered,
    ) -> None:
        self._dialect, self._clock, self._deliver = dialect, clock, deliver
        self._senders: dict[int, Sender] = {}

    def watching(self, handler: Handler, reservation: Reservation, url: str) -> Handler:
        """``handler``, of which the monitor at ``url`` is told when it handles the message of ``reservation``, when it
        has, and when the message is dead."""
        return _AttemptWatch(self, handler, reservation, url).handler()

    def wait(self, left: Callable[[], float], emit: Callable[[Event], None]) -> None:
        """Wait for answers, for ``left()`` seconds at most. Reports requests that were not delivered, once a host."""
        problems: dict[str, str] = {}
        for sender in self._senders.values():
            sender.close()
        for sender in self._senders.values():
            problems |= sender.wait(left())
        for host, problem in problems.items():
            emit(PingFailed(host, problem))

    def begin(self, url: str, run: str) -> float:
        """Tell that the run begins. Returns the instant."""
        if (ping := first(url, dialect_of(url, self._dialect), run)) is not None:
            self._send(url, ping)
        return self._clock()

    def end(self, url: str, run: str, began: float | None, code: int, line: str) -> None:
        seconds = 0.0 if began is None else self._clock() - began
        self._send(url, last(url, dialect_of(url, self._dialect), run, RunEnd(code, line, seconds)))

    def _send(self, url: str, ping: Ping) -> None:
        place = hash(url) % AT_A_TIME
        sender = self._senders.get(place)
        if sender is None:
            sender = self._senders[place] = Sender(self._deliver)
            sender.start()
        if sender.waiting() < MOST_WAITING:
            sender.send(ping)
        else:
            sender.refuse(ping, TOO_MANY)


class _AttemptWatch:
    """Tells a monitor of one attempt."""

    def __init__(self, monitors: Monitors, handler: Handler, reservation: Reservation, url: str) -> None:
        self._monitors, self._handler, self._url = monitors, handler, url
        self._name, self._attempt = reservation.name, reservation.attempt
        self._run = uuid_of(sha256(reservation.name.encode()))
        """The UUID of the run: the same for each attempt of the occurrence, in whichever launch."""
        self._began: float | None = None

    def handler(self) -> Handler:
        hooks = copy(self._handler.hooks) or Hooks(lambda *_: None)
        hooks.on_dead = [*hooks.on_dead, self._died]
        return self._handler._replace(run=self._run_watched, hooks=hooks)

    def _run_watched(self, payload: dict[str, Any], context: LaunchContext | None) -> Any:
        self._began = self._monitors.begin(self._url, self._run)
        result = self._handler.run(payload, context)
        return self._awaited(result) if self._handler.asynchronous else self._completed(result)

    async def _awaited(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self._completed(await coroutine)

    def _completed(self, result: Any) -> Any:
        result = done_result(result)
        if not isinstance(result, CallOutcomes) or all(each.error is None for each in result):
            self._end(0, "completed")
        return result

    def _died(self, _: LaunchContext, error: BaseException) -> None:
        self._end(1, f"dead letter, {type(error).__name__}")

    def _end(self, code: int, what: str) -> None:
        self._monitors.end(self._url, self._run, self._began, code, f"{self._name}: {what}, attempt {self._attempt}")
