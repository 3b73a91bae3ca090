"""What all rules work with: a store, a launch, a mover, a person, and the model of what they have done."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from pollconsumer.core.lifecycle import State
from pollconsumer.core.messages.message import decoded_options
from pollconsumer.store.actions import MessageActions
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.reading.inspector import Inspector
from pollconsumer.store.records import rows
from pollconsumer.store.records.reservations import Claim
from pollconsumer.store.records.steps import Limits
from tests.conftest import NAMESPACE
from tests.store.acting import HOUR, QUEUE, AllRecurrences, Launch, Looking, message, names
from tests.store.machine.model import LIMITS, Model
from tests.store.machine.rates import rate_of
from tests.store.servers import server_ms

if TYPE_CHECKING:
    from pollconsumer.core.messages.message import NewMessage
    from pollconsumer.store.records.reservations import Reservation
    from pollconsumer.store.records.steps import Stepped
    from tests.store.servers import Server

OTHER = "other"
"""A queue that nobody consumes."""
IDS = [f"m{n}" for n in range(28)]
PRIORITIES = [0, 0, 0, -1, 1, 4096, -4096]
"""By id, so that a forgotten id that is used again has the one that it had."""
A, B = "a1" * 8, "b2" * 8
"""Digests."""
FEW = st.integers(1, 4)
DUE = st.sampled_from([None, None, None, -2, 1, 2, 3])
"""In hours from the beginning."""


class Base(RuleBasedStateMachine):
    server: Server

    def set_up(self) -> None:
        self.server.clear()
        self.wire = self.server.wire()
        self.store = RedisStore(self.wire, NAMESPACE)
        self.inspector = Inspector(self.wire, NAMESPACE)
        self.person = MessageActions(self.wire, NAMESPACE)
        self.recurring = AllRecurrences(self.wire, NAMESPACE)
        self.look, self.look_there = Looking(self.store), Looking(self.store, OTHER)
        self.model = Model(self.stamp, lambda: server_ms(self.wire))
        self.began = server_ms(self.wire)
        self.soon = self.began + HOUR // 2
        self.limits: Limits | None = None
        self.overtaken: list[tuple[Launch, list[Reservation]]] = []
        self.fence = 1
        self.launch = Launch(self.store, self.fence)
        self.mover = Claim("mover::0", "1000000", "mover:")
        self.store.maintenance.announce(self.mover, QUEUE)

    def teardown(self) -> None:
        self.server.clear()

    def stamp(self, name: str) -> int:
        """When a message became ready; whether that is a moment ago, we can tell."""
        row = self.wire.command("HGET", self.look.key("rows"), name)
        stamp = (
            rows.read_row(row).timestamps.enqueued_at
            if row
            else int.from_bytes(self.wire.command("HGET", self.look.key("records"), name)[4:10], "big")
        )
        assert stamp is not None
        assert self.began <= stamp <= self.soon
        return stamp

    def new(
        self,
        name: str,
        key: str,
        lifetime: int,
        concurrency: str,
        due: int | None,
        queue: str,
        digest: str,
        headers: dict[str, str] | None,
        expires: int,
        rate_key: str,
        order: str,
    ) -> NewMessage:
        priority = PRIORITIES[IDS.index(name) % len(PRIORITIES)]
        return message(
            name,
            priority=priority,
            key=key if queue == QUEUE else "",
            lifetime=lifetime if key and queue == QUEUE else 0,
            concurrency=concurrency,
            limit=LIMITS.get(concurrency, 1),
            due=None if due is None else self.began + due * HOUR,
            queue=queue,
            digest=digest,
            headers=headers,
            expires=expires,
            rate_key=rate_key,
            rate=rate_of(rate_key) if rate_key else "",
            order="" if priority else order,
        )

    def in_flight(self) -> list[str]:
        return self.model.having(State.RESERVED)

    def reservation(self, name: str) -> Reservation:
        found = self.model.messages[name].reservation
        assert found is not None
        return found

    def step(self, **what: Any) -> Stepped:
        return self.launch.step(limits=self.limits, **what)

    def reserved(self, most: int, stepped: Stepped) -> None:
        """What a step has reserved is what the model hands out."""
        expected = self.model.hand_out(most, self.limits)
        assert names(stepped.reserved) == expected
        for name in self.model.having(State.SCHEDULED):
            held = self.model.messages[name]
            if held.booked:
                due = self.look.due(name)
                assert due is not None
                assert abs(due - held.due) < HOUR / 2
                self.model.ledgers[held.rate_key].correct_booking(held.due, due)
                held.due = due
        for reservation in stepped.reserved:
            held = self.model.messages[reservation.id.decode()]
            held.reservation = reservation
            if held.rate_key:
                self.model.ledgers[held.rate_key].correct_charge(held.name, reservation.reserved_at)
            assert reservation.attempt == held.attempts
            assert rows.generation(reservation.row) == held.generation
            assert decoded_options(reservation.common.options)[0].headers == (held.headers or {})
            assert reservation.common.expires == held.expires
            assert reservation.has_checkpoint == held.has_kept
        quota = None if self.limits is None else self.limits.quota
        used_up = most > 0 and quota is not None and self.model.spent >= quota
        assert (stepped.more_in < inf) == used_up


def new_messages(queues: tuple[str, ...] = (QUEUE,), least: int = 1) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    return st.lists(
        st.tuples(
            st.sampled_from(IDS),
            st.sampled_from(["", "", "k1", "k2"]),
            st.sampled_from([0, HOUR]),
            st.sampled_from(["", "c1", "c2"]),
            DUE,
            st.sampled_from(queues),
            st.sampled_from(["", "", A, A, B]),
            st.sampled_from([None, None, {"n": "1"}]),
            st.sampled_from([0, 0, HOUR]),
            st.sampled_from(["", "", "", "r1", "r2"]),
            st.sampled_from(["", "", "o1", "o2"]),
        ),
        min_size=least,
        max_size=least + 4,
    )
