"""What a launch does for its other queues while a node of a cluster is lost, and for those of the node afterwards."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.core.errors import NodeLost, StoreUnreachable
from pollconsumer.core.messages.message_steps import Progress
from pollconsumer.runtime.session.exchange import SKIPPED_FOR
from pollconsumer.store.client.replies import Unanswered
from tests.runtime.test_exchange import Exchanging
from tests.store.acting import Looking, message
from tests.store.servers import Impatient

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from pollconsumer.store.client.connection import Command
    from pollconsumer.store.client.wire import Wire
    from pollconsumer.store.records.reservations import Claim


class Nodes:
    """Has a store in memory seem to have a node for each queue, of which some are ``lost``: these do not answer and,
    if they are ``deaf``, do not carry out commands."""

    def __init__(self, wire: Wire, patch: pytest.MonkeyPatch) -> None:
        self.lost: set[str] = set()
        self.deaf = True
        self._once = wire.once
        patch.setattr(wire, "once", self._answer)
        self._apart: Sequence[str] = ()
        patch.setattr(wire, "isolate_keys", lambda keys: setattr(self, "_apart", keys))
        patch.setattr(wire, "part", self._part)
        patch.setattr(wire, "lost", self._lost)

    def _answer(self, commands: Sequence[Command], **options: Any) -> list[Any]:
        if not self._needed(commands):
            return self._once(commands, **options)
        if heard := [each for each in commands if not (self.deaf and self._needed([each]))]:
            self._once(heard)
        raise Unanswered("a node is lost", sent=True)

    def _part(self, commands: Sequence[Command]) -> None:
        if self._apart and self._needed(commands):
            raise NodeLost("a node is lost")

    def _lost(self, keys: Collection[str]) -> set[str]:
        return {key for key in keys if any(f":{queue}}}" in key for queue in self.lost)}

    def _needed(self, commands: Sequence[Command]) -> set[str]:
        return self._lost([part for command in commands for part in command if isinstance(part, str)])


class Parted(Exchanging):
    """An exchange whose queues, mail and other, are on different nodes."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.nodes = Nodes(self.launch.store.wire, patch)
        self.launch.store.part(("mail", "other"))

    def lose(self, *queues: str) -> None:
        self.nodes.lost = {*queues}

    def find(self) -> None:
        """The node is there again, and it is time to look."""
        self.nodes.lost = set()
        self.clock.now_ms += int(1000 * SKIPPED_FOR)

    def enqueue(self, name: str, queue: str) -> None:
        self.opener.store().enqueue([message(name, queue=queue)])

    def look(self, queue: str = "mail") -> Looking:
        return Looking(self.opener.store(), queue)

    def next(self) -> str | None:
        """The next message that is reserved."""
        self.exchange.reserve()
        reservation = self.exchange.next()
        return None if reservation is None else reservation.id.decode()


@pytest.fixture
def parted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Parted]:
    parted = Parted(monkeypatch)
    yield parted
    parted.opener.close()


def test_the_queues_of_other_nodes_are_served_while_one_is_lost(parted: Parted) -> None:
    parted.lose("mail")
    for name in ("a", "b"):
        parted.enqueue(name, "other")
    assert [parted.next(), parted.next()] == ["a", "b"]
    parted.enqueue("c", "other")
    parted.exchange.reserve_when_woken(0.01)
    reserved = parted.exchange.next()
    assert reserved is not None
    assert reserved.id == b"c"


def test_what_a_lost_node_reserved_without_a_word_is_handed_out_once_it_is_there_again(parted: Parted) -> None:
    parted.enqueue("a", "mail")
    parted.nodes.deaf = False
    parted.lose("mail")
    assert parted.next() is None
    assert parted.look().ranked("in_flight") == ["a"]
    parted.find()
    parted.exchange.reserve()
    reserved = parted.exchange.next()
    assert reserved is not None
    assert (reserved.id, reserved.attempt) == (b"a", 1)
    assert parted.next() is None


def test_what_was_reserved_and_not_started_stays_reserved(parted: Parted) -> None:
    parted.enqueue("a", "mail")
    parted.exchange.reserve()
    parted.lose("mail")
    parted.enqueue("b", "other")
    parted.exchange.promote_next()
    parted.exchange.reserve()
    assert [each.id for each in parted.exchange.reserved] == [b"a", b"b"]
    parted.find()
    parted.exchange.reserve()
    assert [each.id for each in parted.exchange.reserved] == [b"a", b"b"]
    assert parted.look().ranked("in_flight") == ["a"]


def test_outcomes_wait_for_their_node_and_those_of_others_do_not(parted: Parted) -> None:
    mail, other = parted.reserve("a"), parted.reserve("b", "other")
    parted.complete(mail)
    parted.complete(other)
    parted.lose("mail")
    parted.exchange.settle()
    parted.complete(parted.reserve("c", "other"))
    parted.exchange.settle()
    assert (parted.look().listed("completed"), parted.look("other").listed("completed")) == ([], ["b", "c"])
    parted.find()
    parted.exchange.reserve()
    assert parted.look().listed("completed") == ["a"]
    assert parted.exchange.held("mail") == set()


