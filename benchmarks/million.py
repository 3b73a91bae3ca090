"""A million messages due at one instant, on the embedded server: promoted, drained; the server's slowest scripts, and
memory per message in each state."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.place import handler, place, run
from pollconsumer.interface.cli.opened import COMMAND_BUDGET
from pollconsumer.interface.settings import load_settings
from pollconsumer.runtime.opening import StoreOpener
from pollconsumer.store import scripts
from pollconsumer.store.inspector import Inspector
from pollconsumer.store.wire import Budget, Wire

BULK = 20_000
LEAD = 60.0
LUA = Path(scripts.__file__).parent / "lua"


def main() -> None:
    messages = int(sys.argv[1]) if sys.argv[1:] else 1_000_000
    with place():
        settings = load_settings()
        opener = StoreOpener(settings.store, settings.namespace, settings.durability, print)
        wire = opener.wire(lambda: Budget(COMMAND_BUDGET))
        inspector = Inspector(wire, settings.namespace)
        wire.command("CONFIG", "SET", "slowlog-log-slower-than", "500")
        wire.command("CONFIG", "SET", "slowlog-max-len", "10000")
        empty = _memory(wire)
        sending = handler("noop").using(at=datetime.fromtimestamp(time.time() + LEAD + messages / 20_000, UTC))
        began = time.perf_counter()
        for first in range(0, messages, BULK):
            sending.enqueue_many({"n": n} for n in range(first, min(first + BULK, messages)))
        print(f"scheduled in {time.perf_counter() - began:.1f} s, {(_memory(wire) - empty) / messages:.0f} B a message")
        _slowest(wire, "enqueueing")
        while inspector.overview().overdue < messages:
            time.sleep(0.1)
        began = time.perf_counter()
        run("move", "--timeout", "1s")  # a first launch, to leave its start out of what follows
        while inspector.overview().queues[0].scheduled:
            run("move", "--timeout", "10s")
        entries = [entry for entry in inspector.launches(99) if entry["role"] == "mover" and entry["handled"]]
        took = sum(entry["running_seconds"] for entry in entries)
        promoted = sum(entry["handled"] for entry in entries)
        print(f"promoted {promoted} in {took:.1f} s of {len(entries)} launches (last one to its window's end)")
        print(f"ready: {(_memory(wire) - empty) / messages:.0f} B a message")
        _slowest(wire, "promoting")
        run("run", "--until-empty", "--timeout", "1h")
        entry = next(entry for entry in inspector.launches(5) if entry["role"] == "consumer")
        rate = entry["handled"] / entry["running_seconds"]
        kept = inspector.overview().queues[0].completed
        print(f"drained {entry['handled']} in {entry['running_seconds']:.1f} s, {rate:,.0f}/s")
        size = sum(_size(wire, f"{{{settings.namespace}:default}}:{key}") for key in ("b", "m", "d"))
        print(f"finished: {kept} kept, {size / kept:.0f} B a message in records, rows and list")
        _slowest(wire, "draining")


def _memory(wire: Wire) -> int:
    info: Any = wire.command("INFO", "memory")
    fields = info if isinstance(info, dict) else dict(
        line.split(":", 1) for line in info.decode().split("\r\n") if ":" in line
    )  # fmt: skip
    return int(fields["used_memory"])


def _size(wire: Wire, key: str) -> int:
    return int(wire.command("MEMORY", "USAGE", key, "SAMPLES", "0") or 0)


def _name(wire: Wire, command: list[bytes]) -> str:
    """Of the script, where it is one."""
    names = {wire.scripts[path.stem].sha: path.stem for path in LUA.glob("[!_]*.lua")}
    return names.get(command[1], "a script") if command[0] == b"EVALSHA" else command[0].decode()


def _slowest(wire: Wire, while_: str) -> None:
    entries = wire.command("SLOWLOG", "GET", -1)
    longest = sorted(entries, key=lambda entry: -int(entry[2]))[:5]
    shown = ", ".join(f"{int(entry[2]) / 1000:.1f} ms {_name(wire, entry[3])}" for entry in longest)
    print(f"  longest commands while {while_}: {shown}; {len(entries)} above 0.5 ms")
    wire.command("SLOWLOG", "RESET")


if __name__ == "__main__":
    main()
