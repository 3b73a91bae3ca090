"""Scenarios of what launches have in flight when another takes over, or a reply is lost."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from pollconsumer.core.errors import BadData, LeaseLost
from pollconsumer.core.retry import MOST_CRASHES
from pollconsumer.store.actions import MessageActions
from pollconsumer.store.leases import Leases
from pollconsumer.store.queues import outbox
from pollconsumer.store.records.steps import Limits, QueueStep
from tests.simulation.scene import GROUP, NAMESPACE, QUEUE, Scene
from tests.store.acting import HOUR, Looking, message

if TYPE_CHECKING:
    from pollconsumer.store.records.reservations import Claim, Reservation
    from tests.simulation.exploring import Judge, Stage

OTHER_INSTANCE = "consumer:mail:1"
A_YEAR_AHEAD_US = 365 * 24 * HOUR * 1000
OF_TOMORROW = b"Cof a form that is not known here"


class Reserving(Scene):
    """With launches that reserve, and end there."""

    def reserve(self, claim: Claim, wanted: int = 1, *, lasts_ms: int = HOUR, limits: str = "") -> list[Reservation]:
        return self.store.step(claim, [QueueStep(QUEUE, wanted, limits)], lasts_ms=lasts_ms, now=lambda: 0.0).reserved

    def taken_by_an_idle_one(self, claim: Claim) -> list[str]:
        queue_step = QueueStep(QUEUE, 1)
        queue_step.single = True
        return [each.name for each in self.store.step(claim, [queue_step], lasts_ms=HOUR, now=lambda: 0.0).reserved]

    def expect(self, what: str, found: object, expected: object) -> None:
        if found != expected:
            self.problems.append(f"{what}: {found}, not {expected}")


def two_launches_that_promote_nothing(stage: Stage, *, idle: bool = False) -> Judge:
    """Since a mover is there."""
    scene = Scene(stage)
    scene.promotes, scene.idles = False, idle
    first, second = scene.announced(1), scene.claim(2)
    scene.there_is(message("m"))
    stage.actor("launch A", scene.launch(first))
    stage.actor("launch B", scene.launch(second, announces=True))
    return scene.judge


def two_launches_that_idle(stage: Stage) -> Judge:
    return two_launches_that_promote_nothing(stage, idle=True)


def what_an_idle_launch_leaves_to_a_step(stage: Stage) -> Judge:
    """What a pause, a successor or a priority may hold back; and it wakes another for what it does not take."""
    scene = Reserving(stage)
    claim, person, look = scene.announced(1), MessageActions(scene.store.wire, NAMESPACE), Looking(scene.store)
    scene.there_is(message("m"), message("n"))
    person.pause(QUEUE, paused=True)
    scene.expect("taken in a pause", scene.taken_by_an_idle_one(claim), [])
    person.pause(QUEUE, paused=False)
    Leases(scene.store.wire, NAMESPACE).call_for_hand_over(GROUP, int(claim.fence), 1.0)
    scene.expect("taken while a successor waits", scene.taken_by_an_idle_one(claim), [])
    stage.clock.sleep(2.0)
    scene.store.wire.command("DEL", look.key("ready_marker"))
    scene.expect("taken", scene.taken_by_an_idle_one(claim), ["m"])
    scene.expect("markers for the other", scene.store.wire.command("EXISTS", look.key("ready_marker")), 1)
    scene.there_is(message("o", priority=-5))
    scene.expect("taken before what is more urgent", scene.taken_by_an_idle_one(claim), [])
    stage.actor("launch", scene.launch(claim))
    return scene.judge


def a_launch_that_announces_itself_late(stage: Stage) -> Judge:
    scene = Scene(stage)
    scene.promotes = False
    first, second = scene.claim(1), scene.claim(2)
    scene.there_is(message("m"))
    stage.actor("launch A", scene.launch(first, announces=True))
    stage.actor("launch B", scene.launch(second, announces=True))
    return scene.judge


def a_heartbeat_that_gives_up(stage: Stage) -> Judge:
    """For a launch that has died, while the next one begins."""
    scene = Reserving(stage)
    first, second = scene.announced(1), scene.claim(2)
    scene.there_is(message("m"))
    scene.reserve(first)
    stage.actor("heartbeat", scene.heartbeat(first, [b"m"]))
    stage.actor("launch B", scene.launch(second, announces=True))
    return scene.judge


def what_was_begun_for_the_only_time(stage: Stage) -> Judge:
    """By a launch that has died, and whose heartbeat gives up."""
    scene = Reserving(stage)
    first, second = scene.announced(1), scene.claim(2)
    scene.there_is(message("m", handler="once"))
    [reservation] = scene.reserve(first)
    scene.store.begin(first, [reservation])
    stage.actor("heartbeat", scene.heartbeat(first, []))
    stage.actor("launch B", scene.launch(second, announces=True))

    def judge() -> list[str]:
        found = scene.judge()
        [message] = scene.history.stored
        skipped = (message.last_error or "").startswith("skipped: ")
        return found + ["m was begun or offered again"] * (bool(scene.history.executions) or not skipped)

    return judge


def messages_at_most_once(stage: Stage) -> Judge:
    """Reserved together: each begins as the one before it is completed. No other of them is skipped than the one that
    a launch died with."""
    scene = Scene(stage)
    scene.wanted = 3
    first = scene.announced(1)
    scene.there_is(*(message(f"m-{letter}", handler="once") for letter in "abc"))
    stage.actor("launch A", scene.launch(first), mortal=True)

    def judge() -> list[str]:
        found = scene.judge()
        skipped = [each.id for each in scene.history.stored if (each.last_error or "").startswith("skipped: ")]
        return found + [f"{skipped} were skipped"] * (len(skipped) > 1)

    return judge


def messages_given_back(stage: Stage) -> Judge:
    """After a lost reply, or by the next launch: in their order."""
    scene = Scene(stage)
    scene.wanted = 3
    first = scene.announced(1)
    scene.there_is(*(message(f"m-{letter}") for letter in "cba"))
    stage.actor("launch A", scene.launch(first), mortal=True)
    return scene.judge


def messages_of_two_steps(stage: Stage) -> Judge:
    """Reserved one after the other by a launch that dies: offered in their order."""
    scene = Reserving(stage)
    first = scene.announced(1)
    scene.there_is(*(message(f"m-{letter}") for letter in "zyxwv"))
    for wanted, lasts_ms in ((3, HOUR), (2, HOUR // 2)):
        scene.reserve(first, wanted, lasts_ms=lasts_ms)
        stage.clock.sleep(0.5)
    second = scene.announced(2)
    scene.expect("offered", [each.name[2:] for each in scene.reserve(second, 5)], list("zyxwv"))
    scene.store.unreserve(second, QUEUE, [])
    scene.expect("in flight", Looking(scene.store).ranked("in_flight"), [])
    scene.expect("given back", [each.name[2:] for each in scene.reserve(second, 5)], list("zyxwv"))
    return scene.judge


def a_handler_that_takes_long(stage: Stage) -> Judge:
    """Its message stays its launch's, which is alive."""
    scene = Reserving(stage)
    first, second = scene.announced(1), scene.announced(2, OTHER_INSTANCE)
    scene.there_is(message("m"))
    scene.reserve(first, lasts_ms=1000)
    stage.clock.sleep(60.0)
    scene.store.maintenance.recover(QUEUE, [b"1", b"2"])
    scene.expect("offered to another", len(scene.reserve(second)), 0)
    return scene.judge


