"""What happened to an installation: what its handlers, producers and launches recorded, and how its store ended."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from pollconsumer.core.lifecycle import State
from pollconsumer.core.messages.continuation import member_of
from pollconsumer.core.messages.message import REPLACES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

ENDED = frozenset(state for state in State if state.has_ended)


class Execution(NamedTuple):
    """One call of a handler. Instants are epoch µs; ``ended`` is None where its process died first.

    ``follow_ups`` are what it gave to ``context.enqueue``, ``found`` the checkpoint it began with, ``kept`` the last
    one that it kept, ``occurrence`` the instant in epoch ms that it was called for, ``given`` the results of its steps,
    by their names. ``together``: how many messages the call had; ``said``: the result or the error's text that one of a
    bulk handler gave this one.
    """

    id: str
    handler: str
    queue: str
    attempt: int
    generation: int
    fence: int
    pid: int
    digest: str
    started: int
    ended: int | None = None
    outcome: str | None = None
    follow_ups: tuple[dict[str, str], ...] = ()
    found: int = 0
    kept: int | None = None
    occurrence: int | None = None
    given: Mapping[str, str] = MappingProxyType({})
    together: int = 1
    said: str | None = None


class Operation(NamedTuple):
    """What a producer or a person asked of the store. Instants are epoch µs.

    ``outcome``: ok, duplicate (of ``holder``), refused (nothing was done), or unknown. ``due``
    is the earliest due time in epoch ms, None for at once. ``key_rule``: as of a `NewMessage`; ``skips``: a hook has it
    skipped.
    """

    what: str
    queue: str
    id: str
    invoked: int
    answered: int | None = None
    outcome: str = "unknown"
    handler: str = ""
    digest: str = ""
    due: int | None = None
    priority: int = 0
    key: str = ""
    concurrency_key: str = ""
    concurrency_limit: int = 1
    order_key: str = ""
    holder: str = ""
    key_rule: str = ""
    skips: bool = False

    def replaces(self) -> bool:
        """Whether it replaces the one that waits with its key."""
        return self.key_rule.startswith(REPLACES)

    def certain(self) -> bool:
        """Whether it was carried out for certain, and not as something else."""
        return self.outcome == ("duplicate" if self.replaces() else "ok")


class Batch(NamedTuple):
    """A batch that somebody makes. ``callbacks``: the queue of each, by name. ``members``: those of its producer.

    ``fate``: closed, open (it is certain that it was not closed), started (by a handler, with its completion), refused
    (it was shut), or unknown.
    """

    id: str
    home: str
    callbacks: Mapping[str, str]
    members: int
    fate: str = "open"
    expires: bool = False


class Followed(NamedTuple):
    """What follows a message: the links of a chain, whose queues these are, that of the message first; and callbacks,
    the queue of each by name."""

    id: str
    links: tuple[str, ...]
    callbacks: Mapping[str, str]


class Counted(NamedTuple):
    """A batch as the store has it at the end. ``closed``: whether its producer has closed it; ``codes``: what it has of
    each member that has ended, by number."""

    id: str
    home: str
    state: str
    total: int
    completed: int
    dead: int
    cancelled: int
    expired: int
    closed: bool
    codes: Mapping[int, int]


class Stored(NamedTuple):
    """A message as the store has it at the end. Instants are epoch ms; ``places`` are the indexes that hold its id."""

    id: str
    queue: str
    handler: str
    state: str
    attempts: int
    generation: int
    crashes: int
    fence: int
    scheduled_at: int | None
    reserved_at: int | None
    ended_at: int | None
    digest: str | None
    last_error: str | None
    places: tuple[str, ...]
    result: Any = None
    due_at: int | None = None


class Queue(NamedTuple):
    """``counts`` by state as `status` gives them; ``leftovers``: what a drained queue has none of."""

    name: str
    counts: dict[str, int]
    leftovers: dict[str, int]


class Ran(NamedTuple):
    """A command of ours, from its start to its end."""

    arguments: tuple[str, ...]
    pid: int
    seconds: float
    code: int
    output: str
    errors: str


class Recurred(NamedTuple):
    name: str
    enqueued: int
    skipped: int


class HandlerPause(NamedTuple):
    """A handler that was certainly paused between two instants, in epoch ms; ``told``: the fences of launches that were
    told at the first of them."""

    handler: str
    since: int
    until: int
    told: frozenset[int]


class Lease(NamedTuple):
    """A launch's tenure of a lease, from the ledger; ``acquired`` in epoch ms."""

    lease_name: str
    fence: int
    acquired: int


