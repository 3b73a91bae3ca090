"""``python -m tests.partition --rounds 3 --instances 2``: the host that holds a lease is cut off, frozen, or gone.

There is a host more than ``consumer.instances``. Needs the right to make network namespaces (root, CAP_SYS_ADMIN and
CAP_NET_ADMIN); without it, it says so, with 77. In the end nothing is lost, no execution began under a fence after one
under a higher fence of the same place, each completion that the store kept is of the launch that began its message
last, and launches of hosts that nothing was done to have said nothing. Prints figures as one object of JSON.
"""

from __future__ import annotations

import argparse
import json
import sys

from tests.network import NO_RIGHT, NotPermitted
from tests.partition.trial import FAULTS, Trial

MUST_BE_NOTHING = ("lost", "begun_under_a_stale_fence", "stale_completions_kept", "said_by_other_hosts")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help=f"of {', '.join(FAULTS)}")
    parser.add_argument("--instances", type=int, default=1, help="launches that work at a time")
    given = parser.parse_args()
    trial = Trial(given.instances)
    try:
        found = trial.run(given.rounds)
    except NotPermitted as error:
        print(f"not permitted to make hosts: {error}", file=sys.stderr)
        return NO_RIGHT
    finally:
        trial.close()
    print(json.dumps(found, indent=2))
    return 1 if any(found[name] for name in MUST_BE_NOTHING) else 0


if __name__ == "__main__":
    sys.exit(main())