def a_message_that_kills(stage: Stage) -> Judge:
    scene = Reserving(stage)
    scene.there_is(message("m"))
    for deaths in range(MOST_CRASHES):
        [reservation] = scene.reserve(scene.announced(deaths + 1))
        scene.expect("deaths that it is blamed for", reservation.crashes, deaths)
    return lambda: scene.problems


def a_queue_with_limits(stage: Stage) -> Judge:
    scene = Reserving(stage)
    claim = scene.announced(1)
    scene.there_is(*(message(f"m{number}") for number in range(9)))
    one_in_flight, two_a_minute = Limits(1).packed(), Limits(None, 2, 60_000).packed()
    scene.expect("in flight", len(scene.reserve(claim, 5, limits=one_in_flight)), 1)
    scene.expect("in flight", len(scene.reserve(claim, 5, limits=one_in_flight)), 0)
    handed_out = 0
    for _ in range(6):
        handed_out += len(scene.reserve(claim, 1, limits=two_a_minute))
        stage.clock.sleep(5.0)
    scene.expect("handed out in half a minute", handed_out, 2)
    return scene.judge


def a_paused_queue(stage: Stage) -> Judge:
    scene = Reserving(stage)
    claim, person = scene.announced(1), MessageActions(scene.store.wire, NAMESPACE)
    scene.there_is(message("m"), message("n", priority=5))
    person.pause(QUEUE, paused=True)
    scene.expect("handed out", len(scene.reserve(claim, 5)), 0)
    person.pause(QUEUE, paused=False)
    stage.actor("launch", scene.launch(claim))
    return scene.judge


