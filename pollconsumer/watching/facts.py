"""What `doctor` looks at, and what it says. Spans of time in seconds, sizes in bytes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

from pollconsumer.core.choices import HandOff
from pollconsumer.core.errors import shown
from pollconsumer.core.launcher.detection import BY_PRODUCERS, ON_DEMAND
from pollconsumer.core.notation.text import printable
from pollconsumer.core.window import StopReason

LOOKED_AT = 10
"""Launches under one lease whose starts tell how often they come."""
FEWEST = 3
MISSED = 3
"""Launches missing in succession from which on the group counts as absent."""
AT_LEAST = 180.0
UNLEARNED = 1200.0
"""Seconds without a launch, where too few are known to tell how often they come."""


class Finding(NamedTuple):
    """Something that is wrong. ``name``: the same for each finding of a kind. ``subject``: the queue, handler or
    recurrence that the finding is about."""

    name: str
    subject: str | None
    what: str
    value: str
    fix: str

    def __str__(self) -> str:
        return printable(f"{self.what}: {shown(self.value)}; {self.fix}")


class ServerFacts(NamedTuple):
    """What is known of a server. ``program``: what it was started as, if it is the embedded one; ``runs_another``: the
    settings name another. ``skew``: how far its clock is ahead of ours, known to ``skew_within``. ``appends``: it has
    an append-only file. ``broken``: what it could not write. ``disk_free``: None unless it is the embedded one.
    ``replica_lags``: of replicas that are online. ``replica_states``: of all that are connected, by host and port, as
    ``online`` or ``wait_bgsave``. ``lacking``: rights of a launch that this user does not have.
    ``may_cut_off``: this user may close connections of its own; None where none go over a network. ``set_back``: by how
    much its clock was set back. ``location``: host and port of one of several servers."""

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
    """An order key whose ``head`` does not go on without a person: a dead letter that holds it, or a message of a
    ``newer`` version. ``waiting``: how many messages wait for it, as far as they are counted; ``first``: for how long
    the first of them is ready. ``others``: further keys of which this holds."""

    key: str
    head: str
    newer: bool
    waiting: int
    first: float
    others: int = 0


class QueueFacts(NamedTuple):
    """What is known of a queue. ``resumes``: its pause ends by itself. ``oldest_ready`` and ``overdue_by``: for how
    long the oldest message is ready, or overdue; None if there is none. ``parked``: messages by the handler that no
    launch had. ``unreadable``: recurrences that launches could not read. ``quarantined``: entries of the outbox that
    could not be read. ``died``: dead letters of the time that `Expected.recent` says. ``skipped``: how many occurrences
    were ever skipped. ``skipped_ago``: for how long none was skipped; None if none ever was. ``held``: the order key
    for which a message waits longest that a person must see to."""

    name: str
    ready: int = 0
    overdue: int = 0
    scheduled: int = 0
    paused: bool = False
    resumes: bool = False
    oldest_ready: float | None = None
    overdue_by: float | None = None
    parked: Mapping[str, int] = {}
    unreadable: int = 0
    quarantined: int = 0
    died: int = 0
    skipped: int = 0
    skipped_ago: float | None = None
    held: HeldOrder | None = None


class RecurrenceFacts(NamedTuple):
    """What is known of a recurrence. ``owners``: the groups of launches that define it; none if it was made at run
    time. ``error``: why its definition is unreadable."""

    name: str
    queue: str
    owners: tuple[str, ...] = ()
    error: str | None = None


class BatchFacts(NamedTuple):
    """What is known of a batch that is open or closed. ``age``: since it was opened. ``overdue_by``: for how long it
    should be abandoned or expired; None if it is not overdue. ``queues``: its queue, then
    those of some outstanding members."""

    id: str
    state: str
    queues: tuple[str, ...]
    total: int = 0
    outstanding: int = 0
    age: float = 0.0
    overdue_by: float | None = None


class Expected(NamedTuple):
    """What the settings say. ``queues``: those of ``consumer.queues``, none if that is unset. ``period``: seconds
    between launches by ``consumer.schedule``. ``window``: that of a launch. ``replicas``: how many producers wait for,
    None for none. ``recent``: for how long dead letters and skipped occurrences are findings. ``program``: what the
    embedded server is to run, empty for any. ``alone``: the user whose embedded store this is, where other users of the
    configuration have their own; empty otherwise. ``handoff``: the setting. ``wait_alarms``: seconds for which a ready
    message may wait, by queue. ``duration_alarms``: seconds by handler, and by ``slower_than`` or ``faster_than``."""

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
        """Whether the settings are those of launches of this role that serve these queues."""
        return role == "consumer" and (not self.queues or sorted(queues) == sorted(self.queues))


class Facts(NamedTuple):
    """What is known of a running system. ``now``: in epoch ms of the server's clock. ``recurrences``: those that
    launches define, and some of those that launches could not read. ``launches``: the ledger's entries, newest first.
    ``server``: the one with the leases. ``others``: the other nodes of a cluster that answer. ``lost``: the addresses
    of those that do not. ``unreachable``: the queues of the lost ones. ``batches``: some that have not ended.
    ``paused_handlers``: all names of those that a person paused. ``outliers``: of a message that took longer, or less
    time, than an alarm allows, by that and its handler: how long, its id, and how long ago."""

    now: int
    server: ServerFacts
    queues: Sequence[QueueFacts]
    recurrences: Sequence[RecurrenceFacts]
    launches: Sequence[Mapping[str, Any]]
    expected: Expected
    others: Sequence[ServerFacts] = ()
    lost: Sequence[str] = ()
    unreachable: Sequence[str] = ()
    batches: Sequence[BatchFacts] = ()
    paused_handlers: Collection[str] = ()
    outliers: Mapping[tuple[str, str], tuple[float, str, float]] = {}


class LaunchGroup(NamedTuple):
    """Launches that share a lease. ``seen``: seconds since the last one was there, 0 while one is. ``period``: seconds
    between starts, by the ledger or, while it has too few, by the schedule; None if unknown. Launches that producers
    have started say nothing about a launcher: ``seen`` and ``period`` are of the others. ``by_producers``: whether a
    producer started the newest one."""

    name: str
    role: str
    queues: tuple[str, ...]
    seen: float
    period: float | None
    launches: list[Mapping[str, Any]]
    """The group's launches, newest first."""
    by_producers: bool = False

    @property
    def allowed(self) -> float:
        """Seconds for which the group may be away."""
        return UNLEARNED if self.period is None else max(AT_LEAST, MISSED * self.period)

    @property
    def by_hand(self) -> bool:
        """Whether a person has started all launches, a few that ended as soon as nothing was left."""
        ended = all(each["stop_reason"] == StopReason.EMPTY and not each.get("platform") for each in self.launches)
        return ended and len(self.launches) < FEWEST

    @property
    def absent(self) -> bool:
        return self.seen > self.allowed


def groups_of(launches: Sequence[Mapping[str, Any]], now: int, expected: Expected) -> list[LaunchGroup]:
    """The groups of ``launches``, which are those of the ledger, newest first; ``now`` in epoch ms of the server's
    clock."""
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
    # A scheduler's request that meets a launch by a URL leaves no entry: each of those may be its.
    others = [launch for launch in launches if launch.get("platform") != ON_DEMAND]
    first = (now - launches[-1]["started_ms"]) / 1000
    seen = min((_seen(launch, now) for launch in others), default=first)
    role, queues = launches[0]["role"], tuple(launches[0]["queues"])
    scheduled = expected.period if expected.concerns(role, queues) else None
    by_producers = launches[0].get("platform") == ON_DEMAND
    return LaunchGroup(name, role, queues, seen, min(periods, default=scheduled), launches, by_producers)


def _seen(launch: Mapping[str, Any], now: int) -> float:
    if launch["stop_reason"] is None:
        return 0.0
    last = int(launch.get("ended_ms", launch["started_ms"]))
    return max(0, now - last) / 1000
