"""``python -m tests.batches --minutes 2``: batches in three queues, while processes and the server are killed.

A fifth of the members fail, and are redriven later; some add members. Each batch has
another one as a member. Of batches whose producer is killed, half are
produced again, the others are left open. At the end every batch must have called back as often as it should, with as
many members as it has.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.batches.stores import OneServer, ThreeNodes
from tests.batches.trial import Trial

VICTIMS = ("launch", "heartbeat", "producer", "server")


def main() -> int:
    """1 if a callback is missing or was called twice, or if a batch has other members than it should."""
    parser = argparse.ArgumentParser(prog="python -m tests.batches", description=(__doc__ or "").partition(":")[2])
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--members", type=int, default=30, help="of each batch")
    parser.add_argument("--kill-every", type=float, default=2.0, help="seconds")
    parser.add_argument(
        "--kill", nargs="+", choices=VICTIMS, default=VICTIMS, metavar="VICTIM", help=", ".join(VICTIMS)
    )
    parser.add_argument("--cluster", action="store_true", help="of three nodes, one for each queue, without replicas")
    parser.add_argument("--concurrency", type=int, default=1, help="of each launch")
    given = parser.parse_args()
    with TemporaryDirectory() as directory:
        with closing(ThreeNodes() if given.cluster else OneServer(Path(directory))) as store:
            trial = Trial(store, given.members, given.kill_every, given.concurrency, given.kill)
            with closing(trial):
                wrong = trial.run(given.minutes * 60)
                if wrong:
                    print(trial.place.errors()[-3000:])
        print(f"{len(trial.batches)} batches: {dict(trial.states)}; members redriven: {trial.redriven}")
        print(f"killed: {dict(trial.kills)}; exit codes of launches: {dict(trial.exits)}")
        print(f"wrong: {len(wrong)}", *wrong[:20], sep="\n  ")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
