"""Scenarios of launches that define recurrences: other versions, other owners, another queue, long breaks, people."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from pollconsumer.core.choices import Missed, Overlap
from pollconsumer.core.errors import LeaseLost, NotFound
from pollconsumer.core.events import RecurrenceContested
from pollconsumer.core.recurrence import Recurrence
from pollconsumer.store.queues.redis_store import RedisStore
from tests.faults import store_view
from tests.faults.history import Operation
from tests.simulation.exploring import BEGINS
from tests.simulation.scene import MOVERS, NAMESPACE, QUEUE, Scene
from tests.store.acting import AllRecurrences, Looking, unattended

if TYPE_CHECKING:
    from collections.abc import Callable

    from pollconsumer.core.events import Event
    from pollconsumer.store.recurrences import RecurrenceStatus
    from tests.simulation.exploring import Actor, Judge, Stage

ELSEWHERE = "elsewhere"
HOURLY = Recurrence("hourly", "plain", every=3600.0, queue=QUEUE, missed=Missed.ALL)
EVERY_OTHER = Recurrence("hourly", "plain", every=7200.0, queue=QUEUE, missed=Missed.ALL)
TOO = Recurrence("hourly_too", "plain", every=3600.0, queue=QUEUE)


class DefiningScene(Scene):
    """Times are hours and minutes after midnight, UTC, of the first day."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.recurring = AllRecurrences(self.store.wire, NAMESPACE)
        self.consumer, self.movers = self.announced(1), self.announced(2, MOVERS)
        self.store.maintenance.announce(self.movers, ELSEWHERE)

    def at(self, hours: int, minutes: int = 0) -> None:
        self.stage.clock.now = BEGINS + hours * 3600 + minutes * 60
        self.stage.story.append(f"{hours:02}:{minutes:02}")

    def launch_defines(self, *recurrences: Recurrence, owner: str = "a") -> list[Event]:
        events: list[Event] = []
        self.stage.story.append(f"{owner} defines {', '.join(each.name for each in recurrences) or 'none'}")
        self.recurring.define(owner, [QUEUE, ELSEWHERE], recurrences, events.append)
        return events

    def tick(self) -> None:
        for queue in (QUEUE, ELSEWHERE):
            self.recurring.tick(self.movers, queue, unattended, lambda _: None)
        self.stage.story.append("the mover ticks")

    def expect(self, *instants: str, of: str = "hourly", queue: str = QUEUE) -> None:
        """These occurrences, and no others, have been enqueued."""
        found = [
            each.id.partition("@") for each in store_view.stored(self.store.wire, NAMESPACE) if each.queue == queue
        ]
        there = sorted(at[11:16] for name, _, at in found if name == of)
        if there != sorted(instants):
            self.problems.append(f"{of} was enqueued for {', '.join(there) or 'nothing'}, not {', '.join(instants)}")

    def expect_defined(self, *names: str) -> None:
        there = sorted(self.standing())
        if there != sorted(names):
            self.problems.append(f"defined are {', '.join(there) or 'none'}, not {', '.join(names) or 'none'}")

    def standing(self) -> dict[str, RecurrenceStatus]:
        return {each.name: each for each in self.recurring.statuses(lambda _: None)}

    def expect_contested(self, events: list[Event], *, contested: bool) -> None:
        if any(isinstance(each, RecurrenceContested) for each in events) != contested:
            self.problems.append(f"contested: {not contested}, not {contested}")

    def expect_owners(self, *owners: str, of: str = "hourly") -> None:
        there = self.standing()[of].owners
        if sorted(there) != sorted(owners):
            self.problems.append(f"owners are {', '.join(there)}, not {', '.join(owners)}")

    def until_fenced(self, act: Callable[[Actor], None]) -> Callable[[Actor], None]:
        def acts(actor: Actor) -> None:
            with suppress(LeaseLost):
                act(actor)

        return acts


def an_unchanged_recurrence(stage: Stage) -> Judge:
    """Goes on, whenever a launch defines it."""
    scene = DefiningScene(stage)
    for minutes in (10, 30, 50):
        scene.at(9, minutes)
        scene.expect_contested(scene.launch_defines(HOURLY), contested=False)
    scene.at(10, 1)
    scene.expect_contested(scene.launch_defines(HOURLY), contested=False)
    scene.tick()
    scene.expect("10:00")
    scene.expect_owners("a")
    return scene.judge


