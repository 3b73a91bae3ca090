"""Launches: they reserve, settle, die, and come back to life."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from pollconsumer.core.errors import LeaseLost
from pollconsumer.core.lifecycle import State
from pollconsumer.core.messages.message_steps import Progress
from pollconsumer.store.queues.outbox import pack
from pollconsumer.store.records.steps import Limits, Settlement
from tests.store.acting import HOUR, QUEUE, Launch, die, expire, finish, park, release, retry
from tests.store.machine.base import FEW, OTHER, new_messages
from tests.store.machine.producing import Producing
from tests.store.servers import server_ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from pollconsumer.store.records.reservations import Reservation
    from pollconsumer.store.records.steps import Completion

ALWAYS = 10_000 * HOUR

SETTLE: dict[str, Callable[[Reservation], Settlement | Completion]] = {
    "retry": retry,
    "retry later": lambda r: retry(r, HOUR),
    "put off": lambda r: Settlement.deferred(r, delay_ms=HOUR, error="RetryIn: deferred by 1h", took=0),
    "die": die,
    "die holding": lambda r: Settlement.dead(r, r.reserved_at, r.reserved_at, error="Fatal: no", holds=True),
    "expire": expire,
    "release": release,
    "park": lambda r: park(r, HOUR),
    "asleep": lambda r: Settlement.asleep(r, wakes_in_ms=HOUR, took=0),
    "cancel": lambda r: Settlement.stopped(r, r.reserved_at, r.reserved_at, error="stopped on request"),
    "finish": lambda r: finish(r, f"{r.attempt}", ALWAYS),
}
WAYS = ["complete", *SETTLE]
OUTCOMES = {
    "complete": "completed",
    "finish": "completed",
    "retry": "retried",
    "retry later": "retried",
    "put off": "retried",
    "die": "dead",
    "die holding": "dead",
    "expire": "expired",
    "release": "released",
    "park": "parked",
    "asleep": "asleep",
}


class Handling(Producing):
    @precondition(lambda self: self.model.having(State.READY))
    @rule(most=FEW)
    def reserve(self, most: int) -> None:
        self.model.script()
        self.reserved(most, self.step(wanted=most))

    @precondition(lambda self: self.look.marker() == 1)
    @rule(most=FEW)
    def reserve_when_woken(self, most: int) -> None:
        self.model.script()
        self.reserved(most, self.step(wanted=most, wait=30.0))

    @precondition(lambda self: self.limits is None)
    @rule()
    def reserve_when_idle(self) -> None:
        self.model.script()
        stepped = self.step(plain=True)
        self.reserved(1, self.step(wanted=1) if stepped.needs_full_step else stepped)

    @precondition(lambda self: self.in_flight())
    @rule(data=st.data(), most=st.integers(0, 2))
    def settle(self, data: st.DataObject, most: int) -> None:
        """Some of what is in flight, each in its own way, and reserve the next in the same step."""
        chosen = data.draw(st.lists(st.sampled_from(sorted(self.in_flight())), min_size=1, unique=True))
        ways = data.draw(st.lists(st.sampled_from(WAYS), min_size=len(chosen), max_size=len(chosen)))
        pairs = [(name, way, self.reservation(name)) for name, way in zip(chosen, ways, strict=True)]
        completed = [(name, way, r) for name, way, r in pairs if way == "complete"]
        others = [(name, way, r) for name, way, r in pairs if way != "complete"]
        before = server_ms(self.wire)
        stepped = self.step(
            completed=[r for _, _, r in completed], settled=[SETTLE[way](r) for _, way, r in others], wanted=most
        )
        assert stepped.stale == []
        after = server_ms(self.wire)
        self.settled([(name, way) for name, way, _ in completed + others], before, after)
        self.reserved(most, stepped)

    @precondition(lambda self: self.in_flight())
    @rule(data=st.data(), wanted=new_messages((QUEUE, OTHER)))
    def finish_with_more_to_do(self, data: st.DataObject, wanted: list[tuple[Any, ...]]) -> None:
        name = data.draw(st.sampled_from(sorted(self.in_flight())))
        r, children = self.reservation(name), [self.new(*each) for each in wanted]
        stepped = self.step(settled=[finish(r, f"{r.attempt}", ALWAYS, pack(children, self.began))])
        assert stepped.stale == []
        self.settled([(name, "finish")], 0, 0)
        self.outbox.append(children)

    def settled(self, ways: list[tuple[str, str]], before: int, after: int) -> None:
        left, returned = [], []
        self.model.script()
        completions = [each for each in ways if each[1] in ("complete", "finish")]
        others = [each for each in ways if each not in completions]
        for name, way in completions + others:
            if others and (name, way) == others[0]:
                self.pass_on(completions)
            held = self.model.messages[name]
            stopped = way == "cancel" or (held.to_stop and way not in ("complete", "finish"))
            self.model.settled["stopped" if stopped else OUTCOMES[way]] += 1
            if stopped:
                held.attempts -= way in ("release", "park", "expire", "asleep", "put off")
                held.to_stop = True
                self.model.end(held, State.CANCELLED)
                left.append(held)
                continue
            if way in ("release", "park", "expire"):
                self.model.refund(held)
            if way == "release":
                held.attempts -= 1
                held.begun = False
                returned.append(held)
                continue
            left.append(held)
            if way in ("complete", "finish"):
                if way == "finish":
                    self.model.results[name] = f"{self.reservation(name).attempt}"
                self.model.end(held, State.COMPLETED, passes=False)
                self.occurrence_completed(name, held.attempts if way == "finish" else None)
            elif way in ("die", "die holding"):
                self.model.end(held, State.DEAD, passes=way == "die")
            elif way == "expire":
                held.attempts -= 1
                held.begun = False
                self.model.end(held, State.EXPIRED)
            else:
                delay = 0 if way == "retry" or (way == "asleep" and held.awaited in held.signals) else HOUR
                due = self.look.due(name)
                assert due is not None
                assert before + delay <= due <= after + delay
                held.state, held.due, held.reservation = State.SCHEDULED, due, None
                held.attempts -= way in ("park", "asleep", "put off")
                held.parked = held.parked or way == "park"
                held.begun = False
        if not others:
            self.pass_on(completions)
        self.model.leave(left, returned)

    def pass_on(self, completions: list[tuple[str, str]]) -> None:
        """The next one of the first that was completed comes first."""
        for name, _ in reversed(completions):
            self.model.pass_on(self.model.messages[name])

    @precondition(lambda self: self.in_flight())
    @rule(data=st.data(), twice=st.booleans())
    def begin_some_for_the_only_time(self, data: st.DataObject, twice: bool) -> None:
        drawn = data.draw(st.lists(st.sampled_from(sorted(self.in_flight())), min_size=1, unique=True))
        reservations = [*map(self.reservation, drawn)]
        before = [each.row for each in reservations]
        for _ in range(1 + twice):
            for each, row in zip(reservations, before, strict=True):
                each.row = row
            assert self.launch.begin(*reservations) == []
        for each in reservations:
            self.model.messages[each.name].begun = True

    @precondition(lambda self: self.in_flight())
    @rule(data=st.data(), state=st.sampled_from([b"1", b"2"]))
    def keep_how_far_one_has_come(self, data: st.DataObject, state: bytes) -> None:
        name = data.draw(st.sampled_from(sorted(self.in_flight())))
        self.store.checkpoint(self.launch.claim, self.reservation(name), state)
        self.model.messages[name].checkpoint, self.model.messages[name].has_kept = state, True
        assert self.store.recorded(self.reservation(name))[0] == state

    @precondition(lambda self: self.in_flight())
    @rule(data=st.data(), done=st.integers(0, 9), way=st.sampled_from(["alone", "step", "checkpoint"]))
    def say_how_far_some_have_come(self, data: st.DataObject, done: int, way: str) -> None:
        told = data.draw(st.lists(st.sampled_from(sorted(self.in_flight())), min_size=1, unique=True))
        reports = {QUEUE: {name.encode(): Progress(done, 9) for name in told}}
        if way == "alone":
            self.store.report(self.launch.claim, reports)
        elif way == "step":
            self.store.step(self.launch.claim, [], lasts_ms=HOUR, now=lambda: 0.0, reports=reports)
        else:
            name = sorted(self.in_flight())[0]
            self.store.checkpoint(self.launch.claim, self.reservation(name), b"3", reports)
            self.model.messages[name].checkpoint, self.model.messages[name].has_kept = b"3", True
        for name in told:
            self.model.messages[name].progress = Progress(done, 9)

    @rule(
        limits=st.sampled_from([None, Limits(1), Limits(3), Limits(None, 4, ALWAYS), Limits(2, 7, ALWAYS)]),
        a_period_passes=st.booleans(),
        most=FEW,
    )
    def other_limits_hold_from_now_on(self, limits: Limits | None, a_period_passes: bool, most: int) -> None:
        """A launch that begins, or that was told to come again now, asks without being woken."""
        self.limits = limits
        if a_period_passes:
            self.wire.command("DEL", self.look.key("handed_out"))
            self.model.spent = 0
        self.model.script()
        self.reserved(most, self.step(wanted=most))

    # Ends of launches

    @precondition(lambda self: self.in_flight())
    @rule()
    def a_new_launch_takes_over(self) -> None:
        self.overtaken.append((self.launch, [self.reservation(name) for name in self.in_flight()]))
        orphans = self.model.reserved()
        self.fence += 1
        self.launch = Launch(self.store, self.fence)
        assert self.launch.recovered == len(orphans)
        self.offered_again(orphans)

    @precondition(lambda self: self.in_flight())
    @rule()
    def the_launch_comes_to_its_hard_end(self) -> None:
        orphans = self.model.reserved()
        for place, name in enumerate(self.look.ranked("in_flight")):
            self.wire.command("ZADD", self.look.key("in_flight"), 1 + place, name)
        assert self.store.maintenance.recover(QUEUE, []) == len(orphans)
        self.offered_again(orphans)

    def offered_again(self, orphans: list[str]) -> None:
        left, returned = [], []
        self.model.script()
        for name in reversed(orphans):
            held = self.model.messages[name]
            if held.to_stop:
                self.model.end(held, State.CANCELLED)
                self.model.settled["stopped"] += 1
                left.append(held)
            elif held.begun:
                self.model.end(held, State.DEAD)
                self.model.skipped += 1
                self.model.settled["dead"] += 1
                left.append(held)
            else:
                returned.append(held)
        self.model.leave(left, returned)

    @precondition(lambda self: self.in_flight())
    @rule()
    def the_reply_to_a_step_is_lost(self) -> None:
        reserved, messages = self.model.reserved(), self.model.messages
        unknown = [name for name in reversed(reserved) if not messages[name].begun]
        assert self.store.unreserve(self.launch.claim, QUEUE, []) == len(unknown)
        left, returned = [], []
        self.model.script()
        for held in map(messages.__getitem__, unknown):
            held.attempts -= 1
            self.model.refund(held)
            if held.to_stop:
                self.model.end(held, State.CANCELLED)
                self.model.settled["stopped"] += 1
                left.append(held)
            else:
                returned.append(held)
        self.model.leave(left, returned)

    @precondition(lambda self: self.overtaken)
    @rule(data=st.data(), way=st.sampled_from(WAYS))
    def an_overtaken_launch_comes_back_to_life(self, data: st.DataObject, way: str) -> None:
        launch, reservations = data.draw(st.sampled_from(self.overtaken))
        completed = reservations if way == "complete" else []
        settled = [SETTLE[way](r) for r in reservations if way != "complete"]
        with pytest.raises(LeaseLost):
            launch.step(completed=completed, settled=settled, wanted=1)
        with pytest.raises(LeaseLost):
            self.store.maintenance.announce(launch.claim, QUEUE)
        with pytest.raises(LeaseLost):
            self.store.unreserve(launch.claim, QUEUE, [])
        with pytest.raises(LeaseLost):
            self.store.checkpoint(launch.claim, reservations[0], b"late")
        with pytest.raises(LeaseLost):
            self.store.report(launch.claim, {QUEUE: {reservations[0].id: Progress(1)}})

    @precondition(lambda self: self.overtaken)
    @rule(data=st.data(), way=st.sampled_from([*WAYS, "begin"]))
    def a_late_outcome_arrives_under_the_current_lease(self, data: st.DataObject, way: str) -> None:
        """As it would if a fence were ever to fail: the row tells that the message has been offered to another."""
        _, reservations = data.draw(st.sampled_from(self.overtaken))
        if way == "begin":
            stale = self.launch.begin(*reservations)
        else:
            completed = reservations if way == "complete" else []
            settled = [SETTLE[way](r) for r in reservations if way != "complete"]
            stale = self.launch.step(completed=completed, settled=settled).stale
        assert set(stale) == {r.id for r in reservations}
        with pytest.raises(LeaseLost):
            self.store.checkpoint(self.launch.claim, reservations[0], b"late")
