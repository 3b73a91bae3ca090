"""The facts that `doctor` examines, and the findings that it reports. Durations are in seconds, sizes in bytes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

from pollconsumer.core.choices import HandOff
from pollconsumer.core.coverage import tick_after
from pollconsumer.core.errors import shown
from pollconsumer.core.launcher import BY_PRODUCERS, ON_DEMAND
from pollconsumer.core.notation.text import printable
from pollconsumer.core.window import StopReason
from pollconsumer.store.reading.inspector import QueueCounts
from pollconsumer.store.recurrences import RecurrenceStatus

LOOKED_AT = 10
"""Number of launches of a group whose starts show how often launches come."""
FEWEST = 3
MISSED = 3
"""A group counts as absent if so many successive launches have not come."""
AT_LEAST = 180.0
UNLEARNED = 1200.0
"""A group counts as absent after so many seconds if too few launches have come to show how often they come."""


class Finding(NamedTuple):
    """A problem. ``name``: its kind. ``subject``: what it is about, such as queues, a handler, a recurrence or a batch.
    ``what``, ``value``, ``fix``: the parts of its text."""

    name: str
    subject: str | None
    what: str
    value: str
    fix: str

    def __str__(self) -> str:
        return printable(f"{self.what}: {shown(self.value)}; {self.fix}")


class ServerFacts(NamedTuple):
    """Facts about a server. ``program``: the embedded server's running program. ``runs_another``: the settings name
    another program. ``skew``: how far its clock is ahead of ours, give or take ``skew_within``. ``appends``: it has an
    append-only file. ``broken``: what it failed to write. ``disk_free``: None unless it is the embedded server.
    ``replica_lags``: of replicas that are online. ``replica_states``: host and port of each connected replica → its
    state, such as ``online`` or ``wait_bgsave``. ``lacking``: rights of a launch that this user does not have.
    ``may_cut_off``: whether this user may close its own connections; None without a network. ``set_back``: by how much
    its clock was set back. ``location``: host and port, if there are several servers."""

    version: str = ""
    program: str = ""
    skew: float = 0.0
    skew_within: float = 0.0
    appends: bool = True
    broken: tuple[str, ...] = ()
    append_only_bytes: int = 0
    append_only_base: int = 0
    disk_free: int | None = None
    used_memory: int = 0
    max_memory: int = 0
    policy: str = "noeviction"
    replica_lags: tuple[float, ...] = ()
    replica_states: Mapping[str, str] = {}
    lacking: tuple[str, ...] = ()
    may_cut_off: bool | None = None
    set_back: float = 0.0
    location: str = ""
    runs_another: bool = False


class HeldOrder(NamedTuple):
    """An order key whose ``head`` blocks it until a person acts: a dead letter, or a message of a ``newer`` version.
    ``waiting``: how many messages wait behind the head, as far as counted. ``first``: how long the first of them has
    been ready. ``others``: how many other keys are blocked."""

    key: str
    head: str
    newer: bool
    waiting: int
    first: float
    others: int = 0


class QueueFacts(NamedTuple):
    """Facts about a queue. ``overdue_by``: how long the oldest message has been overdue; None if none is. ``parked``:
    handler that is paused, or that no launch has → number of its messages. ``unreadable``: number of recurrences that
    launches cannot read. ``quarantined``: number of entries of the outbox that cannot be read. ``died``: number of dead
    letters within `Expected.recent`. ``skipped``: number of occurrences skipped so far. ``skipped_ago``: how long ago
    the last one was skipped; None if none was. ``held``: of the order keys that need a person, the one behind which a
    message has waited longest."""

    counts: QueueCounts
    overdue_by: float | None = None
    parked: Mapping[str, int] = {}
    unreadable: int = 0
    quarantined: int = 0
    died: int = 0
    skipped: int = 0
    skipped_ago: float | None = None
    held: HeldOrder | None = None

    @property
    def name(self) -> str:
        return self.counts.name


class BatchFacts(NamedTuple):
    """Facts about a batch that is open or closed. ``age``: seconds since it was opened. ``overdue_by``: how long ago it
    should have become abandoned or expired; None if it is not overdue. ``queues``: the batch's own queue, then those of
    some outstanding members."""

    id: str
    state: str
    queues: tuple[str, ...]
    total: int = 0
    outstanding: int = 0
    age: float = 0.0
    overdue_by: float | None = None


class Expected(NamedTuple):
    """What the settings say. ``queues``: ``consumer.queues``; empty if unset. ``period``: seconds between launches by
    ``consumer.schedule``. ``window``: a launch's window. ``replicas``: for how many replicas producers wait; None for
    none. ``recent``: for how long events such as dead letters are findings. ``program``: the program that the embedded
    server should run; empty for any. ``alone``: this user's name, if other users of the configuration have embedded
    stores of their own; else empty. ``handoff``: the setting. ``wait_alarms``: queue → how many seconds a ready message
    may wait. ``duration_alarms``: handler → ``slower_than`` or ``faster_than`` → seconds."""

    queues: tuple[str, ...]
    period: float | None
    window: float
    grace: float
    overrun_target: float | None
    replicas: int | None
    recent: float
    program: str = ""
    alone: str = ""
    handoff: HandOff = HandOff.DEADLINE
    wait_alarms: Mapping[str, float] = {}
    duration_alarms: Mapping[str, Mapping[str, float]] = {}

    def concerns(self, role: str, queues: Sequence[str]) -> bool:
        """Whether launches with this role that serve these queues have these settings."""
        return role == "consumer" and (not self.queues or sorted(queues) == sorted(self.queues))


class Facts(NamedTuple):
    """Facts about a running system. ``now``: the server's clock in epoch ms. ``recurrences``: those that launches
    define, and some that are unreadable. ``launches``: the ledger's entries, newest first. ``server``: the server with
    the leases. ``others``: the other nodes of a cluster that answer. ``lost``: the addresses of nodes that do not
    answer. ``unreachable``: the queues on lost nodes. ``batches``: some batches that have not ended.
    ``paused_handlers``: name of a paused handler, or its alias → for how long it has been paused. ``outliers``: alarm
    and handler → a message that took longer, or less time, than the alarm allows: how long it took, its id, and how
    long ago that was."""

    now: int
    server: ServerFacts
    queues: Sequence[QueueFacts]
    recurrences: Sequence[RecurrenceStatus]
    launches: Sequence[Mapping[str, Any]]
    expected: Expected
    others: Sequence[ServerFacts] = ()
    lost: Sequence[str] = ()
    unreachable: Sequence[str] = ()
    batches: Sequence[BatchFacts] = ()
    paused_handlers: Mapping[str, float] = {}
    outliers: Mapping[tuple[str, str], tuple[float, str, float]] = {}


class LaunchGroup(NamedTuple):
    """Launches that share a lease. ``seen``: seconds since a launch last ran; 0 while one runs. ``period``: seconds
    between starts, by the ledger; if the ledger has too few, by the newest launch's schedule, or by the settings'; None
    if unknown. Launches that producers started do not count for ``seen`` and ``period``, since they show nothing about
    the launcher. ``by_producers``: whether a producer started the newest launch."""

    name: str
    role: str
    queues: tuple[str, ...]
    seen: float
    period: float | None
    launches: list[Mapping[str, Any]]
    """The launches of the group, newest first."""
    by_producers: bool = False

    @property
    def allowed(self) -> float:
        """How many seconds may pass without a launch of the group before that is a finding."""
        if self.period is None:
            return UNLEARNED
        pause = tick_after(self.launches[0]) or 0.0  # by an uneven schedule, such as one of office hours
        return max(AT_LEAST, MISSED * self.period, pause + (MISSED - 1) * self.period)

    @property
    def by_hand(self) -> bool:
        """Whether a person started all launches: they are few, and each ended when its queues were empty."""
        ended = all(each["stop_reason"] == StopReason.EMPTY and not each.get("platform") for each in self.launches)
        return ended and len(self.launches) < FEWEST

    @property
    def absent(self) -> bool:
        return self.seen > self.allowed


def groups_of(launches: Sequence[Mapping[str, Any]], now: int, expected: Expected) -> list[LaunchGroup]:
    """The groups of ``launches``, the ledger's entries, newest first. ``now``: the server's clock in epoch ms."""
    by_name: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for launch in launches:
        if "started_ms" in launch and launch.get("lineage"):
            by_name[launch["lineage"].rpartition(":")[0]].append(launch)
    return [_group(name, found, now, expected) for name, found in by_name.items()]


def _group(name: str, launches: list[Mapping[str, Any]], now: int, expected: Expected) -> LaunchGroup:
    by_lease_name: defaultdict[str, list[int]] = defaultdict(list)
    for launch in launches:
        if launch.get("platform") not in BY_PRODUCERS:
            by_lease_name[launch["lineage"]].append(launch["started_ms"])
    between = [[*pairwise(starts[:LOOKED_AT])] for starts in by_lease_name.values() if len(starts) >= FEWEST]
    periods = [median(abs(later - earlier) for later, earlier in each) / 1000 for each in between]
    # If a scheduler's request finds a launch by a URL running, it leaves no entry. So each of those launches may stand
    # for it.
    others = [launch for launch in launches if launch.get("platform") != ON_DEMAND]
    first = (now - launches[-1]["started_ms"]) / 1000
    seen = min((_seen(launch, now) for launch in others), default=first)
    role, queues = launches[0]["role"], tuple(launches[0]["queues"])
    ticks = (tick_after(launch) for launch in launches if launch.get("platform") not in BY_PRODUCERS)
    scheduled = next(filter(None, ticks), expected.period if expected.concerns(role, queues) else None)
    by_producers = launches[0].get("platform") == ON_DEMAND
    return LaunchGroup(name, role, queues, seen, min(periods, default=scheduled), launches, by_producers)


def _seen(launch: Mapping[str, Any], now: int) -> float:
    if launch["stop_reason"] is None:
        return 0.0
    last = int(launch.get("ended_ms", launch["started_ms"]))
    return max(0, now - last) / 1000
