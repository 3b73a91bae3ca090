"""The endpoint under WSGI. How long a client may take for its body is the server's to say."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from pollconsumer.web.web_exchange import WebAnswer, WebRequest


def serve_wsgi(
    answer: Callable[[WebRequest], WebAnswer], environ: dict[str, Any], start_response: Callable[..., Any]
) -> list[bytes]:
    headers = {
        name.removeprefix("HTTP_").replace("_", "-").lower(): value
        for name, value in environ.items()
        if name.startswith("HTTP_") or name == "CONTENT_LENGTH"
    }

    def read(most: int) -> bytes:
        """Not beyond what is announced, unless the server ends the input there: it would block."""
        ends = environ.get("wsgi.input_terminated")
        read: bytes = environ["wsgi.input"].read(most if ends else min(most, int(headers.get("content-length") or 0)))
        return read

    answered = answer(WebRequest(environ["REQUEST_METHOD"], environ.get("PATH_INFO", ""), headers, read))
    start_response(f"{answered.status} {HTTPStatus(answered.status).phrase}", answered.headers())
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [answered.content()]  # not every server leaves it out
