"""Queues that are served in vain, and queues of handlers that nobody serves: what a launch says of them.

Most launches serve the queues of their handlers and no others, and never come here.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from pollconsumer.core.errors import PermissionDenied, StoreUnreachable
from pollconsumer.core.events import QueueUnknown, QueueUnserved
from pollconsumer.store.service import service_of, unknown_queues

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pollconsumer.core.events import Event
    from pollconsumer.runtime.handling.handler import Handler
    from pollconsumer.store.redis_store import RedisStore


def tell_unknown(store: RedisStore, queues: Sequence[str], emit: Callable[[Event], None]) -> None:
    """Of ``queues``, which no handler names, those that nobody knows either. Announcing oneself there makes them known,
    so that this is said once."""
    for queue in unknown_queues(store.wire, store.keys, queues):
        emit(QueueUnknown(queue))


def tell_unserved(
    store: RedisStore, queues: Sequence[str], handlers: Mapping[str, Handler], emit: Callable[[Event], None]
) -> None:
    """Of ``queues``, those in which messages are ready and for which no launch has come lately.

    At the end of a launch: another that the platform starts at the same time has come by then. A launch that has done
    its work does not fail for this.
    """
    with suppress(StoreUnreachable, PermissionDenied):
        for queue, service in service_of(store.wire, store.keys, queues).items():
            if service.ready and not service.lately and not service.paused:
                names = tuple(sorted(name for name, handler in handlers.items() if handler.queue == queue))
                emit(QueueUnserved(queue, names, service.ready))
