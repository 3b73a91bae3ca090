"""The options of a consumer, and how a launch paces itself: by its margin, and by how many messages it reserves."""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from pollconsumer.core import durations
from pollconsumer.core.choices import Loop
from pollconsumer.runtime.handling.executors import Executor
from pollconsumer.runtime.launch.launch import Launch
from pollconsumer.store.records.reservations import Reservation
from pollconsumer.store.records.steps import Limits, Retention

if TYPE_CHECKING:
    from pollconsumer.runtime.handling.kept_lines import KeptLines
    from pollconsumer.runtime.launch.pings import Monitors


LONGEST_WAIT = 0.8
"""Longest wait in seconds between two checks of signals and lease. A blocking read may end 0.1 s later."""
REPORT_EVERY = 1.0
"""Seconds between two writes of handlers' progress, besides steps and checkpoints."""
HORIZON = 0.01
"""Messages are reserved for so many seconds ahead, and an outcome may stay unsettled for so long."""
MAX_PAGE_MESSAGES = 192
"""Maximum number of messages in a page. More would cost less for each message, but block the server for more than 1 to
3 ms."""
MAX_PAGE_BYTES = 1024 * 1024
"""Maximum bytes of payloads in a page, estimated from the last page."""
SAMPLED = 16
"""One of so many payloads is measured, since a measurement takes time."""
_payload = attrgetter("payload")


class ConsumerOptions(NamedTuple):
    """Options of a consumer; durations in seconds, memory in bytes."""

    queues: tuple[str, ...]
    idle_time: float
    estimated_duration: float
    tolerance_factor: float
    min_margin: float
    overrun_target: float
    until_empty: bool = False
    linger: float = 0.0
    """Seconds for which nothing must be left before a launch with ``until_empty`` ends."""
    max_messages: int | None = None
    memory_limit: int | None = None
    limits: Mapping[str, Limits] = MappingProxyType({})
    weights: Mapping[str, int] = MappingProxyType({})
    """Weights of queues. Without weights, queues are served in order."""
    keeping: Mapping[str, Retention] = MappingProxyType({})
    loop: Loop = Loop.WOKEN
    instances: int = 1
    """Number of launches that share the queues at the same time."""
    longest_wait: float = LONGEST_WAIT
    report_every: float = REPORT_EVERY
    kept_lines: "KeptLines | None" = None
    """Keeps what handlers log and print in this process; None if nothing is kept."""
    new_monitors: "Callable[[], Monitors] | None" = None
    """Makes the monitors that recurrences ping; None if no monitor is told, as in a test."""


class Pace:
    def __init__(
        self, options: ConsumerOptions, launch: Launch, executor: Executor, learned: durations.Durations
    ) -> None:
        self._options, self._window, self._clock = options, launch.window, launch.clock
        self._executor, self.slots, self.durations = executor, executor.slots, learned
        self._margin, self._measured = 0.0, -1
        """The margin, and the number of durations after which it was computed."""
        self._largest = 32 * 1024
        """Size of the largest measured payload, in bytes; a guess at first."""
        self.begun = 0
        """How many messages the launch has begun."""
        self.suspects = False
        """Whether the message that was begun last may have killed its process before. Then the next ones may, too."""

    def margin(self) -> float:
        """Seconds before the window's end from which on no message is begun."""
        measured = self.durations.overall.count
        if measured != self._measured:
            self._measured = measured
            self._margin = durations.margin_in(self._window, self.durations, self._options, self.slots)
        return self._margin

    def ahead(self) -> int:
        """How many messages to have reserved and not started."""
        return durations.ahead(
            self.durations.overall.mean,
            horizon=HORIZON,
            left=self._window.left(self._clock()) - self.margin(),
            concurrency=self.slots,
            most=MAX_PAGE_MESSAGES,
        )

    def measure(self, page: Sequence[Reservation]) -> None:
        """Measure payloads of a page, which has one message at least, to estimate the size of the next ones."""
        self._largest = max(map(len, map(_payload, page[::SAMPLED])))

    def page_size(self, reserved: int, wanted: int | None = None) -> int:
        """How many messages to reserve besides the ``reserved`` ones: as many as are expected to begin soon or, for a
        bulk call, as are ``wanted``."""
        if self.suspects:
            return 1
        size = self.ahead() - reserved if wanted is None else min(wanted, MAX_PAGE_MESSAGES)
        if self.slots > 1 and wanted is None:
            size = min(MAX_PAGE_MESSAGES, size + self.slots - self._executor.busy)
        size = min(size, MAX_PAGE_BYTES // max(1, self._largest))
        if self._options.max_messages is not None:
            size = min(size, self._options.max_messages - self.begun)
        return max(1, size)
