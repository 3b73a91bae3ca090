"""Messages of all kinds, drawn at random. Nothing of the product is imported: either version has it imported."""

from __future__ import annotations

import random
import time
from typing import Any, NamedTuple

from tests.faults.recording import digest

HANDLERS = {
    "plain": 60,
    "later": 8,
    "hopeless": 2,
    "once": 8,
    "parent": 6,
    "steps": 5,
    "awaited": 10,
    "apart": 0.5,
    "program": 0.5,
}
"""With their weights: a process for each message is dear."""


class Drawn(NamedTuple):
    """``options`` as `PollConsumer.enqueue` takes them; ``recorded`` what an `Operation` has of the message."""

    id: str
    queue: str
    handler: str
    payload: dict[str, Any]
    options: dict[str, Any]
    recorded: dict[str, Any]


def drawn(chance: random.Random, source: str, number: int, process: int = 0) -> Drawn:
    """The message of that number. A unique key is of one process, and of one handler: a version before 1.0 shares keys
    with all handlers, and sees none that 1.0 has stored."""
    handler = chance.choices([*HANDLERS], [*HANDLERS.values()])[0]
    payload = {
        "n": number,
        "ms": chance.choices([0, 1, 20, 500], [500, 50, 10, 1])[0],
        "fails": chance.choices([0, 1, 3, 9], [30, 2, 1, 1])[0],
        "pad": "x" * chance.choice([0, 0, 10, 2000]),
    }
    queue = chance.choices(["default", "second", "limited"], [200, 100, 1])[0]
    options, recorded = _options(chance, f"{source}-{process}-{handler}")
    recorded |= {"handler": handler, "digest": digest(payload)}
    return Drawn(f"{source}-{number}", queue, handler, payload, options, recorded)


def _options(chance: random.Random, key: str) -> tuple[dict[str, Any], dict[str, Any]]:
    recorded: dict[str, Any] = {"priority": chance.choice([0, 0, 0, 0, 5, -5])}
    options = recorded.copy()
    if chance.random() < 0.1:
        options["in_"] = chance.choice([0.05, 1.0, 10.0, 30.0])
        recorded["due"] = time.time_ns() // 1_000_000 + int(options["in_"] * 1000)
    if chance.random() < 0.03:
        options["key"] = recorded["key"] = f"{key}-{chance.randrange(100)}"
    if chance.random() < 0.03:
        options["concurrency_key"] = recorded["concurrency_key"] = f"place-{chance.randrange(20)}"
    if chance.random() < 0.02:
        options["expires"] = chance.choice([0.5, 3600])
    if chance.random() < 0.02:
        options |= {"rate_key": f"rate-{chance.randrange(20)}", "rate": "20/1s"}
    if chance.random() < 0.02:
        options |= {"headers": {"customer": "7"}, "timeout": 60}
    return options, recorded
