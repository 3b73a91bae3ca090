"""Closes database connections and keeps caches between messages, as Django does between requests."""

from __future__ import annotations

from contextlib import suppress
from threading import local
from typing import Any

from asgiref.sync import sync_to_async
from django.core.cache import caches
from django.db import close_old_connections, connections, reset_queries

from pollconsumer.interface.logs.logs import about, log
from pollconsumer.runtime.handling.context import LaunchContext
from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.runtime.handling.shield import Shield


class _ThreadConnections(local):
    def __init__(self) -> None:
        self.caches: dict[str, Any] = {}
        """Caches by alias. Django stores them in context variables. Each message has a context of its own, so a cache
        would connect again for each message."""


_kept = _ThreadConnections()


def closing_connections(handler: Handler) -> Handler:
    """``handler``, wrapped. Before and after each run, connections of its thread are closed if they are unusable, or
    older than CONN_MAX_AGE. A connection that the handler leaves within a transaction is dropped. Queries that DEBUG
    collects are deleted."""
    run, name = handler.run, handler.name

    def run_sync(payload: dict[str, Any], context: LaunchContext | None) -> Any:
        _begin()
        for alias, cache in _kept.caches.items():
            caches[alias] = cache
        try:
            return run(payload, context)
        finally:
            _end(name)
            _keep_caches()

    async def run_async(payload: dict[str, Any], context: LaunchContext | None) -> Any:
        # An async handler makes its queries in the thread of sync_to_async.
        await sync_to_async(_begin)()
        try:
            return await run(payload, context)
        finally:
            await sync_to_async(_end)(name)

    return handler._replace(run=run_async if handler.asynchronous else run_sync)


def _begin() -> None:
    reset_queries()
    close_old_connections()


def _end(handler: str) -> None:
    with Shield():
        for connection in connections.all(initialized_only=True):
            if connection.in_atomic_block or connection.closed_in_transaction:
                _drop(connection.alias, handler)
        close_old_connections()


def _drop(alias: str, handler: str) -> None:
    """Close and forget the connection ``alias``, left in a transaction. Otherwise Django would not open another one."""
    with suppress(Exception):
        connections[alias].close()
    del connections[alias]
    text = "%s left a transaction of database %s open: rolled back, its connection dropped"
    log.warning(text, handler, alias, extra=about("transaction left open", handler))


def _keep_caches() -> None:
    if not _kept.caches and caches.all(initialized_only=True):
        for alias in caches:
            with suppress(Exception):  # its library is not installed
                _kept.caches[alias] = caches[alias]
