"""Opens the store of the settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pollconsumer.interface.logs import tell_of_store, warn_of_store
from pollconsumer.interface.settings.model import Settings
from pollconsumer.runtime.own_files import OwnFiles
from pollconsumer.runtime.store_opener import EMBEDDED, StoreOpener
from pollconsumer.store.producer import Producer

if TYPE_CHECKING:
    from pollconsumer.store.connecting.strict import Strict
    from pollconsumer.store.connecting.wire import Wire


def strict_of(settings: Settings) -> Strict | None:
    """What an acknowledgement waits for. The embedded server writes through before it answers."""
    if settings.durability != "strict" or settings.store == EMBEDDED:
        return None
    from pollconsumer.store.connecting.strict import Strict  # few settings ask for it

    return Strict(settings.strict.replicas, settings.strict.within, settings.strict.aof)


def producer_of(settings: Settings, wire: Wire) -> Producer:
    """Enqueues as the settings say."""
    strict = strict_of(settings)
    if strict is None:
        return Producer(wire, settings.namespace)
    from pollconsumer.store.strict_producer import StrictProducer

    return StrictProducer(wire, settings.namespace, strict)


def opener_of(
    settings: Settings, files: OwnFiles | None = None, warn: Callable[[str], None] = warn_of_store
) -> StoreOpener:
    """An opener of connections, which opens nothing yet. ``files`` replace those of the settings; ``warn`` is told of
    what is doubtful about the store."""
    files = files or settings.state_files()
    return StoreOpener(
        settings.store,
        settings.namespace,
        settings.durability,
        warn,
        files,
        strict_of(settings),
        tell=tell_of_store,
        refuse_rollback=settings.strict.on_rollback == "refuse",
    )
