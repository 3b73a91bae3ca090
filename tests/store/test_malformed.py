"""Answers of another form than they should have: one error that says so, with the server's word, and no traceback."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import hiredis
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pollconsumer import PollConsumer
from pollconsumer.core.errors import ConfigurationError, PollConsumerError, StoreRefused
from pollconsumer.interface import cli
from pollconsumer.store.client.address import ClusterAddress, Node, host_and_port
from pollconsumer.store.client.cluster_wire import Topology
from pollconsumer.store.client.patience import Budget
from pollconsumer.store.client.replies import ErrorReply, Unanswered
from pollconsumer.store.client.sentinel import Sentinels
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.reading import messages
from tests.inner import calls_of
from tests.store.relay import Listening

if TYPE_CHECKING:
    import socket

    from tests.store.servers import Server

texts = st.binary(max_size=20).filter(lambda text: b"\r" not in text and b"\n" not in text)
scalars = st.one_of(
    st.integers(-3, 3).map(lambda number: b":%d\r\n" % number),
    st.sampled_from([b":9223372036854775807\r\n", b"$-1\r\n", b"*-1\r\n", b"*0\r\n", b"_\r\n", b"#t\r\n", b",inf\r\n"]),
    texts.map(lambda text: b"+" + text + b"\r\n"),
    texts.map(lambda text: b"-" + text + b"\r\n"),
    texts.map(lambda text: b"-ERR " + text + b"\r\n"),
    st.binary(max_size=40).map(lambda value: b"$%d\r\n%b\r\n" % (len(value), value)),
)
answers = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4).map(lambda each: b"*%d\r\n%b" % (len(each), b"".join(each))),
    max_leaves=6,
)
"""Of any form that the protocol has."""


class Saying:
    """A server that answers each command with ``said``, and greetings so that it is taken for a Redis if ``greets``."""

    said = b""
    greets = True

    def serve(self, connection: socket.socket) -> None:
        reader = hiredis.Reader()
        while received := connection.recv(1 << 16):
            reader.feed(received)
            while command := reader.gets():
                connection.sendall(self.answer(command))

    def answer(self, command: list[bytes]) -> bytes:
        if self.greets and command[0] == b"INFO":
            info = b"redis_version:7.2.4\r\nrole:master\r\n"
            return b"$%d\r\n%b\r\n" % (len(info), info)
        if self.greets and command[:2] == [b"GET", b"{malformed}:store-id"]:
            return b"$1\r\nx\r\n"
        if self.greets and command[0] == b"HGET":
            return b"$-1\r\n"
        return self.said


@pytest.fixture(scope="module")
def saying() -> Saying:
    return Saying()


@pytest.fixture(scope="module")
def url(saying: Saying) -> object:
    listening = Listening(saying.serve)
    yield listening.url
    listening.close()


def check(error: PollConsumerError) -> None:
    """One line with the server's word, cut."""
    assert "\n" not in str(error)
    assert len(str(error)) < 500


def asked(url: str) -> None:
    """Whatever a producer asks, each on a connection of its own; nothing but our errors."""
    app = PollConsumer(store=url, namespace="malformed", patience="1s")
    for ask in (
        lambda: app.enqueue("x"),
        lambda: app.enqueue("x", id="a"),
        lambda: app.message("a"),
        lambda: app.message("a", queue="default").cancel(),
        lambda: [*app.messages(queue="default")],
        lambda: app.recurrences.get("r"),
        lambda: app.recurrences.put("r", every="1h", handler="x"),
    ):
        try:
            ask()
        except PollConsumerError as error:
            check(error)
    vars(vars(calls_of(app))["_pool"])["_idle"].clear()  # closes them


@settings(max_examples=25, deadline=None)
@given(answers)
@example(b":1\r\n")
@example(b"*0\r\n")
@example(b"$2\r\n\xff\xfe\r\n")
@example(b"*2\r\n+0\r\n+0\r\n")  # the time, in answer to every command
def test_a_greeting_of_any_form_is_refused_or_not_answered(url: str, saying: Saying, said: bytes) -> None:
    saying.said, saying.greets = said, False
    with pytest.raises(PollConsumerError) as caught:
        PollConsumer(store=url, namespace="malformed", patience="20ms").enqueue("x")
    assert caught.value.exit_code in (69, 77, 78), caught.value


@settings(max_examples=15, deadline=None)
@given(answers)
@example(b":5\r\n")
@example(b"*1\r\n*1\r\n:7\r\n")
def test_no_answer_to_a_producer_is_a_traceback(url: str, saying: Saying, said: bytes) -> None:
    saying.said, saying.greets = said, True
    asked(url)


@pytest.mark.parametrize("connected", [False, True], ids=["on a new connection", "on one that had answers"])
def test_an_argument_that_cannot_be_sent_is_no_word_of_the_server(url: str, saying: Saying, connected: bool) -> None:
    saying.said, saying.greets = b"+OK\r\n", True
    app = PollConsumer(store=url, namespace="malformed", patience="1s")
    if connected:
        assert calls_of(app).ask(lambda store: store.wire.command("ECHO", "a")) == b"OK"
    with pytest.raises(UnicodeEncodeError):
        calls_of(app).ask(lambda store: store.wire.command("ECHO", "\ud800"))
    assert calls_of(app).ask(lambda store: store.wire.command("ECHO", "a")) == b"OK"
    vars(vars(calls_of(app))["_pool"])["_idle"].clear()


