"""Options of messages, drawn at random."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pollconsumer.core.messages.message import REPLACES, UNTIL_START, scoped_key
from tests.faults.handlers_known import HOOKED, LATEST

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

SKIP = "skip"
"""The header of a message that a hook skips."""
AT_MOST = 35.0
"""Seconds for which a message that is replaced may wait at most."""


def drawn_options(
    chance: Random,
    handler: str,
    now_ms: int,
    delays: Sequence[float],
    rules: Sequence[str] = (UNTIL_START, REPLACES),
) -> tuple[dict[str, Any], dict[str, Any]]:
    """As `new_message` takes them, and as an `Operation` records them. ``delays`` in seconds; ``rules``: how a unique
    key that is held until the start may be used."""
    options: dict[str, Any] = {"priority": chance.choice([0, 0, 0, 5, -5])}
    recorded = options.copy()
    if chance.random() < (0.7 if handler == LATEST else 0.25):
        delay = chance.choice(delays)
        recorded["due"] = now_ms + int(delay * 1000)
        if chance.random() < 0.5:
            options["in_"] = delay
        else:
            options["at"] = datetime.fromtimestamp(recorded["due"] / 1000, UTC)
    if handler == LATEST:
        rule = chance.choice(rules)
        options["key"] = f"latest-{rule}"
        recorded |= {"key": scoped_key(handler, options["key"]), "key_rule": rule}
        if rule == REPLACES:
            at_most = max(AT_MOST, options.get("in_", 0.0))
            options |= {"replace": True, "at_most": at_most}
            recorded["key_rule"] += f"{at_most * 1000:.0f}"
            if "due" in recorded:
                recorded["due"] = min(recorded["due"], now_ms + int(at_most * 1000))
        else:
            options["key_until"] = "start"
    elif chance.random() < 0.15:
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
    if not options["priority"] and chance.random() < 0.3:
        options["order_key"] = recorded["order_key"] = f"order-{chance.randrange(3)}"
    if handler in HOOKED and chance.random() < 0.3:
        options["headers"], recorded["skips"] = {SKIP: "yes"}, True
    return options, recorded
