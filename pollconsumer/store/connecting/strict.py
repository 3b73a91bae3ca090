"""What an acknowledgement waits for with ``durability = "strict"``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pollconsumer.store.connecting.patience import STEP, answer_within
from pollconsumer.store.connecting.replies import Unanswered
from pollconsumer.store.keyspace import hash_beside

if TYPE_CHECKING:
    from pollconsumer.store.connecting.connection import Command
    from pollconsumer.store.connecting.wire import Wire

WAITING = ("WAIT", "WAITAOF")


class Strict(NamedTuple):
    """How many replicas must have a change, and within how many seconds. ``replicas`` None: one, if the server has any.

    ``aof``: it must be in the append-only file of the server, and of these replicas.
    """

    replicas: int | None
    within: float
    aof: bool = False

    @property
    def right(self) -> str:
        """The command that it needs in addition to those of a role."""
        return WAITING[self.aof]

    def waits(self, connected: int) -> bool:
        """Whether there is anything to wait for, on a server with ``connected`` replicas."""
        return self.aof or bool(self._wanted(connected))

    def awaiting(self, connected: int, keys: Iterable[str]) -> list[Command]:
        """The end of a round trip that waits, on a server with ``connected`` replicas; empty if it need not. ``keys``:
        one of each slot that was written to.

        It waits for what its connection wrote last; a repeated change may have been written by another.
        """
        if not self.waits(connected):
            return []
        wanted, ms = self._wanted(connected), max(1, round(self.within * 1000))
        waiting = ("WAITAOF", 1, wanted, ms) if self.aof else ("WAIT", wanted, ms)
        marked = dict.fromkeys(map(hash_beside, keys))
        return [*(("HSET", each, "replicated", 1) for each in marked), waiting]

    def shortfall(self, answer: Any, connected: int) -> str:
        """What is missing, by the ``answer`` to the last command of `awaiting`; empty if nothing is."""
        local, having = answer if self.aof else (1, answer)
        wanted = self._wanted(connected)
        if having < wanted:
            return f"only {having} of {wanted} replicas had it within {self.within:.3g}s"
        return "" if local else f"it was not in the append-only file within {self.within:.3g}s"

    def _wanted(self, connected: int) -> int:
        return min(1, connected) if self.replicas is None else self.replicas


def confirmed(wire: Wire, strict: Strict, commands: Sequence[Command], blocking: float) -> list[Any]:
    """The answers to ``commands``, which changed something, once that is confirmed.

    Unanswered if it is not in time: it is to be repeated on another connection, as after a lost answer.
    """
    keys = [command[3] for command in commands if command[0] == "EVALSHA"]
    left = wire.patience().left()
    # A server that does not know the scripts, as a new primary, has them loaded, and is waited for twice.
    strict = strict._replace(within=min(strict.within, max(STEP, left / 2)))
    waited = [*commands, *strict.awaiting(wire.connected_replicas(), keys)]
    wire.send(waited)
    beyond = max(0.0, left - answer_within(left))  # what the timeout of an answer leaves of the patience
    answers = wire.receive(waited, blocking=blocking + min(strict.within, beyond))
    if len(waited) > len(commands) and (problem := strict.shortfall(answers[-1], wire.replicas)):
        wire.close()
        raise Unanswered(problem, sent=True)
    return answers[: len(commands)]


def least(one: Any, other: Any) -> Any:
    """Of two answers, as of two nodes of a cluster, what both confirm."""
    return [*map(min, one, other)] if isinstance(one, list) else min(one, other)
