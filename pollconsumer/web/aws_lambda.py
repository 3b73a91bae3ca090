"""The endpoint as a handler of AWS Lambda, which freezes processes between requests: a launch ends before the
answer."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping
from math import inf
from typing import Any
from urllib.parse import unquote

from pollconsumer.core.errors import UsageError
from pollconsumer.web.web_exchange import WebAnswer, WebRequest


def serve_lambda(
    answer: Callable[[WebRequest, float], WebAnswer], event: Mapping[str, Any], context: Any
) -> dict[str, Any]:
    """``context``: Lambda's, if there is one, which says how much time is left. UsageError for an event of another
    kind."""
    try:
        method, path = event["requestContext"]["http"]["method"], event["rawPath"]
    except (KeyError, TypeError):
        raise UsageError("event", None, "call a function URL, or an HTTP API with payload format 2.0") from None
    headers = {name.lower(): value for name, value in (event.get("headers") or {}).items()}

    def read(most: int) -> bytes:
        body = event.get("body") or ""
        return (b64decode(body) if event.get("isBase64Encoded") else body.encode())[:most]

    left = inf if context is None else context.get_remaining_time_in_millis() / 1000
    answered = answer(WebRequest(method, unquote(path), headers, read), left)
    return {"statusCode": answered.status, "headers": dict(answered.headers()), "body": answered.content().decode()}
