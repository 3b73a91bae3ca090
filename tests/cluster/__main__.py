"""``python -m tests.cluster --minutes 5 --kill-every 10``: launches of sixteen queues on three nodes, with faults."""

from __future__ import annotations

import argparse
import signal
import sys
from contextlib import ExitStack

from benchmarks.place import tcp_server
from tests.cluster.nodes import Cluster
from tests.cluster.trial import Faults, Trial

EXPECTED = {0, 69, 75, -signal.SIGTERM}
"""Exit codes; the last of one that was told to end before it had imported what answers that."""


def main() -> int:
    """1 if a message was lost, or a process ended with an unexpected error."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=(__doc__ or "").partition(":")[2])
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument(
        "--nodes", type=int, default=3, help="primaries; each has a replica if nodes are killed; 0: a server by itself"
    )
    parser.add_argument("--launch", type=float, default=20.0, help="seconds of each launch")
    parser.add_argument("--queues", type=int, default=16)
    parser.add_argument("--pace", type=float, default=0.02, help="seconds between two messages, on average")
    parser.add_argument("--kill-every", type=float, default=0.0, help="seconds after which a primary is killed")
    parser.add_argument("--freeze-every", type=float, default=0.0, help="seconds after which a primary is stopped")
    parser.add_argument("--move-every", type=float, default=0.0, help="seconds after which a slot is moved")
    parser.add_argument("--durability", default="everysec", choices=("everysec", "strict"))
    parser.add_argument("--client", choices=["redis-py"], help="reach the cluster by a client of a user's")
    given = parser.parse_args()
    with ExitStack() as stack:
        cluster = None
        if given.nodes:
            cluster = Cluster(
                given.nodes, int(given.kill_every + given.freeze_every > 0 or given.durability == "strict")
            )
            stack.callback(cluster.close)
        url = cluster.url if cluster else stack.enter_context(tcp_server())
        trial = Trial(
            url,
            cluster,
            given.queues,
            launch=given.launch,
            durability=given.durability,
            by_client=bool(given.client),
        )
        stack.callback(trial.close)
        result = trial.run(
            given.minutes * 60, given.pace, Faults(given.kill_every, given.freeze_every, given.move_every)
        )
    ms = {f"p{share * 100:g}": round(result.quantile(share) * 1000, 2) for share in (0.5, 0.99, 1.0)}
    print(f"{result.acknowledged} acknowledged; lost: {len(result.lost)}; handled twice: {len(result.twice)}")
    print(f"enqueue -> handler, ms: {ms}; longest pause: {result.longest_pause:.2f} s")
    print(f"faults: {dict(result.faults)}; exit codes: {dict(result.exits)}")
    for line, times in result.said.most_common(20):
        print(f"{times} x {line}")
    return int(bool(result.lost) or result.exits.keys() - EXPECTED != set())


if __name__ == "__main__":
    sys.exit(main())
