"""Database connections between messages, as Django treats them between requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.db import close_old_connections, reset_queries

if TYPE_CHECKING:
    from pollconsumer.runtime.handling.context import Context
    from pollconsumer.runtime.handling.handler import Handler


def closing_connections(handler: Handler) -> Handler:
    """``handler``, before and after which the connections of its thread are closed that are unusable, or older than
    CONN_MAX_AGE. The queries that DEBUG collects are forgotten."""
    run = handler.run

    def run_sync(payload: dict[str, Any], context: Context | None) -> Any:
        _begin()
        try:
            return run(payload, context)
        finally:
            close_old_connections()

    async def run_async(payload: dict[str, Any], context: Context | None) -> Any:
        # An async handler queries in the thread of sync_to_async.
        await sync_to_async(_begin)()
        try:
            return await run(payload, context)
        finally:
            await sync_to_async(close_old_connections)()

    return handler._replace(run=run_async if handler.asynchronous else run_sync)


def _begin() -> None:
    reset_queries()
    close_old_connections()
