"""No-op messages through one launch with one slot, server and launch on one core: each way to define a handler.

What is compared takes turns within a second, since a machine's speed changes from one to the next: a drain with the
floor, several times; the kinds of messages with plain ones, in blocks of one drain.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks import floor
from benchmarks.place import (
    Figure,
    enqueue_messages,
    marks,
    place,
    plain_wire,
    run,
    server_seconds,
    share_one_core,
    spans,
    tcp_server,
)
from pollconsumer.runtime.new_messages import new_message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pollconsumer.core.messages.message import NewMessage

MESSAGES, PAIRS = 20_000, 9
BLOCK, BLOCKS = 4_000, 21
"""Messages in a block, and how many blocks there are. The first two are not counted: there is less to forget."""
KINDS: dict[str, tuple[str, Callable[[int], dict[str, Any]]]] = {
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
        _beside_floor(url, directory)
        pairs = [_beside_floor(url, directory) for _ in range(PAIRS)]
    figures = _figures("drain", *sorted(pairs, key=lambda pair: pair[0][0] / pair[1][0])[PAIRS // 2])
    for kind in KINDS:
        with tcp_server() as url, place(url) as directory:
            figures += _figures(f"drain, {kind}", *_beside_plain(kind, directory))
    return figures


def _figures(name: str, values: Sequence[float], beside: Sequence[float]) -> list[Figure]:
    """Messages a second, and µs of client and server for one."""
    units = {name: "/s", f"{name}, client": "µs", f"{name}, server": "µs"}
    return [Figure(*each) for each in zip(units, values, units.values(), beside, strict=True)]


def _beside_floor(url: str, directory: Path) -> tuple[Sequence[float], Sequence[float]]:
    floor.produce(url, MESSAGES, floor.BULK)
    least = [each.value for each in floor.consume(url, MESSAGES)]
    enqueue_messages([*_block("plain", range(MESSAGES)), new_message("plain", {"n": -1})])
    wire = plain_wire(url)
    before = server_seconds(wire)
    run("run", "--until-empty")
    server = server_seconds(wire) - before
    seconds, cpu = marks(directory)
    return (MESSAGES / seconds, cpu / MESSAGES * 1e6, server / MESSAGES * 1e6), least


def _block(name: str, numbers: range, options: Callable[[int], dict[str, Any]] = lambda _: {}) -> Iterator[NewMessage]:
    """Its first message is marked."""
    return (new_message(name, {"n": n - numbers.start}, **options(n)) for n in numbers)


def _beside_plain(kind: str, directory: Path) -> tuple[Sequence[float], Sequence[float]]:
    """Medians of its blocks, and of those of plain ones. What the client does not take of the core is the server's."""
    name, options = KINDS[kind]
    for number in range(BLOCKS):
        numbers = range(number * BLOCK, (number + 1) * BLOCK)
        enqueue_messages(_block(name, numbers, options) if number % 2 else _block("plain", numbers))
    enqueue_messages([new_message("plain", {"n": -1})])
    run("run", "--until-empty")
    blocks = [(seconds / BLOCK * 1e6, cpu / BLOCK * 1e6) for seconds, cpu in spans(directory)][2:]
    (plain, plain_client), (those, client) = (map(median, zip(*blocks[at::2], strict=True)) for at in (0, 1))
    return (1e6 / those, client, those - client), (1e6 / plain, plain_client, plain - plain_client)
