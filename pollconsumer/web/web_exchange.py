"""A request and its answer, as WSGI, ASGI, Lambda and Django have them in common."""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol, TypeVar

from pollconsumer.core.errors import PollConsumerError

S = TypeVar("S")
RETRY_AFTER = 30
"""Seconds after which a client may repeat what failed for now."""


class WebRequest(NamedTuple):
    """A request for ``path`` below ``mount``, where the application stands in a site. ``headers`` by their names in
    small letters. ``read`` returns the body, or its beginning of that many bytes; TimeoutError or OSError if it does
    not come. ``source``: what the server gave, as WSGI's environ or ASGI's scope."""

    method: str
    path: str
    headers: Mapping[str, str]
    read: Callable[[int], bytes]
    query: str = ""
    mount: str = ""
    source: Any = None


class Answer(Protocol):
    """An answer, as a server sends it."""

    @property
    def status(self) -> int: ...

    def headers(self) -> list[tuple[str, str]]: ...

    def content(self) -> bytes: ...


class WebAnswer(NamedTuple):
    """An answer with the JSON object ``said`` as its content."""

    status: int
    said: Mapping[str, Any]
    further: tuple[tuple[str, str], ...] = ()
    """Headers beside those of every answer."""

    def headers(self) -> list[tuple[str, str]]:
        plain = [("Content-Type", "application/json"), ("Content-Length", str(len(self.content())))]
        return [*plain, ("Cache-Control", "no-store"), *self.further]

    def content(self) -> bytes:
        return json.dumps(self.said).encode() + b"\n"


def refusal(status: int, error: str, *further: tuple[str, str]) -> WebAnswer:
    """An answer that says what is wrong."""
    return WebAnswer(status, {"error": error}, further)


def failure(status: int, **said: Any) -> WebAnswer:
    """An answer to what failed on our side; 503 asks the client to come again."""
    return WebAnswer(status, said, (("Retry-After", str(RETRY_AFTER)),) if status == 503 else ())


def status_of(error: Exception, known: Mapping[type[PollConsumerError], S], otherwise: S) -> S:
    """The status ``known`` for the class of an error, else for the nearest class above it."""
    return next((known[kind] for kind in type(error).__mro__ if kind in known), otherwise)


def equal_secrets(one: str, other: str) -> bool:
    """Whether two secrets are equal, in a time that does not tell where they differ."""
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode("utf-8", "replace"))
