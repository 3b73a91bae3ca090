"""The store that settings name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pollconsumer.interface.logs import warn_of_store
from pollconsumer.runtime.store_opener import StoreOpener
from pollconsumer.store.redis_store import Strict

if TYPE_CHECKING:
    from pollconsumer.interface.settings.model import Settings
    from pollconsumer.runtime.own_files import OwnFiles


def strict_of(settings: Settings) -> Strict | None:
    """What a producer asks of the store's replicas."""
    return Strict(settings.strict.replicas, settings.strict.within) if settings.durability == "strict" else None


def opener_of(settings: Settings, files: OwnFiles | None = None) -> StoreOpener:
    """What makes connections to it. Nothing is opened yet. ``files`` where they are others than the settings say."""
    files = files or settings.state_files()
    return StoreOpener(settings.store, settings.namespace, settings.durability, warn_of_store, files=files)
