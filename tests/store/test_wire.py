"""The connection: what it repeats, what it gives up on, and what its errors become."""

from __future__ import annotations

import os
import signal
import socket
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pollconsumer.core.errors import (
    ConfigurationError,
    LeaseLost,
    OutcomeUnknown,
    PermissionDenied,
    PollConsumerError,
    StoreRefused,
    StoreUnreachable,
)
from pollconsumer.store.client import patience as module
from pollconsumer.store.client.address import KEPT_ALIVE_EVERY, address_of
from pollconsumer.store.client.patience import Patience
from pollconsumer.store.client.replies import Unanswered
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.queues.producer import Enqueued
from pollconsumer.store.queues.redis_store import RedisStore
from tests.conftest import NAMESPACE
from tests.store.acting import QUEUE, Launch, Looking, message, names, release
from tests.store.relay import Relay, answering
from tests.store.servers import Impatient

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.store.servers import Server


def say(reply: bytes) -> object:
    """What a command ends with that is answered so."""
    with answering(reply) as url:
        wire = Wire(url, Impatient)
        try:
            return wire.command("PING")
        finally:
            wire.close()


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (b"-FENCED consumer:mail:0", LeaseLost),
        (b"-NOAUTH Authentication required.", PermissionDenied),
        (b"-WRONGPASS invalid username-password pair or user is disabled.", PermissionDenied),
        (b"-NOPERM this user has no permissions to run the 'ping' command", PermissionDenied),
        (b"-WRONGTYPE Operation against a key holding the wrong kind of value", StoreRefused),
        (b"-ERR WRONGTYPE Operation against a key script: abc, on @user_script:1.", StoreRefused),
        (b"-READONLY You can't write against a read only replica.", StoreUnreachable),
        (b"-LOADING Redis is loading the dataset in memory", StoreUnreachable),
        (b"-TRYAGAIN Multiple keys request during rehashing of slot", StoreUnreachable),
        (b"-CLUSTERDOWN The cluster is down", StoreUnreachable),
        (b"-MASTERDOWN Link with MASTER is down", StoreUnreachable),
        (b"-BUSY Redis is busy running a script.", StoreUnreachable),
        (b"-OOM command not allowed when used memory > 'maxmemory'.", StoreUnreachable),
        (b"-MISCONF Redis is configured to save RDB snapshots", StoreUnreachable),
        (b"-NOREPLICAS Not enough good replicas to write.", StoreUnreachable),
        (b"-ERR max number of clients reached", StoreUnreachable),
        (b"-ERR unknown command 'INFO', with args beginning with: 'server'", StoreRefused),
        (b"-ERR unknown subcommand 'LOAD'. Try SCRIPT HELP.", StoreRefused),
        (b"-MOVED 7585 127.0.0.1:17291", StoreRefused),
        (b"-ASK 7585 127.0.0.1:17291", StoreRefused),
        (b"-ERR DB index is out of range", StoreRefused),
        (b"-ERR SELECT is not allowed in cluster mode", StoreRefused),
        (b"-ERR unknown command", StoreRefused),
        (b"-ERR", StoreRefused),
        (b"-", StoreRefused),
        (b"-ERR user_script:1: Script attempted to access nonexistent global variable", PollConsumerError),
    ],
    ids=lambda value: value.decode()[:20] if isinstance(value, bytes) else value.__name__,
)
def test_an_error_reply_becomes_the_error_that_says_what_to_do(reply: bytes, error: type[PollConsumerError]) -> None:
    with pytest.raises(PollConsumerError) as caught:
        say(reply + b"\r\n")
    assert type(caught.value) is error


@pytest.mark.parametrize(
    ("reply", "fix"),
    [(b"-OOM command not allowed", "raise maxmemory"), (b"-MISCONF Errors writing to the AOF file", "on its disk")],
)
def test_a_server_that_is_full_is_not_called_unreachable(reply: bytes, fix: str) -> None:
    with pytest.raises(StoreUnreachable, match=f"^store cannot write: .*; it says: .*{fix}") as caught:
        say(reply + b"\r\n")
    assert caught.value.full


@given(st.text(st.characters(min_codepoint=32, exclude_categories=["Cs"])).map(str.encode))
def test_no_exception_of_the_client_library_escapes_whatever_the_error_reply(text: bytes) -> None:
    with pytest.raises(PollConsumerError):
        say(b"-" + text + b"\r\n")


