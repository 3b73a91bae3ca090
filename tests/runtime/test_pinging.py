"""Monitors are told in order, with one more try, and wait for nobody."""

from __future__ import annotations

import re
import socket
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.choices import Dialect
from pollconsumer.core.events import Event, LaunchEnded
from pollconsumer.runtime.launch import pings
from pollconsumer.runtime.launch.pings import NO_ANSWER, Failed, Ping, Pinger, delivered

if TYPE_CHECKING:
    from collections.abc import Iterator

URL = "https://hc-ping.com/SECRET"
END = LaunchEnded("consumer", "empty", 1.0)
LONG = 60.0
BROKEN, REFUSED = Failed("it answers 503", again=True), Failed("it answers 404", again=False)


class Monitor:
    def __init__(self, *answers: Failed | None) -> None:
        self._answers = [*answers]
        self.told: list[str] = []

    def __call__(self, ping: Ping) -> Failed | None:
        self.told.append(ping.url.removeprefix(URL).partition("?")[0])
        return self._answers.pop(0) if self._answers else None


def problem_after(pinger: Pinger, seconds: float) -> str | None:
    """Why a request was not delivered within ``seconds``; None if all were."""
    told: list[Event] = []
    pinger.wait(lambda: seconds, told.append)
    return told[0].fields()["reason"] if told else None


def told_of_a_launch(monitor: Monitor, code: int = 0) -> str | None:
    pinger = Pinger(URL, Dialect.AUTO, monitor)
    pinger.begin()
    pinger.end(END, code)
    return problem_after(pinger, LONG)


def test_a_monitor_is_told_of_start_and_end_in_this_order() -> None:
    monitor = Monitor()
    assert told_of_a_launch(monitor, 75) is None
    assert monitor.told == ["/start", "/75"]


def test_a_failing_monitor_is_tried_once_more() -> None:
    monitor = Monitor(BROKEN, None, BROKEN, None)
    assert told_of_a_launch(monitor) is None
    assert monitor.told == ["/start", "/start", "/0", "/0"]
    monitor = Monitor(BROKEN, BROKEN)
    assert told_of_a_launch(monitor) == "it answers 503"
    assert monitor.told == ["/start", "/start", "/0"]


def test_a_request_that_is_at_fault_is_not_repeated() -> None:
    monitor = Monitor(REFUSED, REFUSED)
    assert told_of_a_launch(monitor) == "it answers 404"
    assert monitor.told == ["/start", "/0"]


def test_a_monitor_that_does_not_answer_holds_up_neither_start_nor_end() -> None:
    answers = threading.Event()

    def deliver(_: Ping) -> None:
        answers.wait()

    pinger = Pinger(URL, Dialect.AUTO, deliver)
    pinger.begin()
    pinger.end(END, 0)
    assert problem_after(pinger, 0.01) == NO_ANSWER
    assert problem_after(pinger, -1.0) == NO_ANSWER
    answers.set()


def test_a_request_that_the_thread_did_not_come_to_in_time_is_told_as_unanswered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pings, "start_thread", lambda *_: SimpleNamespace(join=lambda _: False))
    pinger = Pinger(URL, Dialect.AUTO, lambda _: None)
    pinger.begin()
    pinger.end(END, 0)
    assert problem_after(pinger, 0.01) == NO_ANSWER


def test_each_launch_has_a_uuid_of_its_own() -> None:
    def run() -> str:
        asked: list[str] = []
        pinger = Pinger(URL, Dialect.AUTO, lambda ping: asked.append(ping.url))
        pinger.begin()
        pinger.end(END, 0)
        problem_after(pinger, LONG)
        (one,) = {url.partition("rid=")[2] for url in asked}
        return one

    one, other = run(), run()
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-a[0-9a-f]{3}-[0-9a-f]{12}", one)
    assert one != other


@pytest.fixture
def listening() -> Iterator[tuple[str, list[tuple[str, str, bytes]]]]:
    """A server that answers with the status in the path, and what it was asked."""
    asked: list[tuple[str, str, bytes]] = []

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            asked.append((self.command, self.path, body))
            self.send_response(int(self.path.strip("/")[:3]))
            self.send_header("Location", "/200")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_POST = do_GET  # noqa: N815  http.server's name

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()
    thread.join()


def test_requests_are_sent_over_http(listening: tuple[str, list[tuple[str, str, bytes]]]) -> None:
    url, asked = listening
    assert delivered(Ping(f"{url}/200")) is None
    assert delivered(Ping(f"{url}/204", b"line")) is None
    assert delivered(Ping(f"{url}/404")) == REFUSED
    assert delivered(Ping(f"{url}/503")) == BROKEN
    assert asked == [("GET", "/200", b""), ("POST", "/204", b"line"), ("GET", "/404", b""), ("GET", "/503", b"")]


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("body", [None, b"line"])
def test_a_redirection_is_followed_nowhere_and_said(
    code: int, body: bytes | None, listening: tuple[str, list[tuple[str, str, bytes]]]
) -> None:
    url, asked = listening
    said = f"it redirects ({code}): write the address that it leads to"
    assert delivered(Ping(f"{url}/{code}", body)) == Failed(said, again=False)
    assert len(asked) == 1


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("begin", [b"", b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.1 100 Continue\r\n\r\n"])
def test_an_answer_that_drips_is_none_in_time(scheme: str, begin: bytes) -> None:
    """A byte each 0.2 s, of the headers or of a handshake, until the client hangs up."""
    gone = threading.Event()

    def drip() -> None:
        client, _ = server.accept()
        with client, suppress(OSError):
            client.sendall(begin)
            while True:
                client.send(b"\x16" if scheme == "https" else b"a")
                client.settimeout(0.2)
                with suppress(TimeoutError):
                    if client.recv(65536) == b"":
                        break
        gone.set()

    with socket.create_server(("127.0.0.1", 0)) as server:
        dripping = threading.Thread(target=drip, daemon=True)
        dripping.start()
        failed = delivered(Ping(f"{scheme}://127.0.0.1:{server.getsockname()[1]}/SECRET"), within=1.0)
        assert failed is not None
        assert failed.again
        assert scheme == "https" or failed.reason == NO_ANSWER
        assert gone.wait(LONG)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://127.0.0.1:1/SECRET", "Connection refused"),
        ("http://[::SECRET", "ValueError"),
    ],
)
def test_a_reason_has_nothing_of_the_url(url: str, reason: str) -> None:
    assert delivered(Ping(url)) == Failed(reason, again=True)
