"""Enqueueing one by one and in bulk, server and producer on one core."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchmarks import floor
from benchmarks.place import Figure, handler, place, plain_wire, server_seconds, share_one_core, tcp_server

if TYPE_CHECKING:
    from collections.abc import Callable

SINGLE, BULK = 8_000, 40_000


def measure() -> list[Figure]:
    share_one_core()
    with tcp_server() as url, place(url):
        plain = handler("plain")

        def singles() -> None:
            for n in range(SINGLE):
                plain.enqueue(n=n)

        plain.enqueue(n=0)
        floor.produce(url, 500)
        one = _figures("single enqueue", singles, SINGLE, url)
        least_one = floor.produce(url, SINGLE)
        many = _figures("bulk enqueue", lambda: plain.enqueue_many([{"n": n} for n in range(BULK)]), BULK, url)
        least_many = floor.produce(url, BULK, floor.BULK)
    return [
        figure._replace(floor=least.value)
        for figure, least in zip([*one, *many], [*least_one, *least_many], strict=True)
    ]


def _figures(name: str, call: Callable[[], object], count: int, url: str) -> list[Figure]:
    wire = plain_wire(url)
    server, cpu, began = server_seconds(wire), time.process_time(), time.perf_counter()
    call()
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return [
        Figure(name, count / seconds, "/s"),
        Figure(f"{name}, client", cpu / count * 1e6, "µs"),
        Figure(f"{name}, server", (server_seconds(wire) - server) / count * 1e6, "µs"),
    ]
