"""The rates of queues and handlers, as `check` shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pollconsumer.interface.settings.model import Settings
from pollconsumer.runtime.handling.handler import Handler


def rates_of(settings: Settings, handlers: Mapping[str, Handler]) -> dict[str, dict[str, Any]]:
    """The rates of ``queues``, for messages with a rate key; and of ``handlers``, with the argument that gives the
    key."""
    rated = {name: each for name, each in sorted(handlers.items()) if each.rate or each.rate_key}
    return {
        "queues": {name: queue.rate for name, queue in settings.queues.items() if queue.rate},
        "handlers": {name: {"rate": each.rate, "rate_key": each.rate_key} for name, each in rated.items()},
    }


def described(rates: dict[str, dict[str, Any]]) -> list[tuple[str, object]]:
    """What `rates_of` returns, as names and texts."""
    rows: list[tuple[str, object]] = [
        (f"rate of queue {name}", f"{rate} for each rate key") for name, rate in rates["queues"].items()
    ]
    for name, given in rates["handlers"].items():
        each = "" if given["rate_key"] is None else f" for each {given['rate_key']}"
        rows.append((f"rate of {name}", f"{given['rate'] or 'that of its queue'}{each}"))
    return rows
