"""A launch's options from the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pollconsumer.interface.settings.values import parse_quota
from pollconsumer.runtime.consumer import ConsumerOptions
from pollconsumer.runtime.launch.held import LaunchPlan
from pollconsumer.store.reservations import Limits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pollconsumer.interface.settings.model import ConsumerSettings, MoverSettings, QueueSettings, Settings
    from pollconsumer.runtime.handling.handler import Handler
    from pollconsumer.runtime.mover import MoverOptions


def plan_of(chosen: ConsumerSettings | MoverSettings) -> LaunchPlan:
    ahead = None
    if chosen.schedule:
        from pollconsumer.runtime.launch.next_launches import next_launches

        ahead = next_launches(chosen.schedule)
    return LaunchPlan(chosen.timeout, chosen.grace, chosen.handoff, ahead)


def mover_options(settings: Settings) -> MoverOptions:
    from pollconsumer.runtime.mover import MoverOptions

    return MoverOptions(settings.mover.idle_time, settings.mover.batch_size)


def served_queues(settings: Settings, handlers: Mapping[str, Handler]) -> tuple[str, ...]:
    """The queues that a launch with these handlers serves, in order: those in the settings, else ``default`` and the
    handlers'."""
    if settings.consumer.queues:
        return tuple(dict.fromkeys(settings.consumer.queues))
    return ("default", *sorted({handler.queue for handler in handlers.values()} - {"default"}))


def consumer_options(
    settings: Settings, queues: tuple[str, ...], *, until_empty: bool, max_messages: int | None
) -> ConsumerOptions:
    chosen = settings.consumer
    return ConsumerOptions(
        queues=queues,
        idle_time=chosen.idle_time,
        estimated_duration=chosen.estimated_duration,
        tolerance_factor=chosen.tolerance_factor,
        min_margin=chosen.min_margin,
        until_empty=until_empty,
        max_messages=max_messages,
        memory_limit=chosen.memory_limit,
        limits={name: _limits(settings.queues[name]) for name in queues if name in settings.queues},
        weights=_weights(queues, settings.queues),
    )


def _limits(queue: QueueSettings) -> Limits:
    quota, period_ms = parse_quota(queue.quota) if queue.quota else (None, None)
    return Limits(queue.max_in_flight, quota, period_ms)


def _weights(served: Sequence[str], queues: Mapping[str, QueueSettings]) -> dict[str, int]:
    """By queue, if any of those served has one; the others have 1."""
    weights = {name: queues[name].weight or 1 for name in served if name in queues}
    return weights if any(queues[name].weight for name in weights) else {}
