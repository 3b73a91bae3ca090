"""A million messages due at one instant: promoted, drained; the server's longest scripts while that is done."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from benchmarks.place import Figure, handler, marks, place, plain_wire, run, start, tcp_server
from pollconsumer.store.keyspace import Keys

if TYPE_CHECKING:
    from pollconsumer.store.client.wire import Wire

MESSAGES, BULK = 1_000_000, 20_000
LEAD = 10.0


def measure() -> list[Figure]:
    with tcp_server() as url, place(url) as directory:
        wire = plain_wire(url)
        wire.command("CONFIG", "SET", "slowlog-log-slower-than", "1000")
        wire.command("CONFIG", "SET", "slowlog-max-len", "2000")
        due = time.time() + LEAD + MESSAGES / 10_000
        sending = handler("plain").using(at=datetime.fromtimestamp(due, UTC))
        began = time.perf_counter()
        for first in range(0, MESSAGES, BULK):
            sending.enqueue_many([{"n": n} for n in range(first, first + BULK)])
        scheduled = time.perf_counter() - began
        figures = [Figure("a million scheduled", MESSAGES / scheduled, "/s"), *_longest(wire, "scheduled", "enqueue")]
        while time.time() < due:
            time.sleep(0.1)
        began = time.perf_counter()
        mover = start("move", "--timeout", "10m")
        schedule = Keys("pollconsumer").queue("default", "schedule")
        while wire.command("ZCARD", schedule):
            time.sleep(0.05)
        promoted = time.perf_counter() - began
        figures += [Figure("a million promoted", MESSAGES / promoted, "/s"), *_longest(wire, "promoted", "promote")]
        mover.terminate()
        mover.wait()
        handler("plain").enqueue(n=-1)
        run("run", "--until-empty", "--timeout", "1h")
        seconds, _ = marks(directory)
        figures += [Figure("a million drained", MESSAGES / seconds, "/s"), *_longest(wire, "drained", "step", "trim")]
        return figures


def _longest(wire: Wire, what: str, *scripts: str) -> list[Figure]:
    names = [*scripts, "other script"]
    took = longest(wire, *scripts)
    return [Figure(f"a million {what}, longest {name}", ms, "ms") for name, ms in zip(names, took, strict=True)]


def longest(wire: Wire, *scripts: str) -> list[float]:
    """ms of the longest call of each of ``scripts``, and of any other, since the last look, of those that the slow log
    has."""
    names = [wire.scripts[name].sha for name in scripts]
    took = [0.0] * (len(names) + 1)
    for entry in wire.command("SLOWLOG", "GET", -1):
        command, *arguments = entry[3]
        if command.upper() == b"EVALSHA":
            at = names.index(arguments[0]) if arguments[0] in names else -1
            took[at] = max(took[at], entry[2] / 1000)
    wire.command("SLOWLOG", "RESET")
    return took
