"""Producers and people: they enqueue, cancel, reschedule and redrive, and record what they were answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pollconsumer.core.errors import BadData, NotFound, OutcomeUnknown, PollConsumerError, StoreUnreachable
from pollconsumer.runtime.new_messages import new_message
from pollconsumer.store.queues.interventions import Interventions
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.tuning.forecast.distributions import Distribution, draw
from tests.faults.drawing import drawn_options
from tests.faults.history import Operation
from tests.faults.recording import digest
from tests.simulation.hosts.process import Process
from tests.simulation.installation import NAMESPACE, Opener

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.installation import Installation

HANDLERS = ["plain"] * 3 + ["bare"] * 3 + ["isolated", "isolated", "hopeless", "once", "parent", "parent", "steps"]
TRIES = 20


class Producer:
    """Sends ``count`` messages, one in ``pace`` seconds on average, ``together`` so many, of which some take their
    ``durations`` to handle; now and then it intervenes instead."""

    def __init__(
        self,
        installation: Installation,
        name: str,
        count: int,
        pace: float,
        durations: Distribution,
        happens: Callable[[str], bool],
        *,
        together: int = 1,
    ) -> None:
        """``happens``: whether an act does, by its name."""
        self.installation, self.name, self._count = installation, name, count
        self._pace, self._together = pace * together, together
        self._durations, self._happens = durations, happens
        self.chance, self.history = installation.world.stream(name), installation.history
        self._sent: list[tuple[str, str]] = []
        self.process = Process(self.chance.choice(installation.machines), name, self._run)

    def _run(self, process: Process) -> int:
        opener = Opener(self.installation.server, process)
        self._store = RedisStore(opener.wire(), NAMESPACE, clocks=process)
        self._persons_wire = opener.wire()
        self._person = Interventions(self._persons_wire, NAMESPACE)
        for number in range(self._count):
            self._act = f"{self.name}-{number}"
            self.chance = self.installation.world.stream(self._act)
            if number % self._together == 0:
                process.sleep(self.chance.uniform(0.0, 2 * self._pace))
            acts = [self._enqueue, self._cancel, self._reschedule, self._redrive]
            act = self.chance.choices(acts, [16, 1, 1, 1])[0] if self._sent else self._enqueue
            act()
        return 0

    def _enqueue(self) -> None:
        chance = self.chance
        handler, queue = chance.choice(HANDLERS), chance.choice(self.installation.queues)
        seconds = chance.choice([0.0, 0.001, draw(self._durations, chance)])
        payload: dict[str, Any] = {"seconds": min(seconds, 20.0), "fails": chance.choice([0, 0, 0, 0, 1, 3, 9])}
        message_id = self._act
        if handler == "bare":
            payload["id"] = message_id
        options, recorded = drawn_options(chance, handler, self.installation.server.now_ms(), [0.05, 1.0, 30.0, 90.0])
        options |= {"id": message_id, "queue": queue}
        recorded |= {"handler": handler, "digest": digest(payload)}
        message = new_message(handler, payload, **options)

        def call() -> dict[str, Any]:
            [entry] = self._store.enqueue([message])
            # What an earlier try of ours has enqueued is no duplicate of another's.
            return {"outcome": "ok"} if entry.id == message_id else {"outcome": "duplicate", "holder": entry.id}

        self._sent.append((queue, message_id))
        self._record("enqueue", queue, message_id, call, recorded, TRIES if chance.random() < 0.9 else 1)

    def _cancel(self) -> None:
        queue, message_id = self.chance.choice(self._sent[-20:])
        self._record("cancel", queue, message_id, lambda: self._person.cancel(queue, message_id), {}, TRIES)

    def _reschedule(self) -> None:
        queue, message_id = self.chance.choice(self._sent[-20:])
        delay = self.chance.choice([0, 100, 5000])
        due = {"due": self.installation.server.now_ms() + delay}
        self._record(
            "reschedule", queue, message_id, lambda: self._person.reschedule(queue, message_id, delay=delay), due, TRIES
        )

    def _redrive(self) -> None:
        queue, message_id = self.chance.choice(self._sent[-60:])

        def call() -> dict[str, Any]:
            return {"outcome": "ok" if self._person.redrive(queue, [message_id]) else "refused"}

        self._record("redrive", queue, message_id, call, {}, TRIES)

    def _record(
        self, what: str, queue: str, message_id: str, call: Callable[[], Any], more: dict[str, Any], tries: int
    ) -> None:
        if not self._happens(self._act):
            return
        world, operations, at = self.installation.world, self.history.operations, len(self.history.operations)
        operations.append(Operation(what, queue, message_id, self.installation.now_us(), **more))
        world.tell(f"{self.name}: {what} {message_id}")
        for number in range(tries):
            try:
                answer = call()
            except (OutcomeUnknown, StoreUnreachable):
                continue  # the id makes repeating it harmless
            except (BadData, NotFound):
                # An earlier request, whose reply was lost, may have been carried out, and be why this one is refused.
                repeated = number > 0 or self._persons_wire.repeated
                answer = {"outcome": "unknown" if repeated else "refused"}
            except PollConsumerError as error:
                world.tell(f"{self.name}: {error}")
                raise
            operations[at] = operations[at]._replace(
                answered=self.installation.now_us(), **(answer or {"outcome": "ok"})
            )
            world.tell(f"{self.name}: {what} {message_id}: {operations[at].outcome}")
            return