@pytest.mark.parametrize("reply", [b"", b"$5\r\nab", b"?what\r\n", b"$x\r\n", b"*2\r\n+a\r\n", b"\xff\xfe\r\n"])
def test_an_answer_that_is_none_counts_as_no_answer(reply: bytes) -> None:
    with pytest.raises(StoreUnreachable):
        say(reply)


def test_the_text_of_an_error_stays_on_one_line() -> None:
    with pytest.raises(PollConsumerError) as caught:
        say(b"-ERR \x1b[31m\x07evil\r\n")
    assert str(caught.value).isprintable()


# Trying again


class Tries(Patience):
    """Patience for so many tries, whatever the time."""

    def __init__(self, tries: int) -> None:
        self.left_over, self.pauses = tries, 0

    def left(self) -> float:
        self.left_over -= 1
        return float(max(0, self.left_over))

    def pause(self, seconds: float) -> None:
        assert seconds > 0
        self.pauses += 1

    def for_one_answer(self, blocking: float = 0.0) -> float:  # noqa: ARG002  the protocol has it
        return module.COMMAND_TIMEOUT


@pytest.mark.parametrize("passing", [b"-LOADING\r\n", b"-READONLY\r\n", b"-BUSY\r\n", b"-OOM\r\n", b""])
def test_what_passes_is_tried_again_until_it_has_passed(passing: bytes) -> None:
    patience = Tries(5)
    with answering(passing, passing, b"+PONG\r\n") as url:
        wire = Wire(url, lambda: patience)
        assert wire.command("PING") == b"PONG"
        wire.close()
    assert patience.pauses == 2
    assert wire.repeated


def test_what_never_passes_is_given_up_when_patience_ends() -> None:
    patience = Tries(4)
    wire = Wire("unix:///nowhere/at/all", lambda: patience)
    with pytest.raises(StoreUnreachable, match="unix:///nowhere/at/all") as caught:
        wire.command("PING")
    assert patience.pauses == 3
    assert not caught.value.sent


@pytest.mark.parametrize("final", [b"-NOAUTH\r\n", b"-WRONGPASS\r\n", b"-NOPERM\r\n", b"-WRONGTYPE\r\n", b"-ERR\r\n"])
def test_what_will_not_pass_is_not_tried_again(final: bytes) -> None:
    patience = Tries(5)
    with answering(final, b"+PONG\r\n") as url:
        wire = Wire(url, lambda: patience)
        with pytest.raises(PollConsumerError):
            wire.command("PING")
        wire.close()
    assert patience.pauses == 0


