"""Queries that several modules make: the server's clock, its queues, whether they are served, their throughput."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from pollconsumer.core.errors import BadData, StoreUnreachable
from pollconsumer.core.lifecycle import durations_of
from pollconsumer.core.messages.message import check_queue
from pollconsumer.core.notation.instants import LAST_MILLISECOND
from pollconsumer.store.client.replies import not_understood
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.records.rows import ended_at, read_row

TIME = ("TIME",)
MOST_DIGITS = 16
"""Integers with more digits may not be exact in Lua."""
COUNTED = 500
"""How many of the last completed messages are read to compute the rate per minute."""
LOOKED_AT = 100
SCANNED = 1000
MINUTE = 60_000


def now_ms(wire: Wire) -> int:
    """The server's clock, in epoch milliseconds."""
    return to_ms(wire.command(*TIME))


def to_ms(answer: Sequence[bytes]) -> int:
    """A reply to TIME, in epoch milliseconds."""
    seconds, microseconds = answer
    return int(seconds) * 1000 + int(microseconds) // 1000


def info_fields(sections: Sequence[bytes]) -> dict[str, str]:
    """The fields in replies to INFO. StoreRefused if a reply is not text: the server is not Redis."""
    for section in sections:
        if not isinstance(section, bytes):
            raise not_understood(section)
    return dict(line.split(":", 1) for section in sections for line in section.decode().splitlines() if ":" in line)


def known_queues(wire: Wire, keys: Keys) -> list[str]:
    """Every queue that ever had a message, a consumer, a pause or a recurrence, sorted. Corrupt names are left out."""
    return queue_names(wire.command("SMEMBERS", keys.control("queues")))


def lost_queues(wire: Wire, keys: Keys, queues: Iterable[str]) -> set[str]:
    """The ``queues`` whose cluster node is lost; none if the node with the leases is lost, too."""
    signs = {keys.queue(queue, "ready"): queue for queue in queues}
    lost = wire.lost(signs)
    return {queue for sign, queue in signs.items() if sign in lost}


def readable_queues(wire: Wire, keys: Keys) -> list[str]:
    """The `known_queues`. With ``wire.skips_lost``, those whose cluster node is lost are in ``wire.unread`` instead."""
    queues = known_queues(wire, keys)
    wire.unread.clear()
    if wire.skips_lost:
        wire.unread.update(lost_queues(wire, keys, queues))
    return [queue for queue in queues if queue not in wire.unread]


def unreachable(queues: Iterable[str]) -> StoreUnreachable:
    """The error for ``queues`` whose cluster node is lost."""
    fix = "their node of the cluster is lost, and no replica has taken its place"
    return StoreUnreachable("queues unreachable", ", ".join(sorted(queues)), fix)


def queue_names(stored: Iterable[bytes]) -> list[str]:
    """Names of queues, sorted, without corrupt ones."""
    names = []
    for name in stored:
        with suppress(BadData, UnicodeDecodeError):
            names.append(check_queue(name.decode()))
    return sorted(names)


def literal(text: str) -> str:
    """``text`` escaped for the server's glob patterns."""
    return re.sub(r"([*?\[\]^\\-])", r"\\\1", text)


def fields_like(wire: Wire, key: str, pattern: str) -> Iterator[list[bytes]]:
    """The fields of a hash that match ``pattern``, without their values, a page at a time."""
    cursor = b""
    while cursor != b"0":
        cursor, found = wire.command("HSCAN", key, cursor or b"0", "MATCH", pattern, "COUNT", SCANNED)
        yield found[::2]


def instant_of(score: bytes) -> int:
    """The instant in a sorted set's ``score``, limited to valid dates, since a corrupt score may be infinite."""
    return int(min(max(float(score), 0.0), LAST_MILLISECOND))


def count_of(text: bytes | None) -> int:
    """The count in ``text``; 0 if it is missing or corrupt."""
    digits = (text or b"").removeprefix(b"-")
    return int(text or b"0") if digits.isdigit() and len(digits) <= MOST_DIGITS else 0


class QueueService(NamedTuple):
    """Whether a queue is served. ``lately``: launches served it so lately that the next one can be expected. ``ready``:
    the number of ready messages. ``waits``: other messages are there, such as scheduled ones."""

    lately: bool
    paused: bool
    ready: int
    waits: bool = False


NO_SERVICE = QueueService(lately=False, paused=False, ready=0)
"""The `QueueService` of a queue if there is no server yet."""


def service_of(wire: Wire, keys: Keys, queues: Sequence[str]) -> dict[str, QueueService]:
    """The `QueueService` of each queue, in one round trip."""
    commands = []
    for queue in queues:
        commands += [
            ("EXISTS", keys.queue(queue, "served")),
            ("EXISTS", keys.queue(queue, "paused")),
            ("LLEN", keys.queue(queue, "ready")),
            ("HGET", keys.queue(queue, "counters"), "left over"),
            ("ZCARD", keys.queue(queue, "ready_by_priority")),
            ("ZCARD", keys.queue(queue, "waiting_for_place")),
            ("EXISTS", keys.queue(queue, "schedule"), keys.queue(queue, "outbox")),
        ]
    answers = iter(wire.all(commands))
    found = {}
    for queue in queues:
        served, paused, ready, duplicates, ranked, in_line, waits = (next(answers) for _ in range(7))
        ready += ranked + in_line - count_of(duplicates)
        found[queue] = QueueService(bool(served), bool(paused), ready, bool(waits))
    return found


def unknown_queues(wire: Wire, keys: Keys, queues: Sequence[str]) -> list[str]:
    """The ``queues`` that are not known: see `known_queues`. Needs one round trip."""
    known = wire.all([("SISMEMBER", keys.control("queues"), queue) for queue in queues])
    return [queue for queue, is_known in zip(queues, known, strict=True) if not is_known]


class Load(NamedTuple):
    """The throughput and the delays of a queue. ``waited_seconds`` (from ready to reserved) and ``handled_seconds``:
    means of the last completed messages. ``late_seconds``: their longest delay from due to ready. None without such
    messages."""

    completed_per_minute: float
    waited_seconds: float | None
    handled_seconds: float | None
    late_seconds: float | None


def load_of(wire: Wire, keys: Keys, queue: str, now: int) -> Load:
    """The `Load` of ``queue``. ``now``: epoch ms of the server's clock."""
    ids = wire.command("LRANGE", keys.queue(queue, "completed"), -COUNTED, -1)
    stored = wire.command("HMGET", keys.queue(queue, "rows"), *ids) if ids else []
    found = [row for row in stored if row]
    recent = [at for at in map(ended_at, found) if at > now - MINUTE]
    span = max(1, now - recent[0]) if len(recent) == COUNTED else MINUTE
    times = [read_row(row).timestamps for row in found[-LOOKED_AT:]]
    spans = [durations_of(t) for t in times]
    late = [max(0, t.enqueued_at - t.due_at) / 1000 for t in times if t.due_at and t.enqueued_at]
    return Load(
        completed_per_minute=round(len(recent) * MINUTE / span, 1),
        waited_seconds=_mean(span["waited_seconds"] for span in spans),
        handled_seconds=_mean(span["handled_seconds"] for span in spans),
        late_seconds=max(late) if late else None,
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 3) if known else None