def a_message_of_a_newer_version(stage: Stage) -> Judge:
    """Stays as it is, and is handled once by a launch that can read it."""
    scene = Reserving(stage)
    claim, person, look = scene.announced(1), MessageActions(scene.store.wire, NAMESPACE), Looking(scene.store)
    scene.there_is(message("m"), message("n"))
    records = look.hash("records")
    for name in records:
        scene.store.wire.command("HSET", look.key("records"), name, OF_TOMORROW)
    scene.store.wire.command("LREM", look.key("ready"), 1, "n")  # as if a rule had interrupted who enqueued it
    for _ in range(3):
        scene.store.maintenance.repair(QUEUE)
    scene.expect("ready", look.listed("ready"), ["m"])
    for intervention in (person.cancel, lambda *which: person.change(*which, delay=1)):
        try:
            intervention(QUEUE, "m")
            scene.problems.append("a person could change what cannot be read")
        except BadData:
            pass
    scene.expect("handed out", len(scene.reserve(claim)), 0)
    for name, record in records.items():
        scene.store.wire.command("HSET", look.key("records"), name, record)
    scene.store.maintenance.repair(QUEUE)
    stage.clock.sleep(61.0)
    with suppress(LeaseLost):
        scene.handle_all(claim)
    return scene.judge


def an_outbox_whose_numbers_were_ahead(stage: Stage) -> Judge:
    """Of their time, by a corrupt counter: what comes after is sent all the same."""
    scene = Reserving(stage)
    consumer, counters = scene.announced(1), Looking(scene.store).key("counters")
    for name, number in (("m", A_YEAR_AHEAD_US), ("n", 0)):
        scene.store.wire.command("HSET", counters, "sent on", int(stage.clock.now * 1_000_000) + number)
        scene.there_is(message(name, handler="parent"))
        scene.handle_all(consumer)
        outbox.send(scene.store, QUEUE, lambda *_: None)
    return scene.judge


TAKING_OVER = (
    two_launches_that_promote_nothing,
    two_launches_that_idle,
    what_an_idle_launch_leaves_to_a_step,
    a_launch_that_announces_itself_late,
    a_heartbeat_that_gives_up,
    what_was_begun_for_the_only_time,
    messages_at_most_once,
    messages_given_back,
    messages_of_two_steps,
    a_handler_that_takes_long,
    a_message_that_kills,
    a_queue_with_limits,
    a_paused_queue,
    a_message_of_a_newer_version,
    an_outbox_whose_numbers_were_ahead,
)
