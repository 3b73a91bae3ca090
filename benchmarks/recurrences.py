"""A hundred thousand recurrences: put, looked up, listed, ticked, and defined beside; the server's bytes for each."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchmarks.million import longest
from benchmarks.place import Figure, at, place, plain_wire, run, tcp_server

if TYPE_CHECKING:
    from collections.abc import Callable

    from pollconsumer.core.recurrence import Recurrence

MOST, TURNS = 100_000, 30
NAMESPACE, QUEUE = "pollconsumer", "default"


def measure() -> list[Figure]:
    from pollconsumer.core.recurrence import Recurrence
    from pollconsumer.store.queues.redis_store import RedisStore
    from pollconsumer.store.records.reservations import Claim
    from pollconsumer.store.recurrence_actions import Recurrences
    from pollconsumer.store.recurrences import LaunchRecurrences

    with tcp_server() as url, place(url):
        wire = plain_wire(url)
        wire.command("CONFIG", "SET", "slowlog-log-slower-than", "500")
        wire.command("CONFIG", "SET", "slowlog-max-len", "2000")
        store, recurring = RedisStore(wire, NAMESPACE), LaunchRecurrences(wire, NAMESPACE)
        people = Recurrences(wire, NAMESPACE)
        mover = Claim("mover::0", "1", "mover:")
        own = [Recurrence(f"own{n}", "plain", every=3600.0) for n in range(3)]
        store.maintenance.announce(mover, QUEUE)

        def bytes_each() -> float:
            names = [store.keys.queue(QUEUE, word) for word in ("recurrences", "next_instants", "recurrence_counters")]
            used: int = sum(filter(None, wire.all([("MEMORY", "USAGE", name, "SAMPLES", 0) for name in names])))
            return used / MOST

        def beside(others: str) -> list[Figure]:
            return [
                Figure(f"definitions of a launch, {others}", _median(define), "ms"),
                Figure(f"look-up by name, {others}", _median(lambda: people.find("own1")), "ms"),
                Figure(f"start and end of a launch, {others}", _median(lambda: run("run", "--until-empty"), 5), "ms"),
            ]

        def define() -> None:
            recurring.define("consumer:default", [QUEUE], own, lambda _: None)

        define()
        figures = beside("alone")
        many = [_check(n) for n in range(MOST)]
        figures.append(Figure("put", MOST / _seconds(lambda: people.put((each, "next") for each in many)), "/s"))
        figures.append(Figure("put, longest script", max(longest(wire)), "ms"))
        figures.append(Figure("put again", MOST / _seconds(lambda: people.put((each, "next") for each in many)), "/s"))
        figures.append(Figure("bytes each", bytes_each(), "B"))
        figures += beside("beside 100,000")
        listed = _seconds(lambda: sum(1 for _ in people.statuses(lambda _: None)))
        figures.append(Figure("listed", MOST / listed, "/s"))
        longest(wire)
        for first in range(0, MOST, 10_000):
            due = [word for n in range(first, first + 10_000) for word in (_a_moment_ago(n), f"check:{n}")]
            wire.command("ZADD", store.keys.queue(QUEUE, "next_instants"), *due)

        def tick() -> None:
            while recurring.tick(mover, QUEUE, lambda _: 0, lambda _: None):
                pass

        figures.append(Figure("ticked", MOST / _seconds(tick), "/s"))
        figures.append(Figure("ticked, longest script", max(longest(wire)), "ms"))
        figures.append(Figure("bytes each, with an occurrence", bytes_each(), "B"))
        return figures


def _check(n: int) -> Recurrence:
    from pollconsumer.core.recurrence import Recurrence

    payload = {"text": f"https://example.org/{n}"}
    return Recurrence(f"check:{n}", "text", every=300 + n % 600, payload=payload, at_run_time=True, created_by="ada")


def _a_moment_ago(n: int) -> int:
    """An instant within the last minute."""
    return int(time.time() * 1000) - 1 - n % 60_000


def _seconds(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def _median(act: Callable[[], object], turns: int = TURNS) -> float:
    """In ms."""
    return at([_seconds(act) * 1000 for _ in range(turns)], 0.5)
