"""What a consumer's configuration says."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from pollconsumer.core.choices import Loop
from pollconsumer.store.limits import Limits, Retention

if TYPE_CHECKING:
    from pollconsumer.runtime.launch.pings import Monitors

LONGEST_WAIT = 0.8
"""Longest wait in seconds between checks of signals and lease; a blocking read may end a tenth of a second later."""
REPORT_EVERY = 1.0
"""Seconds between two writes of handlers' progress beside steps and checkpoints."""


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
    new_monitors: "Callable[[], Monitors] | None" = None
    """Makes the monitors that recurrences ping; None where nobody is to be told, as in a test."""
