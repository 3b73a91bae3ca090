"""Reads the facts for `doctor`, from which its findings follow. This module writes nothing."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path

from pollconsumer.core import json_values
from pollconsumer.core.choices import HandOff
from pollconsumer.core.lifecycle import State, state_of
from pollconsumer.core.notation.instants import epoch_ms
from pollconsumer.core.notation.text import counted
from pollconsumer.core.spans import format_duration
from pollconsumer.interface.configured_store import spool_of
from pollconsumer.interface.settings.model import Settings
from pollconsumer.interface.settings.owners import REMEDY, OwnStore, own_store
from pollconsumer.interface.settings.values import duration_alarms
from pollconsumer.runtime.launch.next_launches import next_launches
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.reading.batch_reader import BatchReader
from pollconsumer.store.reading.inspector import QueueCounts
from pollconsumer.store.reading.ledger import SKIPPED, SKIPPED_AT, all_names
from pollconsumer.store.records import rows
from pollconsumer.store.rights import LAUNCH
from pollconsumer.store.server import TIME, count_of, info_fields, to_ms
from pollconsumer.store.store import Store
from pollconsumer.watching.facts import (
    FEWEST,
    BatchFacts,
    Expected,
    Facts,
    Finding,
    HeldOrder,
    QueueFacts,
    ServerFacts,
)
from pollconsumer.watching.findings import findings_of

LAUNCHES_READ = 1000
PARKED_LOOKED_AT = 200
HEADS_LOOKED_AT, LINES_LOOKED_AT, WAITING_COUNTED = 1000, 20, 1000
"""How many heads of order keys are examined; for how many of those that block their key the waiting messages are
counted; and how many messages are counted for each of these at most."""
UNREADABLE_READ = 20
BATCHES_LOOKED_AT = 50
"""Number of batches of a queue that are examined: so many of the first, and of the last."""
OLDEST, MEMBERS = 10, 20
"""For how many of a queue's oldest closed batches, and how many outstanding members of each, the queues are read."""
SPOOLED_AT_MOST = 180.0
"""Seconds, or twice the time between launches if that is longer, that a spooled file may wait without a finding."""
CUTTING_OFF = ("CLIENT|ID", "CLIENT|KILL")
_LAG = re.compile(r"state=online,.*lag=(\d+)")
_STATE = re.compile(r"ip=(?P<host>[^,]*),port=(?P<port>\d+),state=(?P<state>\w+)")
_WRITES = {
    "aof_last_write_status": "its append-only file",
    "aof_last_bgrewrite_status": "a new append-only file",
    "rdb_last_bgsave_status": "a snapshot",
}