def test_a_bulk_call_that_gathers_from_a_lost_queue_forgets_no_outcome(parted: Parted) -> None:
    mail, other = parted.reserve("a"), parted.reserve("b", "other")
    parted.lose("mail")
    parted.exchange.promote_next()
    parted.exchange.reserve()
    parted.complete(mail)
    parted.complete(other)
    assert not parted.exchange.reserve("mail", 5)
    assert parted.settling.since is not None
    parted.exchange.settle()
    assert parted.look("other").listed("completed") == ["b"]
    parted.find()
    parted.exchange.reserve()
    assert parted.look().listed("completed") == ["a"]


def test_no_outcome_is_forgotten_while_the_only_queue_left_is_lost(parted: Parted) -> None:
    mail = parted.reserve("a")
    parted.lose("mail")
    parted.exchange.promote_next()
    parted.exchange.reserve()
    parted.enqueue("b", "other")
    rows = parted.look("other").key("rows")
    parted.launch.store.wire.all([("DEL", rows), ("SET", rows, "a text")])
    parted.exchange.reserve()
    parted.complete(mail)
    assert not parted.exchange.reserve()
    parted.find()
    parted.exchange.reserve()
    assert parted.look().listed("completed") == ["a"]


def test_hooks_wait_for_what_waits_for_a_lost_node(parted: Parted) -> None:
    told: list[str] = []
    reserved = {"a": parted.reserve("a"), "b": parted.reserve("b", "other")}
    for name, reservation in reserved.items():
        parted.settling.expire(reservation, 1)
        parted.settling.watched.append((reservation.id, partial(told.append, name)))
    parted.lose("mail")
    parted.exchange.settle()
    parted.settling.call_hooks()
    assert told == ["b"]
    parted.find()
    parted.exchange.reserve()
    parted.settling.call_hooks()
    assert told == ["b", "a"]


def test_a_message_handled_at_most_once_is_begun_when_its_node_is_there_again(parted: Parted) -> None:
    once = parted.reserve("once")
    parted.lose("mail")
    parted.exchange.begin([once])
    assert not once.begun
    assert parted.exchange.next() is None
    parted.find()
    parted.exchange.reserve()
    assert parted.exchange.next() is once
    parted.exchange.begin([once])
    assert once.begun
    assert parted.look().ranked("in_flight") == ["once"]


def test_reports_of_a_lost_node_do_not_hold_up_steps_of_others(parted: Parted) -> None:
    mail = parted.reserve("a")
    parted.lose("mail")
    assert parted.next() is None
    parted.reporting.report(mail, Progress(1))
    parted.enqueue("b", "other")
    assert parted.next() == "b"


def test_a_launch_that_has_lost_all_of_its_nodes_waits_for_them(
    parted: Parted, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire, raising = parted.launch.store.wire, [NodeLost("a node is lost")]

    def part(_: Sequence[Command]) -> None:
        if raising:
            raise raising.pop()

    monkeypatch.setattr(wire, "part", part)
    monkeypatch.setattr(wire, "patience", Impatient)
    parted.lose("mail", "other")
    with pytest.raises(StoreUnreachable) as unreachable:
        parted.exchange.reserve()
    assert type(unreachable.value) is StoreUnreachable
    assert not parted.exchange.lost


def test_a_launch_ends_with_an_error_that_names_the_queues_of_a_node_that_stays_away(parted: Parted) -> None:
    parted.lose("mail")
    parted.enqueue("b", "other")
    parted.exchange.reserve()
    with pytest.raises(StoreUnreachable, match="queues unreachable: mail; their node of the cluster is lost"):
        parted.exchange.release_all()
    assert parted.look("other").listed("ready") == ["b"]


def test_outcomes_that_wait_for_a_node_are_settled_at_the_end_if_it_is_there_again(parted: Parted) -> None:
    parted.complete(parted.reserve("a"))
    parted.lose("mail")
    parted.exchange.settle()
    parted.nodes.lost = set()
    parted.exchange.release_all()
    assert parted.look().listed("completed") == ["a"]


@pytest.mark.parametrize("successor", [False, True])
def test_the_end_waits_for_a_node_that_outcomes_wait_for_unless_a_successor_waits(
    parted: Parted, monkeypatch: pytest.MonkeyPatch, *, successor: bool
) -> None:
    parted.complete(parted.reserve("a"))
    parted.lose("mail")
    parted.exchange.settle()
    parted.exchange.called = 0.0 if successor else inf
    store, asked = parted.launch.store, list[str]()
    announce = store.maintenance.announce

    def noting(claim: Claim, queue: str, **options: Any) -> int:
        asked.append(queue)
        return announce(claim, queue, **options)

    monkeypatch.setattr(store.maintenance, "announce", noting)
    monkeypatch.setattr(store.wire, "patience", Impatient)
    with pytest.raises(StoreUnreachable, match="queues unreachable"):
        parted.exchange.release_all()
    assert asked == ([] if successor else ["mail"])
