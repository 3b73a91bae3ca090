"""The store against a model of it in plain Python, through any sequence of what producers, launches and movers do.

Nothing here waits for time to pass: due times lie hours ahead or behind, and hours pass by bringing the schedule
forward.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from pollconsumer.core.errors import LeaseLost
from pollconsumer.core.lifecycle import State
from pollconsumer.store.inspector import Inspector
from pollconsumer.store.redis_store import RedisStore
from pollconsumer.store.reservations import Holder, Reservation
from tests.conftest import NAMESPACE
from tests.store.acting import HOUR, QUEUE, Launch, Looking, die, message, names, park, release, retry
from tests.store.servers import Server, server_ms

if TYPE_CHECKING:
    from collections.abc import Callable

IDS = [f"m{n}" for n in range(24)]
FEW = st.integers(1, 4)


@dataclass
class Held:
    """A message as the model knows it. ``order`` is its place among ready ones, or its due time, or its end."""

    state: State
    priority: int
    key: str
    attempts: int = 0
    order: float = 0
    parked: bool = False
    reservation: Reservation | None = None


class StoreMachine(RuleBasedStateMachine):
    server: Server

    @initialize()
    def begin(self) -> None:
        self.server.clear()
        self.wire = self.server.wire()
        self.store = RedisStore(self.wire, NAMESPACE)
        self.inspector = Inspector(self.wire, NAMESPACE)
        self.look = Looking(self.store)
        self.model: dict[str, Held] = {}
        self.began = server_ms(self.wire)
        self.soon = self.began + HOUR // 2
        self.first, self.last = 0, 0
        self.overtaken: list[tuple[Launch, list[Reservation]]] = []
        self.fence = 1
        self.launch = Launch(self.store, self.fence)
        self.mover = Holder("mover::0", "1000000", "mover:")
        self.store.announce(self.mover, QUEUE)

    def teardown(self) -> None:
        self.server.clear()

    # What may happen

    @rule(
        wanted=st.lists(
            st.tuples(
                st.sampled_from(IDS),
                st.sampled_from([0, 0, 0, -1, 1, 4096, -4096]),
                st.sampled_from(["", "", "", "k1", "k2"]),
                st.sampled_from([None, None, -2, 1, 2, 3]),
            ),
            min_size=1,
            max_size=4,
        )
    )
    def enqueue(self, wanted: list[tuple[str, int, str, int | None]]) -> None:
        batch = [
            message(name, priority=priority, key=key, due=None if hours is None else self.began + hours * HOUR)
            for name, priority, key, hours in wanted
        ]
        answers = self.store.enqueue(batch)
        for (name, priority, key, hours), answer in zip(wanted, answers, strict=True):
            holder = name if name in self.model else self.holder_of(key)
            assert (answer.id, answer.duplicate) == (holder or name, holder is not None)
            if holder is None:
                held = self.model[name] = Held(State.READY, priority, key)
                if hours is not None and hours > 0:
                    held.state, held.order = State.SCHEDULED, self.began + hours * HOUR
                else:
                    self.append(held)

    @precondition(lambda self: self.in_state(State.READY))
    @rule(most=FEW)
    def reserve(self, most: int) -> None:
        self.reserved(most, self.launch.reserve(most))

    @precondition(lambda self: self.look.marker() == 1)
    @rule(most=FEW)
    def reserve_when_woken(self, most: int) -> None:
        self.reserved(most, self.launch.step(claim=most, wait=30.0).reserved)

    @precondition(lambda self: self.in_hand())
    @rule(data=st.data(), most=st.integers(0, 2))
    def settle(self, data: st.DataObject, most: int) -> None:
        """Some of what is in hand, each in its own way, and reserve the next in the same step."""
        chosen = data.draw(st.lists(st.sampled_from(sorted(self.in_hand())), min_size=1, unique=True))
        ways = data.draw(st.lists(st.sampled_from(WAYS), min_size=len(chosen), max_size=len(chosen)))
        pairs = [(name, way, self.reservation(name)) for name, way in zip(chosen, ways, strict=True)]
        before = server_ms(self.wire)
        stepped = self.launch.step(
            completed=[r for _, way, r in pairs if way == "complete"],
            settled=[SETTLE[way](r) for _, way, r in pairs if way != "complete"],
            claim=most,
        )
        after = server_ms(self.wire)
        assert stepped.stale == []
        for name, way, _ in pairs:
            self.settled(name, way, before, after)
        self.reserved(most, stepped.reserved)

    @precondition(lambda self: self.in_state(State.SCHEDULED))
    @rule(most=FEW)
    def promote(self, most: int) -> None:
        due = sorted((h.order, name) for name, h in self.in_state(State.SCHEDULED) if h.order < self.soon)
        moved, next_due, _ = self.store.promote(self.mover, QUEUE, most)
        assert moved == min(most, len(due))
        for _, name in due[:most]:
            held = self.model[name]
            held.state = State.READY
            self.append(held)
        assert (next_due is None) == (not self.in_state(State.SCHEDULED))

    @precondition(lambda self: self.in_state(State.SCHEDULED))
    @rule(hours=st.integers(1, 3))
    def hours_pass(self, hours: int) -> None:
        for name, held in self.in_state(State.SCHEDULED):
            held.order -= hours * HOUR
            self.wire.command("ZADD", self.look.key("s"), f"{held.order:.0f}", name)

    @precondition(lambda self: self.in_hand())
    @rule()
    def a_new_launch_takes_over(self) -> None:
        self.overtaken.append((self.launch, [self.reservation(name) for name in self.in_hand()]))
        orphans = self.look.ranked("f")
        self.fence += 1
        self.launch = Launch(self.store, self.fence)
        assert self.launch.recovered == len(orphans)
        self.back_to_the_head(orphans)

    @precondition(lambda self: self.in_hand())
    @rule()
    def the_launch_comes_to_its_hard_end(self) -> None:
        orphans = self.look.ranked("f")
        for name in orphans:
            self.wire.command("ZADD", self.look.key("f"), 1, name)
        assert self.store.recover(QUEUE, []) == len(orphans)
        self.back_to_the_head(sorted(orphans))

    @precondition(lambda self: self.in_hand())
    @rule()
    def the_reply_to_a_step_is_lost(self) -> None:
        unknown = self.look.ranked("f")
        assert self.store.unreserve(self.launch.holder, QUEUE, []) == len(unknown)
        for name in unknown:
            self.model[name].attempts -= 1
        self.back_to_the_head(unknown)

    @precondition(lambda self: self.overtaken)
    @rule(data=st.data(), way=st.sampled_from(["complete", "retry", "die", "release", "park"]))
    def an_overtaken_launch_comes_back_to_life(self, data: st.DataObject, way: str) -> None:
        launch, reservations = data.draw(st.sampled_from(self.overtaken))
        completed = reservations if way == "complete" else []
        settled = [SETTLE[way](r) for r in reservations if way != "complete"]
        with pytest.raises(LeaseLost):
            launch.step(completed=completed, settled=settled, claim=1)
        with pytest.raises(LeaseLost):
            self.store.announce(launch.holder, QUEUE)
        with pytest.raises(LeaseLost):
            self.store.unreserve(launch.holder, QUEUE, [])

    @rule(most=FEW)
    def an_overtaken_mover_comes_back_to_life(self, most: int) -> None:
        with pytest.raises(LeaseLost):
            self.store.promote(self.mover._replace(fence="999999"), QUEUE, most)

    @precondition(lambda self: self.overtaken)
    @rule(data=st.data(), way=st.sampled_from(["complete", "retry", "die", "release", "park"]))
    def a_late_outcome_arrives_under_the_current_lease(self, data: st.DataObject, way: str) -> None:
        """As it would if a fence were ever to fail: the row tells that the message has been offered to another."""
        _, reservations = data.draw(st.sampled_from(self.overtaken))
        completed = reservations if way == "complete" else []
        settled = [SETTLE[way](r) for r in reservations if way != "complete"]
        stepped = self.launch.step(completed=completed, settled=settled)
        assert set(stepped.stale) == {r.id for r in reservations}

    @precondition(lambda self: self.in_state(State.COMPLETED))
    @rule(keep=st.integers(0, 2), most=FEW)
    def trim(self, keep: int, most: int) -> None:
        finished = self.look.finished()
        keys = [self.look.key(name) for name in ("b", "m", "d", "e", "y", "v", "vx")]
        forgotten = self.wire.call("trim", keys, [keep, 100 * HOUR, most])
        assert forgotten == min(most, max(0, len(finished) - keep))
        for name in finished[:forgotten]:
            assert self.model.pop(name).state is State.COMPLETED

    # What must hold

    @invariant()
    def every_message_is_in_exactly_the_index_of_its_state(self) -> None:
        look = self.look
        indexes = {
            State.READY: look.listed("r") + look.ranked("z"),
            State.SCHEDULED: look.ranked("s"),
            State.RESERVED: look.ranked("f"),
            State.COMPLETED: look.finished(),
            State.DEAD: look.ranked("x"),
        }
        assert sorted(name for index in indexes.values() for name in index) == sorted(self.model)
        for state, index in indexes.items():
            assert {name for name, _ in self.in_state(state)} == set(index)

    @invariant()
    def what_people_see_agrees(self) -> None:
        seen = {found.id: found for found in self.inspector.messages(None, QUEUE, 99)}
        assert seen.keys() == self.model.keys()
        for name, held in self.model.items():
            found = seen[name]
            assert (found.state, found.row.priority, found.row.attempts) == (held.state, held.priority, held.attempts)
            assert found.row.parked == held.parked
            assert found.payload == {}
        (counts,) = self.inspector.overview().queues
        states = (State.READY, State.RESERVED, State.SCHEDULED, State.COMPLETED, State.DEAD)
        assert counts[1:6] == tuple(len(self.in_state(state)) for state in states)
        assert counts.parked == sum(held.parked for held in self.model.values())
        assert counts.overdue == sum(held.order < self.soon for _, held in self.in_state(State.SCHEDULED))

    @invariant()
    def ready_messages_stand_in_the_order_in_which_they_will_be_handed_out(self) -> None:
        ranked = self.look.ranked("z")
        sooner = [name for name in ranked if self.model[name].priority < 0]
        assert sooner + self.look.listed("r") + ranked[len(sooner) :] == self.order()

    @invariant()
    def unique_keys_are_those_of_messages_that_have_not_ended(self) -> None:
        live = [
            (h.key, name) for name, h in self.model.items() if h.key and h.state not in (State.COMPLETED, State.DEAD)
        ]
        assert len(dict(live)) == len(live)
        assert self.look.hash("u") == {key: name.encode() for key, name in live}

    @invariant()
    def a_marker_is_there_at_most_once_and_whenever_something_is_ready(self) -> None:
        assert self.look.marker("ks") <= 1
        assert self.look.marker() <= 1
        if self.in_state(State.READY):
            assert self.look.marker() == 1

    @invariant()
    def nothing_is_kept_of_what_is_forgotten(self) -> None:
        known = set(self.model)
        assert set(self.look.hash("b")) == known
        assert set(self.look.hash("m")) <= known
        assert set(self.look.hash("e")) <= known

    # The model

    def in_state(self, state: State) -> list[tuple[str, Held]]:
        return [(name, held) for name, held in self.model.items() if held.state is state]

    def in_hand(self) -> list[str]:
        return [name for name, _ in self.in_state(State.RESERVED)]

    def reservation(self, name: str) -> Reservation:
        found = self.model[name].reservation
        assert found is not None
        return found

    def holder_of(self, key: str) -> str | None:
        ended = (State.COMPLETED, State.DEAD)
        return next(
            (name for name, held in self.model.items() if key and held.key == key and held.state not in ended), None
        )

    def append(self, held: Held) -> None:
        self.last += 1
        held.order = self.last

    def order(self) -> list[str]:
        """Ready messages as they will be handed out."""
        return [name for _, _, name in sorted((h.priority, h.order, name) for name, h in self.in_state(State.READY))]

    def back_to_the_head(self, ids: list[str]) -> None:
        """In the order given; messages of another priority than 0 that came back stand by id."""
        for name in reversed(ids):
            held = self.model[name]
            self.first -= 1
            held.state, held.reservation = State.READY, None
            held.order = self.first if held.priority == 0 else 0

    def reserved(self, most: int, reservations: list[Reservation]) -> None:
        assert names(reservations) == self.order()[:most]
        for reservation in reservations:
            held = self.model[reservation.id.decode()]
            held.attempts += 1
            held.state, held.parked, held.reservation = State.RESERVED, False, reservation
            assert reservation.attempt == held.attempts

    def settled(self, name: str, way: str, before: int, after: int) -> None:
        held = self.model[name]
        held.reservation = None
        if way == "complete":
            held.state = State.COMPLETED
        elif way == "die":
            held.state = State.DEAD
        elif way == "release":
            held.attempts -= 1
            self.back_to_the_head([name])
        else:
            delay = 0 if way == "retry" else HOUR
            due = self.look.score("s", name)
            assert due is not None
            assert before + delay <= due <= after + delay
            held.state, held.order = State.SCHEDULED, due
            if way == "park":
                held.attempts -= 1
                held.parked = True


SETTLE: dict[str, Callable[[Reservation], Any]] = {
    "retry": retry,
    "retry later": lambda reservation: retry(reservation, HOUR),
    "die": die,
    "release": release,
    "park": lambda reservation: park(reservation, HOUR),
}
WAYS = ["complete", *SETTLE]


def test_the_store_agrees_with_its_model_whatever_happens(server: Server) -> None:
    StoreMachine.server = server
    run_state_machine_as_test(
        StoreMachine,
        settings=settings(
            max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
