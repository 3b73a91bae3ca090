"""An endpoint under ASGI, in a thread: a request for a launch lasts until that ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from pollconsumer.web.web_exchange import Answer, WebRequest

BODY_WITHIN = 10.0
"""Seconds for a body of a message."""
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class AsgiApplication:
    """An object, since servers take a bound method for an application of ASGI 2."""

    def __init__(self, answer: Callable[[WebRequest], Answer], read_ahead: int = 0) -> None:
        """``read_ahead``: bytes of a posted body that are read before a thread is taken, which no slow client then
        holds."""
        self._answer, self._read_ahead = answer, read_ahead

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        import asyncio  # which nobody needs under WSGI, nor a launch

        if scope["type"] == "lifespan":
            for phase in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{phase}.complete"})
        if scope["type"] != "http":
            return
        loop = asyncio.get_running_loop()

        def read(most: int) -> bytes:
            return asyncio.run_coroutine_threadsafe(asyncio.wait_for(_body(receive, most), BODY_WITHIN), loop).result()

        if self._read_ahead and scope["method"] == "POST":
            try:
                ahead = await asyncio.wait_for(_body(receive, self._read_ahead), BODY_WITHIN)
            except (TimeoutError, ConnectionError):
                ahead = b""

            def read(most: int) -> bytes:
                return ahead[:most]

        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        mount = scope.get("root_path", "")
        path, query = scope["path"].removeprefix(mount), scope.get("query_string", b"").decode("latin-1")
        request = WebRequest(scope["method"], path, headers, read, query, mount, scope)
        answered = await asyncio.to_thread(self._answer, request)
        given = [(name.lower().encode(), value.encode()) for name, value in answered.headers()]
        await send({"type": "http.response.start", "status": answered.status, "headers": given})
        await send({"type": "http.response.body", "body": answered.content()})


async def _body(receive: Receive, most: int) -> bytes:
    body, more = b"", True
    while more and len(body) < most:
        part = await receive()
        if part["type"] == "http.disconnect":
            raise ConnectionError
        body, more = body + part.get("body", b""), part.get("more_body", False)
    return body[:most]
