"""No-op messages through one launch with one slot, server and launch on one core: each way to define a handler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks import floor
from benchmarks.place import Figure, handler, marks, place, plain_wire, run, server_seconds, share_one_core, tcp_server
from pollconsumer.runtime.messages import new_message

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MESSAGES = {"plain": 40_000, "at most once": 4_000}
OTHERS = 10_000
KINDS: dict[str, tuple[str, Callable[[int], dict[str, Any]]]] = {
    "plain": ("plain", lambda _: {}),
    "unique key": ("plain", lambda n: {"key": f"{n}"}),
    "concurrency key": ("plain", lambda n: {"concurrency_key": f"{n % 100}", "concurrency_limit": 100}),
    "result kept": ("result", lambda _: {}),
    "result_ttl=0": ("no_result", lambda _: {}),
    "context": ("context", lambda _: {}),
    "timeout": ("timeout", lambda _: {}),
    "async def": ("coroutine", lambda _: {}),
    "at most once": ("at_most_once", lambda _: {}),
}
"""The handler, and the options of its n-th message."""


def measure() -> list[Figure]:
    share_one_core()
    figures = []
    with tcp_server() as url, place(url) as directory:
        messages = MESSAGES["plain"]
        floor.produce(url, messages, floor.BULK)
        least, least_client, least_server = (each.value for each in floor.consume(url, messages))
        for kind in KINDS:
            rate, client, server = _drain(kind, url, directory)
            if kind == "plain":
                plain, plain_client, plain_server = rate, client, server
                figures.append(Figure("drain", rate, "/s", least))
                figures.append(Figure("drain, client", client, "µs", least_client))
                figures.append(Figure("drain, server", server, "µs", least_server))
            else:  # beside plain
                figures.append(Figure(f"drain, {kind}", rate, "/s", plain))
                figures.append(Figure(f"drain, {kind}, client", client, "µs", plain_client))
                figures.append(Figure(f"drain, {kind}, server", server, "µs", plain_server))
    return figures


def _drain(kind: str, url: str, directory: Path) -> tuple[float, float, float]:
    name, options = KINDS[kind]
    count, wire = MESSAGES.get(kind, OTHERS), plain_wire(url)
    numbers = [*range(count - 1), -1]
    messages = [new_message(name, {"n": n}, **options(n)) for n in numbers]
    handler(name).app.enqueue_messages(messages)
    before = server_seconds(wire)
    run("run", "--until-empty")
    seconds, cpu = marks(directory)
    return count / seconds, cpu / count * 1e6, (server_seconds(wire) - before) / count * 1e6
