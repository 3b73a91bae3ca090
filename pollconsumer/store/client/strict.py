"""What an acknowledgement waits for with ``durability = "strict"``."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from pollconsumer.core.errors import StoreUnreachable
from pollconsumer.store.client.connection import Command
from pollconsumer.store.client.replies import Unanswered
from pollconsumer.store.keyspace import hash_beside

WAITING = ("WAIT", "WAITAOF")
MARKER = "replicated"
PREPARING = ("rights", "register")
"""Scripts that are not waited for: each precedes a change, which is confirmed with all before it."""


class Strict(NamedTuple):
    """How many replicas must have a change, and within how many seconds. ``replicas`` None: one, if the server has any.

    ``aof``: it must be in the append-only file of the server, and of these replicas.
    """

    replicas: int | None
    within: float
    aof: bool = False

    @property
    def right(self) -> str:
        """The command that it needs beside the commands of a role."""
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
        return [*dict.fromkeys(map(self.marking, keys)), waiting]  # GUARD what a lost connection wrote

    def marking(self, key: str) -> Command:
        """The command that writes something in the slot of ``key``."""
        return "HSET", hash_beside(key), MARKER, 1

    def shortfall(self, answer: Any, connected: int) -> str:
        """What is missing, by the ``answer`` to the last command of `awaiting`; empty if nothing is."""
        local, having = answer if self.aof else (1, answer)
        wanted = self._wanted(connected)
        if having < wanted:
            return f"only {having} of {wanted} replicas had it within {self.within:.3g}s"
        return "" if local else f"it was not in the append-only file within {self.within:.3g}s"

    def unconfirmed(self, problem: str) -> Exception:
        """What is raised for a change that is not confirmed in time. Unanswered: it is to be repeated on another
        connection, as after a lost answer."""
        return Unanswered(problem, sent=True)

    def _wanted(self, connected: int) -> int:
        return min(1, connected) if self.replicas is None else self.replicas


class ByPeople(Strict):
    """What is waited for where a person changes something, who decides whether to repeat it."""

    def unconfirmed(self, problem: str) -> Exception:
        fix = "the change is lost if a replica without it is promoted: check before you repeat it"
        return StoreUnreachable(f"changed, but {problem}", None, fix)


class ByKeepers(ByPeople):
    """What is waited for where a store may be closed, which has a note in place of each hash."""

    def marking(self, key: str) -> Command:
        return "SET", f"{key.partition('}')[0]}}}:{MARKER}", 1, "PX", 1000


def least(one: Any, other: Any) -> Any:
    """The least of two answers, as of two nodes of a cluster: what both confirm."""
    return [*map(min, one, other)] if isinstance(one, list) else min(one, other)
