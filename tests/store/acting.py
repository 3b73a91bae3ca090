"""A producer and a launch as the store sees them."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

from pollconsumer.core.events import Event
from pollconsumer.core.messages.message import NewMessage
from pollconsumer.core.messages.payloads import digest_of
from pollconsumer.store.queues import outbox
from pollconsumer.store.records import rows
from pollconsumer.store.records.reservations import Claim, Reservation
from pollconsumer.store.records.steps import Completion, Limits, QueueStep, Settlement, Stepped
from pollconsumer.store.recurrence_actions import Recurrences
from pollconsumer.store.recurrences import LaunchRecurrences

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pollconsumer.store.queues.redis_store import RedisStore

QUEUE = "mail"
HOUR = 3_600_000
"""In milliseconds, as the store counts."""
UNATTENDED = 1 << 60
"""Since when there has been a launch, if there has been none."""


class AllRecurrences(LaunchRecurrences, Recurrences):
    """What launches and people do with recurrences."""


def unattended(_now_ms: int) -> int:
    """The same, as a mover is told."""
    return UNATTENDED


def message(
    id: str,  # noqa: A002  the name that the message gives it
    *,
    payload: bytes = b"{}",
    priority: int = 0,
    due: float | None = None,
    delay: int | None = None,
    key: str = "",
    lifetime: int = 0,
    concurrency: str = "",
    limit: int = 1,
    queue: str = QUEUE,
    handler: str = "handler",
    digest: str = "",
    headers: dict[str, str] | None = None,
    expires: int = 0,
    rate_key: str = "",
    rate: str = "",
    order: str = "",
) -> NewMessage:
    keys = (key, lifetime, concurrency, limit)
    new = NewMessage(
        id, queue, handler, payload, priority, due, delay, *keys, digest=digest, headers=headers, lifetime=expires
    )
    return new._replace(rate_key=rate_key, rate=rate, order_key=order)


def chosen(id: str, payload: bytes = b"{}", *, handler: str = "handler", queue: str = QUEUE) -> NewMessage:  # noqa: A002
    """A message whose id the user chose."""
    return message(id, payload=payload, handler=handler, queue=queue, digest=digest_of(handler, payload))


def age_rates(store: RedisStore, queue: str, ms: int) -> None:
    """Have what the ledgers of rates say have been so much earlier."""
    key = partial(store.keys.queue, queue)
    found = store.wire.command("HGETALL", key("rates"))
    for field, value in zip(found[::2], found[1::2], strict=True):
        instants = [int.from_bytes(value[at : at + 6], "big") - ms for at in (0, *range(8, len(value), 6))]
        until, *others = map(rows.pack6, instants)
        store.wire.command("HSET", key("rates"), field, until + value[6:8] + b"".join(others))


class Launch:
    """A holder of the lease of a queue, announced there unless told otherwise."""

    def __init__(
        self, store: RedisStore, fence: int = 1, *, slot: int = 0, queue: str = QUEUE, announced: bool = True
    ) -> None:
        self.store, self.queue = store, queue
        self.claim = Claim(f"consumer:{queue}:{slot}", str(fence), f"consumer:{queue}")
        self.recovered = store.maintenance.announce(self.claim, queue) if announced else 0

    def step(
        self,
        *,
        completed: Iterable[Reservation] = (),
        settled: Iterable[Settlement | Completion] = (),
        wanted: int = 0,
        wait: float = 0.0,
        lasts_ms: int = HOUR,
        limits: Limits | None = None,
        plain: bool = False,
    ) -> Stepped:
        queue_step = QueueStep(self.queue, wanted, limits.packed() if limits else "")
        queue_step.single = plain
        queue_step.complete([finish(r) for r in completed])
        for each in settled:
            if isinstance(each, Settlement):
                queue_step.settlements.append(each)
            else:
                queue_step.complete([each])
        return self.store.step(self.claim, [queue_step], lasts_ms=lasts_ms, now=lambda: 0.0, wait=wait)

    def reserve(self, most: int = 1, *, lasts_ms: int = HOUR) -> list[Reservation]:
        return self.step(wanted=most, lasts_ms=lasts_ms).reserved

    def complete(self, *reservations: Reservation) -> Stepped:
        return self.step(completed=reservations)

    def settle(self, *settlements: Settlement | Completion) -> Stepped:
        return self.step(settled=settlements)

    def begin(self, *reservations: Reservation) -> list[bytes]:
        """Returns ids of stale reservations."""
        return self.store.begin(self.claim, reservations)


release = Settlement.released


def retry(r: Reservation, delay_ms: int = 0, error: str = "ValueError: no") -> Settlement:
    return Settlement.retrying(r, r.reserved_at, r.reserved_at, delay_ms=delay_ms, error=error)


def die(r: Reservation, error: str = "Fatal: no") -> Settlement:
    return Settlement.dead(r, r.reserved_at, r.reserved_at, error=error)


def expire(r: Reservation) -> Settlement:
    return Settlement.expired(r, r.reserved_at)


def park(r: Reservation, delay_ms: int = 0) -> Settlement:
    return Settlement.parked(r, offered_in_ms=delay_ms, problem="unknown_handler: handler")


def finish(r: Reservation, result: str = "", ttl_ms: int = HOUR, outgoing: bytes = b"") -> Completion:
    """Complete, perhaps with a result, or with what is to be sent on."""
    return r, 0.0, 0.0, (ttl_ms, result.encode(), outgoing, b"") if result or outgoing else None


def complete_ago(store: RedisStore, ages_ms: dict[str, int], queue: str = QUEUE) -> None:
    """Enqueue messages, and complete them as if that had been so many ms ago."""
    launch = Launch(store, queue=queue)
    store.enqueue([message(name, queue=queue) for name in ages_ms])
    ends = [(r, -ages_ms[r.id.decode()] / 1000) for r in launch.reserve(len(ages_ms))]
    launch.settle(*((r, ended, ended, None) for r, ended in ends))


def names(reservations: Iterable[Reservation]) -> list[str]:
    return [reservation.id.decode() for reservation in reservations]


def send_and_die(store: RedisStore, entry: bytes, emit: Callable[[Event], object]) -> int:
    """Send an entry of the outbox of QUEUE, as a sender that dies before it removes it. Returns how many."""
    key = store.keys.queue(QUEUE, "outbox")
    left = store.wire.command("LRANGE", key, 0, -1)
    store.wire.command("DEL", key)
    store.wire.command("RPUSH", key, entry)
    sent = outbox.send(store, QUEUE, emit)
    if left:
        store.wire.command("RPUSH", key, *left)
    return sent


class Looking:
    """Reads the keys of a queue as they are."""

    def __init__(self, store: RedisStore, queue: str = QUEUE) -> None:
        self._wire, self._keys, self._queue = store.wire, store.keys, queue

    def key(self, name: str) -> str:
        return self._keys.queue(self._queue, name)

    def listed(self, name: str) -> list[str]:
        return [entry.decode() for entry in self._wire.command("LRANGE", self.key(name), 0, -1)]

    def ranked(self, name: str) -> list[str]:
        return [entry.decode() for entry in self._wire.command("ZRANGE", self.key(name), 0, -1)]

    def lined(self) -> list[str]:
        """Those in line for their concurrency keys, line by line."""
        entries = self._wire.command("ZRANGE", self.key("waiting_for_place"), 0, -1)
        return [entry[entry.index(b"\0") + 20 :].decode() for entry in entries]

    def score(self, name: str, id: str) -> int | None:  # noqa: A002
        found = self._wire.command("ZSCORE", self.key(name), id)
        return None if found is None else int(float(found))

    def due(self, id: str) -> float | None:  # noqa: A002
        """Of a scheduled message, in epoch milliseconds."""
        score = self.score("schedule", id)
        return None if score is None else score / 1000

    def runs_of_results(self, until: float = math.inf) -> list[list[str]]:
        """Ids whose results are forgotten ``until`` an instant in epoch ms, next first; without the instant of their
        settlement, which stands before each run."""
        runs = self._wire.command("ZRANGEBYSCORE", self.key("result_runs"), "-inf", until)
        return [run[6:].decode().split("\n") for run in runs]

    def time_passes_for_results(self, runs: int = 1) -> None:
        """It is over for those of the next few runs."""
        for run in self._wire.command("ZRANGE", self.key("result_runs"), 0, runs - 1) if runs else ():
            self._wire.command("ZADD", self.key("result_runs"), 1, run)

    def hash(self, name: str) -> dict[str, bytes]:
        found = self._wire.command("HGETALL", self.key(name))
        return {field.decode(): value for field, value in zip(found[::2], found[1::2], strict=True)}

    def members(self, name: str) -> set[str]:
        return {member.decode() for member in self._wire.command("SMEMBERS", self.key(name))}

    def time_passes_for_ids(self, ms: int) -> None:
        began = self.hash("counters").get("id memory began")
        if began is not None:
            self._wire.command("HSET", self.key("counters"), "id memory began", int(began) - ms)

    def forget_ids(self) -> None:
        self._wire.command("DEL", *map(self.key, ("id_memory", "id_memory_before", "id_digests", "id_digests_before")))

    def row(self, id: str) -> rows.Row:  # noqa: A002
        return rows.read_row(self._wire.command("HGET", self.key("rows"), id))

    def enqueued_at(self, id: str) -> int:  # noqa: A002
        """Of a message that is ready: as its row says or, where it has none yet, its record."""
        row, record = (self._wire.command("HGET", self.key(name), id) for name in ("rows", "records"))
        read = rows.read_row(row) if row is not None else rows.read_record(record)
        return read.timestamps.enqueued_at or 0

    def marker(self, name: str = "ready_marker") -> int:
        length: int = self._wire.command("LLEN", self.key(name))
        return length

    def take_marker(self, name: str = "ready_marker") -> None:
        self._wire.command("DEL", self.key(name))