class Examiner:
    def __init__(self, store: Store) -> None:
        self._store, self._wire, self._keys, self._inspector = store, store.wire, store.keys, store.inspector

    def facts(self, expected: Expected, data: Path | None = None) -> Facts:
        """Read the facts. ``data``: the embedded server's directory; None for another server. Raises the errors of all
        reads."""
        primary, *others = self._wire.servers()
        lost = self._wire.lost_servers()
        others = [each for each in others if each not in lost]
        overview = self._inspector.overview()
        now, server = self._server(primary, data)
        launches = self._inspector.launches(LAUNCHES_READ, FEWEST)
        lacking = self._wire.call("rights", [self._keys.control("fences")], [*LAUNCH.split(), *CUTTING_OFF])
        missing = {each.decode() for each in lacking}
        programs = {os.path.realpath(each) for each in (server.program, expected.program)}  # a package's may be links
        return Facts(
            now=now,
            server=server._replace(
                lacking=tuple(name for name in LAUNCH.split() if name in missing),
                set_back=self._store.leases.set_back_by(),
                may_cut_off=None if not self._wire.over_network else missing.isdisjoint(CUTTING_OFF),
                location=primary.location if others or lost else "",
                runs_another=bool(expected.program) and len(programs) > 1,
            ),
            queues=[self._queue(counts, now, expected.recent) for counts in overview.queues],
            recurrences=[*self._store.recurrences.unowned(UNREADABLE_READ)],
            launches=launches,
            expected=expected,
            others=[self._server(other, None)[1]._replace(location=other.location) for other in others],
            lost=[each.address for each in lost],
            unreachable=overview.unreachable,
            paused_handlers=self._paused_handlers(overview.paused_handlers, now),
            batches=batch_facts(self._store.batches, [counts.name for counts in overview.queues], now),
            outliers=dict(self._outliers(expected, now)),
        )

    def _paused_handlers(self, paused: Mapping[str, int], now: int) -> dict[str, float]:
        if not paused:
            return {}
        latest = max(paused.values())  # a handler may be paused by one name, and its messages have another
        names = all_names(self._wire, self._keys, paused)
        return {name: max(0, now - paused.get(name, latest)) / 1000 for name in names}

    def _outliers(self, expected: Expected, now: int) -> Iterator[tuple[tuple[str, str], tuple[float, str, float]]]:
        """The messages that launches have stored as too slow or too fast, without corrupt entries."""
        for handler, limits in expected.duration_alarms.items():
            for limit in limits:
                noted = self._wire.command("HGET", self._keys.control("findings"), f"{limit}\n{handler}")
                with suppress(ValueError, TypeError):
                    at, took, message_id = json_values.parse(noted or b"[]")
                    yield (limit, handler), (float(took), str(message_id), max(0, now - at) / 1000)

    def _server(self, wire: Wire, data: Path | None) -> tuple[int, ServerFacts]:
        """The time of the server's clock, and the facts about that server."""
        sections = [("INFO", name) for name in ("server", "memory", "persistence", "replication")]
        before = time.time()
        answer = wire.command(*TIME)
        after = time.time()
        info = info_fields(wire.all(sections))
        now, valkey = to_ms(answer), info.get("valkey_version")
        replicas = [value for name, value in info.items() if re.fullmatch(r"slave\d+", name)]
        lags = map(_LAG.search, replicas)
        states = filter(None, map(_STATE.search, replicas))
        return now, ServerFacts(
            version=f"Valkey {valkey}" if valkey else f"Redis {info.get('redis_version', 'unknown')}",
            program="" if data is None else info.get("executable", ""),
            skew=now / 1000 - (before + after) / 2,
            skew_within=(after - before) / 2,
            appends=info.get("aof_enabled") == "1",
            broken=tuple(what for name, what in _WRITES.items() if info.get(name, "ok") != "ok"),
            append_only_bytes=int(info.get("aof_current_size", 0)),
            append_only_base=int(info.get("aof_base_size", 0)),
            disk_free=None if data is None else shutil.disk_usage(data).free,
            used_memory=int(info.get("used_memory", 0)),
            max_memory=int(info.get("maxmemory", 0)),
            policy=info.get("maxmemory_policy", "noeviction"),
            replica_lags=tuple(float(lag[1]) for lag in lags if lag),
            replica_states={f"{found['host']}:{found['port']}": found["state"] for found in states},
        )

    def _queue(self, counts: QueueCounts, now: int, recent: float) -> QueueFacts:
        key = self._keys.queue
        head, died, (skipped, skipped_at), quarantined, (_, heads) = self._wire.all(
            [
                ("ZRANGE", key(counts.name, "schedule"), 0, 0, "WITHSCORES"),
                ("ZCOUNT", key(counts.name, "dead_letters"), f"({now - recent * 1000}", "+inf"),
                ("HMGET", key(counts.name, "totals"), SKIPPED, SKIPPED_AT),
                ("LLEN", key(counts.name, "quarantine")),
                ("HSCAN", key(counts.name, "order_heads"), 0, "COUNT", HEADS_LOOKED_AT),
            ]
        )
        due = float(head[1]) / 1000 if head and counts.overdue else None
        return QueueFacts(
            counts,
            overdue_by=None if due is None else max(0.0, now - due) / 1000,
            parked=self._parked(counts) if counts.parked else {},
            unreadable=self._wire.command("ZCARD", self._keys.queue(counts.name, "recurrences_unreadable")),
            quarantined=quarantined,
            died=died,
            skipped=count_of(skipped),
            skipped_ago=max(0, now - count_of(skipped_at)) / 1000 if skipped_at is not None else None,
            held=self._held(counts.name, heads, now) if heads else None,
        )

    def _held(self, queue: str, heads: Sequence[bytes], now: int) -> HeldOrder | None:
        """The blocked order key of ``queue`` whose next message has waited longest. None if no message waits behind a
        blocking head. ``heads``: keys, each followed by the id of its head."""
        name, ids = partial(self._keys.queue, queue), heads[1::2]
        states = zip(*self._wire.all([("HMGET", name(each), *ids) for each in ("rows", "records")]), strict=True)
        holding = list[tuple[bytes, bytes, bool]]()
        for key, head, (row, record) in zip(heads[::2], ids, states, strict=True):
            newer = record is not None and rows.is_newer(record)
            if newer or (row is not None and state_of(rows.read_row(row).timestamps) is State.DEAD):
                holding.append((key, head, newer))
        del holding[LINES_LOOKED_AT:]
        begins = [b"\1" + key for key, *_ in holding]
        line = name("waiting_for_place")
        looks = [
            ("ZRANGEBYLEX", line, b"[%b\0" % each, b"(%b\1" % each, "LIMIT", 0, WAITING_COUNTED) for each in begins
        ]
        lines = self._wire.all(looks) if looks else []
        found = list[HeldOrder]()
        for (key, head, newer), begin, waiting in zip(holding, begins, lines, strict=True):
            if waiting:
                first = self._wire.command("HGET", name("rows"), waiting[0][len(begin) + 20 :])
                since = rows.read_row(first or rows.BLANK).timestamps.enqueued_at or now
                about = key.decode("utf-8", "replace"), rows.id_text(head), newer
                found.append(HeldOrder(*about, len(waiting), max(0, now - since) / 1000))
        longest = max(found, key=lambda each: each.first, default=None)
        return longest and longest._replace(others=len(found) - 1)

    def _parked(self, counts: QueueCounts) -> dict[str, int]:
        """Handler → number of its parked messages, estimated by a few of them."""
        key = self._keys.queue
        ids = self._wire.command("SRANDMEMBER", key(counts.name, "parked"), PARKED_LOOKED_AT)
        found = self._wire.command("HMGET", key(counts.name, "rows"), *ids) if ids else []
        handlers = Counter(rows.read_row(row).handler for row in found if row)
        if len(ids) < PARKED_LOOKED_AT:
            return dict(handlers)
        return {handler: round(count * counts.parked / len(ids)) for handler, count in handlers.items()}


