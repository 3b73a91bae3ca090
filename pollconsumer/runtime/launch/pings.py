"""Reports launches and occurrences to monitors (such as healthchecks.io), in background threads. A monitor that does
not answer delays only the exit.

Each run, a launch or an occurrence, has two requests: `first` reports its beginning, `last` how it ended. A dialect is
the form of requests that one kind of monitor understands."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from queue import SimpleQueue
from socket import SHUT_RDWR
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode, urlsplit, urlunsplit

from pollconsumer.core.choices import Dialect
from pollconsumer.core.events import Event, LaunchEnded, PingFailed
from pollconsumer.core.notation.digests import sha256
from pollconsumer.core.window import why_stopped
from pollconsumer.runtime.system.own_threads import NO_THREAD, Started, start_thread
from pollconsumer.store.records.reservations import Reservation

if TYPE_CHECKING:
    from http.client import HTTPConnection


class Ping(NamedTuple):
    """An HTTP request: a POST if it has a body, else a GET. ``token``: a bearer token. ``content``: the body's media
    type."""

    url: str
    body: bytes | None = None
    token: str = ""
    content: str = "text/plain; charset=utf-8"


class RunEnd(NamedTuple):
    """How a run ended. ``code``: 0 for success. ``line``: the result in words. ``counts``: numbers, by name."""

    code: int
    line: str
    seconds: float
    counts: Mapping[str, int] = {}


def dialect_of(url: str, chosen: Dialect) -> Dialect:
    """``chosen``, unless it is `AUTO`: then the dialect of the monitor at ``url``, recognised by its host and path."""
    if chosen is not Dialect.AUTO:
        return chosen
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host in ("cronitor.link", "cronitor.io") or host.endswith((".cronitor.link", ".cronitor.io")):
        return Dialect.CRONITOR
    if host == "nosnch.in" or host.endswith(".nosnch.in"):
        return Dialect.SNITCH
    if parts.path.startswith("/api/") and "/cron/" in parts.path:
        return Dialect.SENTRY
    if host == "hc-ping.com" or host.startswith("hc.") or "healthchecks" in host:
        return Dialect.HEALTHCHECKS
    return Dialect.PLAIN


def first(url: str, dialect: Dialect, run: str) -> Ping | None:
    """The request that reports a run's beginning; None if the dialect has none. ``run``: the run's UUID."""
    match dialect:
        case Dialect.HEALTHCHECKS:
            return Ping(extended(url, {"rid": run}, "/start"))
        case Dialect.CRONITOR:
            return Ping(extended(url, {"state": "run", "series": run}))
        case Dialect.SENTRY:
            return Ping(extended(url, {"check_in_id": run, "status": "in_progress"}))
        case Dialect.SNITCH:
            return None
    return Ping(url)


def last(url: str, dialect: Dialect, run: str, end: RunEnd) -> Ping:
    """The request that reports how a run has ended."""
    code, line, well = end.code, end.line, end.code == 0
    match dialect:
        case Dialect.HEALTHCHECKS:
            return Ping(extended(url, {"rid": run}, f"/{code & 255}"), line.encode())
        case Dialect.CRONITOR:
            query = [("state", "complete" if well else "fail"), ("series", run), ("status_code", str(code))]
            counts = {**end.counts, "duration": f"{end.seconds:.3f}"}
            query += [("metric", f"{name}:{value}") for name, value in counts.items()]
            return Ping(extended(url, [*query, ("message", line)]))
        case Dialect.SENTRY:
            status, seconds = "ok" if well else "error", f"{end.seconds:.3f}"
            return Ping(extended(url, {"check_in_id": run, "status": status, "duration": seconds}))
        case Dialect.SNITCH:
            return Ping(extended(url, {"s": str(code), "m": line}))
    return Ping(url, line.encode())


def ending_of(end: LaunchEnded, code: int) -> RunEnd:
    """The end of a launch as a run's end, with its numbers of handled and failed messages."""
    line = (
        f"{end.role} ran {end.running_seconds:.1f}s ({why_stopped(end.stop_reason)}): {end.counts()}; exit code {code}"
    )
    return RunEnd(code, line, end.running_seconds, {"count": end.handled, "error_count": end.failed})


def extended(url: str, query: Mapping[str, str] | Sequence[tuple[str, str]], path: str = "") -> str:
    """``url`` with ``path`` appended to its path, and ``query`` to its query."""
    parts = urlsplit(url)
    extended = parts.path.rstrip("/") + path if path else parts.path
    return urlunsplit(parts._replace(path=extended, query="&".join(filter(None, (parts.query, urlencode(query))))))


