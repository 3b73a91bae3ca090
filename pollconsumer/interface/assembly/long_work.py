"""Handlers that may outlast a launch's window, and whose messages others wait for meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from pollconsumer.core.notation.timespan import format_duration
from pollconsumer.interface.settings.model import CommandSettings, Settings
from pollconsumer.interface.settings.values import BESIDE_WINDOW
from pollconsumer.runtime.handling.handler import Handler

NEAR = 0.9
"""The share of a window from which on a measured duration is near it."""


class LongHandler(NamedTuple):
    """A handler that may take ``most`` seconds. ``waiting``: the queues whose other messages wait meanwhile."""

    name: str
    queue: str
    most: float
    waiting: tuple[str, ...]

    def __str__(self) -> str:
        own = self.queue not in self.waiting
        queue = self.queue if own else self.name
        needed, first = ("a crontab line", "") if own else ("a queue and a crontab line", f'queue="{queue}", then ')
        return (
            f"{self.name} may take {format_duration(self.most)}: other messages of {', '.join(self.waiting)} wait "
            f"meanwhile; {needed} of its own would let them pass: "
            f"{first}'pollconsumer init cron --install --queue {queue}'"
        )


def long_handlers(
    handlers: Mapping[str, Handler],
    queues: Sequence[str],
    window: float,
    measured: Mapping[str, float],
    programs: Mapping[str, CommandSettings] = MappingProxyType({}),
    slots: int = 1,
) -> Iterator[LongHandler]:
    """Yield the handlers whose declared timeout is longer than the ``window`` of a launch that serves ``queues``, or
    whose longest ``measured`` duration is near it. Not one for which no other message waits. All in
    seconds. ``programs``: those among the handlers, by name. With more ``slots`` than one, others go on beside it."""
    if slots > 1:
        return
    served = {each.name: each for each in handlers.values() if each.queue in queues}
    for name, each in sorted(served.items()):
        declared, took = (programs[name].timeout if name in programs else each.timeout) or 0.0, measured.get(name, 0.0)
        most = max(declared if declared > window else 0.0, took if took >= NEAR * window else 0.0)
        beside = any(other.queue == each.queue for other in served.values() if other.name != name)
        waiting = tuple(queue for queue in queues if queue != each.queue or beside)
        if most and waiting:
            yield LongHandler(name, each.queue, round(most, 1), waiting)


def beyond_requests(handlers: Mapping[str, Handler], settings: Settings) -> dict[str, str]:
    """The handlers that no launch by a URL begins, since their declared timeouts are longer than its window, and what
    to do; none where no URL starts launches."""
    window, found = settings.web.budget - BESIDE_WINDOW, dict[str, str]()
    for each in handlers.values() if settings.web.token is not None else ():
        timeout = each.timeout
        if timeout is not None and timeout != settings.consumer.handler_limit and timeout > window:
            found[each.name] = (
                f"{each.name}: timeout {format_duration(timeout)} is longer than the {format_duration(window)} of a "
                "launch by a URL; raise web.budget, start 'pollconsumer run' by cron, or lower the timeout"
            )
    return found
