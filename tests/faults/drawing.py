"""Options of messages, drawn at random."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pollconsumer.core.messages.message import scoped_key

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random


def drawn_options(
    chance: Random, handler: str, now_ms: int, delays: Sequence[float]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """As `new_message` takes them, and as an `Operation` records them. ``delays`` in seconds."""
    options: dict[str, Any] = {"priority": chance.choice([0, 0, 0, 5, -5])}
    recorded = options.copy()
    if chance.random() < 0.25:
        delay = chance.choice(delays)
        recorded["due"] = now_ms + int(delay * 1000)
        if chance.random() < 0.5:
            options["in_"] = delay
        else:
            options["at"] = datetime.fromtimestamp(recorded["due"] / 1000, UTC)
    if chance.random() < 0.15:
        number = chance.randrange(3)
        options["key"] = recorded["key"] = f"unique-{number}"
        if number == 0:
            options["key_scope"] = "queue"
        else:
            recorded["key"] = scoped_key(handler, options["key"])
    if chance.random() < 0.2:
        key = chance.randrange(3)
        options["concurrency_key"] = recorded["concurrency_key"] = f"place-{key}"
        options["concurrency_limit"] = recorded["concurrency_limit"] = 1 if key else 2
    return options, recorded
