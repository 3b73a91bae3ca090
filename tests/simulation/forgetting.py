"""Scenarios of what is forgotten: messages a day after their end, and their ids ten minutes later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pollconsumer.core.errors import Conflict
from pollconsumer.store.actions import MessageActions
from pollconsumer.store.queues import outbox
from pollconsumer.store.queues.maintenance import KEEP_FINISHED, KEEP_FINISHED_MS, TRIM_PAGE
from pollconsumer.store.queues.producer import ID_MEMORY_MS, MOST_REMEMBERED
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.reading.inspector import Inspector
from tests.faults import store_view
from tests.simulation.scene import MOVERS, NAMESPACE, QUEUE, Scene
from tests.store.acting import Looking, chosen, message

if TYPE_CHECKING:
    from pollconsumer.core.messages.message import NewMessage
    from tests.simulation.exploring import Actor, Judge, Stage

DAY = KEEP_FINISHED_MS / 1000
AN_ID_LASTS = ID_MEMORY_MS / 1000
FEW = 2
"""Ids that are remembered at most, where that is tried."""


class ForgettingScene(Scene):
    def trim(self, *, most_ids: int = MOST_REMEMBERED) -> None:
        """Forget; what is gone must have ended a day ago."""
        now_ms = self.stage.clock.now * 1000
        before = store_view.stored(self.store.wire, NAMESPACE)
        limits = [TRIM_PAGE, ID_MEMORY_MS, most_ids, KEEP_FINISHED, KEEP_FINISHED_MS, "", ""]
        self.store.wire.run("trim", self.store.keys, QUEUE, limits)
        kept = {each.id for each in store_view.stored(self.store.wire, NAMESPACE)}
        gone = [each for each in before if each.id not in kept]
        for each in gone:
            if each.ended_at is None or each.ended_at > now_ms - KEEP_FINISHED_MS:
                self.problems.append(f"{each.id} was forgotten within a day of its end")
            self.history.forgotten.add((QUEUE, each.id))
        self.stage.happens("forgot", *(each.id for each in gone))

    def repeat(self, message: NewMessage, store: RedisStore | None = None) -> str:
        """Enqueue what was accepted before, or its id with another payload: accepted, known or refused."""
        try:
            [entry] = (store or self.store).enqueue([message])
        except Conflict:
            answer = "refused"
        else:
            answer = "known" if entry.duplicate else "accepted"
        self.stage.happens("repeat", message.id, answer)
        return answer

    def expect(self, what: str, found: object, expected: object) -> None:
        if found != expected:
            self.problems.append(f"{what}: {found}, not {expected}")

    def remembered(self) -> list[int]:
        """Ids, in either generation."""
        look = Looking(self.store)
        return [len(look.members(name)) for name in ("id_memory", "id_memory_before")]

    def digests(self) -> int:
        """Those that are remembered."""
        look = Looking(self.store)
        return len(look.hash("id_digests")) + len(look.hash("id_digests_before"))


def ids_that_are_remembered(stage: Stage) -> Judge:
    """For ten minutes at least, and for twice as long at most, through two generations."""
    scene = ForgettingScene(stage)
    consumer = scene.announced(1)
    first, second = chosen("m", handler="plain"), chosen("n", handler="plain")
    scene.there_is(first)
    scene.handle_all(consumer)
    stage.clock.sleep(0.9 * AN_ID_LASTS)
    scene.there_is(second)
    scene.handle_all(consumer)
    stage.clock.sleep(DAY - 0.9 * AN_ID_LASTS + 1)
    scene.trim()
    scene.trim()
    scene.expect("what is forgotten, repeated", scene.repeat(first), "known")
    other = chosen("m", b'{"n": 1}', handler="plain")
    scene.expect("its id with another payload", scene.repeat(other), "refused")
    for ids_last in (0.9, 0.2, 0.2):
        stage.clock.sleep(ids_last * AN_ID_LASTS)
        scene.trim()
    scene.expect("what is forgotten, four minutes later", scene.repeat(second), "known")
    other = chosen("n", b'{"n": 1}', handler="plain")
    scene.expect("its id with another payload, four minutes later", scene.repeat(other), "refused")
    for _ in range(3):
        stage.clock.sleep(1.1 * AN_ID_LASTS)
        scene.trim()
    scene.expect("ids remembered for too long", scene.remembered(), [0, 0])
    scene.expect("digests remembered for too long", scene.digests(), 0)
    return scene.judge


def few_ids_that_are_remembered(stage: Stage) -> Judge:
    scene = ForgettingScene(stage)
    consumer = scene.announced(1)
    for number in range(6):
        scene.there_is(chosen(f"m{number}", handler="plain"))
        scene.handle_all(consumer)
        stage.clock.sleep(1.0)
    stage.clock.sleep(DAY - 6)
    for _ in range(6):
        stage.clock.sleep(1.0)
        scene.trim(most_ids=FEW)
        scene.expect("too many ids are remembered", max(scene.remembered()) <= FEW, True)
    return scene.judge


def ids_and_a_clock_that_goes_back(stage: Stage) -> Judge:
    scene = ForgettingScene(stage)
    consumer = scene.announced(1)
    scene.there_is(chosen("m", handler="plain"))
    scene.handle_all(consumer)
    stage.clock.sleep(DAY + 1)
    scene.trim()
    stage.clock.sleep(-DAY / 2)
    for _ in range(4):
        stage.clock.sleep(1.1 * AN_ID_LASTS)
        scene.trim()
    scene.expect("ids remembered for too long", scene.remembered(), [0, 0])
    stage.clock.sleep(DAY)
    return scene.judge


def another_payload(stage: Stage) -> Judge:
    """With the id of a message that is there."""
    scene = ForgettingScene(stage)
    consumer = scene.announced(1)
    scene.there_is(chosen("m", handler="plain"))
    other = chosen("m", b'{"n": 1}', handler="plain")
    stage.actor("launch", scene.launch(consumer), mortal=True)

    def act(actor: Actor) -> None:
        store = RedisStore(actor.wire(), NAMESPACE, clocks=stage.clock)
        scene.expect("its id with another payload", scene.repeat(other, store), "refused")

    stage.actor("producer", act)
    return scene.judge


def a_result_of_a_forgotten_message(stage: Stage) -> Judge:
    scene = ForgettingScene(stage)
    consumer = scene.announced(1)
    there = chosen("m", handler="answers")
    scene.there_is(there)
    scene.handle_all(consumer)
    stage.clock.sleep(DAY + 1)
    for _ in range(4):
        scene.trim()
        stage.clock.sleep(1.1 * AN_ID_LASTS)
    scene.history.executions.clear()  # of a message of the same name
    scene.history.forgotten.clear()
    scene.expect("an id that is forgotten", scene.repeat(there), "accepted")
    inspector = Inspector(scene.store.wire, NAMESPACE)
    scene.expect("a result of what has not begun", inspector.message("m", QUEUE).result, None)
    return scene.judge


def a_purge(stage: Stage) -> Judge:
    """Of a dead letter, of one that is ready, and of one that is completed."""
    scene = ForgettingScene(stage)
    consumer = scene.announced(1)
    there = chosen("m", handler="hopeless")
    scene.there_is(there, message("n"))
    scene.handle_all(consumer)
    scene.there_is(message("o"))
    person = MessageActions(scene.store.wire, NAMESPACE)
    scene.expect("purged", person.purge(QUEUE, ["m", "n", "o"]), ["m"])
    scene.history.forgotten.add((QUEUE, "m"))
    scene.expect("what is purged, repeated", scene.repeat(there), "known")
    stage.actor("launch", scene.launch(consumer))
    return scene.judge


def a_producer_that_is_suspended(stage: Stage) -> Judge:
    """Between a lost reply and its repetition, until the message is forgotten."""
    scene = ForgettingScene(stage)
    consumer = scene.announced(1)
    stage.actor("producer", scene.producer(message("m", handler="plain")))

    def act(actor: Actor) -> None:
        actor.wait()
        scene.handle_all(consumer)
        stage.clock.sleep(DAY + 1)
        for _ in range(3):
            scene.trim()
            stage.clock.sleep(1.1 * AN_ID_LASTS)

    stage.actor("hours", act)
    return scene.judge


def follow_ups_sent_again(stage: Stage) -> Judge:
    """Their sender has died before it removed them, and they are forgotten when another sends them."""
    scene = ForgettingScene(stage)
    consumer = scene.announced(1)
    wire, key = scene.store.wire, scene.store.keys.queue(QUEUE, "outbox")
    scene.there_is(message("m", handler="parent"), message("n", handler="parent"))
    scene.handle_all(consumer)
    entries = wire.command("LRANGE", key, 0, -1)
    outbox.send(scene.store, QUEUE, lambda *_: None)
    wire.command("RPUSH", key, *entries)
    scene.handle_all(consumer)
    stage.clock.sleep(DAY + 1)
    for _ in range(4):
        scene.trim()
        stage.clock.sleep(1.1 * AN_ID_LASTS)
    stage.actor("mover", scene.mover(scene.announced(2, MOVERS)))
    stage.actor("launch", scene.launch(consumer))
    return scene.judge


def an_entry_of_a_newer_version(stage: Stage) -> Judge:
    """Stays in the outbox, until one is there that can read it."""
    scene = ForgettingScene(stage)
    consumer = scene.announced(1)
    wire, key = scene.store.wire, scene.store.keys.queue(QUEUE, "outbox")
    scene.there_is(message("m", handler="parent"))
    scene.handle_all(consumer)
    [readable] = wire.command("LRANGE", key, 0, -1)
    wire.command("LSET", key, 0, readable.replace(b'"id"', b'"field of tomorrow": 1, "id"'))
    scene.there_is(message("n", handler="parent"))
    scene.handle_all(consumer)
    outbox.send(scene.store, QUEUE, lambda *_: None)
    scene.expect("entries that stay", wire.command("LLEN", key), 1)
    wire.command("LSET", key, 0, readable)
    stage.actor("launch", scene.launch(consumer))
    return scene.judge


def follow_ups_of_one_millisecond(stage: Stage) -> Judge:
    scene = ForgettingScene(stage)
    consumer, mover = scene.announced(1), scene.announced(2, MOVERS)
    scene.there_is(message("m", handler="parent"), message("n", handler="parent"))
    scene.handle_all(consumer)
    stage.actor("mover", scene.mover(mover), mortal=True)
    return scene.judge


FORGETTING = (
    ids_that_are_remembered,
    few_ids_that_are_remembered,
    ids_and_a_clock_that_goes_back,
    another_payload,
    a_result_of_a_forgotten_message,
    a_purge,
    a_producer_that_is_suspended,
    follow_ups_sent_again,
    an_entry_of_a_newer_version,
    follow_ups_of_one_millisecond,
)
