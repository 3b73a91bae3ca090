"""Producers and people: they enqueue, cancel, reschedule, change and redrive, and record what they were answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pollconsumer.core.messages.payloads import encode_payload
from pollconsumer.runtime.new_messages import new_message
from pollconsumer.store.queues.redis_store import RedisStore
from tests.faults.drawing import drawn_options
from tests.faults.handlers_known import LATEST
from tests.faults.recording import digest
from tests.forecast.distributions import Distribution, draw
from tests.simulation.hosts.process import Process
from tests.simulation.installation import NAMESPACE, Opener
from tests.simulation.recorder import TRIES, Recorder
from tests.simulation.signalling import signallers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.simulation.installation import Installation

HANDLERS = [
    *["plain"] * 3,
    *["bare"] * 3,
    *["isolated"] * 2,
    *["parent"] * 2,
    *[LATEST] * 4,
    "hooked",
    "hopeless",
    "once",
    "steps",
]
NOT_YET = 0.1
"""The share of messages that are put off."""


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
        handlers: Sequence[str] = HANDLERS,
    ) -> None:
        """``happens``: whether an act does, by its name."""
        self.installation, self.name, self._count = installation, name, count
        self._pace, self._together = pace * together, together
        self._durations, self._happens, self._handlers = durations, happens, handlers
        self.chance = installation.world.stream(name)
        self._sent: list[tuple[str, str]] = []
        self._payloads: dict[str, dict[str, Any]] = {}
        self.processes = [Process(self.chance.choice(installation.machines), name, self._run)]
        """Its own, and those of people who signal its messages."""

    def _run(self, process: Process) -> int:
        wire = Opener(self.installation.server, process).wire()
        self._store = RedisStore(wire, NAMESPACE, clocks=process)
        self._recorder = Recorder(self.installation, self.name, wire)
        for number in range(self._count):
            self._act = f"{self.name}-{number}"
            self.chance = self.installation.world.stream(self._act)
            if number % self._together == 0:
                process.sleep(self.chance.uniform(0.0, 2 * self._pace))
            acts = [self._enqueue, self._cancel, self._reschedule, self._change, self._redrive]
            act = self.chance.choices(acts, [16, 1, 1, 1, 1])[0] if self._sent else self._enqueue
            act()
        return 0

    def _enqueue(self) -> None:
        chance = self.chance
        handler, queue = chance.choice(self._handlers), chance.choice(self.installation.queues)
        message_id, payload = self._act, self._drawn_payload()
        if chance.random() < NOT_YET:
            payload["not_before"] = self.installation.world.now + chance.uniform(0.0, 10.0)
        if handler == "bare":
            payload["id"] = message_id
        options, recorded = drawn_options(chance, handler, self.installation.server.now_ms(), [0.05, 1.0, 30.0, 90.0])
        options |= {"queue": queue} | ({} if "replace" in options else {"id": message_id})
        recorded |= {"handler": handler, "digest": digest(payload)}
        message = new_message(handler, payload, **options)._replace(id=message_id)

        def call() -> dict[str, Any]:
            [entry] = self._store.enqueue([message])
            # What an earlier try of ours has enqueued is no duplicate of another's.
            return {"outcome": "ok"} if entry.id == message_id else {"outcome": "duplicate", "holder": entry.id}

        self._sent.append((queue, message_id))
        self._payloads[message_id] = payload
        tries = TRIES if chance.random() < 0.9 else 1
        if self._happens(self._act):
            if handler == "steps":
                self.processes += signallers_of(self.installation, queue, message_id)
            self._recorder.record("enqueue", queue, message_id, call, recorded, tries)

    def _drawn_payload(self) -> dict[str, Any]:
        chance = self.chance
        seconds = chance.choice([0.0, 0.001, draw(self._durations, chance)])
        return {"seconds": min(seconds, 20.0), "fails": chance.choice([0, 0, 0, 0, 1, 3, 9])}

    def _cancel(self) -> None:
        queue, message_id = self.chance.choice(self._sent[-20:])
        if self._happens(self._act):
            self._recorder.cancel(queue, message_id)

    def _reschedule(self) -> None:
        queue, message_id = self.chance.choice(self._sent[-20:])
        delay = self.chance.choice([0, 100, 5000])
        due = {"due": self.installation.server.now_ms() + delay}
        person = self._recorder.person
        if self._happens(self._act):
            self._recorder.record(
                "reschedule", queue, message_id, lambda: person.change(queue, message_id, delay=delay), due
            )

    def _change(self) -> None:
        queue, message_id = self.chance.choice(self._sent[-20:])
        change: dict[str, Any] = {"priority": self.chance.choice([0, 5, -5])}
        recorded = change.copy()
        if self.chance.random() < 0.5:
            payload = self._payloads[message_id] | self._drawn_payload()
            change["payload"], recorded["digest"] = encode_payload(payload), digest(payload)
        person = self._recorder.person
        if self._happens(self._act):
            self._recorder.record(
                "change", queue, message_id, lambda: person.change(queue, message_id, **change), recorded
            )

    def _redrive(self) -> None:
        queue, message_id = self.chance.choice(self._sent[-60:])
        if self._happens(self._act):
            self._recorder.redrive(queue, message_id)
