"""Producers, the mover, and time."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from pollconsumer.core.errors import Conflict, LeaseLost
from pollconsumer.core.events import ConflictDropped, Event
from pollconsumer.core.lifecycle import State
from pollconsumer.store.queues import outbox
from tests.store.acting import HOUR, QUEUE, age_rates, send_and_die
from tests.store.machine.base import DUE, FEW, IDS, new_messages
from tests.store.machine.recurring import Recurring
from tests.store.servers import snapshot

if TYPE_CHECKING:
    from pollconsumer.core.messages.message import NewMessage


class Producing(Recurring):
    @initialize(wanted=new_messages(least=4))
    def begin(self, wanted: list[tuple[Any, ...]]) -> None:
        self.set_up()
        self.outbox: list[list[NewMessage]] = []
        self.sent_before = False
        """Whether the first of these was sent by a sender that died then."""
        self.sent_there: dict[str, str] = {}
        self.enqueue_all(wanted)

    # Messages

    @rule(wanted=new_messages())
    def enqueue(self, wanted: list[tuple[Any, ...]]) -> None:
        self.enqueue_all(wanted)

    def enqueue_all(self, wanted: list[tuple[Any, ...]]) -> None:
        batch = [self.new(*each) for each in wanted]
        conflict = self.model.conflict(batch)
        if conflict is not None:
            before = snapshot(self.wire)
            with pytest.raises(Conflict, match=batch[conflict].id) as caught:
                self.store.enqueue(batch)
            assert (caught.value.id, caught.value.at) == (batch[conflict].id, conflict)
            assert snapshot(self.wire) == before
            return
        answers = self.store.enqueue(batch)
        for new, answer in zip(batch, answers, strict=True):
            holder = self.model.accept(new, self.soon)
            assert (answer.id, answer.duplicate) == (holder or new.id, holder is not None)

    @precondition(lambda self: self.model.keys)
    @rule(data=st.data(), name=st.sampled_from(IDS), due=DUE, longest=st.sampled_from([0, HOUR]))
    def replace_what_waits(self, data: st.DataObject, name: str, due: int | None, longest: int) -> None:
        self.read_dues()
        key = data.draw(st.sampled_from(sorted(self.model.keys)))
        new = self.new(name, key, 0, "", due, QUEUE, "", None, 0, "", "")._replace(
            key_rule=f"r{longest}", payload=b'{"n":1}'
        )
        (answer,) = self.store.enqueue([new])
        holder = self.model.replace(new, self.soon)
        assert (answer.id, answer.duplicate) == (holder or new.id, holder is not None)
        waits = self.model.messages.get(answer.id)
        if waits and waits.state is State.SCHEDULED:
            stored = self.look.due(waits.name)
            assert stored is not None
            assert stored <= waits.due
            assert stored == waits.due or longest
            waits.due = stored

    @precondition(lambda self: self.outbox)
    @rule()
    def what_is_to_be_sent_is_sent(self) -> None:
        told: list[Event] = []
        assert outbox.send(self.store, QUEUE, told.append) == sum(map(len, self.outbox))
        assert told == [each for children in self.outbox for each in self.sent(children)]
        self.outbox.clear()

    @precondition(lambda self: self.outbox)
    @rule()
    def a_sender_dies_before_it_says_that_it_has_sent(self) -> None:
        (entry,) = self.wire.command("LRANGE", self.look.key("outbox"), 0, 0)
        told: list[Event] = []
        assert send_and_die(self.store, entry, told.append) == len(self.outbox[0])
        assert told == self.sent(self.outbox[0])
        self.sent_before = True

    def sent(self, children: list[NewMessage]) -> list[ConflictDropped]:
        """Receive ``children`` unless they were sent before, ids forgotten or not. Returns the conflicts."""
        conflicting = []
        for child in [] if self.sent_before else children:
            there = child.queue != QUEUE
            digest = self.sent_there.get(child.id) if there else self.model.digest(child.id)
            if digest and child.digest and digest != child.digest:
                conflicting.append(ConflictDropped(child.id, child.queue))
            elif not there:
                self.model.accept(child, self.soon)
            else:
                self.sent_there.setdefault(child.id, child.digest)
        self.sent_before = False
        return conflicting

    def read_dues(self) -> None:
        """Messages of one call that are due together keep their order: a microsecond lies between them."""
        for held in map(self.model.messages.__getitem__, self.model.having(State.SCHEDULED)):
            due = self.look.due(held.name)
            if due is not None and 0 < due - held.due < 1:
                held.due = due

    @precondition(lambda self: self.model.having(State.SCHEDULED))
    @rule(most=FEW)
    def promote(self, most: int) -> None:
        self.read_dues()
        scheduled = [self.model.messages[name] for name in self.model.having(State.SCHEDULED)]
        due = sorted((held.due, held.name) for held in scheduled if held.due < self.soon)
        moved, next_due, _, to_repair = self.store.promote(self.mover, QUEUE, most)
        assert to_repair or not self.model.having(State.RESERVED)
        assert moved == min(most, len(due))
        for _, name in due[:most]:
            self.model.make_ready(self.model.messages[name])
        assert (next_due == inf) == (not self.model.having(State.SCHEDULED) and not self.coming())
        with pytest.raises(LeaseLost):
            self.store.promote(self.mover._replace(fence="999999"), QUEUE, most)

    @precondition(lambda self: self.model.having(State.SCHEDULED, State.RESERVED) or self.model.keys)
    @rule(hours=st.integers(1, 3))
    def hours_pass(self, hours: int) -> None:
        self.read_dues()
        age_rates(self.store, QUEUE, hours * HOUR)
        for ledger in self.model.ledgers.values():
            ledger.age(hours * HOUR)
        for name in self.model.having(State.SCHEDULED):
            held = self.model.messages[name]
            held.due -= hours * HOUR
            self.wire.command("ZADD", self.look.key("schedule"), f"{held.due * 1000:.0f}", name)
        for key, (name, left) in self.model.keys.items():
            self.model.keys[key] = (name, left - hours)
            _, lapses = self.look.hash("unique_keys")[key].decode().split("\n") if left < 100 else ("", "")
            if lapses:
                self.wire.command("HSET", self.look.key("unique_keys"), key, f"{name}\n{int(lapses) - hours * HOUR}")

    @invariant()
    def what_is_to_be_sent_waits_and_what_was_sent_there_is_there_once(self) -> None:
        assert len(self.look.listed("outbox")) == len(self.outbox)
        listed = (
            self.look_there.listed("ready")
            + self.look_there.ranked("ready_by_priority")
            + self.look_there.ranked("schedule")
        )
        assert sorted(listed) == sorted(self.sent_there)
        assert sorted(self.look_there.hash("records")) == sorted(self.sent_there)
