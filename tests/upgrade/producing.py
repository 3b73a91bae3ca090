"""``python -m tests.upgrade.producing SOURCE FIRST COUNT``: enqueues and changes messages of all kinds, and records it.

It runs with either version: only the public API is imported. With ``--as-batch`` its messages are the members of a
batch, each with an order key: 1.0 leaves both as they are, a version that knows batches alone the second.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pollconsumer import BadData, NotFound, OutcomeUnknown, PollConsumer, StoreUnreachable
from tests.faults.recording import append, digest, now
from tests.upgrade.drawn_messages import Drawn, drawn

if TYPE_CHECKING:
    from collections.abc import Callable

TRIES = 200
LOG = "operations.{}.jsonl"


class Producer:
    """``source``: what the ids of its messages begin with. ``first``: the first of their numbers."""

    def __init__(self, source: str, first: int) -> None:
        self.chance = random.Random(f"{source}-{first}")
        self._source, self._first = source, first
        self._log = Path(LOG.format(f"{source}-{first}"))
        self._app = PollConsumer()
        self._sent: list[Drawn] = []

    def run(self, numbers: range) -> None:
        changes = [self.cancel, self.reschedule, self.redrive]
        for number in numbers:
            self.enqueue(drawn(self.chance, self._source, number, self._first))
            if self.chance.random() < 0.03:
                self.chance.choice(changes)(self.chance.choice(self._sent))

    def run_as_batch(self, numbers: range) -> None:
        """As the members of a batch, the last of them a chain, of which link and callback are messages, too."""
        from pollconsumer.runtime.new_messages import new_message

        class Sendable(NamedTuple):
            handler: str
            payload: dict[str, Any]
            options: dict[str, Any]

            def __message__(self) -> Any:
                return new_message(self.handler, self.payload, **self.options)

            def new_message(self) -> Any:  # as earlier versions call it
                return self.__message__()

        names = [f"{self._source}.{number}" for number in numbers]
        names += [f"{names[-1]}+2", f"{self._source}:ended"]
        payloads: list[dict[str, Any]] = [{"n": n, "ms": 0, "fails": 0, "pad": ""} for n in range(len(names))]

        def call() -> None:
            *ordered, last, link, ended = payloads
            members = [Sendable("plain", payload, {"order_key": f"{payload['n']}"}) for payload in (*ordered, last)]
            with self._app.batch(self._source, ended=Sendable("plain", ended, {})) as batch:
                for member in members[:-1]:
                    batch.add(member)
                batch.add(self._app.chain(members[-1], Sendable("plain", link, {})))

        for number, (name, payload) in enumerate(zip(names, payloads, strict=True)):
            recorded = {"handler": "plain", "digest": digest(payload)}
            message = Drawn(name, "default", "plain", payload, {}, recorded)
            self._record("enqueue", message, call if number == 0 else dict, recorded)

    def enqueue(self, message: Drawn) -> None:
        def call() -> dict[str, Any]:
            where: dict[str, Any] = {"id": message.id, "queue": message.queue}
            handle = self._app.enqueue(message.handler, message.payload, **where, **message.options)
            return {"outcome": "ok"} if handle.id == message.id else {"outcome": "duplicate", "holder": handle.id}

        self._record("enqueue", message, call, message.recorded)
        self._sent = [*self._sent[-50:], message]

    def cancel(self, message: Drawn) -> None:
        self._record("cancel", message, lambda: self._app.message(message.id).cancel(), {})

    def reschedule(self, message: Drawn) -> None:
        delay = self.chance.choice([0.0, 0.1, 5.0])
        due = {"due": time.time_ns() // 1_000_000 + int(delay * 1000)}
        self._record("reschedule", message, lambda: self._app.message(message.id).reschedule(in_=delay), due)

    def redrive(self, message: Drawn) -> None:
        self._record("redrive", message, lambda: self._app.message(message.id).redrive(), {})

    def _record(self, what: str, message: Drawn, call: Callable[[], Any], more: dict[str, Any]) -> None:
        which = {"token": f"{message.id}-{what}-{now()}", "what": what, "queue": message.queue, "id": message.id}
        append(self._log, which | {"invoked": now()} | more)
        for _ in range(TRIES):
            try:
                answer = call()
            except (OutcomeUnknown, StoreUnreachable):
                continue  # the id makes repeating it harmless
            except (BadData, NotFound):
                answer = {"outcome": "refused"}
            append(self._log, {"token": which["token"], "answered": now(), "outcome": "ok"} | (answer or {}))
            return


def main(source: str, first: int, count: int, *options: str) -> None:
    producer = Producer(source, first)
    run = producer.run_as_batch if options else producer.run
    run(range(first, first + count))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
