"""A launch where launches are started on demand: it says that it is there, and is followed where it leaves messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from pollconsumer.core.errors import PollConsumerError
from pollconsumer.core.window import StopReason, tick_from
from pollconsumer.interface.on_demand import start_launch
from pollconsumer.interface.settings.model import Settings
from pollconsumer.runtime.launch.launch import Launch
from pollconsumer.runtime.system.process_exit import before_exit
from pollconsumer.store.leases import TTL
from pollconsumer.store.queues.demand import ONE_WITHIN_MS, Presence

LEAVING_MESSAGES = (
    StopReason.EMPTY,
    StopReason.NO_TIME_TO_HANDLE,
    StopReason.NO_TIME_TO_IDLE,
    StopReason.MEMORY,
    StopReason.DESCRIPTORS,
)
"""How a launch ends that another may continue; one that is empty, where a message came after its last look. After
another end a launch follows only if a producer has wanted one meanwhile, whose start may have met the lease."""


def present_during(
    launch: Launch, settings: Settings, queues: Sequence[str], work: Callable[[], StopReason]
) -> StopReason:
    """Do the ``work`` of a launch while producers find that it serves ``queues``. Once its lease is released, another
    is started if any message is ready, unless the platform soon starts one."""
    presence = Presence(launch.store.wire, launch.store.keys, queues, settings.consumer.queues)
    presence.begin(launch.window.left(launch.clock()) + TTL)  # the heartbeat prolongs it beyond the window
    reason = work()
    presence.end()

    def follow(left: Callable[[], float]) -> None:
        with suppress(PollConsumerError):  # the store is away: the next message, or the platform, starts one
            has_left_any, is_wanted = presence.left()
            if has_left_any and (reason in LEAVING_MESSAGES or is_wanted) and not _is_followed(launch):
                start_launch(settings, await_answer=left)

    before_exit(follow)
    return reason


def _is_followed(launch: Launch) -> bool:
    """Whether the schedule has a launch within the time in which a producer would start no second one."""
    ahead, elapsed = launch.plan.next_launches, launch.clock() - launch.window.start
    return ahead is not None and tick_from(elapsed, ahead) - elapsed < ONE_WITHIN_MS / 1000