def two_versions_of_a_recurrence(stage: Stage) -> Judge:
    """Whose launches alternate, do not suppress each other's occurrences."""
    scene = DefiningScene(stage)
    scene.at(9, 10)
    scene.launch_defines(HOURLY)
    scene.at(9, 50)
    scene.launch_defines(EVERY_OTHER)  # next at 10:00
    scene.at(10, 1)
    scene.expect_contested(scene.launch_defines(HOURLY), contested=False)
    scene.tick()
    scene.expect("10:00")
    scene.at(10, 50)
    scene.launch_defines(EVERY_OTHER)  # next at 12:00
    scene.tick()
    scene.at(11, 1)
    scene.tick()
    scene.expect("10:00")
    scene.expect_contested(scene.launch_defines(HOURLY), contested=True)
    scene.tick()
    scene.expect("10:00", "11:00")
    return scene.judge


def a_version_that_comes_back_late(stage: Stage) -> Judge:
    """Begins anew, and what was kept for it is gone."""
    scene = DefiningScene(stage)
    scene.at(10, 50)
    scene.launch_defines(HOURLY, TOO)
    scene.launch_defines(EVERY_OTHER, TOO)
    scene.at(11, 40)
    scene.launch_defines(EVERY_OTHER, Recurrence("hourly_too", "other", every=3600.0, queue=QUEUE))
    scene.at(12, 10)
    scene.tick()
    scene.launch_defines(HOURLY, TOO)
    scene.tick()
    scene.expect("12:00")
    scene.at(14, 30)
    if scene.stage.store.holds(scene.store.keys.queue(QUEUE, "recurrences_replaced")):
        scene.problems.append("what was replaced is kept for more than an hour")
    return scene.judge


def an_instant_that_is_due(stage: Stage) -> Judge:
    """Stays due, for the same definition and for another, in this queue and in another."""
    scene = DefiningScene(stage)
    scene.at(9, 10)
    scene.launch_defines(HOURLY, TOO)
    scene.at(10, 1)
    scene.launch_defines(HOURLY, TOO)
    scene.tick()
    scene.expect("10:00")
    scene.at(11, 1)
    moved = Recurrence("hourly_too", "plain", every=3600.0, queue=ELSEWHERE)
    scene.launch_defines(EVERY_OTHER, moved)
    scene.tick()
    scene.expect("10:00", "11:00")
    scene.expect("11:00", of="hourly_too", queue=ELSEWHERE)
    return lambda: scene.problems


def a_definition_that_is_replaced_while_it_is_due(stage: Stage) -> Judge:
    """Yields nothing once another has replaced it, also if a mover had read it before; what was due by it stays due."""
    scene = DefiningScene(stage)
    scene.at(9, 10)
    scene.launch_defines(HOURLY)
    scene.at(12, 1)
    there: set[str] = set()

    def tick(actor: Actor) -> None:
        for _ in range(2):  # what comes between is left to the next
            AllRecurrences(actor.wire(), NAMESPACE).tick(scene.movers, QUEUE, unattended, lambda _: None)

    def replace(actor: Actor) -> None:
        other = Recurrence("hourly", "other", every=7200.0, queue=QUEUE, missed=Missed.ALL)
        AllRecurrences(actor.wire(), NAMESPACE).define("a", [QUEUE], [other], lambda _: None)
        there.update(each.id for each in store_view.stored(scene.store.wire, NAMESPACE))

    stage.actor("mover", tick)
    stage.actor("launch", replace)

    def judge() -> list[str]:
        stored = store_view.stored(scene.store.wire, NAMESPACE)
        late = [each.id for each in stored if each.handler == "plain" and each.id not in there]
        scene.expect("10:00", "11:00", "12:00")
        return [*scene.problems, *(f"{name} was enqueued though its definition was replaced" for name in late)]

    return judge


def an_instant_to_come(stage: Stage) -> Judge:
    """Of a definition that was replaced, is not one of the next."""
    scene = DefiningScene(stage)
    scene.at(10, 10)
    scene.launch_defines(HOURLY)
    scene.launch_defines(EVERY_OTHER)
    scene.at(11, 1)
    scene.tick()
    scene.expect()
    return scene.judge


