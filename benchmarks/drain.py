"""No-op messages through one process: reserve, handle, settle, every timestamp kept; embedded server and TCP."""

from __future__ import annotations

import json
import subprocess
import sys
import time

from benchmarks.place import handler, place, run, tcp_server

MESSAGES = 200_000
SLEEPERS = 1_600


def main() -> None:
    only = sys.argv[1:] or ["embedded", "tcp"]
    if "embedded" in only:
        with place():
            _drain("embedded")
    if "tcp" in only:
        with tcp_server() as url, place(url):
            _drain("tcp")


def _drain(label: str) -> None:
    noop = handler("noop")
    noop.enqueue(n=0)
    began = time.perf_counter()
    for n in range(5_000):
        noop.enqueue(n=n)
    single = 5_000 / (time.perf_counter() - began)
    began = time.perf_counter()
    noop.enqueue_many({"n": n} for n in range(MESSAGES))
    bulk = MESSAGES / (time.perf_counter() - began)
    run("run", "--until-empty")
    entry = _last_launch()
    rate = entry["handled"] / entry["running_seconds"]
    print(f"{label:9} enqueue one by one {single:,.0f}/s  in bulk {bulk:,.0f}/s  drain {rate:,.0f}/s (start included)")
    handler("sleep").enqueue_many({"seconds": 0.01} for _ in range(SLEEPERS))
    run("run", "--until-empty", "--concurrency", "16")
    entry = _last_launch()
    share = SLEEPERS * 0.01 / 16 / entry["running_seconds"]
    print(f"{label:9} {SLEEPERS} sleepers of 10 ms on 16 slots: {share:.0%} of ideal (start included)")


def _last_launch() -> dict[str, float]:
    command = [sys.executable, "-m", "pollconsumer", "launches", "--limit", "1", "--json"]
    (entry,) = json.loads(subprocess.check_output(command))
    return dict(entry)


if __name__ == "__main__":
    main()
