"""Scenarios of leases: what launches do whose lease has lapsed, was broken, or is another's; and of unique keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pollconsumer.store.actions import MessageActions
from pollconsumer.store.leases import TTL, Leases, TurnedAway
from pollconsumer.store.records.reservations import Claim
from tests.faults.history import Lease
from tests.simulation.scene import GROUP, NAMESPACE, QUEUE
from tests.simulation.taking_over import Reserving
from tests.store.acting import Looking, message

if TYPE_CHECKING:
    from pollconsumer.store.leases import HeldLeases
    from tests.simulation.exploring import Actor, Judge, Stage


class LeasingScene(Reserving):
    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.leases = Leases(self.store.wire, NAMESPACE)

    def call(self, launch: str, leases: Leases | None = None) -> Claim | HeldLeases | TurnedAway:
        called = (leases or self.leases).acquire(GROUP, launch, "{}", "{}")
        self.stage.happens(launch, "calls for the lease:", type(called).__name__)
        return called

    def take(self, launch: str) -> Claim:
        called = self.call(launch)
        assert isinstance(called, Claim), f"{launch} cannot take a lease that is free"
        self.history.leases.append(Lease(called.lease_name, int(called.fence), 0))
        return called

    def renews(self, claim: Claim) -> bool | None:
        return self.leases.renew(claim, "{}")

    def expect_still_held(self, claim: Claim) -> None:
        self.expect("who took the lease renews it", self.renews(claim), True)
        self.expect("who calls is held back", isinstance(self.call("third"), Claim), False)


def a_lease_that_is_held(stage: Stage) -> Judge:
    """One waits for it, and it is released to that one alone."""
    scene = LeasingScene(stage)
    first = scene.take("first")
    scene.expect("the first again", scene.call("first"), scene.call("first"))
    scene.expect("the second is turned away", isinstance(scene.call("second"), TurnedAway), False)
    scene.expect("the third is turned away", isinstance(scene.call("third"), TurnedAway), True)
    scene.leases.withdraw(GROUP, "third")
    scene.expect("the third is turned away", isinstance(scene.call("third"), TurnedAway), True)
    scene.leases.release(first, "{}")
    scene.expect("what was released, renewed", scene.renews(first), False)
    scene.take("second")
    return scene.judge


def a_lost_reply_to_a_call_for_a_lease(stage: Stage) -> Judge:
    scene = LeasingScene(stage)

    def act(actor: Actor) -> None:
        if not isinstance(scene.call("first", Leases(actor.wire(), NAMESPACE)), Claim):
            scene.problems.append("a launch waits for itself")

    stage.actor("launch", act)
    return scene.judge


def a_lease_that_lapsed(stage: Stage) -> Judge:
    """Is revived by its holder while nobody else has taken it; whatever that one does then, it stays with who has."""
    scene = LeasingScene(stage)
    first = scene.take("first")
    stage.clock.sleep(TTL + 1)
    scene.expect("what nobody took, renewed", scene.renews(first), True)
    stage.clock.sleep(TTL + 1)
    second = scene.take("second")
    scene.expect("what another took, renewed", scene.renews(first), False)
    scene.expect_still_held(second)
    scene.leases.release(first, "{}")
    scene.expect_still_held(second)
    scene.leases.break_(first.lease_name, first.fence)
    scene.expect_still_held(second)
    stage.clock.sleep(TTL + 1)
    scene.leases.release(first, "{}")
    scene.expect("what lapsed, renewed", scene.renews(second), True)
    stage.clock.sleep(TTL + 1)
    scene.expect("what lapsed, renewed by one before", scene.renews(first), False)
    return scene.judge


def a_lease_that_is_broken(stage: Stage) -> Judge:
    """Is not revived by its holder, and the next fence is above its own, though no time has passed."""
    scene = LeasingScene(stage)
    first = scene.take("first")
    scene.leases.break_(first.lease_name, first.fence)
    scene.expect("what was broken, renewed", scene.renews(first), False)
    second = scene.take("second")
    scene.expect("its fence is above", int(second.fence) > int(first.fence), True)
    return scene.judge


def unique_keys_of_a_call(stage: Stage) -> Judge:
    """Of two messages with one key, one is accepted."""
    scene = LeasingScene(stage)
    found = scene.store.enqueue([message("m", key="k"), message("n", key="k")])
    scene.expect("accepted", [each.id for each in found], ["m", "m"])
    return lambda: scene.problems


def an_id_twice_in_a_call(stage: Stage) -> Judge:
    """Of two messages with one id, one is accepted."""
    scene = LeasingScene(stage)
    found = scene.store.enqueue([message("m"), message("m")])
    scene.expect("accepted", [each.id for each in found], ["m", "m"])
    scene.expect("ready", Looking(scene.store).listed("ready"), ["m"])
    return lambda: scene.problems


def a_unique_key_that_another_has(stage: Stage) -> Judge:
    """When its first holder is redriven, or ends."""
    scene = LeasingScene(stage)
    consumer = scene.announced(1)
    person = MessageActions(scene.store.wire, NAMESPACE)
    scene.there_is(message("m", key="k", handler="hopeless"))
    scene.handle_all(consumer)
    scene.there_is(message("n", key="k"))
    scene.expect("redriven", person.redrive(QUEUE, ["m"]), [])
    scene.handle_all(consumer)
    return scene.judge


def a_unique_key_that_lapses(stage: Stage) -> Judge:
    """While its message is there; the one after it keeps it when the first ends."""
    scene = LeasingScene(stage)
    consumer = scene.announced(1)
    scene.store.enqueue([message("m", key="k", lifetime=1000)])
    stage.clock.sleep(2.0)
    scene.expect("accepted", [each.id for each in scene.store.enqueue([message("n", key="k", delay=60_000)])], ["n"])
    scene.handle_all(consumer)
    scene.expect("accepted", [each.id for each in scene.store.enqueue([message("o", key="k")])], ["n"])
    return lambda: scene.problems


def a_unique_key_of_what_has_ended(stage: Stage) -> Judge:
    """Is free, though a failing server lost that it was freed."""
    scene = LeasingScene(stage)
    consumer, look = scene.announced(1), Looking(scene.store)
    scene.there_is(message("m", key="k"))
    held = look.hash("unique_keys")["k"]
    scene.handle_all(consumer)
    scene.store.wire.command("HSET", look.key("unique_keys"), "k", held)
    scene.expect("accepted", [each.id for each in scene.store.enqueue([message("n", key="k")])], ["n"])
    return lambda: scene.problems


LEASING = (
    a_lease_that_is_held,
    a_lost_reply_to_a_call_for_a_lease,
    a_lease_that_lapsed,
    a_lease_that_is_broken,
    unique_keys_of_a_call,
    an_id_twice_in_a_call,
    a_unique_key_that_another_has,
    a_unique_key_that_lapses,
    a_unique_key_of_what_has_ended,
)
