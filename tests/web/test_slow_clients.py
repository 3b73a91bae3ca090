"""Clients with a token that send a body slowly, or many at one time: others are answered meanwhile. What one endpoint
has in flight is bounded as a whole."""

from __future__ import annotations

import asyncio
import json
import select
import socket
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import uvicorn

from pollconsumer.web import web_exchange
from pollconsumer.web.web_exchange import AsgiApplication, WebAnswer, json_answer
from tests.site import PATIENCE, wait_until
from tests.web.conftest import ENQUEUE_TOKEN, TOKEN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pollconsumer.web import LaunchEndpoint
    from pollconsumer.web.web_exchange import WebRequest

GIVEN = {"Authorization": f"Bearer {ENQUEUE_TOKEN}"}
MESSAGE = b'{"handler": "backup"}'
SLOW = 40


@contextmanager
def served(app: Any) -> Iterator[str]:
    """The address of a server as users have it."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listens:
        server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None, timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, args=([listens],))
        thread.start()
        yield f"http://127.0.0.1:{listens.getsockname()[1]}"
        server.should_exit = True
        thread.join()


def begun(address: str, token: str, content: bytes = b"{") -> socket.socket:
    """A client that has sent the beginning of a message."""
    client = socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=PATIENCE)
    head = f"POST /messages HTTP/1.1\r\nHost: site\r\nAuthorization: Bearer {token}\r\nContent-Length: 900\r\n\r\n"
    client.sendall(head.encode() + content)
    return client


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body may take longer than the test."""
    monkeypatch.setattr(web_exchange, "BODY_WITHIN", 2 * PATIENCE)


def test_slow_posts_keep_nobody_from_an_answer(endpoint: LaunchEndpoint) -> None:
    with ExitStack() as held, served(endpoint.asgi) as address:
        clients = [held.enter_context(begun(address, ENQUEUE_TOKEN)) for _ in range(SLOW)]
        wait_until(lambda: len(endpoint.asgi._bodies) == web_exchange.MOST_READ, "the beginning of the bodies")  # noqa: SLF001
        posted = httpx.post(f"{address}/messages", headers=GIVEN, content=MESSAGE, timeout=PATIENCE)
        looked = httpx.get(f"{address}/messages/nowhere", headers=GIVEN, timeout=PATIENCE)
        assert [posted.status_code, looked.status_code] == [202, 404]
        wait_until(lambda: len(answered_of(clients)) >= SLOW - web_exchange.MOST_READ, "the end of the slowest ones")
        given_up = answered_of(clients)
        assert {each.recv(12) for each in given_up} == {b"HTTP/1.1 408"}
        assert len(given_up) <= SLOW - web_exchange.MOST_READ + 1  # the honest one needed a place, too
        left = next(each for each in clients if each not in given_up)
        left.sendall(MESSAGE[1:].ljust(899))
        assert left.recv(12) == b"HTTP/1.1 202"


def answered_of(clients: list[socket.socket]) -> list[socket.socket]:
    return select.select(clients, [], [], 0)[0]


def test_a_slow_post_without_its_token_is_refused_before_its_body(endpoint: LaunchEndpoint) -> None:
    with served(endpoint.asgi) as address, begun(address, TOKEN, b"") as client:
        assert client.recv(12) == b"HTTP/1.1 401"


class Slow:
    """An application whose answers wait for the test."""

    def __init__(self) -> None:
        self.goes_on, self.begun = threading.Event(), 0
        self.app = AsgiApplication(self._answer, lambda _: 1 << 20)

    def _answer(self, _: WebRequest) -> WebAnswer:
        self.begun += 1
        assert self.goes_on.wait(PATIENCE)
        return json_answer(200, {})


async def statuses_of(slow: Slow, requests: int, body: bytes, until: int) -> list[int]:
    """The statuses of so many posts at one time, of which ``until`` are refused before the others go on."""
    transport = httpx.ASGITransport(slow.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://site", timeout=PATIENCE) as client:
        asked = [asyncio.ensure_future(client.post("/", content=body)) for _ in range(requests)]
        refused: set[Any] = set()
        while len(refused) < until:
            done, _ = await asyncio.wait(
                [each for each in asked if each not in refused], return_when=asyncio.FIRST_COMPLETED
            )
            refused |= done
        slow.goes_on.set()
        return [(await each).status_code for each in asked]


@pytest.mark.parametrize(
    ("bound", "value", "requests", "size", "taken"),
    [("MOST_WAITING", 8, 20, 1, 8), ("MOST_BYTES", 3000, 20, 1000, 3), ("THREADS", 2, 20, 1, 20)],
)
def test_more_requests_than_are_answered_at_one_time_are_asked_to_come_again(
    monkeypatch: pytest.MonkeyPatch, bound: str, value: int, requests: int, size: int, taken: int
) -> None:
    monkeypatch.setattr(web_exchange, bound, value)
    slow = Slow()
    found = asyncio.run(statuses_of(slow, requests, b" " * size, requests - taken))
    assert sorted(found) == [200] * taken + [503] * (requests - taken)
    slow.goes_on.set()
    assert asyncio.run(statuses_of(slow, 1, b" " * size, 0)) == [200]  # nothing is left in flight


def test_no_more_requests_have_a_thread_than_the_endpoint_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_exchange, "THREADS", 3)
    slow, three, inside, seen = Slow(), threading.Barrier(3), set[int](), list[int]()

    def answer(_: WebRequest) -> WebAnswer:
        inside.add(threading.get_ident())
        seen.append(len(inside))
        three.wait(PATIENCE)
        inside.discard(threading.get_ident())
        return json_answer(200, {})

    slow.app = AsgiApplication(answer, lambda _: 1 << 20)
    assert asyncio.run(statuses_of(slow, 21, b"", 0)) == [200] * 21
    assert max(seen) == 3


def test_where_no_thread_can_be_started_the_client_is_to_come_again(
    endpoint: LaunchEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(endpoint.asgi), base_url="http://site") as client:
            return await client.post("/messages", headers=GIVEN, content=MESSAGE)

    with monkeypatch.context() as refusing:
        refusing.setattr(web_exchange, "in_thread", refuse)
        answered = asyncio.run(ask())
    assert (answered.status_code, json.loads(answered.content)) == (503, {"error": "can't start new thread"})
    assert asyncio.run(ask()).status_code == 202
