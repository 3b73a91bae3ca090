"""``python -m tests.faults.producer SEED COUNT PACE``: enqueues, cancels, reschedules, changes and redrives, and
records what it was told.

A line before each call, and one with the answer after it: without the second, the outcome is unknown.
"""

from __future__ import annotations

import random
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pollconsumer import OutcomeUnknown, PollConsumer, StoreUnreachable
from pollconsumer.core.errors import BadData, NotFound
from pollconsumer.core.messages.message import UNTIL_START
from pollconsumer.core.messages.payloads import encode_payload
from pollconsumer.interface.settings.load import load_settings
from pollconsumer.store.actions import MessageActions
from pollconsumer.store.client.patience import Budget
from pollconsumer.store.client.wire import Wire
from tests.faults.drawing import drawn_options
from tests.faults.recording import append, digest, now

if TYPE_CHECKING:
    from collections.abc import Callable

HANDLERS = [
    *["plain"] * 6,
    *["later"] * 2,
    *["parent"] * 2,
    *["latest"] * 2,
    "hooked",
    "hopeless",
    "once",
    "steps",
    "apart",
    "awaited",
]
LOG = "operations.{}.jsonl"
TRIES = 20


class Producer:
    def __init__(self, seed: int, directory: Path) -> None:
        self.chance = random.Random(seed)
        self._seed = seed
        self._log = directory / LOG.format(seed)
        settings = load_settings(directory / "config.toml")
        self._app = PollConsumer()
        self._person = MessageActions(Wire(settings.store, lambda: Budget(5)), settings.namespace)
        self._sent: list[tuple[str, str]] = []

    def run(self, count: int, pace: float) -> None:
        for number in range(count):
            acts = [self.enqueue, self.cancel, self.reschedule, self.change, self.redrive]
            what = self.chance.choices(acts, [16, 1, 1, 1, 1])[0]
            if what == self.enqueue or not self._sent:
                self.enqueue(number)
            else:
                what(number)
            time.sleep(self.chance.uniform(0, 2 * pace))

    def enqueue(self, number: int) -> None:
        chance = self.chance
        handler = chance.choice([*HANDLERS, "program"])
        payload = self._payload(number)
        queue = chance.choices(["default", "second", "limited"], [6, 3, 1])[0]
        message_id = f"{self._seed}-{number}"
        now_ms, delays = time.time_ns() // 1_000_000, [0.05, 0.3, 1.0]
        options, recorded = drawn_options(chance, handler, now_ms, delays, [UNTIL_START])
        options |= {"id": message_id, "queue": queue}
        recorded |= {"handler": handler, "digest": digest(payload)}
        persistent = chance.random() < 0.9

        def call() -> dict[str, Any]:
            handle = self._app.enqueue(handler, payload, **options)
            # What an earlier try of ours has enqueued is no duplicate of another's.
            return {"outcome": "ok"} if handle.id == message_id else {"outcome": "duplicate", "holder": handle.id}

        self._sent.append((queue, message_id))
        self._record("enqueue", queue, message_id, call, recorded, TRIES if persistent else 1)

    def _payload(self, number: int) -> dict[str, Any]:
        ms, fails = self.chance.choice([0, 0, 0, 1, 20]), self.chance.choice([0, 0, 0, 0, 1, 2, 3, 9])
        return {"n": number, "ms": ms, "fails": fails, "pad": "x" * self.chance.choice([0, 0, 10, 2000])}

    def cancel(self, _number: int) -> None:
        queue, message_id = self.chance.choice(self._sent[-20:])
        self._record("cancel", queue, message_id, lambda: self._person.cancel(queue, message_id), {}, TRIES)

    def reschedule(self, _number: int) -> None:
        queue, message_id = self.chance.choice(self._sent[-20:])
        delay = self.chance.choice([0, 100, 500])
        due = {"due": time.time_ns() // 1_000_000 + delay}
        self._record(
            "reschedule", queue, message_id, lambda: self._person.change(queue, message_id, delay=delay), due, TRIES
        )

    def change(self, number: int) -> None:
        """A refusal may be that of a repeated call."""
        queue, message_id = self.chance.choice(self._sent[-20:])
        payload, priority = self._payload(number), self.chance.choice([0, 5, -5])

        def call() -> dict[str, Any]:
            try:
                self._person.change(queue, message_id, priority=priority, payload=encode_payload(payload))
            except (BadData, NotFound):
                return {"outcome": "unknown"}
            return {"outcome": "ok"}

        self._record("change", queue, message_id, call, {"digest": digest(payload)}, TRIES)

    def redrive(self, _number: int) -> None:
        """What may be a dead letter by now."""
        queue, message_id = self.chance.choice(self._sent[-60:])

        def call() -> dict[str, Any]:
            return {"outcome": "ok" if self._person.redrive(queue, [message_id]) else "refused"}

        self._record("redrive", queue, message_id, call, {}, TRIES)

    def _record(
        self, what: str, queue: str, message_id: str, call: Callable[[], Any], more: dict[str, Any], tries: int
    ) -> None:
        token = uuid.uuid4().hex
        append(self._log, {"token": token, "what": what, "queue": queue, "id": message_id, "invoked": now()} | more)
        for _ in range(tries):
            try:
                answer = call()
            except (OutcomeUnknown, StoreUnreachable):
                continue  # the id makes repeating it harmless
            except (BadData, NotFound):
                answer = {"outcome": "refused"}
            append(self._log, {"token": token, "answered": now()} | (answer or {"outcome": "ok"}))
            return


if __name__ == "__main__":
    Producer(int(sys.argv[1]), Path.cwd()).run(int(sys.argv[2]), float(sys.argv[3]))
