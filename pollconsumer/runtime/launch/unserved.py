"""Reports unknown queues that a launch serves, and queues of its handlers that no launch serves.

Imported lazily: most launches serve exactly the queues of their handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from pollconsumer.core.errors import PermissionDenied, StoreUnreachable
from pollconsumer.core.events import Event, QueueUnknown, QueueUnserved
from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.store.redis_store import RedisStore
from pollconsumer.store.server import service_of, unknown_queues


def report_unknown(store: RedisStore, queues: Sequence[str], emit: Callable[[Event], None]) -> None:
    """Report those of ``queues``, which no handler names, that the store does not know; only once, since the launch's
    announcement makes them known."""
    for queue in unknown_queues(store.wire, store.keys, queues):
        emit(QueueUnknown(queue))


def report_unserved(
    store: RedisStore, queues: Sequence[str], handlers: Mapping[str, Handler], emit: Callable[[Event], None]
) -> None:
    """Report those of ``queues`` that have ready messages, and that no launch has served lately.

    Called at the end of a launch: by then others that the platform started at the same time have announced themselves.
    Errors of the store are ignored.
    """
    with suppress(StoreUnreachable, PermissionDenied):
        for queue, service in service_of(store.wire, store.keys, queues).items():
            if service.ready and not service.lately and not service.paused:
                names = tuple(sorted(name for name, handler in handlers.items() if handler.queue == queue))
                emit(QueueUnserved(queue, names, service.ready))