@dataclass
class History:
    """``secrets``: where in the places looked at the store's password was found."""

    executions: list[Execution] = field(default_factory=list)
    operations: list[Operation] = field(default_factory=list)
    stored: list[Stored] = field(default_factory=list)
    queues: list[Queue] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)
    followed: list[Followed] = field(default_factory=list)
    counted: list[Counted] = field(default_factory=list)
    commands: list[Ran] = field(default_factory=list)
    recurrences: list[Recurred] = field(default_factory=list)
    leases: list[Lease] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)
    secrets: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    resumed: list[int] = field(default_factory=list)
    """Epoch µs at which processes that had been suspended were let go on."""
    pauses: list[tuple[str, int, int]] = field(default_factory=list)
    """Queue, and in epoch ms since when and until when it was certainly paused."""
    handler_pauses: list[HandlerPause] = field(default_factory=list)
    forgotten: set[tuple[str, str]] = field(default_factory=set)
    """Queue and id of messages that had ended, and were forgotten as they should be."""
    undone: set[tuple[str, str]] = field(default_factory=set)
    """Queue and id of messages of which the server lost the last changes."""
    miscounted: set[str] = field(default_factory=set)
    """Batches of which it did, and chains."""
    clock_steps: list[tuple[int, int]] = field(default_factory=list)
    """Epoch µs at which the server's clock was set, and by how many µs. Other instants here are those of a clock that
    was not."""
    one_at_a_time: bool = True
    """Whether launches have one slot, and one instance."""
    settled_within: int = 500
    """Milliseconds in which a message is settled after its handler has ended, as a launch reckons it: on a busy machine
    that is too early, and a network that loses packets delays what follows."""
    quota: tuple[str, int, int] | None = None
    """Queue, most messages, period in ms."""

    def of_message(self) -> dict[tuple[str, str], list[Execution]]:
        """Executions by queue and id, in the order of their starts."""
        found: dict[tuple[str, str], list[Execution]] = {}
        for execution in sorted(self.executions, key=lambda each: each.started):
            found.setdefault((execution.queue, execution.id), []).append(execution)
        return found

    def first_shown(self, due: int, since: int, until: int | None) -> int:
        """When the server's clock first showed ``due``, in epoch ms, that was computed by it between two instants; or
        before it was set back between them."""
        steps = [(since, self.ahead_at(since))]
        for at, by in self.clock_steps:
            if at > since:
                steps.append((at, steps[-1][1] + by))
                if by < 0 and (until is None or at <= until):
                    due += by // 1000
        for (began, ahead), (following, _) in zip(steps, [*steps[1:], (1 << 60, 0)], strict=True):
            first = max(began, due * 1000 - ahead)
            if first < following:
                return first // 1000
        raise AssertionError("the last step has no end")

    def ahead_at(self, instant: int) -> int:
        """µs by which the server's clock was ahead then."""
        return sum(by for at, by in self.clock_steps if at <= instant)

    def set_forward(self, since: int, until: int) -> int:
        """µs by which the server's clock was, between two instants."""
        return sum(by for at, by in self.clock_steps if since <= at <= until and by > 0)

    def enqueued(self) -> list[Operation]:
        """Accepted for certain, and no duplicate; without those that were undone."""
        return [
            each
            for each in self.operations
            if each.what == "enqueue" and each.outcome == "ok" and (each.queue, each.id) not in self.undone
        ]

    def replacements(self) -> dict[tuple[str, str], list[Operation]]:
        """By queue and id of a message: what has replaced its payload and its due time, or may have."""
        alike, found = dict[tuple[str, str], list[Operation]](), dict[tuple[str, str], list[Operation]]()
        for each in self.operations:
            if each.replaces():
                alike.setdefault((each.queue, each.key), []).append(each)
        for those in alike.values():
            for each in those:
                others = [other.id for other in those if other is not each] if each.outcome == "unknown" else []
                for name in [each.holder] if each.holder else others:
                    found.setdefault((each.queue, name), []).append(each)
        return found

    def brought_about(self) -> set[str]:
        """Ids of callbacks and links that there may be."""
        callbacks = {f"{each.id}:{name}" for each in self.batches for name in each.callbacks}
        callbacks |= {f"{each.id}:{name}" for each in self.followed for name in each.callbacks}
        return callbacks | {f"{each.id}+{link}" for each in self.followed for link in range(2, len(each.links) + 1)}

    def undone_with_follow_ups(self) -> set[tuple[str, str]]:
        undone = set(self.undone)
        for each in self.executions:
            if (each.queue, each.id) in self.undone:
                undone |= {(child["queue"], child["id"]) for child in each.follow_ups}
        return undone

    def lost(self) -> set[str]:
        """Batches, chains and messages with callbacks of which any part was undone."""
        names = {name for _, name in self.undone_with_follow_ups()}
        batches = {member[0] for member in map(member_of, names) if member}
        inner = {name.rpartition(":")[0] for name in names}  # of callbacks; its id has a colon, too
        return self.miscounted | batches | inner | {re.split("[:+]", name)[0] for name in names}

    def kept(self) -> History:
        """What is left of it without the messages that were undone, their follow-ups, and what names them."""
        undone = self.undone_with_follow_ups()

        def left(call: Execution) -> Execution:
            return call._replace(
                follow_ups=tuple(each for each in call.follow_ups if (each["queue"], each["id"]) not in undone)
            )

        return replace(
            self,
            executions=[left(each) for each in self.executions if (each.queue, each.id) not in undone],
            operations=[
                each for each in self.operations if not {(each.queue, each.id), (each.queue, each.holder)} & undone
            ],
            stored=[each for each in self.stored if (each.queue, each.id) not in undone],
            miscounted=self.lost(),
        )


def read_executions(path: Path) -> list[Execution]:
    """Of a log of starts and ends, matched by their tokens."""
    started: dict[str, Execution] = {}
    for entry in _lines(path):
        token = entry.pop("token")
        what, at = entry.pop("what"), entry.pop("at")
        if what == "start":
            started[token] = Execution(started=at, **entry)
        else:
            entry["follow_ups"] = tuple(entry.get("follow_ups", ()))
            started[token] = started[token]._replace(ended=at, **entry)
    return list(started.values())


def read_operations(paths: Iterable[Path]) -> list[Operation]:
    """Of logs of calls and their answers, matched by their tokens."""
    called: dict[str, Operation] = {}
    for path in paths:
        for entry in _lines(path):
            token = entry.pop("token")
            called[token] = called[token]._replace(**entry) if token in called else Operation(**entry)
    return list(called.values())


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        with path.open() as lines:
            for line in lines:
                yield json.loads(line)


def in_turn(calls: Iterable[Execution]) -> Iterator[Execution]:
    """The calls of a message, without those of a launch that began after another one had the message again."""
    last = 0, 0
    for each in sorted(calls, key=lambda each: each.started):
        if (each.generation, each.attempt) >= last:
            last = each.generation, each.attempt
            yield each
