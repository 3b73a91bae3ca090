"""Small scenarios, of which every interleaving is tried: ``python -m tests.simulation.catalogue``."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from pollconsumer.core.recurrence import Recurrence
from pollconsumer.store.leases import Leases
from pollconsumer.store.records.reservations import Claim
from pollconsumer.store.recurrences import LaunchRecurrences
from tests.simulation.batching import BATCHING
from tests.simulation.defining import DEFINING
from tests.simulation.exploring import explore
from tests.simulation.forgetting import FORGETTING
from tests.simulation.leasing import LEASING
from tests.simulation.scene import GROUP, MOVERS, NAMESPACE, OTHER_MOVERS, QUEUE, Scene
from tests.simulation.sleeping import SLEEPING
from tests.simulation.taking_over import TAKING_OVER
from tests.store.acting import message

if TYPE_CHECKING:
    from tests.simulation.exploring import Judge, Stage


def two_launches_and_one_message(stage: Stage, handler: str = "plain") -> Judge:
    scene = Scene(stage)
    first, second = scene.announced(1), scene.claim(2)
    scene.there_is(message("m", handler=handler))
    stage.actor("launch A", scene.launch(first), mortal=True)
    stage.actor("launch B", scene.launch(second, announces=True))
    return scene.judge


def a_message_at_most_once(stage: Stage) -> Judge:
    return two_launches_and_one_message(stage, "once")


def a_retry(stage: Stage) -> Judge:
    return two_launches_and_one_message(stage, "fails")


def a_yield(stage: Stage) -> Judge:
    return two_launches_and_one_message(stage, "steps")


def a_hand_off(stage: Stage) -> Judge:
    scene = Scene(stage)
    acquired = Leases(scene.store.wire, NAMESPACE).acquire(GROUP, "first", "{}", "{}")
    assert isinstance(acquired, Claim)
    scene.announced(int(acquired.fence))
    scene.there_is(message("m"))
    stage.actor("launch A", scene.hands_over(acquired), mortal=True)
    stage.actor("launch B", scene.successor())
    return scene.judge


def a_promotion_by_two(stage: Stage) -> Judge:
    scene = Scene(stage)
    first, second = scene.announced(1, MOVERS), scene.announced(2, OTHER_MOVERS)
    consumer = scene.announced(3)
    scene.there_is(message("m", delay=1000))
    stage.clock.sleep(2.0)
    stage.actor("mover A", scene.mover(first), mortal=True)
    stage.actor("mover B", scene.mover(second))
    stage.actor("launch", scene.launch(consumer))
    return scene.judge


def a_recurrence_at_its_instant(stage: Stage) -> Judge:
    scene = Scene(stage)
    first, second = scene.announced(1, MOVERS), scene.announced(2, OTHER_MOVERS)
    recurring = LaunchRecurrences(scene.store.wire, NAMESPACE)
    recurring.define("group", [QUEUE], [Recurrence("each_second", "plain", every=3600.0, queue=QUEUE)], lambda _: None)
    stage.clock.sleep(3600.0)
    stage.actor("mover A", scene.mover(first), mortal=True)
    stage.actor("mover B", scene.mover(second))
    return scene.judge


def a_follow_up(stage: Stage) -> Judge:
    scene = Scene(stage)
    consumer, mover = scene.announced(1), scene.announced(2, MOVERS)
    scene.there_is(message("m", handler="parent"))
    stage.actor("launch", scene.launch(consumer), mortal=True)
    stage.actor("mover", scene.mover(mover), mortal=True)
    return scene.judge


def a_cancellation(stage: Stage) -> Judge:
    return _intervention(stage, "cancel")


def a_rescheduling(stage: Stage) -> Judge:
    return _intervention(stage, "reschedule")


def _intervention(stage: Stage, what: str) -> Judge:
    scene = Scene(stage)
    consumer, mover = scene.announced(1), scene.announced(2, MOVERS)
    scene.there_is(message("m", delay=1000))
    stage.clock.sleep(2.0)
    stage.actor("launch", scene.launch(consumer), mortal=True)
    stage.actor("mover", scene.mover(mover))
    stage.actor("person", scene.person(what, "m"), mortal=True)
    return scene.judge


def a_redrive(stage: Stage) -> Judge:
    scene = Scene(stage)
    consumer = scene.announced(1)
    scene.there_is(message("m", handler="hopeless"))
    scene.handle_all(consumer)
    stage.actor("launch", scene.launch(consumer), mortal=True)
    stage.actor("person", scene.person("redrive", "m"))
    return scene.judge


def a_unique_key_at_a_completion(stage: Stage) -> Judge:
    scene = Scene(stage)
    consumer = scene.announced(1)
    scene.there_is(message("m", key="k"))
    stage.actor("launch", scene.launch(consumer), mortal=True)
    stage.actor("producer", scene.producer(message("n", key="k")))
    return scene.judge


def two_producers_of_one_id(stage: Stage) -> Judge:
    scene = Scene(stage)
    consumer = scene.announced(1)
    stage.actor("producer A", scene.producer(message("m")))
    stage.actor("producer B", scene.producer(message("m")))
    stage.actor("launch", scene.launch(consumer), mortal=True)
    return scene.judge


def a_place_of_a_concurrency_key(stage: Stage) -> Judge:
    scene = Scene(stage)
    first, second = scene.announced(1), scene.announced(2, "consumer:mail:1")
    scene.there_is(message("m", concurrency="c"), message("n", concurrency="c"))
    stage.actor("launch A", scene.launch(first), mortal=True)
    stage.actor("launch B", scene.launch(second))
    return scene.judge


def an_order_key(stage: Stage) -> Judge:
    """The first one is tried again, by either of two launches."""
    scene = Scene(stage)
    first, second = scene.announced(1), scene.announced(2, "consumer:mail:1")
    scene.there_is(message("m", order="o", handler="fails"), message("n", order="o"))
    stage.actor("launch A", scene.launch(first), mortal=True)
    stage.actor("launch B", scene.launch(second))
    return scene.judge


def an_order_key_whose_head_is_cancelled(stage: Stage) -> Judge:
    scene = Scene(stage)
    consumer = scene.announced(1)
    scene.there_is(message("m", order="o", handler="fails"), message("n", order="o"))
    scene.handle_all(consumer)  # the first attempt of m
    scene.there_is(message("p", order="o"))
    stage.actor("launch", scene.launch(consumer), mortal=True)
    stage.actor("person", scene.person("cancel", "m"), mortal=True)
    return scene.judge


def an_order_key_whose_head_is_redriven(stage: Stage) -> Judge:
    scene = Scene(stage)
    consumer = scene.announced(1)
    scene.there_is(message("m", order="o", handler="hopeless"), message("n", order="o"))
    scene.handle_all(consumer)
    scene.there_is(message("p", order="o"))
    stage.actor("launch", scene.launch(consumer), mortal=True)
    stage.actor("person", scene.person("redrive", "m"))
    return scene.judge


CATALOGUE = (
    *BATCHING,
    *FORGETTING,
    *DEFINING,
    *TAKING_OVER,
    *LEASING,
    *SLEEPING,
    two_launches_and_one_message,
    a_message_at_most_once,
    a_retry,
    a_yield,
    a_hand_off,
    a_promotion_by_two,
    a_recurrence_at_its_instant,
    a_follow_up,
    a_cancellation,
    a_rescheduling,
    a_redrive,
    a_unique_key_at_a_completion,
    two_producers_of_one_id,
    a_place_of_a_concurrency_key,
    an_order_key,
    an_order_key_whose_head_is_cancelled,
    an_order_key_whose_head_is_redriven,
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.simulation.catalogue", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="all if none is given")
    parser.add_argument("--faults", type=int, default=2, help="at most so many in each run")
    given = parser.parse_args()
    bad = 0
    print(f"{'scenario':34} {'runs':>9} {'cut short':>9} {'states':>9} {'seconds':>9}")
    for scenario in CATALOGUE:
        name = scenario.__name__
        if given.names and name not in given.names:
            continue
        began = time.process_time()
        found = explore(scenario, faults=given.faults)
        spent = time.process_time() - began
        print(f"{name:34} {found.runs:9,} {found.cut:9,} {found.states:9,} {spent:9.1f}", flush=True)
        for lines, story in found.violations:
            bad += 1
            print("\n".join(["", *lines, "", *story, ""]))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
