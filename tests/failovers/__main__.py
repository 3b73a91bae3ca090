"""``python -m tests.failovers --times 20``: failovers of each kind, under steady enqueueing and handling.

``kill``: SIGKILL, and a restart as the primary that it was. ``suspend``: SIGSTOP until another is the primary.
``switch``: SENTINEL FAILOVER. ``cut``: nobody reaches it, while it goes on. Each without ``durability = "strict"``,
with all replicas, and with one of two. Ends with 1 if a message was lost that all replicas had, or a message was
handled twice that was not around a failover, or a contract was broken.
"""

from __future__ import annotations

import argparse
import sys

from tests.failovers.trial import KINDS, Trial, shown

STRICT = {"none": None, "two": 2, "one": 1}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--times", type=int, default=20, help="failovers of each kind")
    parser.add_argument("--kind", choices=KINDS, action="append", help="all by default; repeatable")
    parser.add_argument("--strict", choices=STRICT, action="append", help="replicas waited for; all by default")
    given = parser.parse_args()
    failed = False
    for strict in given.strict or STRICT:
        for kind in given.kind or KINDS:
            print(f"{kind}, {given.times} times, strict: {strict}", flush=True)
            trial, bad = Trial(STRICT[strict]), True
            try:
                report = trial.run(kind, given.times)
                bad = bool(report.violations or report.twice_elsewhere or (report.lost and strict == "two"))
                for line in shown(report):
                    print(f"  {line}", flush=True)
            finally:
                if bad:
                    print(f"  kept: {trial.place.directory}")
                trial.close(keep=bad)
            failed = failed or bad
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
