"""Scenarios under Debian's own cron, in real minutes. See docs/evidence/cron.md.

Run as root in the repository, with cron installed::

    python -m tests.cron.run [--keep] [--set NAME=VALUE] latency [--launches 6] [--mixed]
    python -m tests.cron.run packages [--concurrency 1]
    python -m tests.cron.run kills [--launches 6]
    python -m tests.cron.run demand [--minutes 30] [--by process|url]

Prints a report. Exit code 1 when an invariant failed, 2 when this machine cannot run it, 130 when interrupted.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from typing import NoReturn

from tests.cron.demand import demand
from tests.cron.place import Unfit, enter, show
from tests.cron.scenarios import KILL_ROUND, kills, latency, packages

LEAST_LAUNCHES = {"latency": 1, "kills": KILL_ROUND}


def main() -> int:
    """Run one scenario. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.cron.run", description="pollconsumer under Debian's cron")
    parser.add_argument("--keep", action="store_true", help="leave the scenario's directory behind")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        type=assignment,
        metavar="NAME=VALUE",
        help="a variable of the crontab, as POLLCONSUMER_CONSUMER__IDLE_TIME=1s; repeatable",
    )
    scenarios = parser.add_subparsers(dest="scenario", required=True)
    for name, least in LEAST_LAUNCHES.items():
        scenarios.add_parser(name).add_argument(
            "--launches", type=int, default=6, help=f"minutes to run, {least} at least"
        )
    scenarios.choices["latency"].add_argument(
        "--mixed", action="store_true", help="every twentieth message lasts 0.5 s, every fiftieth is scheduled"
    )
    scenarios.add_parser("packages").add_argument("--concurrency", type=int, default=1, help="slots of the consumer")
    on_demand = scenarios.add_parser("demand", help="a site under gunicorn starts launches on demand")
    on_demand.add_argument("--minutes", type=int, default=30)
    on_demand.add_argument("--by", choices=("process", "url"), default="process", help="the setting on_demand")
    on_demand.add_argument("--pace", type=float, default=8.0, help="seconds between two messages, on average")
    on_demand.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if given.scenario in LEAST_LAUNCHES and given.launches < LEAST_LAUNCHES[given.scenario]:
        parser.error(f"{given.scenario} needs {LEAST_LAUNCHES[given.scenario]} launches at least")
    try:
        enter()
        # The first process of a PID namespace gets no signal that it has no handler for.
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, interrupted)
        show(f"{given.scenario}: load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        if given.scenario == "packages":
            failures = packages(given.concurrency, dict(given.set), keep=given.keep)
        elif given.scenario == "demand":
            failures = demand(
                given.minutes, given.by, dict(given.set), keep=given.keep, pace=given.pace, seed=given.seed
            )
        elif given.scenario == "kills":
            failures = kills(given.launches, dict(given.set), keep=given.keep)
        else:
            kind = "mixed" if given.mixed else "plain"
            failures = latency(given.launches, dict(given.set), keep=given.keep, kind=kind)
    except Unfit as error:
        sys.stderr.write(f"tests.cron.run: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("tests.cron.run: interrupted\n")
        return 130
    show(f"load {os.getloadavg()[0]:.1f}")
    show("\n".join(["FAILED:", *failures]) if failures else "all invariants held")
    return 1 if failures else 0


def assignment(text: str) -> tuple[str, str]:
    """Name and value. ValueError where there is no equals sign."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(text)
    return name, value


def interrupted(number: int, _: object) -> NoReturn:
    """End as after Ctrl-C, whichever signal it was."""
    raise KeyboardInterrupt(number)


if __name__ == "__main__":
    sys.exit(main())