def test_a_server_that_stands_still_is_given_up_when_patience_ends(
    valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    patience = Tries(3)
    wire = valkey.wire(lambda: patience)
    wire.command("PING")
    monkeypatch.setattr(module, "COMMAND_TIMEOUT", 0.05)
    os.kill(valkey.pid, signal.SIGSTOP)
    try:
        with pytest.raises(StoreUnreachable) as caught:
            wire.command("PING")
    finally:
        os.kill(valkey.pid, signal.SIGCONT)
    assert caught.value.sent
    assert patience.pauses == 2


def test_a_late_reply_is_never_taken_for_the_answer_to_the_next_command(
    valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = valkey.wire()
    wire.command("SET", "late", "late")
    os.kill(valkey.pid, signal.SIGSTOP)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(module, "COMMAND_TIMEOUT", 0.05)
            with pytest.raises(Unanswered):
                wire.once([("GET", "late")])
    finally:
        os.kill(valkey.pid, signal.SIGCONT)
    assert wire.once([("ECHO", "next")]) == [b"next"]


def test_a_child_process_does_not_speak_on_the_connection_of_its_parent(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections: list[Wire] = []
    wire = server.wire(greet=connections.append)
    wire.command("PING")
    wire.command("PING")
    assert len(connections) == 1
    monkeypatch.setattr(os, "getpid", lambda: -1)  # what a fork looks like
    wire.command("PING")
    assert len(connections) == 2


# Scripts


def test_a_script_that_the_server_forgot_is_loaded_again(store: RedisStore) -> None:
    store.enqueue([message("a")])
    store.wire.command("SCRIPT", "FLUSH")
    store.enqueue([message("b")])
    launch = Launch(store)
    store.wire.command("SCRIPT", "FLUSH")
    assert names(launch.reserve(9)) == ["a", "b"]


def test_a_forgotten_script_behind_a_wait_is_loaded_again(store: RedisStore) -> None:
    store.enqueue([message("a"), message("b")])
    launch = Launch(store)
    launch.reserve()
    store.wire.command("SCRIPT", "FLUSH")
    assert names(launch.step(wanted=1, wait=30.0).reserved) == ["b"]


def test_several_forgotten_scripts_in_one_write_are_answered_each_in_its_place(store: RedisStore) -> None:
    store.enqueue([message("a")])
    store.wire.command("SCRIPT", "FLUSH")
    keys = store.keys
    answers = store.wire.once(
        [
            ("ECHO", "first"),
            store.wire.script(
                "nudge", [keys.queue(QUEUE, "successor_waits"), keys.queue(QUEUE, "ready_marker")], [9, 1]
            ),
            ("ECHO", "second"),
            store.wire.script(
                "learn", [*map(keys.control, ("durations", "durations_before", "histograms"))], [100, 9, 0]
            ),
            store.wire.script("register", [keys.control("queues"), keys.control("queues_marker")], [QUEUE, "-"]),
        ]
    )
    assert answers == [b"first", 1, b"second", 1, []]


# Lost replies


@pytest.fixture
def relay(valkey: Server) -> Iterator[Relay]:
    relay = Relay(valkey.url)
    yield relay
    relay.close()


@pytest.fixture
def distant(relay: Relay) -> Iterator[RedisStore]:
    """A store behind the relay."""
    wire = Wire(relay.url, lambda: Tries(2))
    yield RedisStore(wire, NAMESPACE)
    wire.close()


def test_an_enqueue_whose_reply_is_lost_is_repeated_and_doubles_nothing(
    relay: Relay, distant: RedisStore, valkey: Server
) -> None:
    relay.lose_reply_to(b"accepted")
    assert distant.enqueue([message("accepted")]) == [Enqueued("accepted", duplicate=False)]
    assert relay.lost == 1
    assert Looking(RedisStore(valkey.wire(), NAMESPACE)).listed("ready") == ["accepted"]


def test_a_producer_whose_idle_connection_was_closed_enqueues_once_over_another(
    relay: Relay, distant: RedisStore, valkey: Server
) -> None:
    """As proxies do, and servers with a timeout."""
    distant.producer.enqueue_one(message("first"))
    valkey.wire().command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    assert distant.producer.enqueue_one(message("second")) == Enqueued("second", duplicate=False)
    assert relay.lost == 0
    assert Looking(RedisStore(valkey.wire(), NAMESPACE)).listed("ready") == ["first", "second"]


def test_a_connection_over_a_network_is_kept_alive_while_it_is_idle() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        opened = address_of(f"redis://127.0.0.1:{listening.getsockname()[1]}").open(5)
        with opened:
            assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == KEPT_ALIVE_EVERY


def test_an_enqueue_whose_every_reply_is_lost_ends_with_the_ids_to_repeat_it_with(
    relay: Relay, distant: RedisStore, valkey: Server
) -> None:
    relay.lose_reply_to(b"accepted", times=99)
    with pytest.raises(OutcomeUnknown) as caught:
        distant.enqueue([message("accepted"), message("too")])
    assert caught.value.ids == ["accepted", "too"]
    near = RedisStore(valkey.wire(), NAMESPACE)
    assert near.enqueue([message(name) for name in caught.value.ids]) == [
        Enqueued("accepted", duplicate=True),
        Enqueued("too", duplicate=True),
    ]
    assert Looking(near).listed("ready") == ["accepted", "too"]


def test_an_enqueue_whose_reply_is_lost_is_of_unknown_outcome_where_its_repetition_is_refused(relay: Relay) -> None:
    """The store was closed in between."""

    def greet(_: Wire) -> None:
        if relay.lost:
            raise StoreUnreachable("store closed")

    wire = Wire(relay.url, lambda: Tries(2), greet=greet)
    store = RedisStore(wire, NAMESPACE)
    relay.lose_reply_to(b"accepted")
    with pytest.raises(OutcomeUnknown) as caught:
        store.enqueue([message("accepted")])
    assert caught.value.ids == ["accepted"]
    wire.close()


@pytest.mark.parametrize(("first", "carried_out"), [(b":1\r\n", True), (b"-READONLY\r\n", False)])
def test_a_call_of_which_only_a_part_was_refused_may_have_been_carried_out(first: bytes, carried_out: bool) -> None:
    """Its server became a replica in between, or it waited for replicas then."""
    with answering(first + b"-UNBLOCKED\r\n") as url:
        wire = Wire(url, lambda: Tries(1))
        with pytest.raises(StoreUnreachable) as caught:
            wire.all([("INCR", "a"), ("WAIT", 1, 100)])
        assert caught.value.sent == carried_out


def test_an_enqueue_that_never_reached_the_server_is_not_of_unknown_outcome() -> None:
    store = RedisStore(Wire("unix:///nowhere/at/all", lambda: Tries(2)), NAMESPACE)
    with pytest.raises(StoreUnreachable) as caught:
        store.enqueue([message("a")])
    assert not isinstance(caught.value, OutcomeUnknown)


def test_a_step_whose_reply_is_lost_settles_once_and_reserves_uncharged(
    relay: Relay, distant: RedisStore, valkey: Server
) -> None:
    near = RedisStore(valkey.wire(), NAMESPACE)
    near.enqueue([message(name) for name in ("a", "b", "c")])
    launch = Launch(distant)
    first = launch.reserve()
    relay.lose_reply_to(first[0].row)
    stepped = launch.step(completed=first, wanted=1)
    assert relay.lost == 1
    assert (names(stepped.reserved), stepped.stale) == (["b"], [])
    assert stepped.reserved[0].attempt == 1
    look = Looking(near)
    assert (look.listed("completed"), look.ranked("in_flight"), look.listed("ready")) == (["a"], ["b"], ["c"])


def test_a_step_whose_reply_is_lost_twice_reserves_once_all_the_same(
    relay: Relay, distant: RedisStore, valkey: Server
) -> None:
    near = RedisStore(valkey.wire(), NAMESPACE)
    near.enqueue([message(name) for name in ("a", "b", "c", "d")])
    launch = Launch(distant)
    first = launch.reserve()
    relay.lose_reply_to(first[0].row, times=2)
    stepped = launch.step(completed=first, wanted=1)
    assert relay.lost == 2
    assert (names(stepped.reserved), stepped.stale) == (["b"], [])
    look = Looking(near)
    assert (look.listed("completed"), look.ranked("in_flight"), look.listed("ready")) == (["a"], ["b"], ["c", "d"])


# Late requests


class Hasty(Tries):
    """The first answer is given up soon; later ones may take their time."""

    soon = True

    def for_one_answer(self, blocking: float = 0.0) -> float:
        soon, self.soon = self.soon, False
        return 0.05 if soon else super().for_one_answer(blocking)


def connected(url: str, *opening: str, tries: int) -> Wire:
    """By the command ``opening``; of the next one, the first answer is given up soon."""
    patiences = chain([Tries(9), Hasty(tries)], repeat(Tries(9)))
    wire = Wire(url, lambda: next(patiences))
    wire.command(*opening)
    return wire


@pytest.fixture
def slow_network(valkey: Server) -> Iterator[Relay]:
    relay = Relay(valkey.url, over_network=True)
    yield relay
    relay.close()


def test_a_request_that_arrives_after_it_was_given_up_is_not_carried_out(slow_network: Relay, valkey: Server) -> None:
    wire = connected(slow_network.url, "PING", tries=9)
    slow_network.delay_request_with(b"RPUSH")
    assert wire.command("RPUSH", "list", "repeated") == 1
    slow_network.deliver()
    assert valkey.wire().command("LRANGE", "list", 0, -1) == [b"repeated"]
    wire.close()


def test_one_given_up_in_the_last_call_is_not_carried_out_after_the_next(slow_network: Relay, valkey: Server) -> None:
    wire = connected(slow_network.url, "PING", tries=0)
    slow_network.delay_request_with(b"RPUSH")
    with pytest.raises(StoreUnreachable):
        wire.command("RPUSH", "list", "late")
    assert wire.command("LLEN", "list") == 0
    slow_network.deliver()
    assert valkey.wire().command("LRANGE", "list", 0, -1) == []
    wire.close()


def test_a_user_without_the_right_to_close_connections_repeats_all_the_same(
    slow_network: Relay, valkey: Server
) -> None:
    valkey.wire().command("ACL", "SETUSER", "limited", "on", ">secret", "~list", "-@all", "+rpush")
    url = slow_network.url.replace("redis://", "redis://limited:secret@")
    wire = connected(url, "RPUSH", "list", "first", tries=9)
    slow_network.delay_request_with(b"RPUSH")
    assert wire.command("RPUSH", "list", "repeated") == 2
    slow_network.deliver()
    assert valkey.wire().command("LLEN", "list") == 3
    wire.close()
    valkey.wire().command("ACL", "DELUSER", "limited")


# Connecting


@pytest.mark.parametrize("url", ["http://h", "h:6379", "", "redis://h:99999", "redis://h/abc?socket_timeout=x"])
def test_a_url_that_cannot_be_meant_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError):
        Wire(url, Impatient)


def test_a_secret_of_the_url_is_in_no_error() -> None:
    wire = Wire("redis://:s3cret@127.0.0.1:1/0", Impatient)
    with pytest.raises(StoreUnreachable) as caught:
        wire.command("PING")
    assert "s3cret" not in str(caught.value)


def test_a_wrong_password_is_refused_at_once(valkey: Server) -> None:
    patience = Tries(5)
    wire = Wire(valkey.url.replace("unix://", "unix://nobody:wrong@"), lambda: patience)
    with pytest.raises(PermissionDenied):
        wire.command("PING")
    assert patience.pauses == 0


def test_a_server_that_is_ours_to_start_is_started_by_the_call_that_needs_it(valkey: Server) -> None:
    socket = Path(valkey.url.removeprefix("unix://"))
    address = socket.with_name("revived")
    started: list[Path] = []

    def revive(_seconds: float) -> None:
        started.append(address)
        address.symlink_to(socket)

    wire = Wire(f"unix://{address}", Impatient, revive=revive)
    assert wire.command("PING") == b"PONG"
    wire.close()
    assert wire.command("PING") == b"PONG"
    assert started == [address]
    wire.close()
    address.unlink()


def test_every_new_connection_is_looked_at_and_one_that_is_refused_is_not_used(server: Server) -> None:
    seen: list[bytes] = []

    def greet(wire: Wire) -> None:
        seen.append(wire.once([("PING",)])[0])
        if len(seen) == 2:
            raise StoreRefused("store replaced")

    wire = server.wire(greet=greet)
    wire.command("PING")
    wire.command("PING")
    wire.close()
    with pytest.raises(StoreRefused):
        wire.command("PING")
    assert wire.fileno() is None
    assert seen == [b"PONG", b"PONG"]


@pytest.mark.own_connection("redis-py closes its descriptors itself")
def test_a_connection_does_not_close_the_file_that_has_its_number_since_a_handler_closed_it(
    valkey: Server,
) -> None:
    wire = valkey.wire()
    assert wire.command("PING")
    number = wire.fileno()
    assert number is not None
    with Path(os.devnull).open() as theirs:
        os.dup2(theirs.fileno(), number)
    assert wire.command("PING")
    assert os.fstat(number).st_rdev == Path(os.devnull).stat().st_rdev
    os.close(number)


def test_a_script_is_given_text_alone_whatever_a_caller_adds_to_its_command(
    valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers are made text before hiredis sees them."""
    store = RedisStore(valkey.wire(), NAMESPACE)
    sent: list[tuple[Any, ...]] = []
    pack = hiredis.pack_command

    def spied(command: tuple[Any, ...]) -> bytes:
        sent.append(command)
        packed: bytes = pack(command)
        return packed

    monkeypatch.setattr(hiredis, "pack_command", spied)
    store.producer.enqueue_one(message("a"))
    store.enqueue([message("b", delay=1, priority=7), message("c", key="c", concurrency="c", limit=2)])
    store.enqueue([message("d"), message("e")])
    launch = Launch(store)
    first, *others = launch.reserve(9)
    launch.begin(first)
    launch.settle(*map(release, others[1:]))
    launch.step(wait=0.001, plain=True)
    scripts = [command for command in sent if command[0] == "EVALSHA"]
    assert len(scripts) > 6
    assert {type(part) for command in scripts for part in command} == {bytes, str}
