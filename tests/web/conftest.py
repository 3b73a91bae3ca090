"""An endpoint whose application has the real server as its store, and what is asked of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import PollConsumer
from pollconsumer.web import LaunchEndpoint
from pollconsumer.web.web_exchange import WebRequest
from tests.conftest import NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.store.servers import Server

TOKEN, ENQUEUE_TOKEN, MANAGE_TOKEN = "the-token-of-launches", "the-token-of-messages", "the-token-of-managers"
CONFIG = f"""
[web]
token = "{TOKEN}"
enqueue_token = "{ENQUEUE_TOKEN}"
manage_token = "{MANAGE_TOKEN}"
[queues.short]
max_ready = 1
[commands.backup]
command = ["backup"]
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(CONFIG)
    return path


@pytest.fixture
def app(valkey: Server, config: Path) -> PollConsumer:
    return PollConsumer(config=config, store=valkey.url, namespace=NAMESPACE)


@pytest.fixture
def endpoint(app: PollConsumer) -> LaunchEndpoint:
    return LaunchEndpoint(app)


def unread(most: int) -> bytes:
    raise AssertionError(f"read up to {most} bytes of a body")


def request_of(
    method: str, path: str, token: str | None = None, read: Callable[[int], bytes] = unread, **headers: str
) -> WebRequest:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    if token is not None:
        given["authorization"] = f"Bearer {token}"
    path, _, query = path.partition("?")
    return WebRequest(method, path, given, read, query)


def posted(message: Any, **headers: str) -> WebRequest:
    """A request that sends a message."""
    return sending("POST", "/messages", ENQUEUE_TOKEN, message, **headers)


def sending(method: str, path: str, token: str, value: Any, **headers: str) -> WebRequest:
    """A request whose body is ``value``, as JSON unless it is bytes."""
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return request_of(method, path, token, lambda most: body[:most], **headers)
