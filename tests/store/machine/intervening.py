"""People, and housekeeping."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from pollconsumer.core.errors import BadData
from pollconsumer.core.lifecycle import State
from pollconsumer.store.keyspace import FINISHED
from pollconsumer.store.queues.producer import ID_MEMORY_MS, MOST_REMEMBERED
from tests.store.acting import HOUR, QUEUE
from tests.store.machine.base import DUE, FEW
from tests.store.machine.handling import Handling
from tests.store.moving import exported, imported
from tests.store.servers import snapshot

if TYPE_CHECKING:
    from tests.store.machine.model import Held


class Intervening(Handling):
    def one_of(self, data: st.DataObject, *states: State) -> Held:
        """A message in one of these states, mostly."""
        names = self.model.having(*states)
        whatever = data.draw(st.sampled_from([False, False, False, True])) or not names
        return self.model.messages[data.draw(st.sampled_from(sorted(self.model.messages if whatever else names)))]

    def some_of(self, data: st.DataObject) -> list[str]:
        """Dead letters, and some that are none."""
        dead = data.draw(st.lists(st.sampled_from(self.model.having(State.DEAD)), min_size=1, unique=True))
        others = data.draw(st.lists(st.sampled_from(sorted(self.model.messages)), max_size=1))
        return list(dict.fromkeys(dead + others))

    @precondition(lambda self: self.model.messages)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        held = self.one_of(data, State.READY, State.SCHEDULED)
        if held.state not in (State.SCHEDULED, State.READY, State.CANCELLED):
            with pytest.raises(BadData, match=held.state.value):
                self.person.cancel(QUEUE, held.name)
            return
        self.person.cancel(QUEUE, held.name)
        if held.state is State.CANCELLED:
            return
        if held.state is State.READY:
            self.model.take_out(held)
        self.model.end(held, State.CANCELLED)
        held.parked = False

    @precondition(lambda self: self.model.messages)
    @rule(data=st.data())
    def stop(self, data: st.DataObject) -> None:
        held = self.one_of(data, State.RESERVED)
        if held.state.has_ended:
            with pytest.raises(BadData, match=held.state.value):
                self.person.stop(QUEUE, held.name)
            return
        self.person.stop(QUEUE, held.name)
        if held.state is State.RESERVED:
            held.to_stop = True
            assert self.wire.command("LPOP", f"{self.look.key('stop_marker')}:{self.fence}")
            return
        if held.state is State.READY:
            self.model.take_out(held)
        self.model.end(held, State.CANCELLED)
        held.parked = False

    @precondition(lambda self: self.model.messages)
    @rule(data=st.data(), hours=DUE)
    def reschedule(self, data: st.DataObject, hours: int | None) -> None:
        held, due = self.one_of(data, State.READY, State.SCHEDULED), self.began + (hours or 0) * HOUR
        if held.state not in (State.SCHEDULED, State.READY):
            with pytest.raises(BadData, match=held.state.value):
                self.person.change(QUEUE, held.name, due=due)
            return
        self.person.change(QUEUE, held.name, due=due)
        self.model.script()
        self.model.wait_anew(held, due, self.soon)

    @precondition(lambda self: self.model.messages)
    @rule(data=st.data(), priority=st.sampled_from([None, 0, 5, -5]), payload=st.sampled_from([b"", b'{"n":2}']))
    def change(self, data: st.DataObject, priority: int | None, payload: bytes) -> None:
        held = self.one_of(data, State.READY, State.SCHEDULED)
        if held.state not in (State.SCHEDULED, State.READY):
            with pytest.raises(BadData, match=held.state.value):
                self.person.change(QUEUE, held.name, priority=priority, payload=payload)
            return
        if held.order and priority is not None:
            with pytest.raises(BadData, match="order key"):
                self.person.change(QUEUE, held.name, priority=priority, payload=payload)
            return
        self.person.change(QUEUE, held.name, priority=priority, payload=payload)
        held.payload = payload or held.payload
        before, held.priority = held.priority, held.priority if priority is None else priority
        if held.state is State.READY and held.priority != before:
            after, held.priority = held.priority, before
            self.model.lose_turn(held)
            held.priority = after
            self.model.make_ready(held)

    @precondition(lambda self: self.model.having(State.DEAD))
    @rule(data=st.data(), from_start=st.booleans())
    def redrive(self, data: st.DataObject, *, from_start: bool) -> None:
        chosen = self.some_of(data)
        returned = self.person.redrive(QUEUE, chosen, from_start=from_start)
        expected = []
        for name in chosen:
            held = self.model.messages[name]
            if held.state is not State.DEAD or (held.key and self.model.holder(held.key) is not None):
                continue
            expected.append(name)
            held.attempts, held.begun = 0, False
            if from_start:
                held.drop_kept()
                held.has_kept = False
            held.generation += 1
            if held.key:
                self.model.keys[held.key] = (name, float("inf"))
            if held.order and self.model.heads.get(held.order) != name:
                held.state, held.ready_ms = State.READY, self.stamp(name)
                record = self.wire.command("HGET", self.look.key("records"), name)
                self.model.wait_behind(held, int.from_bytes(record[4:10], "big"))
                continue
            self.model.make_ready(held)
        self.model.script()
        for name in returned:
            self.model.name_head(self.model.messages[name].order)
        assert returned == expected

    @precondition(lambda self: self.model.having(State.DEAD))
    @rule(data=st.data())
    def purge(self, data: st.DataObject) -> None:
        chosen = self.some_of(data)
        dead = [name for name in chosen if self.model.messages[name].state is State.DEAD]
        assert self.person.purge(QUEUE, chosen) == dead
        self.model.script()
        for name in dead:
            self.model.forget(name)

    @rule()
    def the_store_moves(self) -> None:
        """To another server: this one, emptied in between."""
        before = snapshot(self.wire)
        lines = exported(self.wire)
        self.wire.command("FLUSHALL")
        imported(self.wire, lines)
        assert snapshot(self.wire) == before

    @rule(paused=st.sampled_from([True, False, False, False]), lasts_ms=st.sampled_from([0, HOUR]))
    def pause_or_resume(self, paused: bool, lasts_ms: int) -> None:
        self.model.paused = paused
        self.person.pause(QUEUE, paused=paused, lasts_ms=lasts_ms)
        assert (self.wire.command("PTTL", self.look.key("paused")) > 0) == (paused and lasts_ms > 0)

    @rule()
    def the_mover_looks_after_those_in_line(self) -> None:
        """Nothing was left undone."""
        before = snapshot(self.wire)
        assert self.store.maintenance.offer_places(QUEUE) == 0
        assert snapshot(self.wire) == before

    @precondition(lambda self: self.model.having(State.COMPLETED, State.CANCELLED, State.EXPIRED, State.DEAD))
    @rule(
        keep=st.integers(0, 2),
        keep_dead=st.sampled_from([None, None, 0, 1]),
        most=FEW,
        old_ids_too=st.booleans(),
        lapsing=st.sampled_from([0, 0, 1, 2]),
    )
    def trim(self, keep: int, keep_dead: int | None, most: int, old_ids_too: bool, lapsing: int) -> None:
        finished = [self.look.listed(ended) for ended in FINISHED]
        if old_ids_too:
            self.look.time_passes_for_ids(ID_MEMORY_MS)
            self.model.forget_old_ids()
        self.look.time_passes_for_results(lapsing)
        lapsed: list[str] = []
        for run in self.look.runs_of_results(until=1):
            lapsed += run if len(lapsed) < most else ()
        limits = [most, ID_MEMORY_MS, MOST_REMEMBERED, keep, 100 * HOUR, "" if keep_dead is None else keep_dead, ""]
        surplus = [name for names in finished for name in names[: min(most, max(0, len(names) - keep))]]
        dead = self.look.ranked("dead_letters")
        surplus += dead[: 0 if keep_dead is None else min(most, max(0, len(dead) - keep_dead))]
        assert self.wire.run("trim", self.store.keys, QUEUE, limits) == len(surplus)
        self.model.script()
        for name in surplus:
            self.model.forget(name)
        for name in lapsed:
            self.model.forget_result(name)
