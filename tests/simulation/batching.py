"""Scenarios of the catalogue on batches: members in two queues, whose ends and callbacks are told by several at once.

Each is judged by the invariants of batches, once a producer has begun again, the dead are redriven, and launches
without faults have done the rest: every callback was enqueued as often as it should be, once or not at all, and the
counts are what the members are.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from pollconsumer.core.errors import BadData, LeaseLost, NotFound, StoreRefused
from pollconsumer.core.messages.continuation import Continuation, encoded, identified, packed
from pollconsumer.runtime.session.settlements import effects_beyond_result
from pollconsumer.store.actions import MessageActions
from pollconsumer.store.queues import outbox
from pollconsumer.store.queues.batches import Batches
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.reading.batch_reader import BatchReader
from pollconsumer.store.records import rows
from tests.faults import about_batches, store_view
from tests.faults.history import Batch, Followed, History
from tests.simulation.scene import NAMESPACE, QUEUE, Scene
from tests.store.acting import HOUR, Launch, Looking, die, message
from tests.store.batching import CALLBACKS, HOME, OTHER, complete_member, member, new_batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from pollconsumer.core.messages.message import NewMessage
    from pollconsumer.store.records.reservations import Reservation
    from tests.simulation.exploring import Actor, Judge, Stage

QUEUES = (QUEUE, OTHER, HOME)
ADDED = 1 << 20
"""The number of a member that a member adds."""
INVARIANTS = (
    about_batches.no_batch_waits_for_ever,
    about_batches.batches_count_their_members,
    about_batches.callbacks_come_once,
    about_batches.chains_go_on_link_by_link,
)


def chain(number: int, first: str, second: str) -> NewMessage:
    """A chain of two links in these queues, as a member of that number."""
    failed = packed(message("x", queue=HOME))
    continuation = Continuation(failed=failed, links=[packed(message("x", queue=second))])
    return identified(message("", queue=first)._replace(continuation=encoded(continuation)), f"b.{number}", HOME)


class BatchScene(Scene):
    """A batch "b" of ``members``, and who handles these. Those with an even number die at first if ``dying``; the first
    adds one if ``growing``."""

    def __init__(
        self, stage: Stage, *members: NewMessage, dying: bool = False, growing: bool = False, produced: bool = True
    ) -> None:
        """``produced``: whether the batch is closed already."""
        super().__init__(stage)
        self._members, self._dying, self._growing = members, dying, growing
        self._batch = Batch("b", HOME, dict.fromkeys(CALLBACKS, HOME), len(members), "closed")
        self._chains: list[Followed] = []
        self.store.producer.register(HOME)
        if produced:
            self.produce(self.store)

    def ends_as(self, fate: str) -> None:
        """What becomes of the producer, other than that it closes the batch in the end."""
        self._batch = self._batch._replace(fate=fate, expires=True)

    def follows(self, followed: Followed) -> None:
        self._chains.append(followed)

    def own_store(self, actor: Actor) -> RedisStore:
        return RedisStore(actor.wire(), NAMESPACE, clocks=self.stage.clock)

    def produces(self) -> Callable[[Actor], None]:
        """Opens the batch, adds members, and closes it; or begins again."""
        return lambda actor: self.produce(self.own_store(actor))

    def produce(self, store: RedisStore) -> None:
        batches = Batches(store.producer)
        if batches.open(new_batch()) in ("", "open"):
            store.enqueue(self._members)
            batches.close(HOME, "b", len(self._members))

    def handles(self, queue: str, fence: int = 1) -> Callable[[Actor], None]:
        """A launch of ``queue``, which sends what its outbox has."""
        return lambda actor: self.handle(self.own_store(actor), queue, fence)

    def handle(self, store: RedisStore, queue: str, fence: int) -> None:
        with suppress(LeaseLost, StoreRefused):  # where a failover has forgotten it, too
            launch = Launch(store, fence, queue=queue)
            for _ in range(3):
                reserved = launch.reserve()
                if not reserved:
                    break
                self._settle(launch, reserved[0])
                self.send(store, queue)

    def _settle(self, launch: Launch, reserved: Reservation) -> None:
        even, number = reserved.id[-1] % 2 == 0, int(reserved.id.rpartition(b".")[2].partition(b"+")[0])
        if self._dying and even and not rows.generation(reserved.row):
            launch.settle(die(reserved))
        elif self._chains:
            launch.settle((reserved, 0.0, 0.0, effects_beyond_result(reserved, None, b"1", 0, HOUR)))
        else:
            added = [member(ADDED, OTHER)] if self._growing and number == 0 else []
            launch.settle(complete_member(reserved, added=added))

    def sends(self, queue: str) -> Callable[[Actor], None]:
        return lambda actor: self.send(self.own_store(actor), queue)

    @staticmethod
    def send(store: RedisStore, queue: str) -> None:
        outbox.send(store, queue, lambda *_: None)

    def redrives(self, queue: str, name: str) -> Callable[[Actor], None]:
        def act(actor: Actor) -> None:
            MessageActions(actor.wire(), NAMESPACE).redrive(queue, [name])

        return act

    def cancels(self, queue: str, name: str) -> Callable[[Actor], None]:
        def act(actor: Actor) -> None:
            with suppress(BadData, NotFound):
                MessageActions(actor.wire(), NAMESPACE).cancel(queue, name)

        return act

    def time_comes(self, state: str) -> Callable[[Actor], None]:
        """For the batch, if this is still its state: it is abandoned, or has expired."""

        def act(actor: Actor) -> None:
            store = self.own_store(actor)
            with suppress(NotFound):
                if BatchReader(store.wire, NAMESPACE).batch("b", HOME).state == state:
                    store.wire.command("ZADD", store.keys.queue(HOME, "batch_instants"), 1, "b")
            store.maintenance.trim(HOME)
            self.send(store, HOME)

        return act

    def goes_back(self, queue: str) -> Callable[[Actor], None]:
        """The node that has ``queue`` fails over to one that has forgotten what it was told from now on."""
        slot, store = f"{{{NAMESPACE}:{queue}}}".encode(), self.stage.store
        then = {key: value for key, value in store.copied().items() if slot in key}

        def act(actor: Actor) -> None:
            actor.wait()
            now = {key: value for key, value in store.copied().items() if slot not in key}
            store.restore(now | then)
            self.stage.clock.sleep(1.0)
            self.stage.happens(f"{queue} is as it was")

        return act

    def judge(self) -> list[str]:
        """What is wrong in the end."""
        self.produce(self.store)
        for fence in (100, 200, 300):
            for queue in QUEUES[:2]:
                self.handle(self.store, queue, fence)
            for queue in QUEUES:
                self.send(self.store, queue)
            for queue in QUEUES[:2]:
                MessageActions(self.store.wire, NAMESPACE).redrive(
                    queue, Looking(self.store, queue).ranked("dead_letters")
                )
        wire = self.store.wire
        stored, counted = store_view.stored(wire, NAMESPACE), store_view.batches(wire, NAMESPACE)
        history = History(stored=stored, counted=counted, batches=[self._batch], followed=self._chains)
        return [f"{invariant.__name__}: {line}" for invariant in INVARIANTS for line in invariant(history)]


def a_batch_in_two_queues(stage: Stage) -> Judge:
    scene = BatchScene(stage, member(0), member(1, OTHER))
    stage.actor("launch A", scene.handles(QUEUE), mortal=True)
    stage.actor("launch B", scene.handles(OTHER), mortal=True)
    return scene.judge


def a_batch_whose_producer_dies(stage: Stage) -> Judge:
    """Its members end before it is closed."""
    scene = BatchScene(stage, member(0), member(1, OTHER), produced=False)
    stage.actor("producer", scene.produces(), mortal=True)
    stage.actor("launch", scene.handles(QUEUE), mortal=True)
    return scene.judge


def a_batch_whose_producer_begins_again(stage: Stage) -> Judge:
    """While the one before, which seemed dead, goes on."""
    scene = BatchScene(stage, member(0), member(1, OTHER), produced=False)
    stage.actor("producer", scene.produces(), mortal=True)
    stage.actor("producer again", scene.produces())
    return scene.judge


def a_batch_whose_producer_is_late(stage: Stage) -> Judge:
    """It is abandoned meanwhile, or was closed in time."""
    scene = BatchScene(stage, member(0), produced=False)
    scene.ends_as("unknown")
    stage.actor("producer", scene.produces(), mortal=True)
    stage.actor("upkeep", scene.time_comes("open"))
    return scene.judge


def a_member_that_two_launches_handle(stage: Stage) -> Judge:
    """The second one recovers it, the first one may have told its end."""
    scene = BatchScene(stage, member(0), member(1, OTHER))
    stage.actor("launch A", scene.handles(QUEUE), mortal=True)
    stage.actor("launch B", scene.handles(QUEUE, 2), mortal=True)
    return scene.judge


def redrive_the_first(stage: Stage, scene: BatchScene) -> None:
    """Have the first message of a batch die, and a person redrive it while its death is told."""
    launch = Launch(scene.store, queue=QUEUE)
    launch.settle(die(launch.reserve()[0]))
    stage.actor("sender", scene.sends(QUEUE), mortal=True)
    stage.actor("person", scene.redrives(QUEUE, "b.0"))
    stage.actor("launch", scene.handles(QUEUE, 2), mortal=True)


def a_member_that_is_redriven(stage: Stage) -> Judge:
    """Its first end may be told after its second one."""
    scene = BatchScene(stage, member(0), member(1, OTHER), dying=True)
    redrive_the_first(stage, scene)
    return scene.judge


def a_member_that_is_cancelled(stage: Stage) -> Judge:
    """While a launch handles it."""
    scene = BatchScene(stage, member(0), member(1, OTHER))
    stage.actor("launch", scene.handles(QUEUE), mortal=True)
    stage.actor("person", scene.cancels(QUEUE, "b.0"), mortal=True)
    return scene.judge


def a_batch_that_grows(stage: Stage) -> Judge:
    """Two send the outbox in which a member has told its end, with what it has added."""
    scene = BatchScene(stage, member(0), growing=True)
    launch = Launch(scene.store, queue=QUEUE)
    launch.settle(complete_member(launch.reserve()[0], added=[member(ADDED, OTHER)]))
    stage.actor("sender", scene.sends(QUEUE), mortal=True)
    stage.actor("another", scene.sends(QUEUE), mortal=True)
    stage.actor("launch", scene.handles(OTHER), mortal=True)
    return scene.judge


def a_batch_that_expires(stage: Stage) -> Judge:
    """While its last member ends: `then` depends on which is first, the others are called once."""
    scene = BatchScene(stage, member(0))
    scene.ends_as("closed")
    stage.actor("launch", scene.handles(QUEUE), mortal=True)
    stage.actor("upkeep", scene.time_comes("closed"))
    return scene.judge


def a_chain_in_two_queues(stage: Stage) -> Judge:
    """As a member, beside another."""
    scene = BatchScene(stage, chain(0, QUEUE, OTHER), member(1, OTHER))
    scene.follows(Followed("b.0", (QUEUE, OTHER), {"failed": HOME}))
    stage.actor("launch A", scene.handles(QUEUE), mortal=True)
    stage.actor("launch B", scene.handles(OTHER), mortal=True)
    return scene.judge


def a_chain_whose_link_dies(stage: Stage) -> Judge:
    """And is redriven, while two send what was told of it."""
    scene = BatchScene(stage, chain(0, QUEUE, OTHER), dying=True)
    scene.follows(Followed("b.0", (QUEUE, OTHER), {"failed": HOME}))
    redrive_the_first(stage, scene)
    return scene.judge


def members_that_a_failover_forgot(stage: Stage) -> Judge:
    """Their node goes back to when none of them had ended: they end, and tell it, once more."""
    scene = BatchScene(stage, member(0), member(1, OTHER))
    stage.actor("launch", scene.handles(QUEUE), mortal=True)
    stage.actor("node", scene.goes_back(QUEUE))
    return scene.judge


BATCHING = (
    a_batch_in_two_queues,
    a_batch_whose_producer_dies,
    a_batch_whose_producer_begins_again,
    a_batch_whose_producer_is_late,
    a_member_that_two_launches_handle,
    a_member_that_is_redriven,
    a_member_that_is_cancelled,
    a_batch_that_grows,
    a_batch_that_expires,
    a_chain_in_two_queues,
    a_chain_whose_link_dies,
    members_that_a_failover_forgot,
)
