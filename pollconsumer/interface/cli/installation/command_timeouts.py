"""What ``pollconsumer check`` says of programs: whether the launches of their queues last as long as their timeouts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pollconsumer.interface.settings.model import Settings
from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.runtime.programs.command import Command


def described_commands(
    settings: Settings, handlers: Mapping[str, Handler], own: Collection[str], longest: float
) -> dict[str, dict[str, object]]:
    """Handlers that are programs, and whether their timeouts fit into ``longest``, the maximum seconds of a launch that
    serves the queues ``own``; None of other queues."""
    found: dict[str, dict[str, object]] = {}
    for name, command in settings.commands.items():
        run, timeout = handlers[name].run, command.timeout
        assert isinstance(run, Command)
        fits = None if command.queue not in own else timeout is not None and timeout <= longest
        found[name] = {"command": list(run.argv), "queue": command.queue, "timeout_seconds": timeout, "fits": fits}
    return found


def own_queues(queues: Collection[str], past: Sequence[Mapping[str, Any]]) -> set[str]:
    """The ``queues`` that this configuration's launches serve: not one that a launch with other ``--queue`` options
    served last, whose window is not known here."""
    last = {queue: each["queues"] for each in reversed(past) for queue in each["queues"]}
    return {queue for queue in queues if last.get(queue, sorted(queues)) == sorted(queues)}


def longest_launch(settings: Settings, windows: Mapping[str, Any]) -> float:
    """Seconds that a launch lasts at most: its window, and the grace until the watchdog ends it."""
    seconds: float = windows["consumer"]["window_seconds"] + settings.consumer.grace
    return seconds
