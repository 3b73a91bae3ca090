"""``python -m tests.web --minutes 10``: a URL called once a minute by the rules of Vercel's and App Engine's cron."""

from __future__ import annotations

import argparse
import sys

from tests.forecast.figures import quantile
from tests.web.trial import UrlTrial


def main() -> int:
    """1 if a message was lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.web", description=(__doc__ or "").partition(":")[2])
    parser.add_argument("--minutes", type=int, default=10)
    parser.add_argument("--pace", type=float, default=1.0, help="seconds between two messages, on average")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    trial = UrlTrial(given.seed)
    try:
        result = trial.run(given.minutes, given.pace)
    finally:
        trial.close()
    print(f"{result.acknowledged} acknowledged; lost: {result.lost}; handled twice: {result.twice}")
    seconds = {f"p{share * 100:g}": round(quantile(result.latencies, share), 2) for share in (0.5, 0.99, 1.0)}
    print(f"enqueue -> handler, s: {seconds}")
    print(f"answers: {dict(result.answers)}; longest request {result.longest:.1f} s; instances killed: {result.kills}")
    return int(bool(result.lost))


if __name__ == "__main__":
    sys.exit(main())