@pytest.mark.parametrize("error", [TypeError, ValueError, KeyError, IndexError, AttributeError, ZeroDivisionError])
def test_a_bug_of_ours_is_not_blamed_on_a_server_that_is_a_redis(
    valkey: Server, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """A bug of any kind is shown as such, anywhere in our code for the store."""

    def fail(*_: object) -> None:
        raise error("a bug")

    app = PollConsumer(store=valkey.url, namespace="malformed", patience="1s")
    app.enqueue("x", id="a")
    monkeypatch.setattr(messages, "_message", fail)
    with pytest.raises(error, match="a bug"):
        app.message("a").status()
    with pytest.raises(error, match="a bug"):
        cli.main(["--store", valkey.url, "--namespace", "malformed", "list"])
    wire = valkey.wire()
    wire.command("PING")
    assert wire.misread(error("a bug")) is None


def test_the_same_error_is_the_word_of_a_server_that_is_none(url: str, saying: Saying) -> None:
    saying.said, saying.greets = b"+OK\r\n", True
    wire = Wire(url, lambda: Budget(1))
    wire.command("PING")
    assert isinstance(wire.misread(TypeError("a bug")), StoreRefused)
    assert wire.misread(KeyboardInterrupt()) is None
    wire.close()


@pytest.mark.parametrize(
    "command",
    [
        ["list"],
        ["status"],
        ["dead", "list"],
        ["batch", "list"],
        ["recurrences", "list"],
        ["launches"],
        ["doctor"],
        ["metrics"],
        ["queue", "list"],
        ["lease", "show"],
    ],
)
@pytest.mark.parametrize("greets", [True, False])
def test_no_command_takes_what_is_no_redis_for_a_bug(
    url: str, saying: Saying, command: list[str], *, greets: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    saying.said, saying.greets = b"*2\r\n:1\r\n:2\r\n", greets
    assert cli.main(["--store", url, "--namespace", "malformed", *command]) in (69, 78)
    assert "Traceback" not in capsys.readouterr().err


@given(answers)
@example(b":1\r\n")
@example(b"*0\r\n")
@example(b"*2\r\n$1\r\nh\r\n$3\r\nabc\r\n")
@example(b"*2\r\n$2\r\n\xff\xfe\r\n$4\r\n6379\r\n")
def test_no_word_of_a_sentinel_is_a_traceback(said: bytes) -> None:
    reader = hiredis.Reader(replyError=ErrorReply, errors="replace")
    reader.feed(said)
    answer = reader.gets()
    if isinstance(answer, ErrorReply):
        return
    sentinels = Sentinels("redis+sentinel://h1/mymaster")
    sentinels._ask = lambda *_: answer  # type: ignore[method-assign]  # noqa: SLF001
    try:
        found = sentinels.primary(1.0)
    except ConfigurationError as error:
        check(error)
    else:
        assert host_and_port([found.host, found.port])


@given(answers)
@example(b"*1\r\n*3\r\n:0\r\n:2000000000\r\n*2\r\n$1\r\nh\r\n:1\r\n")
@example(b"*2\r\n:1\r\n:2\r\n")
def test_no_slots_of_a_cluster_are_a_traceback(said: bytes) -> None:
    reader = hiredis.Reader(replyError=ErrorReply, errors="replace")
    reader.feed(said)
    answer = reader.gets()
    topology = Topology(ClusterAddress("redis+cluster://h1"))
    try:
        topology.refresh(lambda _: answer)
    except PollConsumerError as error:
        check(error)
    except Unanswered:  # it becomes StoreUnreachable
        pass
    for node in topology.primaries():
        assert host_and_port(node)


@given(st.sampled_from(["MOVED", "ASK"]), st.text(max_size=30))
@example("MOVED", " 1 evil?ssl_cert_reqs=none&ssl_check_hostname=false:6380")
@example("MOVED", " 1 user:secret@evil:6380")
@example("MOVED", " 1")
@example("ASK", " 99999 h:1")
@example("MOVED", " 1 h:0")
@example("MOVED", "")
def test_a_redirection_leads_to_a_host_and_a_port_and_nothing_else(kind: str, rest: str) -> None:
    topology = Topology(ClusterAddress("redis+cluster://h1?ssl=true"))
    try:
        redirection = topology.redirection(ErrorReply(kind + rest), Node("h1", 6379))
    except StoreRefused as error:
        check(error)
        return
    if redirection is not None:
        node = redirection[2]
        assert topology.address.url_of(node) in (
            f"rediss://{node.host}:{node.port}",
            f"rediss://[{node.host}]:{node.port}",
        )
        assert not {*node.host} & {*"?&/#@ "}


@pytest.mark.parametrize("said", [b":1\r\n", b"*1\r\n:1\r\n", b"-WHAT is this\r\n", b"$2\r\n\xff\xfe\r\n"])
def test_a_command_that_is_answered_so_ends_with_a_line(url: str, saying: Saying, said: bytes) -> None:
    saying.said, saying.greets = said, False
    command = [sys.executable, "-m", "pollconsumer", "--store", url, "status"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=90)
    assert ended.returncode in (69, 78), ended.stderr
    assert ended.stderr.startswith("pollconsumer: error: ")
    assert ended.stderr.count("\n") == 1
