"""A cluster as one connection: which node gets a command, and what becomes of one that a node does not serve."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.core.errors import ConfigurationError, NodeLost, PollConsumerError, StoreUnreachable
from pollconsumer.store.client import cluster_wire
from pollconsumer.store.client.address import ClusterAddress, Node, server_urls, url_warnings
from pollconsumer.store.client.cluster_wire import ClusterWire, Topology, slot_of
from pollconsumer.store.client.patience import Budget
from pollconsumer.store.client.replies import Unanswered
from tests.store.scripted_node import OK, ScriptedNode
from tests.store.servers import Impatient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pollconsumer.store.client.patience import Patience
    from tests.store.scripted_node import Answer

LOW, HIGH = "{b}", "{a}"
"""Keys whose slots are in the lower half, and in the upper."""
HOME = "{b}home"


def numbered(number: int) -> Answer:
    return lambda _: b":%d\r\n" % number


@pytest.fixture
def two() -> Iterator[list[ScriptedNode]]:
    """Nodes that answer with their number, each with half of the slots."""
    with ExitStack() as stack:
        nodes = [stack.enter_context(ScriptedNode(numbered(number))) for number in (1, 2)]
        for node in nodes:
            node.nodes = nodes
        yield nodes


@pytest.fixture
def connect() -> Iterator[Callable[..., ClusterWire]]:
    with ExitStack() as stack:

        def make(node: ScriptedNode, patience: Callable[[], Patience] = lambda: Budget(10)) -> ClusterWire:
            return stack.enter_context(
                closing(ClusterWire(node.url, Topology(ClusterAddress(node.url)), HOME, patience))
            )

        yield make


def once_moved(node: ScriptedNode, reply: bytes) -> Answer:
    """The answer of a node that redirects the first command to ``node``, and knows the next ones."""
    left = [b"-MOVED %d :%d\r\n" % (slot_of(LOW), node.port)]
    return lambda _: left.pop() if left else reply


@pytest.mark.parametrize(
    ("key", "slot"),
    [("123456789", 12739), ("{123456789}:r", 12739), ("a{123456789}{b}", 12739), ("", 0), (b"{123456789}", 12739)],
)
def test_a_key_belongs_to_the_slot_of_its_hash_tag(key: str | bytes, slot: int) -> None:
    assert slot_of(key) == slot


def test_an_empty_hash_tag_and_one_without_an_end_are_none() -> None:
    assert slot_of("{}123") == slot_of(b"{}123") != slot_of("123")
    assert slot_of("{123") != slot_of("123")


def test_each_command_goes_to_the_node_of_its_slot_and_answers_keep_their_order(
    two: list[ScriptedNode], connect: Callable[..., ClusterWire]
) -> None:
    wire = connect(two[0])
    assert slot_of(LOW) < 8192 <= slot_of(HIGH)
    script = ("EVALSHA", "0" * 40, 1, LOW, HIGH)
    answers = wire.all([("GET", HIGH), ("GET", LOW), ("TIME",), script, ("GET", HIGH + "x")])
    assert answers == [2, 1, 1, 1, 2]
    assert two[0].seen == [b"GET {b}", b"TIME", b"EVALSHA %b 1 {b} {a}" % (b"0" * 40)]


def test_only_a_redirected_command_is_sent_again_and_the_next_one_goes_to_the_new_node_at_once(
    two: list[ScriptedNode], connect: Callable[..., ClusterWire]
) -> None:
    two[0].answer = once_moved(two[1], b":1\r\n")
    wire = connect(two[0])
    assert wire.all([("GET", LOW), ("GET", HIGH), ("GET", HOME)]) == [2, 2, 1]
    assert wire.command("SET", LOW, 1) == 2
    assert two[0].seen == [b"GET {b}", b"GET {b}home"]
    assert two[1].seen == [b"GET {a}", b"GET {b}", b"SET {b} 1"]


def test_a_command_for_a_slot_that_is_moving_is_asked_of_its_new_node_this_once(
    two: list[ScriptedNode], connect: Callable[..., ClusterWire]
) -> None:
    two[0].answer = lambda _: b"-ASK %d :%d\r\n" % (slot_of(LOW), two[1].port)
    two[1].answer = lambda command: OK if command == [b"ASKING"] else b":2\r\n"
    wire = connect(two[0])
    assert wire.all([("GET", LOW), ("GET", HIGH)]) == [2, 2]
    assert two[1].seen == [b"GET {a}", b"ASKING", b"GET {b}"]
    wire.command("GET", LOW)
    assert two[0].seen == [b"GET {b}", b"GET {b}"]


def test_a_command_for_a_slot_that_moved_on_while_it_was_asked_of_a_node_goes_after_it(
    two: list[ScriptedNode], connect: Callable[..., ClusterWire]
) -> None:
    asked = [b"-ASK %d :%d\r\n" % (slot_of(LOW), two[1].port)]
    two[0].answer = lambda _: asked.pop() if asked else b":1\r\n"
    moved = b"-MOVED %d :%d\r\n" % (slot_of(LOW), two[0].port)
    two[1].answer = lambda command: OK if command == [b"ASKING"] else moved if LOW.encode() in command else b":2\r\n"
    wire = connect(two[0])
    assert wire.all([("GET", LOW), ("GET", HIGH)]) == [1, 2]
    assert two[0].seen == [b"GET {b}", b"GET {b}"]


@pytest.mark.parametrize(
    "error", ["TRYAGAIN Multiple keys request during rehashing of slot", "CLUSTERDOWN", "READONLY"]
)
def test_a_call_is_repeated_while_a_node_does_not_serve_the_slot(
    two: list[ScriptedNode], connect: Callable[..., ClusterWire], error: str
) -> None:
    replies = [b"-%b\r\n" % error.encode(), b":1\r\n"]
    two[0].answer = lambda _: replies.pop(0)
    wire = connect(two[0])
    assert wire.command("GET", LOW) == 1
    assert wire.repeated


def test_a_node_that_redirects_without_end_leaves_the_call_unanswered(
    two: list[ScriptedNode], connect: Callable[..., ClusterWire]
) -> None:
    for node, other in zip(two, reversed(two), strict=True):
        node.answer = lambda _, other=other: b"-MOVED %d :%d\r\n" % (slot_of(LOW), other.port)  # type: ignore[misc]
    with pytest.raises(StoreUnreachable, match="redirected"):
        connect(two[0], Impatient).command("GET", LOW)


def test_after_a_loss_the_other_nodes_are_asked_who_has_the_slot(
    two: list[ScriptedNode], connect: Callable[..., ClusterWire]
) -> None:
    wire = connect(two[0])
    assert wire.command("GET", LOW) == 1
    two[0].answer = lambda _: b""
    for node in two:
        node.nodes = two[1:]
    assert wire.command("GET", LOW) == 2


def test_what_one_node_may_have_carried_out_is_told_when_another_is_lost(
    two: list[ScriptedNode], connect: Callable[..., ClusterWire]
) -> None:
    wire = connect(two[0])
    two[1].answer = lambda _: b"-CLUSTERDOWN\r\n"
    with pytest.raises(Unanswered) as alone:
        wire.once([("SET", HIGH, 1)])
    with pytest.raises(Unanswered) as among:
        wire.once([("SET", LOW, 1), ("SET", HIGH, 1)])
    assert (alone.value.sent, among.value.sent) == (False, True)


def test_a_late_answer_of_one_node_is_not_taken_for_that_to_a_repetition(
    two: list[ScriptedNode], connect: Callable[..., ClusterWire]
) -> None:
    answered = threading.Event()

    def late(_: list[bytes]) -> bytes:
        answered.set()
        return b":1\r\n"

    wire = connect(two[0])
    two[0].answer, two[1].answer = late, lambda _: b""
    with pytest.raises(Unanswered):
        wire.once([("GET", HIGH), ("GET", LOW)])
    assert answered.wait(30)
    two[0].answer = numbered(3)
    assert wire.command("GET", LOW) == 3


def test_a_wait_for_replicas_goes_to_every_node_that_is_written_to_and_the_fewest_count(
    two: list[ScriptedNode], connect: Callable[..., ClusterWire]
) -> None:
    wire = connect(two[0])
    assert wire.all([("SET", HIGH, 1), ("SET", LOW, 1), ("WAIT", 1, 100)]) == [2, 1, 1]
    assert wire.all([("SET", LOW, 1), ("SET", HIGH, 1), ("WAIT", 1, 100)]) == [1, 2, 1]
    assert [node.seen[-1] for node in two] == [b"WAIT 1 100"] * 2
    assert wire.all([("SET", HIGH, 1), ("WAIT", 1, 100)]) == [2, 2]


def test_a_wait_for_replicas_follows_a_command_to_where_its_slot_moves(
    two: list[ScriptedNode], connect: Callable[..., ClusterWire]
) -> None:
    two[0].answer = lambda command: (
        b":9\r\n" if command[0] == b"WAIT" else b"-ASK %d :%d\r\n" % (slot_of(LOW), two[1].port)
    )
    wire = connect(two[0])
    assert wire.all([("SET", LOW, 1), ("WAIT", 1, 100)]) == [2, 2]
    assert two[1].seen == [b"ASKING", b"SET {b} 1", b"WAIT 1 100"]


@pytest.mark.parametrize("refusing", [0, 1])
def test_a_wait_that_a_node_refuses_is_refused_whatever_another_says(
    two: list[ScriptedNode], connect: Callable[..., ClusterWire], refusing: int
) -> None:
    two[refusing].answer = lambda command: b"-ERR unknown command\r\n" if command[0] == b"WAITAOF" else OK
    with pytest.raises(PollConsumerError, match="unknown command"):
        connect(two[0]).all([("SET", LOW, 1), ("SET", HIGH, 1), ("WAITAOF", 1, 0, 100)])


def test_a_node_that_has_become_a_replica_need_not_wait_for_what_it_redirects(
    two: list[ScriptedNode], connect: Callable[..., ClusterWire]
) -> None:
    redirecting = b"-MOVED %d :%d\r\n" % (slot_of(LOW), two[1].port)
    two[0].answer = lambda command: b"-ERR WAIT cannot be used\r\n" if command[0] == b"WAIT" else redirecting
    assert connect(two[0]).all([("SET", LOW, 1), ("SET", HIGH, 1), ("WAIT", 1, 100)]) == [2, 2, 2]


def test_after_each_doubt_another_node_is_asked_since_one_that_is_cut_off_says_what_was() -> None:
    topology, asked = Topology(ClusterAddress("redis+cluster://h1,h2")), list[str]()

    def ask(node: Node) -> list[Any]:
        asked.append(node.host)
        if node.host == "h4":
            raise Unanswered("away", sent=False)
        return [[0, 16383, [b"h3", 6379, b"id"], [b"h4", 6379, b"id"]]]

    for _ in range(5):
        topology.refresh(ask)
    assert asked == ["h1", "h2", "h1", "h3", "h4", "h2"]
    assert topology.primaries() == [Node("h3", 6379)]


def test_a_launch_on_a_single_server_imports_nothing_of_clusters() -> None:
    script = (
        "import sys, pollconsumer.interface.cli.launch_commands\n"
        "from pollconsumer.runtime.store_opener import StoreOpener;"
        "StoreOpener('redis://h', 'n', print, None).wire(None);"
        "print([name for name in sys.modules if 'cluster' in name])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_server_that_belongs_to_no_cluster_is_refused(
    two: list[ScriptedNode], connect: Callable[..., ClusterWire]
) -> None:
    two[0].slots = b"-ERR This instance has cluster support disabled\r\n"
    with pytest.raises(ConfigurationError, match="belongs to no cluster"):
        connect(two[0]).command("GET", LOW)


def test_the_nodes_of_a_url_share_its_login_and_options() -> None:
    address = ClusterAddress("redis+cluster://user:se%40cret@h1:7000,[::1],h3?ssl=true&ssl_ca_certs=/ca.pem")
    assert address.seeds == [Node("h1", 7000), Node("::1", 6379), Node("h3", 6379)]
    assert address.url_of(Node("::2", 1)) == "rediss://user:se%40cret@[::2]:1?ssl_ca_certs=%2Fca.pem"


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("redis+cluster://:secret@127.0.0.1,h1,h2", ["h1", "h2"]),
        ("redis+cluster://:secret@h1,h2?ssl=true", []),
        ("redis+cluster://h1,h2", []),
    ],
)
def test_a_password_that_goes_to_another_host_unencrypted_is_warned_about(url: str, hosts: list[str]) -> None:
    assert [*url_warnings(url)] == [f"store: the password goes to {host} unencrypted; add ssl=true" for host in hosts]


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("redis+cluster://h/1", "no numbered databases"),
        ("redis+cluster://h?db=1", "no numbered databases"),
        ("redis+cluster://h?ssl=perhaps", "ssl must be true or false"),
        ("redis+cluster://h?ssl_ca_certs=/ca.pem", "needs ssl=true"),
    ],
)
def test_a_url_that_cannot_be_meant_is_refused(url: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        server_urls(url)
    with pytest.raises(ConfigurationError, match=problem):
        ClusterAddress(url)


def lost_connection(_: list[bytes]) -> bytes:
    return b""


def test_a_wait_for_markers_of_two_nodes_is_unanswered_while_one_is_lost(
    two: list[ScriptedNode], connect: Callable[..., ClusterWire]
) -> None:
    wire, lost = connect(two[0]), two[1]
    lost.answer = lost_connection
    wire.send([("BLPOP", LOW, HIGH, 30)])
    with pytest.raises(Unanswered):
        wire.readable(10)
    lost.answer = lambda _: b"$1\r\n1\r\n"
    two[0].answer = lambda _: b"$-1\r\n"
    wire.send([("BLPOP", LOW, HIGH, 30)])
    assert wire.readable(10)
    assert wire.receive([()]) == [[HIGH.encode(), b"1"]]


def test_a_wait_for_markers_of_two_nodes_is_over_in_time(
    two: list[ScriptedNode], connect: Callable[..., ClusterWire]
) -> None:
    wire = connect(two[0])
    for node in two:
        node.answer = lambda _: b"$-1\r\n"
    assert wire.once([("BLPOP", LOW, HIGH, 0.12), ("GET", HIGH)], blocking=0.12) == [None, None]
    assert two[0].seen.count(b"LPOP {b}") == two[1].seen.count(b"LPOP {a}") > 0


def test_keys_are_lost_whose_node_is_away_says_nothing_or_does_not_serve_them(
    two: list[ScriptedNode], connect: Callable[..., ClusterWire], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_wire, "SILENT_FOR", 0.0)
    monkeypatch.setattr(cluster_wire, "LONGER_SILENT", 0)
    wire, silent = connect(two[0]), threading.Event()
    assert wire.lost([LOW, HIGH]) == set()
    for answer in (lost_connection, lambda _: b"-CLUSTERDOWN\r\n", lambda _: b":2\r\n" * silent.wait(60)):
        two[1].answer = answer
        assert wire.lost([LOW, HIGH]) == {HIGH}
        assert wire.command("GET", LOW) == 1
    silent.set()
    two[1].answer = numbered(2)
    assert wire.lost([LOW, HIGH]) == set()


def test_a_node_that_did_not_answer_is_not_asked_again_at_once(
    two: list[ScriptedNode], connect: Callable[..., ClusterWire], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_wire, "SILENT_FOR", 3600.0)
    wire = connect(two[0])
    two[1].answer = lost_connection
    assert wire.lost([HIGH]) == {HIGH}
    asked = len(two[1].seen)
    assert wire.lost([HIGH]) == {HIGH}
    assert [server.address for server in wire.lost_servers()] == [f"redis://127.0.0.1:{two[1].port}"]
    assert len(two[1].seen) == asked > 0


def test_a_node_that_is_slow_to_say_nothing_is_asked_rarely(
    two: list[ScriptedNode], connect: Callable[..., ClusterWire], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_wire, "LONGER_SILENT", 3600)
    monkeypatch.setattr(cluster_wire, "SILENT_FOR", 0.0)
    wire, silent = connect(two[0]), threading.Event()
    two[1].answer = lambda _: b":2\r\n" * silent.wait(60)
    assert wire.lost([HIGH]) == {HIGH}
    asked = len(two[1].seen)
    assert wire.lost([HIGH]) == {HIGH}
    silent.set()
    assert len(two[1].seen) == asked > 0


def test_a_key_that_has_moved_is_not_lost(two: list[ScriptedNode], connect: Callable[..., ClusterWire]) -> None:
    two[1].answer = lambda _: b"-MOVED %d :%d\r\n" % (slot_of(HIGH), two[0].port)
    assert connect(two[0]).lost([LOW, HIGH]) == set()


def test_no_key_is_lost_apart_from_others_if_the_node_with_the_leases_is(
    two: list[ScriptedNode], connect: Callable[..., ClusterWire]
) -> None:
    wire = connect(two[1])
    two[0].answer = lost_connection
    assert wire.lost([LOW, HIGH]) == wire.lost([HIGH]) == set()


def test_who_has_no_time_left_asks_no_node(two: list[ScriptedNode], connect: Callable[..., ClusterWire]) -> None:
    assert connect(two[0], OutOfPatience).lost([LOW, HIGH]) == set()
    assert not two[0].seen + two[1].seen


class OutOfPatience(Impatient):
    def to_connect(self) -> float:
        return 0.0


def test_a_call_without_time_says_so(two: list[ScriptedNode], connect: Callable[..., ClusterWire]) -> None:
    with pytest.raises(StoreUnreachable, match="no time is left to connect"):
        connect(two[0], OutOfPatience).command("GET", LOW)


def test_a_call_that_needs_a_lost_node_fails_at_once_for_a_caller_with_work_on_others(
    two: list[ScriptedNode], connect: Callable[..., ClusterWire]
) -> None:
    wire = connect(two[0], lambda: Budget(3600))
    wire.isolate_keys([LOW, HIGH])
    two[1].answer = lost_connection
    with pytest.raises(NodeLost):
        wire.all([("GET", LOW), ("GET", HIGH)])
    assert wire.command("GET", LOW) == 1


@pytest.mark.parametrize(
    ("apart", "lost", "parting"),
    [([], 1, True), ([HIGH], 1, True), ([LOW, HIGH], 0, True), ([LOW, HIGH], 1, False)],
    ids=["nobody asked", "all are lost", "the leases are lost", "not by this call"],
)
def test_other_calls_wait_for_a_lost_node(
    two: list[ScriptedNode], connect: Callable[..., ClusterWire], apart: list[str], lost: int, *, parting: bool
) -> None:
    wire = connect(two[1 - lost], Impatient)
    wire.isolate_keys(apart)
    two[lost].answer = lost_connection
    with pytest.raises(StoreUnreachable) as unreachable:
        wire.all([("GET", HIGH if lost else LOW)], parting=parting)
    assert type(unreachable.value) is StoreUnreachable