ANSWER_WITHIN = 3.0
"""Seconds within which a monitor must answer."""
USER_AGENT = "pollconsumer"
NO_ANSWER = "no answer in time"
AT_A_TIME = 4
"""Maximum number of concurrent requests about occurrences. Requests for one URL are sent one after the other."""
MOST_WAITING = 100
"""Maximum number of requests that wait behind each request in flight."""
TOO_MANY = f"more than {MOST_WAITING} requests wait for an answer"
BROKEN_FROM = 500
"""The least status code after which a request is repeated, since the monitor is at fault."""


class Failed(NamedTuple):
    """Why a request was not delivered, and whether another try may help."""

    reason: str
    again: bool


class Sender:
    """Sends requests one after the other, in a background thread. ``deliver`` sends one request. It returns None if the
    monitor accepted it."""

    def __init__(self, deliver: Callable[[Ping], Failed | None]) -> None:
        self._deliver = deliver
        self._waiting: SimpleQueue[Ping | None] = SimpleQueue()
        self._thread: Started | None = None
        self._problems: dict[str, str] = {}
        self._in_flight: Ping | None = None
        self._latest: Ping | None = None

    def start(self) -> None:
        with suppress(RuntimeError):  # no thread can be started: `wait` reports it
            self._thread = start_thread("pings", self._send_all)

    def send(self, ping: Ping) -> None:
        if self._waiting.qsize() >= MOST_WAITING:
            self.refuse(ping, TOO_MANY)
            return
        self._latest = ping
        self._waiting.put(ping)

    def refuse(self, ping: Ping, reason: str) -> None:
        """Record that ``ping`` was not delivered, for ``reason``."""
        self._problems[host_of(ping.url)] = reason

    def close(self) -> None:
        """Accept no further requests. Waiting ones are still sent."""
        self._waiting.put(None)

    def wait(self, seconds: float) -> dict[str, str]:
        """Wait at most ``seconds`` for the answers, after `close`. Returns, for each host with an undelivered request,
        why it was not delivered."""
        if self._thread is None:
            while not self._waiting.empty():
                if (unsent := self._waiting.get()) is not None:
                    self.refuse(unsent, NO_THREAD)
        elif not self._thread.join(seconds) and (ping := self._in_flight or self._latest) is not None:
            self.refuse(ping, NO_ANSWER)
        return dict(self._problems)

    def _send_all(self) -> None:
        while (ping := self._waiting.get()) is not None:
            self._in_flight = ping
            failed = self._deliver(ping)
            if failed is not None and failed.again:
                failed = self._deliver(ping)
            if failed is not None:
                self.refuse(ping, failed.reason)


class Pinger:
    """Reports one launch to its monitor. A constructed Pinger has no thread yet; `begin` starts it."""

    def __init__(self, url: str, dialect: Dialect, deliver: Callable[[Ping], Failed | None] | None = None) -> None:
        self._url, self._dialect, self._run = url, dialect_of(url, dialect), uuid_of(os.urandom(16).hex())
        self._sender = Sender(deliver or delivered)

    def begin(self) -> None:
        """Report that the launch has begun, and start the thread."""
        if (ping := first(self._url, self._dialect, self._run)) is not None:
            self._sender.send(ping)
        self._sender.start()

    def end(self, ended: LaunchEnded, code: int) -> None:
        """Report that the launch has ended."""
        self._sender.send(last(self._url, self._dialect, self._run, ending_of(ended, code)))
        self._sender.close()

    def wait(self, left: Callable[[], float], emit: Callable[[Event], None]) -> None:
        """Wait for answers, at most ``left()`` seconds. Reports undelivered requests."""
        for host, problem in self._sender.wait(left()).items():
            emit(PingFailed(host, problem))


