"""The setting, the parts and the judgement of a scenario of the catalogue."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from pollconsumer.core.errors import BadData, LeaseLost, NotFound, OutcomeUnknown
from pollconsumer.interface.memory_store import DirectConnection
from pollconsumer.store.actions import MessageActions
from pollconsumer.store.client.patience import Budget
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.leases import Group, HeldLeases, Leases
from pollconsumer.store.queues import outbox
from pollconsumer.store.queues.outbox import pack
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.records import rows
from pollconsumer.store.records.reservations import Claim, Reservation
from pollconsumer.store.records.steps import CompletionEffects, QueueStep, Settlement
from pollconsumer.store.recurrences import LaunchRecurrences
from tests.faults import store_view
from tests.faults.checker import violations
from tests.faults.handlers_known import BACKOFF_MS
from tests.faults.history import Execution, History, Lease, Operation
from tests.faults.recording import digest
from tests.simulation.installation import SCRIPTS
from tests.store.acting import HOUR, Looking, message, unattended

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pollconsumer.core.messages.message import NewMessage
    from tests.simulation.exploring import Actor, Stage

NAMESPACE = "catalogue"
QUEUE = "mail"
GROUP = Group("consumer", (QUEUE,), 1)
LINEAGE, MOVERS, OTHER_MOVERS = "consumer:mail:0", "mover::0", "mover:other:0"
LAST_FENCE = 10**13
LAUNCHES_TO_DRAIN = 8
RESULT_LASTS_MS = 365 * 24 * HOUR
UNTIL_DRAINED = ("schedule", "ready", "ready_by_priority", "in_flight", "waiting_for_place", "outbox")
PAYLOAD = digest({})


class Scene:
    """Sets a scenario up, plays its parts, and judges a run by the invariants of the fault tests."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.history = stage, History(one_at_a_time=True)
        self.store = RedisStore(self._wire(), NAMESPACE, clocks=stage.clock)
        self.problems: list[str] = []
        """What was wrong at once."""
        self._announced: dict[str, int] = {}
        """By lease name, the highest fence that was announced."""
        self.flow: Callable[[RedisStore, Claim, Reservation], tuple[str, Settlement | None]] | None = None
        self.wanted, self.promotes, self.idles = 1, True, False
        """What a launch reserves at once; whether it promotes what is due, and takes its first message as one that was
        idle."""

    def _wire(self) -> Wire:
        connect = lambda: DirectConnection(self.stage.store.execute)  # noqa: E731  one expression
        return Wire("memory:", lambda: Budget(5.0), connect=connect, scripts=SCRIPTS)

    # What stands before

    def claim(self, fence: int, lease_name: str = LINEAGE) -> Claim:
        self.history.leases.append(Lease(lease_name, fence, 0))
        return Claim(lease_name, str(fence), lease_name.rpartition(":")[0])

    def announced(self, fence: int, lease_name: str = LINEAGE) -> Claim:
        claim = self.claim(fence, lease_name)
        self.announce(claim, self.store)
        return claim

    def there_is(self, *messages: NewMessage) -> None:
        for each in messages:
            self._enqueue(self.store, each)

    def handle_all(self, claim: Claim) -> None:
        self._handle_all(self.store, claim)

    # Parts

    def launch(self, claim: Claim, *, announces: bool = False) -> Callable[[Actor], None]:
        """Handles what is ready; ``announces`` its fence first."""

        def act(actor: Actor) -> None:
            store = RedisStore(actor.wire(), NAMESPACE, clocks=self.stage.clock)
            try:
                if announces:
                    self.announce(claim, store)
                self._handle_all(store, claim, actor)
            except LeaseLost:
                self.stage.happens(actor.name, "lost its lease")
                if not self._has_successor(claim):
                    self.problems.append(f"{actor.name} lost its lease, and nobody took it")

        return act

    def mover(self, claim: Claim) -> Callable[[Actor], None]:
        def act(actor: Actor) -> None:
            store = RedisStore(actor.wire(), NAMESPACE, clocks=self.stage.clock)
            try:
                store.promote(claim, QUEUE, 10)
                outbox.send(store, QUEUE, lambda *_: None)
                LaunchRecurrences(store.wire, NAMESPACE).tick(claim, QUEUE, unattended, lambda _: None)
            except LeaseLost:
                self.stage.happens(actor.name, "lost its lease")

        return act

    def successor(self) -> Callable[[Actor], None]:
        """Calls for the lease, takes it when it is released, and goes on."""

        def act(actor: Actor) -> None:
            store = RedisStore(actor.wire(), NAMESPACE, clocks=self.stage.clock)
            leases = Leases(store.wire, NAMESPACE)
            for _ in range(3):
                found = leases.acquire(GROUP, actor.name, "{}", "{}")
                if isinstance(found, Claim):
                    self.history.leases.append(Lease(found.lease_name, int(found.fence), 0))
                    self.launch(found, announces=True)(actor)
                    return
                if isinstance(found, HeldLeases):
                    leases.call_for_hand_over(GROUP, found.newest_fence(), 1.0)

        return act

    def heartbeat(self, claim: Claim, in_flight: Sequence[bytes]) -> Callable[[Actor], None]:
        """Of a launch that has died: gives up what it had reserved."""

        def act(actor: Actor) -> None:
            store = RedisStore(actor.wire(), NAMESPACE, clocks=self.stage.clock)
            with suppress(LeaseLost):
                store.requeue(claim, QUEUE, in_flight)

        return act

    def hands_over(self, claim: Claim) -> Callable[[Actor], None]:
        """A launch that releases its lease once a step tells it of a successor."""

        def act(actor: Actor) -> None:
            self.launch(claim)(actor)
            Leases(RedisStore(actor.wire(), NAMESPACE, clocks=self.stage.clock).wire, NAMESPACE).release(claim, "{}")

        return act

    def producer(self, *messages: NewMessage) -> Callable[[Actor], None]:
        def act(actor: Actor) -> None:
            store = RedisStore(actor.wire(), NAMESPACE, clocks=self.stage.clock)
            for each in messages:
                self._enqueue(store, each)

        return act

    def person(self, what: str, message_id: str) -> Callable[[Actor], None]:
        """Who cancels, reschedules or redrives a message."""

        def act(actor: Actor) -> None:
            interventions = MessageActions(actor.wire(), NAMESPACE)
            operations, at = self.history.operations, len(self.history.operations)
            due = int(self.stage.clock.now * 1000) + 1000
            operations.append(Operation(what, QUEUE, message_id, self.stage.happens(what, message_id), due=due))
            try:
                if what == "reschedule":
                    interventions.change(QUEUE, message_id, due=due)
                    done = True
                elif what == "cancel":
                    interventions.cancel(QUEUE, message_id)
                    done = True
                else:
                    done = bool(interventions.redrive(QUEUE, [message_id]))
            except (BadData, NotFound):
                done = False
            outcome = "ok" if done else "refused"
            answered = self.stage.happens(what, message_id, outcome)
            operations[at] = operations[at]._replace(answered=answered, outcome=outcome)

        return act

    # Judging

    def judge(self) -> list[str]:
        """Launches without faults, until nothing is left to do; then the invariants."""
        for number in range(LAUNCHES_TO_DRAIN):
            if not any(self.stage.store.holds(self.store.keys.queue(QUEUE, name)) for name in UNTIL_DRAINED):
                break
            self.stage.clock.sleep(60.0)
            mover = self.announced(LAST_FENCE + 2 * number, MOVERS)
            consumer = self.announced(LAST_FENCE + 2 * number + 1)
            self.store.maintenance.offer_places(QUEUE)
            self.store.promote(mover, QUEUE, 10)
            outbox.send(self.store, QUEUE, lambda *_: None)
            self._handle_all(self.store, consumer)
        history, wire = self.history, self.store.wire
        history.stored = store_view.stored(wire, NAMESPACE)
        history.queues = store_view.queues(wire, NAMESPACE)
        history.recurrences = store_view.recurrences(wire, NAMESPACE)
        return self.problems + violations(history)

    # Acts

    def announce(self, claim: Claim, store: RedisStore) -> None:
        store.maintenance.announce(claim, QUEUE)
        self._announced[claim.lease_name] = max(int(claim.fence), self._announced.get(claim.lease_name, 0))
        self.stage.happens("announced", *claim[:3])

    def _has_successor(self, claim: Claim) -> bool:
        """Whether another launch was given the lease, or will be."""
        return any(
            each.lease_name == claim.lease_name and each.fence > int(claim.fence) for each in self.history.leases
        )

    def _check_stale(self, claim: Claim, stale: list[bytes]) -> None:
        if stale and not self._has_successor(claim):
            self.problems.append(f"{stale} were said to be offered to another launch, and there is none")

    def _check_places(self) -> None:
        limits = {each.concurrency_key: each.concurrency_limit for each in self.history.operations}
        for key, taken in Looking(self.store).hash("places_taken").items():
            if int(taken) > limits[key]:
                self.problems.append(f"{int(taken)} places of {key} are taken, {limits[key]} at most")

    def effects_of(self, _reservation: Reservation) -> CompletionEffects | None:
        """What a message leaves that is completed."""
        return None

    def _enqueue(self, store: RedisStore, message: NewMessage) -> None:
        now = self.stage.happens("enqueue", message.id)
        due = int(message.due or 0) or (now // 1000 + message.delay if message.delay else None)
        operations, at = self.history.operations, len(self.history.operations)
        operations.append(
            Operation(
                "enqueue",
                QUEUE,
                message.id,
                now,
                handler=message.handler,
                digest=PAYLOAD,
                key=message.key,
                due=due,
                concurrency_key=message.concurrency_key,
                order_key=message.order_key,
            )
        )
        try:
            entry = store.producer.enqueue_one(message)
        except OutcomeUnknown:
            return  # and nobody asks again
        outcome = "ok" if entry.id == message.id else "duplicate"
        answered = self.stage.happens("enqueue", message.id, outcome)
        holder = "" if outcome == "ok" else entry.id
        operations[at] = operations[at]._replace(answered=answered, outcome=outcome, holder=holder)

    def _handle_all(self, store: RedisStore, claim: Claim, actor: Actor | None = None) -> None:
        queue_step, promoting = QueueStep(QUEUE, self.wanted), (QUEUE,) * self.promotes
        queue_step.single = self.idles
        while queue_step.completed or queue_step.settlements or queue_step.wanted:
            stepped = store.step(claim, [queue_step], lasts_ms=HOUR, now=lambda: 0.0, promoting=promoting)
            self._check_stale(claim, stepped.stale)
            wanted = 0 if stepped.successor or not (stepped.reserved or stepped.needs_full_step) else self.wanted
            queue_step = QueueStep(QUEUE, wanted)
            for each in stepped.reserved:
                self._handle(store, claim, each, queue_step, actor)
                if each.handler == "once":  # settled before the next one begins
                    queue_step.wanted = 0
                    self._check_stale(claim, store.step(claim, [queue_step], lasts_ms=HOUR, now=lambda: 0.0).stale)
                    queue_step = QueueStep(QUEUE, wanted)

    def _handle(
        self, store: RedisStore, claim: Claim, reservation: Reservation, queue_step: QueueStep, actor: Actor | None
    ) -> None:
        who, name, at = actor.name if actor else "drain", reservation.name, reservation.reserved_at
        if int(claim.fence) < self._announced.get(claim.lease_name, 0):
            self.problems.append(f"{name} was handed to fence {claim.fence}, after a newer one had announced itself")
        self._check_places()
        executions = self.history.executions
        if reservation.handler == "once":
            if reservation.crashes:  # begun by a launch that died
                queue_step.settlements.append(Settlement.dead(reservation, at, at, error="crashed", counted=False))
                return
            stale = store.begin(claim, [reservation])
            self._check_stale(claim, stale)
            if reservation.id in stale:
                return
        index = len(executions)
        found = int(store.recorded(reservation)[0] or b"0") if reservation.has_checkpoint else 0
        began = self.stage.happens(who, "begins", name, str(reservation.attempt))
        executions.append(
            Execution(
                name,
                reservation.handler,
                QUEUE,
                reservation.attempt,
                rows.generation(reservation.row),
                rows.fence(reservation.row),
                id(actor),
                PAYLOAD,
                began,
                found=found,
            )
        )
        outcome, follow_ups = "ok", tuple[dict[str, str], ...]()
        settlement: Settlement | None = None
        extra: CompletionEffects | None = None
        if actor is not None:
            actor.wait()
        if reservation.handler == "steps" and found < 2:
            for number in range(found + 1, 3):
                store.checkpoint(claim, reservation, b"%d" % number)
                executions[index] = executions[index]._replace(kept=number)
            outcome, settlement = "Yield", Settlement.released(reservation)
        elif reservation.handler == "hopeless":
            outcome, settlement = "Fatal", Settlement.dead(reservation, at, at, error="Fatal: no")
        elif reservation.handler == "fails" and reservation.attempt == 1:
            delay = BACKOFF_MS["ValueError"]
            outcome, settlement = (
                "ValueError",
                Settlement.retrying(reservation, at, at, delay_ms=delay, error="ValueError: no"),
            )
        elif reservation.handler == "parent":
            child = message(f"{name}-{rows.fence(reservation.row)}-{reservation.attempt}", handler="plain")
            follow_ups = ({"id": child.id, "queue": QUEUE, "handler": "plain", "digest": PAYLOAD},)
            extra = 0, b"", pack([child], at), b""
        elif self.flow is not None and reservation.handler == "flow":
            outcome, settlement = self.flow(store, claim, reservation)
        elif reservation.handler == "answers":
            extra = RESULT_LASTS_MS, b'"an answer"', b"", b""
        extra = extra or self.effects_of(reservation)
        ended = self.stage.happens(who, "ends", name, outcome)
        executions[index] = executions[index]._replace(ended=ended, outcome=outcome, follow_ups=follow_ups)
        if settlement is None:
            queue_step.complete([(reservation, 0.0, 0.0, extra)])
        else:
            queue_step.settlements.append(settlement)
