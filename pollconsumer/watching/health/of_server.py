"""What is wrong with the store's server, or with this machine's relation to it."""

from __future__ import annotations

from collections.abc import Iterator

from pollconsumer.core.notation.timespan import format_duration
from pollconsumer.watching.health.facts import Expected, Finding, ServerFacts

MOST_SKEW = 2.0
"""Seconds between two clocks that nobody notices: a launch allows a second for its tick."""
NEARLY_FULL = 0.9
GROWN = 4
"""Multiple of its rewritten size that an append-only file never reaches: by default it is rewritten when it doubles."""
SMALLEST_REWRITTEN = 64 << 20
"""Bytes from which on a server rewrites its append-only file by default."""
SPARE_DISK = 64 << 20
LAGGING = 10.0
"""Seconds: a replica reports once a second."""


def of_server(server: ServerFacts, expected: Expected) -> Iterator[Finding]:
    if abs(server.skew) - server.skew_within > MOST_SKEW:
        side = "ahead of" if server.skew > 0 else "behind"
        yield Finding(
            "clock_skew", None, "clocks differ",
            f"the server's is {format_duration(abs(server.skew))} {side} this machine's",
            "synchronise both (NTP): due times follow the server's clock, crontabs this machine's",
        )  # fmt: skip
    if server.set_back:
        yield Finding(
            "clock_set_back", None, "the server's clock was set back", f"by {format_duration(server.set_back)}",
            "correct it (NTP): until it has caught up, scheduled messages wait that much longer",
        )  # fmt: skip
    if server.runs_another:
        yield Finding(
            "program", None, "embedded server still runs another program", server.program,
            f"stop it (pollconsumer store stop): the next launch starts {expected.program}",
        )  # fmt: skip
    yield from _of_persistence(server)
    yield from _of_memory(server)
    yield from _of_replicas(server, expected)
    if server.may_cut_off is False:
        yield Finding(
            "rights", None, "rights missing over a network", "client|id, client|kill",
            "grant them (docs/reference/rights.md): a delayed packet can cause a message to be handled twice",
        )  # fmt: skip


def _of_persistence(server: ServerFacts) -> Iterator[Finding]:
    if not server.appends and not server.replica_lags:
        yield Finding(
            "persistence", None, "no append-only file", "accepted messages are lost if the server dies",
            "set appendonly yes, or attach a replica",
        )  # fmt: skip
    for what in server.broken:
        yield Finding("persistence", None, "server cannot write", what, "look at its log, and whether its disk is full")
    size, base = server.append_only_bytes, max(server.append_only_base, SMALLEST_REWRITTEN)
    if server.appends and size > GROWN * base:
        yield Finding(
            "append_only_file", None, "append-only file is not rewritten",
            f"{_size(size)}, {_size(base)} after the last time",
            "look at the server's log, and at auto-aof-rewrite-percentage",
        )  # fmt: skip
    if server.disk_free is not None and server.disk_free < size + SPARE_DISK:
        yield Finding(
            "disk_space", None, "disk nearly full",
            f"{_size(server.disk_free)} free, the append-only file has {_size(size)}",
            "free some space: to be rewritten the file needs as much again; on a full disk the server refuses writes",
        )  # fmt: skip


def _of_memory(server: ServerFacts) -> Iterator[Finding]:
    if not server.max_memory:
        return
    if server.policy != "noeviction":
        yield Finding(
            "eviction", None, "store evicts", f"maxmemory-policy {server.policy}", "leases may vanish; set noeviction"
        )
    if server.used_memory > NEARLY_FULL * server.max_memory:
        yield Finding(
            "memory", None, "memory nearly full",
            f"{_size(server.used_memory)} of maxmemory {_size(server.max_memory)}",
            "raise maxmemory: the server refuses writes when it is reached",
        )  # fmt: skip


def _of_replicas(server: ServerFacts, expected: Expected) -> Iterator[Finding]:
    online, wanted = len(server.replica_lags), expected.replicas
    if wanted is not None and online < wanted:
        listed = ", ".join(f"{place} {state}" for place, state in sorted(server.replica_states.items()))
        absent = max(0, wanted - len(server.replica_states))
        yield Finding(
            "replication", None, "too few replicas",
            f"{online} of {wanted} online: {listed or 'none'}; {absent} not connected",
            "see the log of replicas that are not online, attach more, or lower strict.replicas: until then enqueue "
            "reports that messages are not replicated, and launches wait",
        )  # fmt: skip
    if server.replica_lags and (lag := max(server.replica_lags)) > LAGGING:
        yield Finding(
            "replication", None, "replica lags", f"last contact {format_duration(lag)} ago",
            "see its log and the network: if it is promoted, messages that it lacks are lost",
        )  # fmt: skip


def _size(count: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count / 1000:.0f} kB"
