"""What the tests of the store look at beside the store itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pollconsumer.store.actions import MessageActions
from tests.conftest import NAMESPACE
from tests.store.acting import Looking

if TYPE_CHECKING:
    from pollconsumer.store.queues.redis_store import RedisStore


@pytest.fixture
def look(store: RedisStore) -> Looking:
    return Looking(store)


@pytest.fixture
def person(store: RedisStore) -> MessageActions:
    """Who cancels, reschedules, redrives, purges and pauses."""
    return MessageActions(store.wire, NAMESPACE)