def a_recurrence_that_stands_still(stage: Stage) -> Judge:
    """Without an instant, or with one that no rule yields, it goes on when a launch defines it."""
    scene = DefiningScene(stage)
    scene.at(9, 10)
    scene.launch_defines(HOURLY, TOO)
    key = scene.store.keys.queue(QUEUE, "next_instants")
    scene.store.wire.command("ZREM", key, "hourly")
    scene.store.wire.command("ZADD", key, -1000, "hourly_too")
    scene.launch_defines(HOURLY, TOO)
    scene.at(10, 1)
    scene.tick()
    scene.expect("10:00")
    scene.expect("10:00", of="hourly_too")
    return scene.judge


def a_paused_recurrence(stage: Stage) -> Judge:
    """Yields nothing, though another version defines it."""
    scene = DefiningScene(stage)
    scene.at(9, 10)
    scene.launch_defines(HOURLY)
    scene.recurring.pause(scene.standing()["hourly"])
    scene.launch_defines(EVERY_OTHER)
    scene.at(12, 1)
    scene.tick()
    scene.expect()
    return scene.judge


def a_recurrence_of_two_owners(stage: Stage) -> Judge:
    """Stays while either defines it; whose names contain each other's."""
    scene = DefiningScene(stage)
    for first, second in (("ab", "a"), ("a", "ab")):
        scene.at(9, 10)
        scene.launch_defines(HOURLY, owner=first)
        scene.launch_defines(TOO, owner=second)
        scene.expect_defined("hourly", "hourly_too")
        scene.launch_defines(HOURLY, TOO, owner=second)
        scene.expect_owners(first, second)
        scene.launch_defines(owner=first)
        scene.expect_defined("hourly", "hourly_too")
        scene.launch_defines(owner=second)
        scene.expect_defined()
    return scene.judge


def an_owner_that_is_absent(stage: Stage) -> Judge:
    """For a day keeps no recurrence that another owner removes; and keeps those that are its own."""
    scene = DefiningScene(stage)
    scene.at(9)
    scene.launch_defines(HOURLY, owner="gone")
    scene.launch_defines(HOURLY)
    scene.at(32)
    scene.launch_defines()
    scene.expect_defined("hourly")
    scene.launch_defines(HOURLY)
    scene.at(34)
    scene.launch_defines()
    scene.expect_defined()
    scene.launch_defines(HOURLY, owner="gone")
    scene.at(64)
    for owner in ("a", "on"):
        scene.launch_defines(owner=owner)
    scene.expect_defined("hourly")  # which is not theirs
    return scene.judge


def a_recurrence_whose_name_begins_alike(stage: Stage) -> Judge:
    """Is not touched when a person removes the other."""
    scene = DefiningScene(stage)
    scene.at(10, 50)
    hourly = Recurrence("hourly_too", "plain", every=3600.0, queue=QUEUE)
    scene.launch_defines(HOURLY, hourly)
    scene.launch_defines(HOURLY, Recurrence("hourly_too", "plain", every=7200.0, queue=QUEUE))
    scene.recurring.remove("hourly")
    scene.at(11, 1)
    scene.launch_defines(hourly)
    scene.tick()
    scene.expect("11:00", of="hourly_too")
    return scene.judge


def occurrences_that_overlap(stage: Stage) -> Judge:
    scene = DefiningScene(stage)
    skips = Recurrence("hourly", "plain", every=3600.0, queue=QUEUE, overlap=Overlap.SKIP)
    scene.at(9, 10)
    scene.launch_defines(skips)
    for hours in (10, 11):
        scene.at(hours, 1)
        scene.tick()
    scene.expect("10:00")
    return scene.judge


def occurrences_that_wait_for_each_other(stage: Stage) -> Judge:
    """One is skipped only while the one before has not begun."""
    return _in_order(stage, Overlap.QUEUE)


def an_occurrence_that_replaces_the_one_before(stage: Stage) -> Judge:
    """Is enqueued, whatever becomes of the one before."""
    return _in_order(stage, Overlap.REPLACE)


