"""``python -m tests.failovers --times 20``: failovers of each kind, under steady enqueueing and handling.

``kill``: SIGKILL, and a restart as the primary that it was. ``suspend``: SIGSTOP until another is the primary.
``switch``: SENTINEL FAILOVER. ``coordinated``: the same with COORDINATED, from Valkey 9 on. ``failover``: the server's
own FAILOVER, under Sentinels that know nothing of it. ``unwatched``: the same without Sentinels, at an address that
leads to the primary. ``cut``: nobody reaches it, while it goes on. ``partition``: it is cut off together with a
producer and launches, which go on with it. ``refusing``: the same with ``min-replicas-to-write 1``.

Each without ``durability = "strict"``, with all replicas, and with one of two. ``--messages 1000000``: producers
enqueue in bulk, and the kinds up to ``cut``, without ``unwatched``, come in turn until so many are acknowledged.

Ends with 1 if a message was lost that all replicas had, or a message was handled twice that was not around a failover,
or a contract was broken; with 77 where a kind needs network namespaces, and they may not be made.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.failovers.report import shown
from tests.failovers.trial import KINDS, ON_ONE_TRIO, Trial
from tests.network import NO_RIGHT, NotPermitted

STRICT = {"none": None, "two": 2, "one": 1}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--times", type=int, default=20, help="failovers of each kind")
    parser.add_argument("--kind", choices=KINDS, action="append", help="all by default; repeatable")
    parser.add_argument("--strict", choices=STRICT, action="append", help="replicas waited for; all by default")
    parser.add_argument("--client", choices=["redis-py"], help="reach the primary by a client of a user's")
    parser.add_argument("--messages", type=int, default=0, help="instead of --times: kinds in turn, until so many")
    given = parser.parse_args()
    kinds = given.kind or [*(ON_ONE_TRIO if given.messages else KINDS)]
    if given.messages and not {*kinds} <= {*ON_ONE_TRIO}:
        parser.error(f"--messages takes these kinds: {', '.join(ON_ONE_TRIO)}")
    failed, permitted = False, True
    for strict in given.strict or STRICT:
        for chosen in [kinds] if given.messages else [[kind] for kind in kinds]:
            until = f"until {given.messages} messages" if given.messages else f"{given.times} times"
            print(f"{', '.join(chosen)}, {until}, strict: {strict}", flush=True)
            trial = Trial(chosen, STRICT[strict], by_client=bool(given.client))
            try:
                failed = _fails(trial, given.times, given.messages, all_replicas=strict == "two") or failed
            except NotPermitted as error:
                print(f"  not permitted to make hosts: {error}", file=sys.stderr)
                permitted = False
    return 1 if failed else 0 if permitted else NO_RIGHT


def _fails(trial: Trial, times: int, messages: int, *, all_replicas: bool) -> bool:
    bad, began = True, time.monotonic()
    try:
        report = trial.run(times, messages)
        bad = bool(report.violations or report.twice_elsewhere or (report.lost and all_replicas))
        for line in shown(report):
            print(f"  {line}", flush=True)
        print(f"  {(time.monotonic() - began) / 60:.1f} minutes")
    finally:
        if bad and (kept := trial.directories()):
            print(f"  kept: {', '.join(map(str, kept))}")
        trial.close(keep=bad)
    return bad


if __name__ == "__main__":
    sys.exit(main())
