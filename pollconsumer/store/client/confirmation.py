"""The wait for replicas, and for the append-only file, that a strict acknowledgement includes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pollconsumer.store.client.connection import Command
from pollconsumer.store.client.patience import STEP, answer_within
from pollconsumer.store.client.strict import PREPARING, WAITING, Strict
from pollconsumer.store.client.wire import Wire


def confirmed(wire: Wire, strict: Strict, commands: Sequence[Command], blocking: float) -> list[Any]:
    """The answers to ``commands``, once what their scripts changed is confirmed; else `Strict.unconfirmed`.
    A caller that waits for them itself has a WAIT at their end."""
    preparing = {wire.scripts[name].sha for name in PREPARING}
    changing = (command for command in commands if command[0] == "EVALSHA" and command[1] not in preparing)
    keys = [] if commands[-1][0] in WAITING else [command[3] for command in changing]
    left = wire.patience().left()
    # A server that does not know the scripts, as a new primary, has them loaded, and is waited for twice.
    strict = strict._replace(within=min(strict.within, max(STEP, left / 2)))
    waited = [*commands, *(strict.awaiting(wire.connected_replicas(), keys) if keys else ())]
    wire.send(waited)
    beyond = max(0.0, left - answer_within(left))  # what the timeout of an answer leaves of the patience
    answers = wire.receive(waited, blocking=blocking + min(strict.within, beyond))
    if len(waited) > len(commands) and (problem := strict.shortfall(answers[-1], wire.replicas)):
        wire.close()  # the server may not be the primary any more
        raise strict.unconfirmed(problem)  # GUARD confirmation of what a launch changed
    return answers[: len(commands)]
