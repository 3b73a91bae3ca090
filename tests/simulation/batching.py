"""Scenarios of the catalogue on batches: members in two queues, whose ends and callbacks are told by several at once.

Each judges that every callback was enqueued as often as it should be, once or not at all, and that the counts are what
the members are.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from pollconsumer.core.errors import LeaseLost
from pollconsumer.store.queues import outbox
from pollconsumer.store.queues.batches import Batches
from pollconsumer.store.queues.interventions import Interventions
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.reading.batch_reader import BatchReader
from tests.simulation.scene import NAMESPACE, QUEUE, Scene
from tests.store.acting import Launch, Looking, die
from tests.store.batching import HOME, OTHER, complete_member, member, new_batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from pollconsumer.store.records.reservations import Reservation
    from tests.simulation.exploring import Actor, Judge, Stage

QUEUES = (QUEUE, OTHER, HOME)
ADDED = 1 << 20
"""The number of a member that a member adds."""


class BatchScene(Scene):
    """A batch "b", and who handles its members. Those with an even number die at first if ``dying``; the first adds one
    if ``growing``."""

    def __init__(self, stage: Stage, *, dying: bool = False, growing: bool = False) -> None:
        super().__init__(stage)
        self._dying, self._growing = dying, growing
        self.store.producer.register(HOME)
        assert Batches(self.store.producer).open(new_batch()) == ""

    def _own_store(self, actor: Actor) -> RedisStore:
        return RedisStore(actor.wire(), NAMESPACE, clocks=self.stage.clock)

    def produces(self, *queues: str) -> Callable[[Actor], None]:
        """Adds members and closes the batch; again, if it is asked to."""

        def act(actor: Actor) -> None:
            self.produce(self._own_store(actor), *queues)

        return act

    def produce(self, store: RedisStore, *queues: str) -> None:
        store.enqueue([member(number, queue) for number, queue in enumerate(queues)])
        Batches(store.producer).close(HOME, "b", len(queues))

    def handles(self, queue: str, fence: int = 1) -> Callable[[Actor], None]:
        """A launch of ``queue``, which sends what its outbox has."""

        def act(actor: Actor) -> None:
            self.handle(self._own_store(actor), queue, fence)

        return act

    def handle(self, store: RedisStore, queue: str, fence: int) -> None:
        with suppress(LeaseLost):
            launch = Launch(store, fence, queue=queue)
            for _ in range(3):
                reserved = launch.reserve()
                if not reserved:
                    break
                self._settle(launch, reserved[0])
                self.send(store, queue)

    def _settle(self, launch: Launch, reserved: Reservation) -> None:
        even, number = reserved.id[-1] % 2 == 0, int(reserved.id.rpartition(b".")[2])
        if self._dying and even and not reserved.generation:
            launch.settle(die(reserved))
        else:
            added = [member(ADDED, OTHER)] if self._growing and number == 0 else []
            launch.settle(complete_member(reserved, added=added))

    def sends(self, queue: str) -> Callable[[Actor], None]:
        def act(actor: Actor) -> None:
            self.send(self._own_store(actor), queue)

        return act

    @staticmethod
    def send(store: RedisStore, queue: str) -> None:
        outbox.send(store, queue, lambda *_: None)

    def redrives(self, queue: str, name: str) -> Callable[[Actor], None]:
        def act(actor: Actor) -> None:
            Interventions(actor.wire(), NAMESPACE).redrive(queue, [name])

        return act

    def judge_batch(self, *queues: str, failed: bool = False) -> list[str]:
        """What is wrong once a producer has begun again, the dead are redriven, and launches without faults have done
        the rest."""
        self.produce(self.store, *queues)
        for fence in (100, 200, 300):
            for queue in QUEUES[:2]:
                self.handle(self.store, queue, fence)
            for queue in QUEUES:
                self.send(self.store, queue)
            for number, queue in enumerate(queues):
                Interventions(self.store.wire, NAMESPACE).redrive(queue, [f"b.{number}"])
        found = BatchReader(self.store.wire, NAMESPACE).batch("b", HOME)
        total = len(queues) + self._growing
        wrong = list[str]()
        if (found.state, found.total, found.completed, found.dead) != ("ended", total, total, 0):
            wrong.append(f"the batch is {found}")
        called = sorted(Looking(self.store, HOME).listed("ready"))
        if called != sorted(f"b:{name}" for name in ("then", "ended", *(["failed"] if failed else []))):
            wrong.append(f"called back: {called}")
        return wrong


def a_batch_in_two_queues(stage: Stage) -> Judge:
    scene = BatchScene(stage)
    scene.produce(scene.store, QUEUE, OTHER)
    stage.actor("launch A", scene.handles(QUEUE), mortal=True)
    stage.actor("launch B", scene.handles(OTHER), mortal=True)
    return lambda: scene.judge_batch(QUEUE, OTHER)


def a_batch_whose_producer_dies(stage: Stage) -> Judge:
    """Its members end before it is closed."""
    scene = BatchScene(stage)
    stage.actor("producer", scene.produces(QUEUE, OTHER), mortal=True)
    stage.actor("launch", scene.handles(QUEUE), mortal=True)
    return lambda: scene.judge_batch(QUEUE, OTHER)


def a_member_that_is_redriven(stage: Stage) -> Judge:
    """Its first end may be told after its second one."""
    scene = BatchScene(stage, dying=True)
    scene.produce(scene.store, QUEUE, OTHER)
    launch = Launch(scene.store, queue=QUEUE)
    launch.settle(die(launch.reserve()[0]))
    stage.actor("sender", scene.sends(QUEUE), mortal=True)
    stage.actor("person", scene.redrives(QUEUE, "b.0"))
    stage.actor("launch", scene.handles(QUEUE, 2), mortal=True)
    return lambda: scene.judge_batch(QUEUE, OTHER, failed=True)


def a_batch_that_grows(stage: Stage) -> Judge:
    """Two send the outbox in which a member has told its end, with what it has added."""
    scene = BatchScene(stage, growing=True)
    scene.produce(scene.store, QUEUE)
    launch = Launch(scene.store, queue=QUEUE)
    launch.settle(complete_member(launch.reserve()[0], added=[member(ADDED, OTHER)]))
    stage.actor("sender", scene.sends(QUEUE), mortal=True)
    stage.actor("another", scene.sends(QUEUE), mortal=True)
    stage.actor("launch", scene.handles(OTHER), mortal=True)
    return lambda: scene.judge_batch(QUEUE)


def a_batch_that_expires(stage: Stage) -> Judge:
    """While its last member ends: `then` depends on which is first, the others are called once."""
    scene = BatchScene(stage)
    scene.produce(scene.store, QUEUE)
    key = scene.store.keys.queue(HOME, "batch_instants")

    def expire(actor: Actor) -> None:
        store = RedisStore(actor.wire(), NAMESPACE, clocks=stage.clock)
        if store.wire.command("ZSCORE", key, "b") == b"inf":
            store.wire.command("ZADD", key, "XX", 1, "b")
        store.upkeep.trim(HOME)
        scene.send(store, HOME)

    stage.actor("launch", scene.handles(QUEUE), mortal=True)
    stage.actor("upkeep", expire)

    def judge() -> list[str]:
        for queue in (QUEUE, *QUEUES):
            scene.handle(scene.store, QUEUE, 100)
            scene.send(scene.store, queue)
        called = Looking(scene.store, HOME).listed("ready")
        fine = sorted(called) in (["b:ended", "b:then"], ["b:ended", "b:failed", "b:then"])
        return [] if fine else [f"called back: {called}"]

    return judge


BATCHING = (
    a_batch_in_two_queues,
    a_batch_whose_producer_dies,
    a_member_that_is_redriven,
    a_batch_that_grows,
    a_batch_that_expires,
)
