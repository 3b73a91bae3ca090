"""Serves the pages until a signal."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from contextlib import suppress

import uvicorn

from pollconsumer.core.errors import CannotCreate
from pollconsumer.interface.dashboard.guard import App

BACKLOG, MOST_CONCURRENT = 64, 32


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there. CannotCreate if that cannot be had."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except (OSError, UnicodeError) as error:
        # create_server adds the address.
        reason = (getattr(error, "strerror", None) or str(error)).partition(" (while attempting")[0]
        raise CannotCreate("cannot listen", f"{host}:{port}", f"{reason}: give another --port or --host") from None


def serve(app: App, listening: socket.socket, ready: Callable[[], None]) -> None:
    """Until SIGINT or SIGTERM, which are its normal ends. ``ready`` is called first."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        loop="asyncio",
        http="h11",
        limit_concurrency=MOST_CONCURRENT,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=3,
        h11_max_incomplete_event_size=16 << 10,
    )
    server = uvicorn.Server(config)
    for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn raises them again at its end
        signal.signal(number, lambda *_: None)
    ready()
    with listening, suppress(KeyboardInterrupt):
        server.run(sockets=[listening])
