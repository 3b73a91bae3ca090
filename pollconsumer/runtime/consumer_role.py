"""The role of a consumer: a launch, its queues and recurrences, and the loop."""

from __future__ import annotations

from contextlib import closing, suppress
from typing import TYPE_CHECKING

from pollconsumer.core.durations import Durations
from pollconsumer.core.errors import OF_ANY_QUEUE, NodeLost, PermissionDenied, PollConsumerError, StoreUnreachable
from pollconsumer.core.news.events import Event, QueueLeftOut, QueueUnknown, QueueUnserved
from pollconsumer.core.window import StopReason
from pollconsumer.runtime.consumer import Consumer
from pollconsumer.runtime.handling.executors.executor import Executor
from pollconsumer.runtime.handling.handler import Handler, aliases_among
from pollconsumer.runtime.launch.launch import Launch
from pollconsumer.runtime.launch_upkeep import announce, end_expired
from pollconsumer.runtime.session.consumer_options import ConsumerOptions
from pollconsumer.runtime.session.settlements import death_of
from pollconsumer.runtime.session.wake import Wake
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.records.reservations import DeadLetter
from pollconsumer.store.server import service_of, unknown_queues

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence, Set

    from pollconsumer.core.recurrence import Recurrence


MOST_LOOKED_AT = 100
"""Queues of others that a launch looks at when it ends, at most."""


def consume(
    launch: Launch,
    options: ConsumerOptions,
    handlers: Mapping[str, Handler],
    recurrences: Sequence[Recurrence],
    executor: Executor,
) -> StopReason:
    """Recover orphans, handle messages, and finally close ``executor``."""
    with closing(executor):
        store, named = launch.store, {handler.queue for handler in handlers.values()}
        known = {"default", *named, *(each.queue for each in recurrences)}
        if unnamed := [queue for queue in options.queues if queue not in known]:
            report_unknown(store, unnamed, launch.emit)
        wanted, lost = set(options.queues), set[str]()
        aliases = aliases_among(handlers)
        if aliases:
            store.upkeep.rename(aliases)
        store.part(options.queues)
        learned = launch.leases.learned(launch.claim.group, handlers, aliases)
        durations = Durations(learned, launch.window.length, options.loop)
        offered = {name for name, each in handlers.items() if each.name not in launch.leases.paused_handlers}
        options = options._replace(queues=_announce(launch, options.queues, lost, offered))
        left_out = wanted.difference(options.queues) | lost
        try:
            define(store, launch.claim.group, recurrences, launch.emit, left_out)
        except NodeLost:
            left_out |= store.lost(store.queues())
            define(store, launch.claim.group, recurrences, launch.emit, left_out)

        def markers() -> list[str]:
            here = [queue for queue in options.queues if queue not in lost]
            return [store.keys.queue(queue, name) for name in ("ready_marker", "schedule_marker") for queue in here]

        try:
            wake = Wake(launch.bare_wire(), markers, launch.clock)
            names = {name: each.name for name, each in handlers.items()}
            launch.progress.stops.serve(names, launch.leases.paused_handlers)  # GUARD a handler that was paused before
            reason = Consumer(options, launch, handlers, executor, durations, wake, lost).run()
            end_expired(launch, report_unserved(store, wanted, handlers, launch.emit))
            return reason
        finally:
            launch.leases.learn(launch.claim.group, durations.measured)


def report_unknown(store: RedisStore, queues: Sequence[str], emit: Callable[[Event], None]) -> None:
    """Report which of ``queues``, named by no handler, the store does not know. It is told once: the launch's
    announcement makes them known."""
    for queue in unknown_queues(store.wire, store.keys, queues):
        emit(QueueUnknown(queue))


def report_unserved(
    store: RedisStore, wanted: Set[str], handlers: Mapping[str, Handler], emit: Callable[[Event], None]
) -> list[str]:
    """Report which queues have ready messages and were served by no launch lately, but for those that this launch was
    ``wanted`` to serve. Of many, those of the launch's own handlers come first. Returns the queues, paused ones too,
    that nobody serves and in which anything waits.

    Called at the end of a launch: by then others that the platform started at the same time have announced themselves.
    Errors of the store are ignored.
    """
    named, unserved = {handler.queue for handler in handlers.values()} - wanted, list[str]()
    with suppress(StoreUnreachable, PermissionDenied):
        queues = [*sorted(named), *sorted({*store.queues()} - named - wanted)][:MOST_LOOKED_AT]
        for queue, service in service_of(store.wire, store.keys, queues).items() if queues else ():
            if service.lately or not (service.ready or service.waits):
                continue
            unserved.append(queue)
            if service.ready and not service.paused:
                names = tuple(sorted({handler.name for handler in handlers.values() if handler.queue == queue}))
                emit(QueueUnserved(queue, names, service.ready))
    return unserved


def _announce(launch: Launch, queues: Sequence[str], lost: set[str], handlers: Collection[str]) -> tuple[str, ...]:
    """Announce the launch in ``queues``. Returns the ones that can be served, now or once their node of a cluster is
    back: those are added to ``lost``. The error of the first one if there are none."""

    def emit_death(dead_letter: DeadLetter) -> None:
        launch.emit(death_of(dead_letter))

    refused = dict[str, PollConsumerError]()
    for queue in queues:
        if queue in lost:
            continue
        try:
            announce(launch, queue, emit_death, handlers)
        except NodeLost:
            lost |= {queue, *launch.store.lost(queues)}
        except OF_ANY_QUEUE:
            raise
        except PollConsumerError as error:  # GUARD a queue whose keys cannot be used
            refused[queue] = error
    if len(refused) == len(queues):
        raise next(iter(refused.values()))
    for queue, reason in refused.items():
        launch.emit(QueueLeftOut(queue, str(reason)))
    return tuple(queue for queue in queues if queue not in refused)


def define(
    store: RedisStore,
    owner: str,
    recurrences: Sequence[Recurrence],
    emit: Callable[[Event], None],
    left_out: Set[str] = frozenset(),
) -> None:
    """Register the recurrences of a launch's modules and configuration, and remove those that are no longer defined.

    ``owner`` is the launch's group. Imported lazily: most launches define no recurrences. The queues ``left_out`` have
    unusable keys, or their node of a cluster is lost: a later launch does it there.
    """
    if not recurrences and not store.upkeep.owns_recurrences(owner):
        return
    from pollconsumer.store.recurrences.launch_recurrences import LaunchRecurrences

    queues = {*store.queues(), *(recurrence.queue for recurrence in recurrences)} - left_out
    if recurrences:
        store.upkeep.own_recurrences(owner, queues)
    LaunchRecurrences(store.wire, store.keys.namespace).define(owner, sorted(queues), recurrences, emit)
    if not recurrences and not left_out:
        store.upkeep.disown_recurrences(owner)  # last: if a launch dies before, the next one does it
