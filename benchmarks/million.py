"""A million messages due at one instant, on the embedded server: promoted, drained; the server's slowest scripts, and
memory per message in each state."""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.place import handler, place, run, start
from pollconsumer.interface.cli.opened import COMMAND_BUDGET
from pollconsumer.interface.settings.load import load_settings
from pollconsumer.interface.store_opener import opener_of
from pollconsumer.store import scripts
from pollconsumer.store.inspector import Inspector
from pollconsumer.store.patience import Budget

if TYPE_CHECKING:
    from pollconsumer.store.wire import Wire

BULK = 20_000
LEAD = 60.0
LUA = Path(scripts.__file__).parent / "lua"


def main() -> None:
    messages = int(sys.argv[1]) if sys.argv[1:] else 1_000_000
    with place():
        settings = load_settings()
        opener = opener_of(settings)
        wire = opener.wire(lambda: Budget(COMMAND_BUDGET))
        inspector = Inspector(wire, settings.namespace)
        wire.command("CONFIG", "SET", "slowlog-log-slower-than", "500")
        wire.command("CONFIG", "SET", "slowlog-max-len", "2000")
        # A rewrite of the append-only file forks, and copies each page on its first write: noise that is not due to a
        # script.
        wire.command("CONFIG", "SET", "auto-aof-rewrite-percentage", "0")
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
        mover = start("move", "--timeout", "5m")
        while wire.command("ZCARD", f"{{{settings.namespace}:default}}:s"):
            time.sleep(0.02)
        print(f"promoted in {time.perf_counter() - began:.1f} s, start of the mover included")
        mover.terminate()
        mover.wait()
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
    return int(_info(wire, "memory")["used_memory"])


def _info(wire: Wire, section: str) -> dict[str, Any]:
    info: Any = wire.command("INFO", section)
    if isinstance(info, dict):
        return info
    return dict(line.split(":", 1) for line in info.decode().splitlines() if ":" in line)


def _size(wire: Wire, key: str) -> int:
    return int(wire.command("MEMORY", "USAGE", key, "SAMPLES", "0") or 0)


def _name(wire: Wire, command: list[bytes]) -> str:
    """The script's name, if it is one."""
    names = {wire.scripts[path.stem].sha: path.stem for path in LUA.glob("[!_]*.lua")}
    return names.get(command[1], "a script") if command[0] == b"EVALSHA" else command[0].decode()


def _slowest(wire: Wire, while_: str) -> None:
    entries = [entry for entry in wire.command("SLOWLOG", "GET", -1) if entry[3][0] != b"SLOWLOG"]
    longest = sorted(entries, key=lambda entry: -int(entry[2]))[:5]
    shown = ", ".join(f"{int(entry[2]) / 1000:.1f} ms {_name(wire, entry[3])}" for entry in longest)
    print(f"  longest commands while {while_}: {shown}; {len(entries)} above 0.5 ms")
    wire.command("SLOWLOG", "RESET")  # reading it was slow itself


if __name__ == "__main__":
    main()