def _in_order(stage: Stage, overlap: Overlap) -> Judge:
    """An occurrence is due while one of two launches handles the one before, and may die: it begins once that has
    ended."""
    scene = DefiningScene(stage)
    scene.history.one_at_a_time = False
    beside = scene.announced(3, "consumer:mail:1")
    options = {"order_key": "recurrence:hourly"}
    scene.at(9, 10)
    scene.launch_defines(Recurrence("hourly", "plain", every=3600.0, queue=QUEUE, overlap=overlap, options=options))
    scene.at(10, 1)
    scene.tick()
    scene.at(11, 1)

    def tick(actor: Actor) -> None:
        if overlap is Overlap.REPLACE:
            first = "hourly@2030-01-01T10:00:00Z"
            operations = scene.history.operations
            operations.append(Operation("cancel", QUEUE, first, stage.happens("the one before is replaced")))
        AllRecurrences(actor.wire(), NAMESPACE).tick(scene.movers, QUEUE, unattended, lambda _: None)
        ticked.append(stage.happens("the mover has ticked"))

    ticked = list[int]()
    stage.actor("launch", scene.launch(scene.consumer), mortal=True)
    stage.actor("launch beside it", scene.launch(beside))
    stage.actor("mover", scene.until_fenced(tick), mortal=overlap is Overlap.QUEUE)

    def judge() -> list[str]:
        problems, executions = scene.judge(), scene.history.executions
        before = [each for each in executions if "T10:" in each.id]
        after = [each for each in executions if "T11:" in each.id]
        if after and any((each.ended or each.started) >= after[0].started for each in before):
            problems.append("the later one began before the earlier one had ended")
        if overlap is Overlap.REPLACE and any(each.started > ticked[0] for each in before):
            problems.append("the earlier one began after it was replaced")
        there = store_view.stored(scene.store.wire, NAMESPACE)
        if overlap is Overlap.REPLACE and not any("T11:" in each.id for each in there):
            problems.append("the one that replaces was not enqueued")
        return problems

    return judge


def a_removal_and_a_pause(stage: Stage) -> Judge:
    """At once: nothing is left of what is removed."""
    scene = DefiningScene(stage)
    scene.launch_defines(HOURLY)

    def remove(actor: Actor) -> None:
        AllRecurrences(actor.wire(), NAMESPACE).remove("hourly")

    def pause(actor: Actor) -> None:
        recurring = AllRecurrences(actor.wire(), NAMESPACE)
        try:
            recurring.pause(recurring.find("hourly"))
        except NotFound:
            stage.happens("there is none to pause")

    stage.actor("remover", remove)
    stage.actor("pauser", pause)

    def judge() -> list[str]:
        left = Looking(scene.store).hash("recurrence_counters")
        return [*scene.judge(), *(f"{name} is left of what was removed" for name in left)]

    return judge


def an_unreadable_recurrence(stage: Stage) -> Judge:
    """Is set aside by a mover of an older version, while a newer one goes on with it."""
    scene = DefiningScene(stage)
    scene.at(9, 10)
    scene.launch_defines(HOURLY)
    look, wire = Looking(scene.store), scene.store.wire
    readable = look.hash("recurrences")["hourly"]
    wire.command("HSET", look.key("recurrences"), "hourly", b'{"of": "tomorrow"}')
    scene.at(10, 1)
    successor = scene.claim(3, MOVERS)

    def older(actor: Actor) -> None:
        AllRecurrences(actor.wire(), NAMESPACE).tick(scene.movers, QUEUE, unattended, lambda _: None)

    def newer(actor: Actor) -> None:
        mover = AllRecurrences(actor.wire(), NAMESPACE)
        scene.announce(successor, RedisStore(actor.wire(), NAMESPACE, clocks=stage.clock))
        wire.command("HSET", look.key("recurrences"), "hourly", readable)  # readable, as to a newer version it is
        mover.tick(successor, QUEUE, unattended, lambda _: None)

    stage.actor("older mover", scene.until_fenced(older), mortal=True)
    stage.actor("newer mover", newer)

    def judge() -> list[str]:
        if look.score("next_instants", "hourly") is None:
            scene.problems.append("hourly stands in no index")
        return scene.judge()

    return judge


DEFINING = (
    an_unchanged_recurrence,
    two_versions_of_a_recurrence,
    a_version_that_comes_back_late,
    an_instant_that_is_due,
    a_definition_that_is_replaced_while_it_is_due,
    an_instant_to_come,
    a_recurrence_that_stands_still,
    a_paused_recurrence,
    a_recurrence_of_two_owners,
    an_owner_that_is_absent,
    a_recurrence_whose_name_begins_alike,
    occurrences_that_overlap,
    occurrences_that_wait_for_each_other,
    an_occurrence_that_replaces_the_one_before,
    a_removal_and_a_pause,
    an_unreadable_recurrence,
)
