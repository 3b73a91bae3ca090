"""A batch against a model of it, through any sequence of ends, redrives, deaths of launches and senders that die."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from pollconsumer.store.actions import MessageActions
from pollconsumer.store.queues.redis_store import RedisStore
from tests.conftest import NAMESPACE
from tests.store.acting import QUEUE, Launch, Looking, die, expire, names, retry, send_and_die
from tests.store.batching import HOME, OTHER, OneBatch, complete_member, member

if TYPE_CHECKING:
    from tests.store.servers import Server

QUEUES = (QUEUE, OTHER)
WHICH = st.sampled_from(QUEUES)
ENDS = ("completed", "dead", "cancelled", "expired")


class BatchMachine(RuleBasedStateMachine):
    """Members wait, are in flight, dead, or have ended for good; ``first`` says how each ended when it first did."""

    server: Server

    @initialize()
    def open(self) -> None:
        self.server.clear()
        self.store = RedisStore(self.server.wire(), NAMESPACE)
        self.batch = OneBatch(self.store)
        self.person = MessageActions(self.store.wire, NAMESPACE)
        self.queues = dict[str, str]()
        self.latest, self.first = dict[str, str](), dict[str, str]()
        self.fences = dict.fromkeys(QUEUES, 1)
        self.closed = self.expected_then = self.expected_ended = False
        self.added = 0

    def teardown(self) -> None:
        self.all_is_told()
        self.server.clear()

    def ended(self, name: str, how: str) -> None:
        self.latest[name] = how
        self.first.setdefault(name, how)

    @precondition(lambda self: not self.closed)
    @rule(queue=WHICH)
    def add(self, queue: str) -> None:
        number = len(self.queues) - self.added
        self.batch.add(member(number, queue))
        self.queues[f"b.{number}"] = queue

    @rule(queue=WHICH)
    def repeat_a_member(self, queue: str) -> None:
        """As a producer does that begins again."""
        for number in range(len(self.queues) - self.added):
            if self.queues[f"b.{number}"] == queue:
                assert self.store.enqueue([member(number, queue)])[0].duplicate

    @precondition(lambda self: not self.closed)
    @rule()
    def close(self) -> None:
        assert self.batch.close(len(self.queues) - self.added) == ""
        self.closed = True

    @rule(queue=WHICH, how=st.sampled_from(["completed", "completed", "dead", "expired", "retry", "grows"]))
    def handle(self, queue: str, how: str) -> None:
        launch = self.batch.launches[queue]
        for each in launch.reserve():
            (name,) = names([each])
            if how == "grows":
                number = self.batch.batches.number_members(HOME, "b", 1)
                assert number is not None
                launch.settle(complete_member(each, added=[member(number, OTHER)]))
                self.queues[f"b.{number}"] = OTHER
                self.added += 1
                self.ended(name, "completed")
            elif how == "completed":
                launch.settle(complete_member(each, "1"))
                self.ended(name, how)
            elif how == "retry":
                launch.settle(retry(each))
                self.store.promote(launch.claim, queue, 99)
            else:
                launch.settle(die(each) if how == "dead" else expire(each))
                self.ended(name, how)

    @rule(queue=WHICH)
    def a_launch_dies(self, queue: str) -> None:
        self.batch.launches[queue].reserve()
        self.fences[queue] += 1
        self.batch.launches[queue] = Launch(self.store, self.fences[queue], queue=queue)

    @rule(data=st.data())
    def redrive(self, data: st.DataObject) -> None:
        if dead := sorted(name for name, how in self.latest.items() if how == "dead"):
            name = data.draw(st.sampled_from(dead))
            assert self.person.redrive(self.queues[name], [name]) == [name]
            del self.latest[name]

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if waiting := sorted(self.queues.keys() - self.latest.keys()):
            name = data.draw(st.sampled_from(waiting))
            if self.person.cancel_all(self.queues[name], [name]):
                self.ended(name, "cancelled")

    @rule()
    def a_sender_dies(self) -> None:
        """After it has sent the first entry, before it removes that."""
        key = Looking(self.store).key("outbox")
        if (entry := self.store.wire.command("LINDEX", key, 0)) is not None:
            send_and_die(self.store, entry, print)

    @rule()
    def all_is_told(self) -> None:
        """Nothing waits in an outbox: the counts are those of the members, and each callback is there once."""
        self.batch.send()
        known = {name: self.latest.get(name, self.first[name]) for name in self.first}
        status = self.batch.status()
        counts = status.completed, status.dead, status.cancelled, status.expired
        assert counts == tuple(sum(how == end for how in known.values()) for end in ENDS)
        all_ended = self.closed and len(known) == len(self.queues)
        self.expected_ended = self.expected_ended or all_ended
        self.expected_then = self.expected_then or (all_ended and set(known.values()) <= {"completed"})
        called = self.batch.called()
        assert len(called) == len({*called})
        assert ("ended" in called) >= self.expected_ended
        assert ("then" in called) >= self.expected_then
        assert ("failed" in called) == any(how != "completed" for how in self.first.values())
        assert self.closed or not {"then", "ended"} & {*called}


@pytest.mark.crossing
def test_a_batch_agrees_with_its_model_whatever_happens(server: Server) -> None:
    BatchMachine.server = server
    run_state_machine_as_test(
        BatchMachine,
        settings=settings(
            max_examples=settings().max_examples,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
