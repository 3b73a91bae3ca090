"""Checks the host name and the size of every request, and tells browsers what they may do with the answer.

A page of somebody else's may point a name of its own to a loopback address (DNS rebinding), and its script then reads
what answers there. Such a request says that name as its host, so only an address, ``localhost``, or the name given as
``--host`` is answered.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping
from ipaddress import ip_address
from typing import Any

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LONGEST_ADDRESS = 4096
"""Bytes of a path and its query."""
HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",  # under no-referrer, browsers send forms with `Origin: null`
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)]|([\w.-]+))(?::\d{1,5})?", re.ASCII)
_ENCODED = [(name.encode(), value.encode()) for name, value in HEADERS.items()]


class Guard:
    def __init__(self, app: App, host: str) -> None:
        self._app, self._host = app, host.lower()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *_ENCODED]
            await send(message)

        if (refusal := self._refusal(scope)) is None:
            await self._app(scope, receive, send_guarded)
            return
        status, text = refusal
        kind = (b"content-type", b"text/plain; charset=utf-8")
        await send_guarded({"type": "http.response.start", "status": status, "headers": [kind]})
        await send_guarded({"type": "http.response.body", "body": f"{text}\n".encode()})

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1 or not self._is_ours(hosts[0].decode("latin-1")):
            return 421, "this host name is not served here: use the address that the command printed"
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > LONGEST_ADDRESS:
            return 414, "address too long"
        return None

    def _is_ours(self, host: str) -> bool:
        name = name_of(host)
        return name in ("localhost", self._host) or is_address(name)


def name_of(host: str) -> str:
    """The name or address in a Host header, without its port; empty if it is malformed."""
    found = _HOST.fullmatch(host)
    return (found[1] or found[2]).lower() if found else ""


def is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    return host == "localhost" or (is_address(host) and ip_address(host).is_loopback)
