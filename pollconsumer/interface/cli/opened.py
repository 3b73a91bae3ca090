"""Opens the store for short commands."""

from __future__ import annotations

from pollconsumer.interface.cli import current_settings
from pollconsumer.interface.store_opener import opener_of, strict_of
from pollconsumer.runtime.store_opener import StoreOpener
from pollconsumer.store.inspector import Inspector
from pollconsumer.store.interventions import Interventions
from pollconsumer.store.leases import Leases
from pollconsumer.store.patience import Budget
from pollconsumer.store.recurring import Recurring
from pollconsumer.store.redis_store import RedisStore
from pollconsumer.store.wire import Wire

COMMAND_BUDGET = 5.0
"""Seconds for which a command retries when the store does not answer."""


def opener() -> StoreOpener:
    return opener_of(current_settings())


def inspector() -> Inspector:
    return Inspector(_wire(), current_settings().namespace)


def leases() -> Leases:
    return Leases(_wire(), current_settings().namespace)


def interventions() -> Interventions:
    return Interventions(_wire(), current_settings().namespace)


def recurring() -> Recurring:
    return Recurring(_wire(), current_settings().namespace)


def redis_store() -> RedisStore:
    settings = current_settings()
    return RedisStore(_wire(), settings.namespace, strict_of(settings))


def _wire() -> Wire:
    return opener().wire(lambda: Budget(COMMAND_BUDGET))
