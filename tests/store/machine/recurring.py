"""Recurrences: those of a launch's configuration, and those that are put, paused, triggered and removed at run time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from pollconsumer.core.choices import Missed, Overlap
from pollconsumer.core.errors import BadData, LeaseLost
from pollconsumer.core.events import Event, OccurrencesSkipped, RecurrenceRemoved
from pollconsumer.core.lifecycle import State
from pollconsumer.core.messages.message import created_header
from pollconsumer.core.notation.instants import epoch_ms
from pollconsumer.core.recurrence import Recurrence, Replaced, tick
from pollconsumer.store.records.occurrences import id_of, occurrence_of, record_of
from pollconsumer.store.recurrences import RecurrenceStatus, read_replaced, readable
from tests.store.acting import HOUR, QUEUE, UNATTENDED, unattended
from tests.store.machine.base import Base
from tests.store.machine.model import Held
from tests.store.servers import server_ms

if TYPE_CHECKING:
    from pollconsumer.core.recurrence import First

OWNER = "consumer"
OVERLAPS = {Overlap.ALLOW: 0, Overlap.SKIP: 1, Overlap.QUEUE: 2}
"""What `recur.lua` is told for each; what is replaced is stopped before."""
PUT = ["p", "p@q"]
"""Names of those that are put at run time."""


@dataclass
class Standing:
    """What is to become of a recurrence. ``next`` in epoch ms; ``paused_at`` the instant from which its periods count,
    None unless it is paused; ``previous`` the instant and the result of the last completed occurrence; ``replaced`` the
    rules by which it is due."""

    recurrence: Recurrence
    next: int | None
    paused_at: int | None = None
    enqueued: int = 0
    skipped: int = 0
    last: str | None = None
    previous: tuple[int, Any] | None = None
    instants: list[int] = field(default_factory=list)
    replaced: list[Replaced] = field(default_factory=list)

    def is_spent(self) -> bool:
        return self.recurrence.times is not None and self.enqueued >= self.recurrence.times


class Recurring(Base):
    def set_up(self) -> None:
        super().set_up()
        self.standing: dict[str, Standing] = {}
        self.defined = 0
        self.occurred: set[str] = set()

    def coming(self) -> dict[str, int]:
        """Their next instants."""
        return {name: each.next for name, each in self.standing.items() if each.next is not None}

    def put_ones(self) -> list[str]:
        return sorted(name for name, each in self.standing.items() if each.recurrence.at_run_time)

    # A configuration

    @rule(
        keep=st.booleans(),
        missed=st.sampled_from(Missed),
        overlap=st.sampled_from([*OVERLAPS]),
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
        mine = {name: each for name, each in self.standing.items() if not each.recurrence.at_run_time}
        kept = [
            name
            for name, each in mine.items()
            if keep and each.next is not None and each.next <= (each.recurrence.next_after(now) or 0)
        ]
        told = list[Event]()
        self.recurring.define(OWNER, [QUEUE], [*(mine[each].recurrence for each in kept), new], told.append)
        gone = mine.keys() - set(kept)
        assert (set(told), len(told)) == ({RecurrenceRemoved(each) for each in gone}, len(gone))
        for each in gone:
            del self.standing[each]
        first = self.look.score("next_instants", name)
        assert first is not None
        assert 0 <= first - server_ms(self.wire) <= hours * HOUR
        self.standing[name] = Standing(new, first)
        self.bring_forward(name, late * hours)

    def bring_forward(self, name: str, hours: int) -> None:
        """Let a recurrence have been left alone for so long."""
        standing = self.standing[name]
        if standing.next is not None:
            standing.next -= hours * HOUR
            self.wire.command("ZADD", self.look.key("next_instants"), standing.next, name)

    # Run time

    @rule(
        name=st.sampled_from(PUT),
        hours=st.sampled_from([1, 1, 2]),
        first=st.sampled_from(["now", "next"]),
        times=st.sampled_from([None, None, 1, 3]),
        enabled=st.sampled_from([True, True, True, False]),
        overlap=st.sampled_from([*OVERLAPS]),
        created_by=st.sampled_from(["ada", "ben"]),
        late=st.integers(0, 3),
    )
    def put(
        self,
        name: str,
        hours: int,
        first: First,
        times: int | None,
        enabled: bool,
        overlap: Overlap,
        created_by: str,
        late: int,
    ) -> None:
        new = Recurrence(
            name,
            "handler",
            every=hours * 3600,
            queue=QUEUE,
            missed=Missed.ALL,
            overlap=overlap,
            enabled=enabled,
            at_run_time=True,
            times=times,
            created_by=created_by,
        )
        before = server_ms(self.wire)
        self.recurring.put([(new, first)])
        standing = self.standing.get(name)
        if standing is not None and standing.recurrence == new:
            return
        if standing is None:
            standing = self.standing[name] = Standing(new, None)
            was, begins = new, True
        else:
            was = standing.recurrence
            begins = (was.every, was.enabled) != (new.every, new.enabled)
        standing.recurrence = new
        if begins:
            standing.enqueued = standing.skipped = 0
            due = standing.next if standing.next is not None and standing.next <= before else None
            standing.next = self.begun(standing, first, before, due)
            if standing.paused_at is not None and new.enabled:
                standing.paused_at = self.periods_count_from(new, first, before)
            self.replace(standing, was, first, before)
        elif standing.next is None:
            if not standing.is_spent():
                standing.next = self.begun(standing, first, before, None)
        elif standing.is_spent():
            standing.next = None
        self.bring_forward(name, late)

    def periods_count_from(self, rule: Recurrence, first: First, before: int) -> int:
        """The first instant of a rule that was put while its recurrence was paused."""
        found, after = int(self.look.hash("recurrence_counters")[f"{rule.name}:paused"]), server_ms(self.wire)
        assert before <= found <= after if first == "now" else found in self.following(rule, before, 0)
        return found

    def replace(self, standing: Standing, was: Recurrence, first: First, before: int) -> None:
        """What is due by the rule that it had stays due, and then it begins."""
        name, now = standing.recurrence.name, server_ms(self.wire)
        if standing.next is None or standing.next >= before:
            standing.replaced = []
            return
        held = self.look.hash("recurrence_counters").get(f"{name}:before")
        until, begins, replaced = read_replaced(QUEUE, name.encode(), held)[-1]
        assert before <= until <= now
        assert replace(replaced, created=None) == was
        assert before <= begins <= now if first == "now" else begins in self.following(standing.recurrence, before, 0)
        standing.replaced.append(Replaced(until, begins, replaced))

    def begun(self, standing: Standing, first: First, before: int, due: int | None) -> int | None:
        """The instant with which it begins."""
        rule, after = standing.recurrence, server_ms(self.wire)
        if not rule.enabled or standing.paused_at is not None:
            return None
        if due is not None:
            return due
        found = self.look.score("next_instants", rule.name)
        assert found is not None
        assert before <= found <= after if first == "now" else found in self.following(rule, before, 0)
        return found

    def following(self, rule: Recurrence, before: int, phase: int) -> tuple[int | None, int | None]:
        """The next instant by the rule: now, or ``before``."""
        return rule.next_after(before, phase), rule.next_after(server_ms(self.wire), phase)

    @precondition(lambda self: self.put_ones())
    @rule(data=st.data())
    def pause_or_resume_one(self, data: st.DataObject) -> None:
        standing = self.standing[data.draw(st.sampled_from(self.put_ones()))]
        found = self.recurring.find(standing.recurrence.name)
        if standing.paused_at is None:
            self.recurring.pause(found)
            first = standing.replaced[-1].first if standing.replaced else standing.next
            standing.paused_at, standing.next, standing.replaced = first or 1, None, []
            return
        if not standing.recurrence.enabled:
            with pytest.raises(BadData, match="disabled"):
                self.recurring.resume(found)
            return
        before = server_ms(self.wire)
        self.recurring.resume(found)
        following = self.look.score("next_instants", found.name)
        no_sooner = standing.paused_at - 1  # than it was to be when it was paused: an hour may have come early
        expected = self.following(standing.recurrence, max(before, no_sooner), standing.paused_at)
        assert following in ((None,) if standing.is_spent() else expected)
        standing.paused_at, standing.next = None, following

    @precondition(lambda self: self.put_ones())
    @rule(data=st.data())
    def remove_one(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.put_ones()))
        self.recurring.remove(name)
        del self.standing[name]

    @precondition(lambda self: self.standing)
    @rule(data=st.data())
    def trigger_one(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.standing)))
        message_id = self.recurring.trigger(self.recurring.find(name))
        if not self.is_known(message_id):
            self.make_occurrence(self.standing[name], message_id)

    # Instants

    @precondition(lambda self: self.standing)
    @rule()
    def the_mover_enqueues_what_has_occurred(self) -> None:
        now = server_ms(self.wire)
        due = sorted((at, name) for name, at in self.coming().items() if at <= now)
        told = {
            name: tick(self.standing[name].recurrence, at, now, UNATTENDED, self.standing[name].replaced)
            for at, name in due
        }
        events = list[Event]()
        enqueued = self.recurring.tick(self.mover, QUEUE, unattended, events.append)
        assert events == [OccurrencesSkipped(name, each.skipped) for name, each in told.items() if each.skipped]
        assert enqueued == sum(self.occurs(name, each.enqueue, each.skipped, each.next) for name, each in told.items())

    @precondition(lambda self: self.coming())
    @rule(data=st.data(), again=st.booleans())
    def an_hour_comes_for_a_recurrence(self, data: st.DataObject, again: bool) -> None:
        """As the mover would do it then; and once more, had another mover seen the same instant come."""
        name = data.draw(st.sampled_from(sorted(self.coming())))
        recurrence, due = self.standing[name].recurrence, self.coming()[name]
        following = recurrence.next_after(due, due) or 0
        times = "" if recurrence.times is None else recurrence.times
        definition = self.look.hash("recurrences")[name]
        args: list[Any] = [name, due, following, 0, OVERLAPS[recurrence.overlap], times, definition]
        args += [id_of(name, due), due, record_of(recurrence, due)]
        script = self.wire.scripts["recur"]
        keys = self.store.keys.names_for(script.keys, QUEUE)
        enqueued = self.wire.call(script, keys, [self.mover.lease_name, self.mover.fence, *args])
        assert enqueued == self.occurs(name, (due,), 0, following)
        if again:
            assert self.wire.call(script, keys, [self.mover.lease_name, self.mover.fence, *args]) == -1
            with pytest.raises(LeaseLost):
                self.wire.call(script, keys, [self.mover.lease_name, "999999", *args])

    def occurs(self, name: str, instants: tuple[int, ...], skipped: int, following: int | None) -> int:
        """Returns how many occurrences are enqueued."""
        standing = self.standing[name]
        recurrence, before = standing.recurrence, standing.enqueued
        for instant in instants:
            if standing.is_spent():
                break
            last = self.model.messages.get(standing.last or "")
            unfinished = last is not None and not last.state.has_ended
            had = last is not None and (last.attempts or last.has_kept or (last.turn and not last.parked))
            waits = unfinished and not had
            if (recurrence.overlap is Overlap.SKIP and unfinished) or (recurrence.overlap is Overlap.QUEUE and waits):
                skipped += 1
                continue
            occurrence = id_of(name, instant)
            if recurrence.at_run_time and self.is_known(occurrence):  # of one that was removed
                continue
            assert recurrence.at_run_time or occurrence not in self.occurred
            self.occurred.add(occurrence)
            self.make_occurrence(standing, occurrence)
            standing.enqueued += 1
        standing.next, standing.replaced = None if standing.is_spent() else following, []
        standing.skipped += skipped
        return standing.enqueued - before

    def is_known(self, message_id: str) -> bool:
        return any(message_id in known for known in (self.model.messages, self.model.young, self.model.old))

    def make_occurrence(self, standing: Standing, message_id: str) -> None:
        occurrence = occurrence_of(message_id.encode())
        assert occurrence is not None
        standing.last = message_id
        standing.instants.append(occurrence.instant)
        self.model.drop_result(message_id)
        held = self.model.messages[message_id] = Held(message_id, State.READY, standing.recurrence.priority)
        if (who := standing.recurrence.created_by) is not None:
            held.headers = created_header(who)
        self.model.make_ready(held)

    def occurrence_completed(self, message_id: str, result: Any) -> None:
        """If it is one, of a recurrence that has had any since it was put."""
        occurrence = occurrence_of(message_id.encode())
        standing = occurrence and self.standing.get(occurrence.recurrence.decode())
        if occurrence and standing and standing.last is not None:
            previous = standing.previous
            if previous is None or previous[0] <= occurrence.instant:
                standing.previous = (occurrence.instant, result)

    # What must hold after every step

    @invariant()
    def recurrences_stand_as_they_should(self) -> None:
        found = {each.name: each for each in self.recurring.statuses(lambda _: None)}
        assert found.keys() == self.standing.keys()
        ended = set(self.look.ranked("recurrences_ended"))
        for name, each in found.items():
            standing = self.standing[name]
            self.stands(each, standing)
            last = self.model.messages.get(standing.last or "")
            assert each.last_state == (last and last.state)
            assert self.recurring.find(name) == each
            assert each.ended <= (name in ended)
            assert (name in ended) <= (each.next is None and standing.recurrence.enabled)
            history = [occurred.message.id for occurred in self.recurring.history(each, 100)]
            known = [id_of(name, instant) for instant in sorted(set(standing.instants), reverse=True)]
            assert history == [message_id for message_id in known if message_id in self.model.messages]

    def stands(self, each: RecurrenceStatus, standing: Standing) -> None:
        rule = readable(each)
        assert (rule.created is not None) == rule.at_run_time
        assert rule == replace(standing.recurrence, created=rule.created)
        assert each.owners == (() if rule.at_run_time else (OWNER,))
        assert (each.next and epoch_ms(each.next), each.paused) == (standing.next, standing.paused_at is not None)
        assert [each.enqueued, each.skipped] == [standing.enqueued, standing.skipped]
        assert each.last == standing.last
        assert (each.previous and (epoch_ms(each.previous.instant), each.previous.result)) == standing.previous
