"""No-op messages through one launch with one slot, server and launch on one core: each way to define a handler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks import floor
from benchmarks.place import Figure, handler, marks, place, plain_wire, run, server_seconds, share_one_core, tcp_server
from pollconsumer.runtime.messages import new_message

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

MESSAGES = 40_000
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
    with tcp_server() as url, place(url) as directory:
        floor.produce(url, MESSAGES, floor.BULK)
        least = [each.value for each in floor.consume(url, MESSAGES)]
        figures = _figures("drain", _drain("plain", url, directory), least)
    for kind in KINDS:
        if kind != "plain":
            plain = _second("plain")
            figures += _figures(f"drain, {kind}", _second(kind), plain)
    return figures


def _second(kind: str) -> tuple[float, float, float]:
    """`_drain` on a server of its own, after as many plain ones: a first drain has less to forget than a second, and
    later ones pay for what other kinds left."""
    with tcp_server() as url, place(url) as directory:
        _drain("plain", url, directory)
        return _drain(kind, url, directory)


def _figures(name: str, values: Sequence[float], beside: Sequence[float]) -> list[Figure]:
    units = {name: "/s", f"{name}, client": "µs", f"{name}, server": "µs"}
    return [Figure(*each) for each in zip(units, values, units.values(), beside, strict=True)]


def _drain(kind: str, url: str, directory: Path) -> tuple[float, float, float]:
    name, options = KINDS[kind]
    wire = plain_wire(url)
    messages = [new_message(name, {"n": n}, **options(n)) for n in (*range(MESSAGES - 1), -1)]
    handler(name).app.enqueue_messages(messages)
    before = server_seconds(wire)
    run("run", "--until-empty")
    seconds, cpu = marks(directory)
    return MESSAGES / seconds, cpu / MESSAGES * 1e6, (server_seconds(wire) - before) / MESSAGES * 1e6
