"""What ``pollconsumer check`` says of programs, and how long handlings may last."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pollconsumer.interface.settings.model import Settings
from pollconsumer.runtime.children.command import Command
from pollconsumer.runtime.handling.handler import Handler


def described_commands(
    settings: Settings, handlers: Mapping[str, Handler], own: Collection[str]
) -> dict[str, dict[str, object]]:
    """Handlers that are programs. ``fits``: whether a program of the queues ``own`` has a timeout, which a launch then
    waits for; None of other queues."""
    found: dict[str, dict[str, object]] = {}
    for name, command in settings.commands.items():
        run, timeout = handlers[name].run, command.timeout
        assert isinstance(run, Command)
        fits = None if command.queue not in own else timeout is not None
        found[name] = {"command": list(run.argv), "queue": command.queue, "timeout_seconds": timeout, "fits": fits}
    return found


def own_queues(queues: Collection[str], past: Sequence[Mapping[str, Any]]) -> set[str]:
    """The ``queues`` that this configuration's launches serve: not one that a launch with other ``--queue`` options
    served last, whose window is not known here. A launch of `default` that lacks only queues which no launch has served
    is taken for one from before these were new."""
    last = {queue: each["queues"] for each in reversed(past) for queue in each["queues"]}
    known = sorted(queue for queue in queues if queue in last)
    together = known if "default" in known else sorted(queues)
    return {queue for queue in queues if last.get(queue, together) in (together, sorted(queues))}


def longest_limit(settings: Settings, handlers: Mapping[str, Handler], queues: Collection[str]) -> float:
    """The seconds that a message of ``queues`` may be handled at most: a declared timeout, else the default limit."""
    default = settings.consumer.handler_limit
    served = (each.timeout for each in handlers.values() if each.queue in queues)
    return max((default if timeout is None else timeout for timeout in served), default=0.0)
