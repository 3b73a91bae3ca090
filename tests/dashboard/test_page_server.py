"""Clients of the dashboard's own server that send a byte now and then, or nothing, too much, or take no answer: bounded
in time and number, they shut nobody out."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from pollconsumer.dashboard import page_server
from pollconsumer.dashboard.access import TokenAccess, text_answer
from pollconsumer.dashboard.page_server import PageServer, listen
from pollconsumer.runtime.system.own_threads import Started
from pollconsumer.web.web_exchange import WebAnswer
from tests.dashboard.pages import TOKEN, answers
from tests.site import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pollconsumer.dashboard.page_server import Answers
    from pollconsumer.web.web_exchange import WebRequest
    from tests.store.servers import Server

EACH, SHORT = 0.2, 1.0
"""Seconds between two bytes, and those that a server here waits for a client."""
GET = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@contextmanager
def running(answer: Answers) -> Iterator[int]:
    """The port of a server. At the end it has waited for its answers."""
    with PageServer(answer, listen("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()
            server.wait()


@pytest.fixture
def dashboard(valkey: Server) -> Iterator[int]:
    with running(answers(valkey.wire(), token=TOKEN, acts=True)) as port:
        yield port


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_server, "PATIENCE", SHORT)


def connected(port: int, begin: bytes) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    client.sendall(begin)
    return client


def received(client: socket.socket) -> bytes:
    """The whole answer."""
    parts = []
    while part := client.recv(1 << 20):
        parts.append(part)
    return b"".join(parts)


def post(announced: int) -> bytes:
    """The head of a form of somebody who may act."""
    welcome = TokenAccess(TOKEN, acts=True, port=8080).welcome(TOKEN)
    assert welcome is not None
    cookie = b"Cookie: %b\r\n" % dict(welcome.further)["set-cookie"].partition(";")[0].encode()
    return b"POST /act HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n%b\r\n" % (announced, cookie)


def dripped(client: socket.socket) -> int:
    """How many bytes were sent, one each 0.2 s, until the server hung up."""
    sent, until = 0, time.monotonic() + PATIENCE
    client.settimeout(EACH)
    with suppress(ConnectionError):
        while time.monotonic() < until:
            with suppress(TimeoutError):
                if client.recv(65536) == b"":
                    break
                continue  # an answer, such as a refusal
            client.send(b"a")
            sent += 1
    return sent


@pytest.mark.parametrize("begin", [b"", GET + b"X: ", post(900)])
@pytest.mark.usefixtures("quick")
def test_a_request_that_drips_is_cut_in_time(dashboard: int, begin: bytes) -> None:
    with connected(dashboard, begin) as client:
        assert 0 < dripped(client) <= 3 * SHORT / EACH


@pytest.mark.usefixtures("quick")
def test_a_page_that_nobody_takes_is_given_up() -> None:
    with (
        running(lambda _: WebAnswer(200, bytes(25_000_000), "text/plain")) as port,
        connected(port, GET + b"\r\n") as client,
        suppress(ConnectionError),
    ):
        threading.Event().wait(2 * SHORT)
        assert len(received(client)) < 25_000_000


def test_silent_clients_shut_nobody_out(dashboard: int) -> None:
    with ExitStack() as held:
        for _ in range(200):
            held.enter_context(connected(dashboard, b""))
        with connected(dashboard, GET + b"\r\n") as client:
            assert client.recv(12) == b"HTTP/1.1 403"


def test_an_answer_is_that_of_the_pages_and_ends_the_connection(dashboard: int) -> None:
    with connected(dashboard, GET + b"\r\n") as client:
        head, _, page = received(client).partition(b"\r\n\r\n")
    status, *headers = head.decode().split("\r\n")
    assert status == "HTTP/1.1 403 Forbidden"
    named = dict(each.split(": ", 1) for each in headers)
    assert (named["Connection"], named["Content-Length"]) == ("close", str(len(page)))
    assert {"Date", "content-security-policy", "Cache-Control"} <= {*named}
    assert "Server" not in named


@pytest.mark.parametrize(
    ("begin", "status"),
    [
        (GET + b"X: " + b"a" * page_server.LONGEST_REQUEST, 431),
        (b"GET /" + b"a" * page_server.LONGEST_REQUEST, 431),
        (b"GET /" + b"a" * 5000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 414),
        (b"GET / HTTP/3.0\r\n\r\n", 505),
        (b"GET / nonsense\r\n\r\n", 400),
        (post(20_000_000) + b"a" * 100_000, 413),
        (post(-1), 403),
    ],
)
def test_what_is_too_long_or_no_request_gets_one_answer(dashboard: int, begin: bytes, status: int) -> None:
    with connected(dashboard, begin) as client, suppress(ConnectionError):
        assert client.recv(12) == b"HTTP/1.1 %d" % status


def test_a_form_that_is_broken_off_does_nothing() -> None:
    asked: list[bytes] = []

    def answer(request: WebRequest) -> WebAnswer:
        asked.append(request.read(100))
        return text_answer("done", 200)

    with running(answer) as port:
        with connected(port, post(900) + b"what=purge_all") as client:
            client.shutdown(socket.SHUT_WR)
            assert received(client) == b""
        with connected(port, post(3) + b"a=b") as client:
            assert received(client).endswith(b"\r\n\r\ndone\n")
    assert asked == [b"a=b"]


class Held:
    """An answer that waits for the test."""

    def __init__(self) -> None:
        self.begun, self.goes_on = threading.Semaphore(0), threading.Event()

    def answer(self, _: WebRequest) -> WebAnswer:
        self.begun.release()
        assert self.goes_on.wait(PATIENCE)
        return text_answer("done", 200)


def test_more_requests_than_are_answered_at_one_time_are_asked_to_come_again() -> None:
    held = Held()
    with running(held.answer) as port, ExitStack() as several:
        clients = [several.enter_context(connected(port, GET + b"\r\n")) for _ in range(page_server.MOST_CLIENTS)]
        for _ in clients:
            assert held.begun.acquire(timeout=PATIENCE)
        with connected(port, GET + b"\r\n") as further:
            refused = received(further)
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nretry-after: 30\r\n" in refused
        held.goes_on.set()
        assert {received(client)[:12] for client in clients} == {b"HTTP/1.1 200"}


def test_at_its_end_it_waits_for_answers_in_hand_and_for_no_request_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held, join = Held(), Started.join

    def joined(thread: Started, seconds: float) -> bool:
        if seconds:  # it waits
            held.goes_on.set()
        return join(thread, seconds)

    monkeypatch.setattr(Started, "join", joined)
    with ExitStack() as several:
        with running(held.answer) as port:
            # The server accepts in order: the silent client, which came first, is no longer in the listener's queue.
            silent, client = (several.enter_context(connected(port, begin)) for begin in (b"", GET + b"\r\n"))
            assert held.begun.acquire(timeout=PATIENCE)
        for each in (client, silent):
            each.setblocking(False)  # the server has ended: what it has sent is here
        assert received(client)[:12] == b"HTTP/1.1 200"
        assert received(silent) == b""
