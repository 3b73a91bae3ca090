"""What a consumer is to do, and how a launch paces itself: by its margin, and by how many messages it reserves."""

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
"""Longest wait in seconds between checks of signals and lease; a blocking read may end a tenth of a second later."""
REPORT_EVERY = 1.0
"""Seconds between two writes of handlers' progress beside steps and checkpoints."""
HORIZON = 0.01
"""Seconds that messages are reserved ahead, and that an outcome may stay unsettled."""
MAX_PAGE_MESSAGES = 192
"""Messages of a page, at most: more would cost each message less, and keep the server from others for longer than 1 to
3 ms."""
MAX_PAGE_BYTES = 1024 * 1024
"""Bytes of payloads, estimated from the last page."""
SAMPLED = 16
"""How many payloads there are for each one that is measured, since a measurement takes time."""
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
    """How long there must be nothing left, with ``until_empty``, before the launch ends."""
    max_messages: int | None = None
    memory_limit: int | None = None
    limits: Mapping[str, Limits] = MappingProxyType({})
    weights: Mapping[str, int] = MappingProxyType({})
    """Weights of queues; without any, queues are served in order."""
    keeping: Mapping[str, Retention] = MappingProxyType({})
    loop: Loop = Loop.WOKEN
    instances: int = 1
    """Launches that share the queues at the same time."""
    longest_wait: float = LONGEST_WAIT
    report_every: float = REPORT_EVERY
    kept_lines: "KeptLines | None" = None
    """What handlers log and print in this process; None where nothing of it is kept."""
    new_monitors: "Callable[[], Monitors] | None" = None
    """Makes the monitors that recurrences ping; None where nobody is to be told, as in a test."""


class Pace:
    def __init__(
        self, options: ConsumerOptions, launch: Launch, executor: Executor, learned: durations.Durations
    ) -> None:
        self._options, self._window, self._clock = options, launch.window, launch.clock
        self._executor, self.slots, self.durations = executor, executor.slots, learned
        self._margin, self._measured = 0.0, -1
        """The margin, and after how many durations it was computed."""
        self._largest = 32 * 1024
        """Bytes of the largest payload that was measured, at first a guess."""
        self.begun = 0
        """How many messages the launch has begun."""
        self.suspects = False
        """Whether the message that was begun last may have killed its process before: the next ones may, too."""

    def margin(self) -> float:
        """Seconds before the window's end in which no message is begun."""
        measured = self.durations.overall.count
        if measured != self._measured:
            self._measured = measured
            self._margin = durations.margin_in(self._window, self.durations, self._options, self.slots)
        return self._margin

    def ahead(self) -> int:
        """How many messages to have reserved, and not started."""
        return durations.ahead(
            self.durations.overall.mean,
            horizon=HORIZON,
            left=self._window.left(self._clock()) - self.margin(),
            concurrency=self.slots,
            most=MAX_PAGE_MESSAGES,
        )

    def measure(self, page: Sequence[Reservation]) -> None:
        """Learn from the payloads of a page, which has one at least, how large the next ones may be."""
        self._largest = max(map(len, map(_payload, page[::SAMPLED])))

    def page_size(self, reserved: int, wanted: int | None = None) -> int:
        """How many messages to reserve beside the ``reserved`` ones: as many as are expected to begin soon, or as are
        ``wanted`` for a bulk call."""
        if self.suspects:
            return 1
        size = self.ahead() - reserved if wanted is None else min(wanted, MAX_PAGE_MESSAGES)
        if self.slots > 1 and wanted is None:
            size = min(MAX_PAGE_MESSAGES, size + self.slots - self._executor.busy)
        size = min(size, MAX_PAGE_BYTES // max(1, self._largest))
        if self._options.max_messages is not None:
            size = min(size, self._options.max_messages - self.begun)
        return max(1, size)
