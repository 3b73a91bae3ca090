"""A primary that Sentinels name, as the server of the store's tests, and redis-py's clients of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redis import sentinel

from pollconsumer.store.client.wire import Wire
from pollconsumer.store.user_client import supplied_client
from tests.failovers.servers import SERVICE
from tests.store.servers import Server

if TYPE_CHECKING:
    from tests.failovers.servers import Trio

WATCHED = """
from redis.sentinel import Sentinel

def client():
    return Sentinel({sentinels}, sentinel_kwargs={{"socket_timeout": 0.5}}).master_for({service!r})
"""
UNWATCHED = """
from redis import Redis

def client():
    return Redis.from_url({url!r})
"""
Sentinel: Any = sentinel.Sentinel  # it has no types


def client_module(trio: Trio) -> str:
    """The source of a module of a user's, whose function ``client`` returns a client of the primary."""
    return (WATCHED if trio.sentinels else UNWATCHED).format(sentinels=_places(trio), service=SERVICE, url=trio.url)


def sentinel_server(trio: Trio, namespace: str, *, by_client: bool = False) -> Server:
    if not by_client:
        return Server(lambda patience, greet: Wire(trio.url, patience, greet=greet), trio.url)
    connect = supplied_client(Sentinel(_places(trio)).master_for(SERVICE, decode_responses=True)).connecting(namespace)
    return Server(lambda patience, greet: connect(patience, greet=greet), trio.url)


def _places(trio: Trio) -> list[tuple[str, int]]:
    return [(each.address, each.port) for each in trio.sentinels]
