"""``python -m tests.upgrade --from OLD.whl --messages 2000``: from an older version's wheel to this tree, and back.

``--from`` may also be a requirement, as ``pollconsumer==1.2.3``, or a commit. Prints figures as one object of JSON, and
a line for each thing that is wrong; then it ends with 1, and keeps the directory.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
from pathlib import Path

from tests.upgrade.trial import NEW, OLD, Trial
from tests.upgrade.wheels import built, installed


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--from", required=True, metavar="WHEEL|REQUIREMENT|COMMIT", dest="old")
    parser.add_argument("--messages", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pc-upgrade-") as directory:
        place = Path(directory)
        old = built(given.old, place) if re.fullmatch("[0-9a-f]{7,40}", given.old) else given.old
        interpreters = {OLD: installed(old, place / OLD), NEW: installed(built("", place), place / NEW)}
        print(f"seed {given.seed}", file=sys.stderr, flush=True)
        trial = Trial(interpreters, given.messages, given.seed)
        wrong = ["the run itself ended with an error"]
        try:
            wrong = trial.run()
            print(json.dumps(trial.figures(), indent=2))
        finally:
            trial.close(keep=bool(wrong))
    for line in wrong:
        print(line)
    if wrong:
        print(f"kept in {trial.place.directory}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
