"""Serves the pages until a signal."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
from typing import Any, ClassVar

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from pollconsumer.core.errors import CannotCreate
from pollconsumer.web.asgi import Receive, Send

Message = MutableMapping[str, Any]
App = Callable[[Mapping[str, Any], Receive, Send], Awaitable[None]]
BACKLOG, MOST_WAITED_FOR = 64, 64
PATIENCE = 10.0
"""Seconds for a client to send its request, from the connection to the last byte, and the same time again to take the
answer."""


class OneRequest(H11Protocol):
    """A connection for one request. If more than MOST_WAITED_FOR clients are waited for, the oldest connection is cut:
    silent clients shut nobody out."""

    waited_for: ClassVar[dict[OneRequest, asyncio.TimerHandle]] = {}

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._answer, self.app = self.app, self._bounded

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self._wait_for_client()

    def connection_lost(self, exc: Exception | None) -> None:
        self._have_heard()
        super().connection_lost(exc)

    async def _bounded(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        async def hear() -> Message:
            message = await receive()
            if not message.get("more_body"):
                self._have_heard()
            return message

        async def say(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._wait_for_client()
            await send(message)

        if scope["method"] != "POST":  # nobody reads the body of another request
            self._have_heard()
        answer: Any = self._answer
        await answer(scope, hear, say)

    def _wait_for_client(self) -> None:
        self._have_heard()
        if not self.transport.is_closing():
            self.waited_for[self] = self.loop.call_later(PATIENCE, self.transport.abort)
        if len(self.waited_for) > MOST_WAITED_FOR:
            next(iter(self.waited_for)).transport.abort()

    def _have_heard(self) -> None:
        if (timer := self.waited_for.pop(self, None)) is not None:
            timer.cancel()


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens at ``host`` and ``port``. CannotCreate if there can be none."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except (OSError, UnicodeError) as error:
        # create_server adds the address.
        reason = (getattr(error, "strerror", None) or str(error)).partition(" (while attempting")[0]
        raise CannotCreate("cannot listen", f"{host}:{port}", f"{reason}: give another --port or --host") from None


def server_of(app: App) -> uvicorn.Server:
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="error",  # whoever connects could fill the log with warnings of invalid requests
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        loop="asyncio",
        http=OneRequest,
        headers=[("connection", "close")],
        timeout_graceful_shutdown=3,
        h11_max_incomplete_event_size=16 << 10,
    )
    return uvicorn.Server(config)


def serve(app: App, listening: socket.socket, ready: Callable[[], None]) -> None:
    """Serve until SIGINT or SIGTERM, which end this as they should. ``ready`` is called first."""
    server = server_of(app)
    for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn raises them again at its end
        signal.signal(number, lambda *_: None)
    ready()
    with listening, suppress(KeyboardInterrupt):
        server.run(sockets=[listening])
