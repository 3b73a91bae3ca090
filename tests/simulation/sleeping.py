"""Scenarios of a message that takes a step, waits for a signal, and goes on."""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any

from pollconsumer.core.errors import BadData, StoreUnreachable
from pollconsumer.core.messages.continuation import Continuation, encoded
from pollconsumer.core.messages.message_steps import Step, StepEntry, as_recorded
from pollconsumer.store.actions import MessageActions
from pollconsumer.store.queues.outbox import Answer, pack
from pollconsumer.store.records.steps import CompletionEffects, Settlement
from tests.simulation.scene import MOVERS, NAMESPACE, QUEUE, Scene
from tests.store.acting import message

if TYPE_CHECKING:
    from collections.abc import Callable

    from pollconsumer.store.queues.redis_store import RedisStore
    from pollconsumer.store.records.reservations import Claim, Reservation
    from tests.simulation.exploring import Actor, Judge, Stage

WAITS_MS, SIGNAL = 100_000, "call#1"


class SleepingScene(Scene):
    """Its handler charges, waits for an approval, and ends; a value is found or recorded once."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.flow = self._take_steps
        self._bodies = count(1)
        self._results: dict[str, list[Any]] = {}
        """By step, what attempts were given as its result."""
        self._approved = False

    def _take_steps(self, store: RedisStore, claim: Claim, reservation: Reservation) -> tuple[str, Settlement | None]:
        found = store.recorded(reservation)[1] if reservation.has_checkpoint else None
        known = {step.name: step for step in found.steps} if found else {}
        if "charge" not in known:
            known["charge"] = Step("charge", 0, next(self._bodies))
            store.record(claim, reservation, StepEntry(1, 1, as_recorded(known["charge"])))
        self._results.setdefault("charge", []).append(known["charge"].result)
        now_ms = int(self.stage.clock.now * 1000)
        wait = known.get("approved")
        if wait is None or wait.until is not None:
            values = [sent.value for sent in found.signals if sent.name == "approved"] if found else []
            if not values and (wait is None or (wait.until or 0) > now_ms):
                until = now_ms + WAITS_MS if wait is None or wait.until is None else wait.until
                asleep = as_recorded(Step("approved", 0, None, until))
                if wait is None:
                    store.record(claim, reservation, StepEntry(2, 2, asleep, "approved"))
                return "Yield", Settlement.asleep(reservation, wakes_in_ms=until - now_ms, took=0)
            wait = Step("approved", 0, values[0] if values else None)
            store.record(claim, reservation, StepEntry(2, 2, as_recorded(wait)))
        self._results.setdefault("approved", []).append(wait.result)
        return "ok", None

    def approves(self) -> Callable[[Actor], None]:
        """Who sends the signal."""

        def act(actor: Actor) -> None:
            sender = MessageActions(actor.wire(), NAMESPACE)
            with suppress(BadData, StoreUnreachable):
                self._approved = sender.signal(QUEUE, "m", "approved", "yes")

        return act

    def judge(self) -> list[str]:
        problems = super().judge()
        for step, found in self._results.items():
            if len({*map(str, found)}) > 1:
                problems.append(f"attempts were given several results of {step}: {found}")
        ended = self._results.get("approved", [])
        if self._approved and "yes" not in ended and not self._is_cancelled():
            problems.append(f"the signal was kept, and the message was given {ended}")
        left = self.store.wire.command("HGETALL", self.store.keys.queue(QUEUE, "checkpoints"))
        if left:
            problems.append(f"steps or signals outlive their message: {left}")
        return problems

    def _is_cancelled(self) -> bool:
        return bool(self.store.wire.command("LLEN", self.store.keys.queue(QUEUE, "cancelled")))


class CallingScene(Scene):
    """Its handler calls another message: enqueues it, records that, and sleeps until the answer is there."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.flow = self._call
        self._answers: list[Any] = []

    def _call(self, store: RedisStore, claim: Claim, reservation: Reservation) -> tuple[str, Settlement | None]:
        target = {"queue": QUEUE, "id": "m", "as": SIGNAL}
        found = store.recorded(reservation)[1] if reservation.has_checkpoint else None
        known = {step.name: step for step in found.steps} if found else {}
        call, now_ms = known.get("call"), int(self.stage.clock.now * 1000)
        if call is None:
            call = Step("call", 0, None, now_ms + 100 * WAITS_MS)
            child = message("m:call-1", handler="fails")._replace(continuation=encoded(Continuation(answers=target)))
            self._enqueue(store, child)
            store.record(claim, reservation, StepEntry(1, 1, as_recorded(call), SIGNAL))
        if call.until is not None:
            sent = [each.value for each in found.signals if each.name == SIGNAL] if found else []
            if not sent and call.until > now_ms:
                return "Yield", Settlement.asleep(reservation, wakes_in_ms=call.until - now_ms, took=0)
            call = Step("call", 0, sent[0] if sent else None)
            store.record(claim, reservation, StepEntry(1, 1, as_recorded(call)))
        self._answers.append(call.result)
        return "ok", None

    def effects_of(self, reservation: Reservation) -> CompletionEffects | None:
        """What a completed child leaves."""
        if reservation.name != "m:call-1":
            return None
        target = {"queue": QUEUE, "id": "m", "as": SIGNAL}
        return 0, b"", pack([], reservation.reserved_at, [], [Answer.completed(target, reservation.name, b"7")]), b""

    def judge(self) -> list[str]:
        problems = super().judge()
        expected = {"id": "m:call-1", "state": "completed", "result": 7}
        if not self._answers or any(each != expected for each in self._answers):
            problems.append(f"the caller was given {self._answers}")
        return problems


def a_call_of_another_message(stage: Stage) -> Judge:
    scene = CallingScene(stage)
    consumer, mover = scene.announced(1), scene.announced(2, MOVERS)
    scene.there_is(message("m", handler="flow"))
    stage.actor("launch", scene.launch(consumer), mortal=True)
    stage.actor("mover", scene.mover(mover), mortal=True)
    return scene.judge


def a_signal_to_a_message_that_takes_steps(stage: Stage) -> Judge:
    scene = SleepingScene(stage)
    first, second = scene.announced(1), scene.claim(2)
    scene.there_is(message("m", handler="flow"))
    stage.actor("launch A", scene.launch(first), mortal=True)
    stage.actor("launch B", scene.launch(second, announces=True))
    stage.actor("person", scene.approves())
    return scene.judge


def a_signal_to_a_message_that_sleeps(stage: Stage) -> Judge:
    """While a mover promotes, and a launch handles what it has promoted."""
    scene = SleepingScene(stage)
    consumer, mover = scene.announced(1), scene.announced(2, MOVERS)
    scene.there_is(message("m", handler="flow"))
    scene.handle_all(consumer)
    stage.actor("launch", scene.launch(consumer), mortal=True)
    stage.actor("mover", scene.mover(mover))
    stage.actor("person", scene.approves(), mortal=True)
    return scene.judge


def a_cancellation_of_a_message_that_sleeps(stage: Stage) -> Judge:
    scene = SleepingScene(stage)
    consumer = scene.announced(1)
    scene.there_is(message("m", handler="flow"))
    scene.handle_all(consumer)
    stage.actor("person A", scene.approves())
    stage.actor("person B", scene.person("cancel", "m"), mortal=True)
    stage.actor("launch", scene.launch(consumer))
    return scene.judge


SLEEPING = (
    a_call_of_another_message,
    a_signal_to_a_message_that_takes_steps,
    a_signal_to_a_message_that_sleeps,
    a_cancellation_of_a_message_that_sleeps,
)