def batch_facts(reader: BatchReader, queues: Sequence[str], now: int) -> list[BatchFacts]:
    """Facts about batches of ``queues``. ``now``: the server's clock in epoch ms."""
    counts = zip(queues, reader.counts(queues), strict=True)
    return [each for queue, count in counts if count for each in _batches_of(reader, queue, now)]


def _batches_of(reader: BatchReader, queue: str, now: int) -> Iterator[BatchFacts]:
    parts = [*reader.part(queue, 0, BATCHES_LOOKED_AT - 1), *reader.part(queue, -BATCHES_LOOKED_AT, -1)]
    lasting = {each.id: (at, each) for at, each in parts if each.state in ("open", "closed")}
    by_age = sorted(lasting.values(), key=lambda found: found[1].created_at)
    asked = [each.id for _, each in by_age if each.state == "closed" and each.outstanding][:OLDEST]
    for at, each in by_age:
        ahead = reader.queues_ahead(each, MEMBERS) if each.id in asked else ()
        yield BatchFacts(
            each.id,
            each.state,
            (each.queue, *ahead),
            each.total,
            each.outstanding,
            age=(now - epoch_ms(each.created_at)) / 1000,
            overdue_by=(now - at) / 1000 if at < now else None,
        )


def expected_of(settings: Settings) -> Expected:
    """What ``doctor`` expects of launches with these settings."""
    consumer, period, launches = settings.consumer, None, 1
    if consumer.schedule:
        first, second = next_launches(consumer.schedule, datetime.now().astimezone())
        period = second - first
    if consumer.handoff is HandOff.BATON:
        launches = 2
    window = min(consumer.timeout, period or consumer.timeout) * launches
    replicas = (settings.strict.replicas or 1) if settings.durability == "strict" and not settings.is_embedded else None
    program = settings.server_program() if settings.is_embedded else None
    return Expected(
        consumer.queues,
        period,
        window,
        consumer.grace,
        consumer.overrun_target,
        replicas,
        settings.doctor.recent,
        program=str(program or ""),
        handoff=consumer.handoff,
        wait_alarms={name: each.wait_alarm for name, each in settings.queues.items() if each.wait_alarm is not None},
        duration_alarms=duration_alarms(settings.alarms.handlers),
    )


def look(settings: Settings, store: Store) -> tuple[Facts, list[Finding]]:
    """The facts about the running system, and the findings. Raises the errors of all reads."""
    own = own_store(settings)
    expected = expected_of(settings)._replace(alone=own.user if own else "")
    facts = Examiner(store).facts(expected, settings.data_directory() if settings.is_embedded else None)
    return facts, [*_owner_findings(own), *_spool_findings(settings, expected), *findings_of(facts)]


def _owner_findings(own: OwnStore | None) -> Iterator[Finding]:
    """Yield the finding that the configuration is another user's, and that user has another store."""
    if own is not None and own.is_anothers:
        what = f"{own.config.name} is {own.owner}'s, but you are {own.user} and use a server of your own"
        yield Finding("owner", None, what, str(own.directory), f"{own.owner}'s launches never read it; {REMEDY}")


def _spool_findings(settings: Settings, expected: Expected) -> Iterator[Finding]:
    """Yield findings about spooled messages that no launch has enqueued, or none can enqueue."""
    if settings.spool is None:
        return
    state, location = spool_of(settings).state(), str(settings.spool_directory())
    age = 0.0 if state.oldest is None else time.time() - state.oldest / 1000
    if age > max(SPOOLED_AT_MOST, 2 * (expected.period or 0.0)):
        value = f"{counted(state.waiting, 'file')} in {location}, the oldest for {format_duration(age)}"
        fix = "check that launches run on this host, and reach the store"
        yield Finding("spool_waits", None, "messages in the spool are not enqueued yet", value, fix)
    if state.refused:
        fix = "'pollconsumer dead list --unreadable' shows why; rename a file without .refused to try it again"
        value = f"{counted(state.refused, 'file')} in {location}"
        yield Finding("spool_refused", None, "messages in the spool cannot be enqueued", value, fix)
