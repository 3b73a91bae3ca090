"""An endpoint under WSGI. How long a client may take for its body is the server's to say."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from pollconsumer.web.web_exchange import Answer, WebRequest


def serve_wsgi(
    answer: Callable[[WebRequest], Answer], environ: dict[str, Any], start_response: Callable[..., Any]
) -> list[bytes]:
    headers = {
        name.removeprefix("HTTP_").replace("_", "-").lower(): value
        for name, value in environ.items()
        if name.startswith("HTTP_") or name == "CONTENT_LENGTH"
    }

    def read(most: int) -> bytes:
        """Read not beyond what is announced, unless the server ends the input there: it would block."""
        ends, announced = environ.get("wsgi.input_terminated"), headers.get("content-length", "")
        size = int(announced) if announced.isascii() and announced.isdecimal() and len(announced) < 10 else 0
        read: bytes = environ["wsgi.input"].read(most if ends else min(most, size))
        return read

    path, query, mount = (environ.get(name, "") for name in ("PATH_INFO", "QUERY_STRING", "SCRIPT_NAME"))
    answered = answer(WebRequest(environ["REQUEST_METHOD"], path, headers, read, query, mount, environ))
    start_response(f"{answered.status} {HTTPStatus(answered.status).phrase}", answered.headers())
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [answered.content()]  # not every server leaves it out
