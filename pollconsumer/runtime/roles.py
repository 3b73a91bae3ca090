"""The two roles that a launch can have, put together from their parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pollconsumer.core.durations import Durations
from pollconsumer.core.events import OrphansRecovered, RecurrenceRemoved
from pollconsumer.runtime.consumer import Consumer, ConsumerOptions
from pollconsumer.runtime.deliveries import Deliveries
from pollconsumer.runtime.executor import InlineExecutor, ThreadExecutor
from pollconsumer.runtime.mover import Mover, MoverOptions
from pollconsumer.runtime.wake import Wake
from pollconsumer.store.redis_store import RedisStore

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pollconsumer.core.recurrence import Recurrence
    from pollconsumer.core.window import StopReason
    from pollconsumer.runtime.handlers import Handler
    from pollconsumer.runtime.launch import HeldLaunch


def consume(
    held: HeldLaunch,
    options: ConsumerOptions,
    handlers: Mapping[str, Handler],
    recurrences: Sequence[Recurrence],
    concurrency: int,
) -> StopReason:
    """Handle messages. What was reserved by a launch that is gone is offered again first."""
    launch = held.launch
    store = RedisStore(held.wire, launch.opener.namespace)
    holder = held.acquired.holder
    for queue in options.queues:
        recovered = store.announce(holder, queue)
        if recovered:
            launch.emit(OrphansRecovered(queue, recovered))
    _define(held, store, recurrences)
    markers = [store.keys.queue(queue, "k") for queue in options.queues]
    durations = Durations(held.leases.learned(handlers))
    executor = InlineExecutor() if concurrency == 1 else ThreadExecutor(concurrency)
    try:
        return Consumer(
            options,
            launch.window,
            store,
            holder,
            handlers,
            executor,
            durations,
            wake=Wake(launch.opener.bare_wire(launch.patience), lambda: markers),
            progress=launch.progress,
            interrupted=launch.interrupted,
            check_lease=held.watch.check,
            context_of=Deliveries(held, store, handlers).context_of,
            emit=launch.emit,
        ).run()
    finally:
        executor.close()
        held.leases.learn(durations.measured)


def _define(held: HeldLaunch, store: RedisStore, recurrences: Sequence[Recurrence]) -> None:
    """Have the store know the recurrences of this launch's modules and configuration, and forget those of earlier ones.

    Most have none: their launches are spared the imports.
    """
    owner = held.acquired.holder.group
    if not recurrences and not store.owns_recurrences(owner):
        return
    from pollconsumer.store.recurring import Recurring

    queues = {*store.queues(), *(recurrence.queue for recurrence in recurrences)}
    store.own_recurrences(owner, queues, owns=bool(recurrences))
    for name in Recurring(held.wire, held.launch.opener.namespace).define(owner, sorted(queues), recurrences):
        held.launch.emit(RecurrenceRemoved(name))


def move(held: HeldLaunch, options: MoverOptions) -> StopReason:
    """Promote what is due."""
    from pollconsumer.store.recurring import Recurring

    launch = held.launch
    store = RedisStore(held.wire, launch.opener.namespace)

    held.leases.take_call(held.acquired.holder)  # it was ours

    def markers() -> list[str]:
        return [*(store.keys.queue(queue, "ks") for queue in store.queues()), store.keys.control("kq")]

    return Mover(
        options,
        launch.window,
        store,
        Recurring(held.wire, launch.opener.namespace),
        held.acquired.holder,
        wake=Wake(launch.opener.bare_wire(launch.patience), markers),
        progress=launch.progress,
        interrupted=launch.interrupted,
        check_lease=held.watch.check,
        live_fences=held.leases.live_fences,
        successor_waits=lambda: held.leases.take_call(held.acquired.holder),
        emit=launch.emit,
    ).run()
