"""What must hold after every step."""

from __future__ import annotations

import json
from collections import Counter

from hypothesis.stateful import invariant

from pollconsumer.core.lifecycle import State
from tests.store.acting import QUEUE
from tests.store.machine.model import LIMITS
from tests.store.machine.stepping import INSTANT, Stepping


class Invariants(Stepping):
    @invariant()
    def every_message_is_in_exactly_the_index_of_its_state(self) -> None:
        look = self.look
        ready = [name for name in dict.fromkeys(look.listed("ready")) if self.model.can_be_popped(name)]
        indexes = {
            State.READY: ready
            + look.ranked("ready_by_priority")
            + [name for name in self.look.lined() if look.row(name).waiting],
            State.SCHEDULED: look.ranked("schedule"),
            State.RESERVED: look.ranked("in_flight"),
            State.COMPLETED: look.listed("completed"),
            State.DEAD: look.ranked("dead_letters"),
            State.CANCELLED: look.listed("cancelled"),
            State.EXPIRED: look.listed("expired"),
        }
        assert indexes.keys() == {*State}
        assert sorted(name for index in indexes.values() for name in index) == sorted(self.model.messages)
        for state, index in indexes.items():
            assert set(self.model.having(state)) == set(index)

    @invariant()
    def what_people_see_agrees(self) -> None:
        seen = {found.id: found for found in self.inspector.messages(None, QUEUE, 999)}
        assert seen.keys() == self.model.messages.keys()
        for name, held in self.model.messages.items():
            found = seen[name]
            row = found.row
            assert (found.state, row.priority, row.attempts) == (held.state, held.priority, held.attempts)
            assert (row.parked, row.waiting, row.generation) == (held.parked, held.waiting, held.generation)
            assert row.booked == (held.booked and held.state is State.SCHEDULED)
            assert (found.payload, found.headers) == (json.loads(held.payload), held.headers or {})
            assert (found.progress and found.progress[:2]) == (held.progress and held.progress[:2])
        counts = next(counts for counts in self.inspector.overview().queues if counts.name == QUEUE)
        assert {state: getattr(counts, state) for state in State} == {
            state: len(self.model.having(state)) for state in State
        }
        assert counts.parked == sum(held.parked for held in self.model.messages.values())
        assert counts.paused == self.model.paused
        scheduled = [self.model.messages[name] for name in self.model.having(State.SCHEDULED)]
        assert counts.overdue == sum(held.due < self.soon for held in scheduled)

    @invariant()
    def ready_messages_stand_in_the_order_in_which_they_will_be_handed_out(self) -> None:
        assert self.look.listed("ready") == self.model.queue
        ranked = self.look.ranked("ready_by_priority")
        sooner = [name for name in ranked if self.model.messages[name].priority < 0]
        standing = [name for name in dict.fromkeys(self.look.listed("ready")) if self.model.can_be_popped(name)]
        assert sooner + standing + ranked[len(sooner) :] == self.model.ready()

    @invariant()
    def no_more_are_in_flight_with_a_concurrency_key_than_may_be(self) -> None:
        in_flight = {key: self.model.in_flight(key) for key in LIMITS}
        assert self.look.hash("places_taken") == {key: str(count).encode() for key, count in in_flight.items() if count}
        assert all(count <= LIMITS[key] for key, count in in_flight.items())

    @invariant()
    def nobody_waits_for_a_place_that_nobody_takes(self) -> None:
        ordered = [name for key in sorted(self.model.behind) for name in self.model.behind[key]]
        assert self.look.lined() == ordered + [name for key in sorted(LIMITS) for name in self.model.line(key)]
        for key, limit in LIMITS.items():
            of_key = [each for each in self.model.messages.values() if each.concurrency == key]
            ready = [each for each in of_key if each.state is State.READY and each.name not in ordered]
            about_to_take_one = sum(not held.waiting for held in ready)
            if len(ready) > about_to_take_one:
                assert self.model.in_flight(key) + about_to_take_one >= limit

    @invariant()
    def one_of_an_order_key_is_its_head_and_nobody_else_is_in_hand(self) -> None:
        assert {key: name.decode() for key, name in self.look.hash("order_heads").items()} == self.model.heads
        for key, behind in self.model.behind.items():
            if behind:
                head = self.model.messages[self.model.heads[key]]
                assert head.state is State.DEAD or not head.state.has_ended
        for held in self.model.messages.values():
            if held.order and held.state is State.RESERVED:
                assert self.model.heads[held.order] == held.name

    @invariant()
    def a_unique_key_has_one_holder_that_has_not_ended(self) -> None:
        assert {key: value.decode().partition("\n")[0] for key, value in self.look.hash("unique_keys").items()} == {
            key: name for key, (name, _) in self.model.keys.items()
        }
        for key, (name, _) in self.model.keys.items():
            held = self.model.messages[name]
            assert held.key == key
            assert not held.state.has_ended

    @invariant()
    def a_marker_is_there_at_most_once_and_whenever_something_can_be_handed_out(self) -> None:
        assert self.look.marker("schedule_marker") <= 1
        assert self.look.marker() <= 1
        if self.model.paused or self.model.room(self.limits) <= 0:
            return
        for name in self.model.ready():
            key = self.model.messages[name].concurrency
            if not key or self.model.in_flight(key) < LIMITS[key]:
                assert self.look.marker() == 1

    @invariant()
    def nothing_is_kept_of_what_is_forgotten(self) -> None:
        known = set(self.model.messages)
        assert set(self.look.hash("records")) == known
        assert set(self.look.hash("rows")) <= known
        assert set(self.look.hash("errors")) <= known
        assert set(self.look.hash("progress")) <= known
        assert set(self.look.hash("stops")) == {name for name, held in self.model.messages.items() if held.to_stop}
        kept: dict[str, bytes] = {}
        for held in self.model.messages.values():
            kept |= self.kept_of(held)
        found = self.look.hash("checkpoints")
        assert {field: INSTANT.sub(b"", value) for field, value in found.items()} == kept

    @invariant()
    def ids_are_remembered_with_what_they_were_chosen_for(self) -> None:
        for which, generation in (("", self.model.young), ("_before", self.model.old)):
            assert self.look.members(f"id_memory{which}") == generation.keys()
            digests = {name: bytes.fromhex(digest) for name, digest in generation.items() if digest}
            assert self.look.hash(f"id_digests{which}") == digests

    @invariant()
    def each_settlement_is_in_the_totals_once(self) -> None:
        found: Counter[str] = Counter()
        for (_, _, outcome), count in self.inspector.totals().settled.items():
            found[outcome] += count
        assert found == self.model.settled

    @invariant()
    def results_are_those_of_the_last_that_finished(self) -> None:
        dropped = {f"{name}\n": b"%d" % count for name, count in (+self.model.dropped).items()}
        found = {name: result.encode() for name, result in self.model.results.items()}
        assert self.look.hash("results") == found | dropped
        listed = Counter(name for run in self.look.runs_of_results() for name in run)
        assert listed == Counter(self.model.results.keys()) + self.model.dropped
        assert int(self.look.hash("counters").get("skipped", 0)) == self.model.skipped
