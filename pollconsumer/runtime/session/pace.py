"""The options of a consumer, and the pace of a launch: its margin, and how many messages it reserves."""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from pollconsumer.core import durations
from pollconsumer.runtime.handling.executors import Executor
from pollconsumer.runtime.launch.launch import Launch
from pollconsumer.store.records.reservations import Reservation
from pollconsumer.store.records.steps import Limits, Retention

if TYPE_CHECKING:
    from threading import Event

    from pollconsumer.runtime.handling.kept_lines import KeptLines
    from pollconsumer.runtime.launch.pings import Monitors


LONGEST_WAIT = 0.8
"""Seconds between two checks of signals and lease while the launch waits. A blocking read may end 0.1 s later."""
REPORT_EVERY = 1.0
"""Seconds between two writes of handlers' progress, unless a step or a checkpoint stores it sooner."""
HORIZON = 0.01
"""Seconds for which messages are reserved ahead, and for which an outcome may wait to be settled."""
MAX_PAGE_MESSAGES = 192
"""Maximum number of messages in a page. A larger one would cost less for each message, but block the server longer than
1 to 3 ms."""
MAX_PAGE_BYTES = 1024 * 1024
"""Maximum bytes of payloads in a page, estimated from the page before."""
SAMPLED = 16
"""One payload in so many is measured, to save time."""
_payload = attrgetter("payload")


class ConsumerOptions(NamedTuple):
    """The options of a consumer. Durations are in seconds, memory is in bytes."""

    queues: tuple[str, ...]
    idle_time: float
    margin: durations.MarginRule
    until_empty: bool = False
    linger: float = 0.0
    """With ``until_empty``: for how many seconds there must be nothing to do before the launch ends."""
    taken_in: "Event | None" = None
    """With ``until_empty``: set once what was spooled before the launch is enqueued; None without a spool."""
    max_messages: int | None = None
    memory_limit: int | None = None
    limits: Mapping[str, Limits] = MappingProxyType({})
    weights: Mapping[str, int] = MappingProxyType({})
    """Weights by queue. Without weights, a queue is served only if those before it hand out nothing."""
    keeping: Mapping[str, Retention] = MappingProxyType({})
    instances: int = 1
    """The number of launches that serve the queues at the same time."""
    longest_wait: float = LONGEST_WAIT
    report_every: float = REPORT_EVERY
    kept_lines: "KeptLines | None" = None
    """Keeps the lines that handlers log and print in this process; None if none are kept."""
    new_monitors: "Callable[[], Monitors] | None" = None
    """Makes the `Monitors` to which occurrences are reported; None if none are, as in tests."""


class Pace:
    def __init__(
        self, options: ConsumerOptions, launch: Launch, executor: Executor, learned: durations.Durations
    ) -> None:
        self._options, self._window, self._clock = options, launch.window, launch.clock
        self._executor, self.slots, self.durations = executor, executor.slots, learned
        self._margin, self._measured = 0.0, -1
        """The margin, and how many durations were measured when it was computed."""
        self._largest = 32 * 1024
        """Bytes of the largest payload in the last page; a guess at first."""
        self.begun = 0
        """How many messages the launch has begun."""
        self.suspects = False
        """Whether an earlier process died while it handled the message begun last. The next messages may be like it."""

    def margin(self) -> float:
        """The length, in seconds, of the window's last part, in which no message begins."""
        measured = self.durations.overall.count
        if measured != self._measured:
            self._measured = measured
            self._margin = durations.margin_in(self._window, self.durations, self._options.margin, self.slots)
        return self._margin

    def ahead(self) -> int:
        """How many messages to hold that are reserved and not begun."""
        return durations.ahead(
            self.durations.overall.mean,
            horizon=HORIZON,
            left=self._window.left(self._clock()) - self.margin(),
            concurrency=self.slots,
            most=MAX_PAGE_MESSAGES,
        )

    def measure(self, page: Sequence[Reservation]) -> None:
        """Measure payloads of ``page``, which is not empty. They limit how many messages the next page has."""
        self._largest = max(map(len, map(_payload, page[::SAMPLED])))

    def page_size(self, reserved: int, wanted: int | None = None) -> int:
        """How many messages to reserve in addition to ``reserved`` ones: for a bulk call ``wanted`` at most, else as
        many as should soon begin. At least 1."""
        if self.suspects:
            return 1
        size = self.ahead() - reserved if wanted is None else min(wanted, MAX_PAGE_MESSAGES)
        if self.slots > 1 and wanted is None:
            size = min(MAX_PAGE_MESSAGES, size + self.slots - self._executor.busy)
        size = min(size, MAX_PAGE_BYTES // max(1, self._largest))
        if self._options.max_messages is not None:
            size = min(size, self._options.max_messages - self.begun)
        return max(1, size)
