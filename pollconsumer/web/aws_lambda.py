"""The endpoint as a handler of AWS Lambda, which freezes processes between requests: a launch ends before the
answer."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Mapping
from math import inf
from typing import Any
from urllib.parse import unquote

from pollconsumer.interface.logs.logs import log
from pollconsumer.web.web_exchange import WebAnswer, WebRequest, refusal


def serve_lambda(
    answer: Callable[[WebRequest, float], WebAnswer], event: Mapping[str, Any], context: Any
) -> dict[str, Any]:
    """``context``: Lambda's, if there is one, which says how much time is left. 400 for an event of another kind, which
    the log says, too: a scheduler may look at no answer."""
    left = inf if context is None else context.get_remaining_time_in_millis() / 1000
    try:
        request = _request_of(event)
    except (AttributeError, KeyError, TypeError, ValueError):
        said = "no event of a function URL, or of an HTTP API with payload format 2.0"
        log.warning("web: %s", said)
        answered = refusal(400, said)
    else:
        answered = answer(request, left)
    return {"statusCode": answered.status, "headers": dict(answered.headers()), "body": answered.content().decode()}


def _request_of(event: Mapping[str, Any]) -> WebRequest:
    """The request of an event. AttributeError, KeyError, TypeError or ValueError if it has another form."""
    method, path = event["requestContext"]["http"]["method"], unquote(event["rawPath"])
    headers = {name.lower(): value for name, value in (event.get("headers") or {}).items()}
    body = event.get("body") or ""
    for text in (method, path, *headers, *headers.values()):
        text.encode()  # a text without unpaired surrogates
    content = b64decode(body, validate=True) if event.get("isBase64Encoded") else body.encode()
    return WebRequest(method, path, headers, lambda most: content[:most])
