"""Producers, the mover, and time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from pollconsumer.core.choices import Missed, Overlap
from pollconsumer.core.errors import Conflict, LeaseLost
from pollconsumer.core.events import Event, OccurrencesSkipped, RecurrenceRemoved
from pollconsumer.core.lifecycle import State
from pollconsumer.core.recurrence import Recurrence, tick
from pollconsumer.store import outbox
from pollconsumer.store.occurrences import id_of, record_of
from tests.store.acting import HOUR, QUEUE, UNATTENDED, send_and_die
from tests.store.machine.base import FEW, Base, new_messages
from tests.store.machine.model import Held
from tests.store.servers import server_ms, snapshot

if TYPE_CHECKING:
    from pollconsumer.core.message import NewMessage

OWNER = "consumer"


class Producing(Base):
    @initialize(wanted=new_messages(least=4))
    def begin(self, wanted: list[tuple[Any, ...]]) -> None:
        self.set_up()
        self.outbox: list[list[NewMessage]] = []
        self.sent_before = False
        """Whether the first of these was sent by a sender that died then."""
        self.sent_there: dict[str, str] = {}
        self.recurrences: dict[str, Recurrence] = {}
        self.defined = 0
        self.next: dict[str, int] = {}
        self.last: dict[str, str] = {}
        self.tally: dict[str, list[int]] = {}
        self.occurred: set[str] = set()
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

    @precondition(lambda self: self.outbox)
    @rule()
    def what_is_to_be_sent_is_sent(self) -> None:
        told: list[tuple[str, str]] = []
        assert outbox.send(self.store, QUEUE, lambda *which: told.append(which)) == sum(map(len, self.outbox))
        assert told == [each for children in self.outbox for each in self.sent(children)]
        self.outbox.clear()

    @precondition(lambda self: self.outbox)
    @rule()
    def a_sender_dies_before_it_says_that_it_has_sent(self) -> None:
        (entry,) = self.wire.command("LRANGE", self.look.key("outbox"), 0, 0)
        told: list[tuple[str, str]] = []
        assert send_and_die(self.store, entry, lambda *which: told.append(which)) == len(self.outbox[0])
        assert told == self.sent(self.outbox[0])
        self.sent_before = True

    def sent(self, children: list[NewMessage]) -> list[tuple[str, str]]:
        """Receive ``children`` unless they were sent before, ids forgotten or not. Returns the conflicts."""
        conflicting = []
        for child in [] if self.sent_before else children:
            there = child.queue != QUEUE
            digest = self.sent_there.get(child.id) if there else self.model.digest(child.id)
            if digest and child.digest and digest != child.digest:
                conflicting.append((child.id, child.queue))
            elif not there:
                self.model.accept(child, self.soon)
            else:
                self.sent_there.setdefault(child.id, child.digest)
        self.sent_before = False
        return conflicting

    @precondition(lambda self: self.model.having(State.SCHEDULED))
    @rule(most=FEW)
    def promote(self, most: int) -> None:
        scheduled = [self.model.messages[name] for name in self.model.having(State.SCHEDULED)]
        due = sorted((held.due, held.name) for held in scheduled if held.due < self.soon)
        moved, next_due, _, to_repair = self.store.promote(self.mover, QUEUE, most)
        assert to_repair or not self.model.having(State.RESERVED)
        assert moved == min(most, len(due))
        for _, name in due[:most]:
            self.model.make_ready(self.model.messages[name])
        assert (next_due is None) == (not self.model.having(State.SCHEDULED) and not self.next)
        with pytest.raises(LeaseLost):
            self.store.promote(self.mover._replace(fence="999999"), QUEUE, most)

    @precondition(lambda self: self.model.having(State.SCHEDULED) or self.model.keys)
    @rule(hours=st.integers(1, 3))
    def hours_pass(self, hours: int) -> None:
        for name in self.model.having(State.SCHEDULED):
            held = self.model.messages[name]
            held.due -= hours * HOUR
            self.wire.command("ZADD", self.look.key("schedule"), f"{held.due * 1000:.0f}", name)
        for key, (name, left) in self.model.keys.items():
            self.model.keys[key] = (name, left - hours)
            _, lapses = self.look.hash("unique_keys")[key].decode().split("\n") if left < 100 else ("", "")
            if lapses:
                self.wire.command("HSET", self.look.key("unique_keys"), key, f"{name}\n{int(lapses) - hours * HOUR}")

    # Recurrences

    @rule(
        keep=st.booleans(),
        missed=st.sampled_from(Missed),
        overlap=st.sampled_from(Overlap),
        hours=st.integers(1, 2),
        late=st.integers(0, 4),
        priority=st.sampled_from([0, 0, 1]),
    )
    def define(self, keep: bool, missed: Missed, overlap: Overlap, hours: int, late: int, priority: int) -> None:
        """A new one, that nobody has looked after for a while; those that were there stay or go.

        One that was brought beyond its own next instant goes: defined again, it would begin anew with that.
        """
        self.defined += 1
        name = f"r{self.defined}"
        every = hours * 3600.0
        new = Recurrence(name, "handler", every=every, queue=QUEUE, priority=priority, missed=missed, overlap=overlap)
        now = server_ms(self.wire)
        kept = {
            each.name: each
            for each in self.recurrences.values()
            if keep and self.next[each.name] <= (each.next_after(now) or 0)
        }
        told = list[Event]()
        self.recurring.define(OWNER, [QUEUE], [*kept.values(), new], told.append)
        removed = {RecurrenceRemoved(gone) for gone in self.recurrences.keys() - kept.keys()}
        assert (set(told), len(told)) == (removed, len(removed))
        self.recurrences = kept | {name: new}
        first = self.look.score("next_instants", name)
        assert first is not None
        assert 0 <= first - server_ms(self.wire) <= hours * HOUR
        self.next = {kept_name: self.next[kept_name] for kept_name in kept} | {name: first - late * hours * HOUR}
        self.tally = {kept_name: self.tally[kept_name] for kept_name in kept} | {name: [0, 0]}
        self.last = {kept_name: last for kept_name, last in self.last.items() if kept_name in kept}
        self.wire.command("ZADD", self.look.key("next_instants"), self.next[name], name)

    @precondition(lambda self: self.recurrences)
    @rule()
    def the_mover_enqueues_what_has_occurred(self) -> None:
        now = server_ms(self.wire)
        due = sorted((at, name) for name, at in self.next.items() if at <= now)
        told = {name: tick(self.recurrences[name], at, now, UNATTENDED) for at, name in due}
        events = list[Event]()
        enqueued = self.recurring.tick(self.mover, QUEUE, UNATTENDED, events.append)
        assert events == [OccurrencesSkipped(name, each.skipped) for name, each in told.items() if each.skipped]
        assert enqueued == sum(
            self.occurs(name, each.enqueue, each.skipped, each.next or 0) for name, each in told.items()
        )

    @precondition(lambda self: self.recurrences)
    @rule(data=st.data(), again=st.booleans())
    def an_hour_comes_for_a_recurrence(self, data: st.DataObject, again: bool) -> None:
        """As the mover would do it then; and once more, had another mover seen the same instant come."""
        name = data.draw(st.sampled_from(sorted(self.next)))
        recurrence, due = self.recurrences[name], self.next[name]
        following = recurrence.next_after(due) or 0
        args: list[Any] = [name, due, following, 0, int(recurrence.overlap is Overlap.SKIP), ""]
        args += [id_of(recurrence.name, due), due, record_of(recurrence, due)]
        script = self.wire.scripts["recur"]
        keys = self.store.keys.of_script(script, QUEUE)
        enqueued = self.wire.call(script, keys, [self.mover.lineage, self.mover.fence, *args])
        assert enqueued == self.occurs(name, (due,), 0, following)
        if again:
            assert self.wire.call(script, keys, [self.mover.lineage, self.mover.fence, *args]) == -1
            with pytest.raises(LeaseLost):
                self.wire.call(script, keys, [self.mover.lineage, "999999", *args])

    def occurs(self, name: str, instants: tuple[int, ...], skipped: int, following: int) -> int:
        """Returns how many occurrences are enqueued."""
        recurrence, enqueued = self.recurrences[name], 0
        for instant in instants:
            last = self.model.messages.get(self.last.get(name, ""))
            unfinished = last is not None and not last.state.has_ended
            if recurrence.overlap is Overlap.SKIP and unfinished:
                skipped += 1
                continue
            occurrence = id_of(recurrence.name, instant)
            assert occurrence not in self.occurred
            self.occurred.add(occurrence)
            self.last[name] = occurrence
            held = self.model.messages[occurrence] = Held(occurrence, State.READY, recurrence.priority)
            self.model.make_ready(held)
            enqueued += 1
        self.next[name] = following
        self.tally[name][0] += enqueued
        self.tally[name][1] += skipped
        return enqueued

    @invariant()
    def recurrences_stand_as_they_should(self) -> None:
        standing = {each.name: each for each in self.recurring.standing(lambda _: None)}
        assert standing.keys() == self.recurrences.keys()
        for name, each in standing.items():
            assert (each.recurrence, each.error, each.owners) == (self.recurrences[name], None, (OWNER,))
            assert each.next == self.next[name]
            assert [each.enqueued, each.skipped] == self.tally[name]
            assert each.last == self.last.get(name)

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
