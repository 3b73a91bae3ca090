"""How a launch paces itself: by its margin, and by how many messages it reserves at a time."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from pollconsumer.core import durations
from pollconsumer.core.events import WindowTooShort
from pollconsumer.runtime.handling.executors.executor import Executor
from pollconsumer.runtime.launch.held import Launch
from pollconsumer.runtime.session.consumer_options import ConsumerOptions
from pollconsumer.store.records.reservations import Reservation

if TYPE_CHECKING:
    from collections.abc import Iterable


HORIZON = 0.01
"""Seconds that messages are reserved ahead, and that an outcome may stay unsettled."""
MAX_PAGE_MESSAGES = 192
"""More would cost each message less, and keep the server from others for longer than 1 to 3 ms."""
MAX_PAGE_BYTES = 1024 * 1024
"""Of payloads, as far as those reserved last tell."""
SAMPLED = 16
"""One of so many is looked at, since each look takes time."""


class Pace:
    def __init__(
        self, options: ConsumerOptions, launch: Launch, executor: Executor, learned: durations.Durations
    ) -> None:
        self._options, self._launch, self._window, self._clock = options, launch, launch.window, launch.clock
        self._executor, self._durations = executor, learned
        self._margin, self._measured = 0.0, -1
        """The margin, and after how many durations it was computed."""
        self._largest = 32 * 1024
        """Bytes of the largest payload among those looked at, at first a guess."""

    def margin(self) -> float:
        """Seconds before the window's end in which no message is begun."""
        measured = self._durations.overall.count
        if measured != self._measured:
            self._measured = measured
            self._margin = durations.margin_in(self._window, self._durations, self._options, self._executor.slots)
        return self._margin

    def warn_unless_late(self, left: float) -> None:
        """Report that the window, of which so many seconds were left, is too short for the margin; unless only this
        launch came late for it, as one that a person starts just before the next tick."""
        plan = self._launch.plan
        whole = max(left, min(plan.timeout, left + (plan.launched_ago or 0.0)))
        if self.margin() >= whole:
            self._launch.emit(WindowTooShort(self.margin(), whole))

    def ahead(self) -> int:
        """How many messages to have reserved, and not started."""
        return durations.ahead(
            self._durations.overall.mean,
            horizon=HORIZON,
            left=self._window.left(self._clock()) - self.margin(),
            concurrency=self._executor.slots,
            most=MAX_PAGE_MESSAGES,
        )

    def look_at(self, reserved: Iterable[Reservation]) -> None:
        """Learn from every `SAMPLED`-th one how large the next ones may be."""
        self._largest = max((len(each.payload) for each in islice(reserved, 0, None, SAMPLED)), default=self._largest)

    def page_size(self, reserved: int, taken: int) -> int:
        """How many messages to reserve now, while so many are reserved, and after so many were taken."""
        size = self.ahead() - reserved
        if self._executor.inline is None:
            size = min(MAX_PAGE_MESSAGES, size + self._executor.slots - self._executor.busy())
        size = min(size, MAX_PAGE_BYTES // max(1, self._largest))
        if self._options.max_messages is not None:
            size = min(size, self._options.max_messages - taken)
        return max(1, size)