class Monitors:
    """Reports occurrences to their monitors. ``deliver`` sends a request; it returns None if it was accepted."""

    def __init__(
        self, dialect: Dialect, clock: Callable[[], float], deliver: Callable[[Ping], Failed | None] | None = None
    ) -> None:
        self._dialect, self._clock, self._deliver = dialect, clock, deliver or delivered
        self._senders: dict[int, Sender] = {}
        self._begun: dict[bytes, tuple[str, float]] = {}
        """For each occurrence in flight, by its id: its monitor's URL, and when this launch's attempt began."""

    def begin(self, reservation: Reservation, url: str) -> None:
        """Report to the monitor at ``url`` that an occurrence begins for the first time. `end` reports there, too."""
        self._begun[reservation.id] = url, self._clock()
        ping = first(url, dialect_of(url, self._dialect), _run_of(reservation))
        if ping is not None and reservation.attempt == 1 and not reservation.has_checkpoint:
            self._send(url, ping)

    def end(self, reservation: Reservation, code: int, what: str) -> None:
        """Report that an occurrence has ended for good, if `begin` was called for it. ``what``: the result in words."""
        if (begun := self._begun.pop(reservation.id, None)) is not None:
            url, since = begun
            line = f"{reservation.name}: {what}, attempt {reservation.attempt}"
            end = RunEnd(code, line, self._clock() - since)
            self._send(url, last(url, dialect_of(url, self._dialect), _run_of(reservation), end))

    def wait(self, left: Callable[[], float], emit: Callable[[Event], None]) -> None:
        """Wait at most ``left()`` seconds for answers. Emits a PingFailed for each host with undelivered requests."""
        problems: dict[str, str] = {}
        for sender in self._senders.values():
            sender.close()
        for sender in self._senders.values():
            problems |= sender.wait(left())
        for host, problem in problems.items():
            emit(PingFailed(host, problem))

    def _send(self, url: str, ping: Ping) -> None:
        position = hash(url) % AT_A_TIME
        sender = self._senders.get(position)
        if sender is None:
            sender = self._senders[position] = Sender(self._deliver)
            sender.start()
        sender.send(ping)


def _run_of(reservation: Reservation) -> str:
    """The UUID of an occurrence. It is the same in every launch."""
    return uuid_of(sha256(reservation.name.encode()))


def host_of(url: str) -> str:
    return urlsplit(url).hostname or ""


def delivered(ping: Ping, within: float = ANSWER_WITHIN) -> Failed | None:
    """Send ``ping``. Returns None if the monitor accepted it ``within`` seconds, DNS, TLS and headers included.
    Otherwise returns why not. The reason never shows the URL, which is a secret."""
    outcome: list[Failed | None] = []
    connections: list[HTTPConnection] = []

    def exchange() -> None:
        outcome.append(_answered(ping, within, connections))

    # In a thread that can be abandoned: no limit ends the look-up of a name, and other limits start anew with each
    # byte.
    try:
        start_thread("ping", exchange).join(within)
    except RuntimeError:
        return Failed(NO_THREAD, again=False)
    if outcome:
        return outcome[0]
    for connection in connections:
        with suppress(OSError):
            if (held := connection.sock) is not None:
                held.shutdown(SHUT_RDWR)
    return Failed(NO_ANSWER, again=True)


def _answered(ping: Ping, within: float, connections: list[HTTPConnection]) -> Failed | None:
    # Imported in the background, since it is slow.
    from http.client import HTTPConnection, HTTPSConnection
    from urllib.error import HTTPError, URLError
    from urllib.request import HTTPHandler, HTTPRedirectHandler, HTTPSHandler, Request, build_opener

    def noted(kind: Callable[..., HTTPConnection]) -> Callable[..., HTTPConnection]:
        def make(*given: Any, **named: Any) -> HTTPConnection:
            connections.append(kind(*given, **named))
            return connections[-1]

        return make

    class PlainHTTPHandler(HTTPHandler):
        def http_open(self, req: Request) -> Any:
            return self.do_open(noted(HTTPConnection), req)

    class Encrypted(HTTPSHandler):
        def https_open(self, req: Request) -> Any:
            return self.do_open(noted(HTTPSConnection), req)

    class RedirectFollower(HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            """Follow no redirection: the URL is a secret, and a POST would become a GET without its body."""

    headers = {"User-Agent": USER_AGENT, "Content-Type": ping.content}
    if ping.token:
        headers["Authorization"] = f"Bearer {ping.token}"
    try:
        asked = Request(ping.url, ping.body, headers)
        build_opener(PlainHTTPHandler, Encrypted, RedirectFollower).open(asked, timeout=within).close()
    except HTTPError as error:
        error.close()
        if 300 <= error.code < 400:
            return Failed(f"it redirects ({error.code}): write the address that it leads to", again=False)
        return Failed(f"it answers {error.code}", again=error.code >= BROKEN_FROM)
    except URLError as error:
        return Failed(_reason(error.reason), again=True)
    except Exception as error:  # from http.client, or from sockets
        return Failed(_reason(error), again=True)
    return None


def _reason(error: BaseException | str) -> str:
    if isinstance(error, TimeoutError):
        return NO_ANSWER
    return (isinstance(error, OSError) and error.strerror) or type(error).__name__


def uuid_of(digits: str) -> str:
    """A UUID of version 4, made of 32 hexadecimal digits. Its version and variant replace two of them."""
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:32]}"
