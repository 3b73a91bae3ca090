"""Invariants of our own processes: leases, exit codes, what they print, and that none stays."""

from __future__ import annotations

import re
import signal
from itertools import groupby, pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.history import History, Ran

CODES = {0, 69, 75, 124, 130, 143, -signal.SIGKILL}
BEFORE_OUR_FIRST_LINE = {-signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP}
"""Of a signal that comes before the interpreter has read any of ours."""
INTERPRETER = ("Fatal Python error: init_import_site", "Could not import runpy module")
HANG_UP = 129
LINE = re.compile(r"pollconsumer: (warning|error): .")
STACKS = re.compile(
    r"Timeout \(|Fatal Python error: Aborted$|Current thread|Thread 0x|  File |  <|  Garbage-collecting|"
    r"Extension modules|$|<"
)
"""What the watchdogs print: stacks of every thread."""


def fences_rise(history: History) -> Iterator[str]:
    """6. Whoever takes a lease after another has a higher fence; no two have the same."""
    fences = [each.fence for each in history.leases]
    for fence in {each for each in fences if fences.count(each) > 1}:
        yield f"fence {fence} was given twice"
    by_lease_name = sorted(history.leases, key=lambda each: each.lease_name)  # in the order of the ledger
    for lease_name, leases in groupby(by_lease_name, key=lambda each: each.lease_name):
        for one, other in pairwise(leases):
            if other.fence <= one.fence and other.acquired != one.acquired:
                yield f"{lease_name}: fence {other.fence} follows {one.fence}"


def no_process_stays(history: History) -> Iterator[str]:
    """14. When every launch has ended, nothing is left that one of them started.

    That each ends by stop_before + grace cannot be checked here, where they are suspended and the machine is busy:
    tests/system/test_launches.py does.
    """
    for stray in history.strays:
        yield f"still running: {stray}"


def secrets_are_kept(history: History) -> Iterator[str]:
    """16. The store's password is in no output, file, argument or ledger."""
    for where in history.secrets:
        yield f"the password is in {where}"


def exit_codes_are_those_of_the_contract(history: History) -> Iterator[str]:
    """24. Every command ends with a code of the contract, or by the signal that it was sent."""
    for ran in history.commands:
        killed = ran.code in BEFORE_OUR_FIRST_LINE or _interrupted_before(ran)
        if ran.code not in CODES and not killed and ran.code != HANG_UP and not _struck(ran):
            yield f"{' '.join(ran.arguments)} ended with {ran.code}: {ran.errors}"


def nothing_is_printed_but_warnings(history: History) -> Iterator[str]:
    """25. No traceback; launches print nothing on stdout, and on stderr lines that begin with our name."""
    for ran in history.commands:
        if _interrupted_before(ran):
            continue
        if "Traceback" in ran.errors:
            yield f"{' '.join(ran.arguments)} ended with a traceback: {ran.errors}"
        if ran.output and ("run" in ran.arguments or "move" in ran.arguments):
            yield f"{' '.join(ran.arguments)} printed {ran.output!r}"
        for line in ran.errors.splitlines():
            if not LINE.match(line) and not STACKS.match(line):
                yield f"{' '.join(ran.arguments)} said {line!r}"


def _interrupted_before(ran: Ran) -> bool:
    """The interpreter itself says so if SIGINT comes before our first line: while it imports what is installed, or what
    ``-m`` needs."""
    began, ended = ran.errors.startswith(INTERPRETER), ran.errors.rstrip().splitlines()[-1:]
    return ran.code == 1 and began and ended == ["KeyboardInterrupt"] and not ran.output


def _struck(ran: Ran) -> bool:
    """Suspended beyond its hard end, or without a processor for as long, a launch may be ended by the watchdog that can
    say no more than 1, or by its heartbeat."""
    by_heartbeat = ran.code == -signal.SIGABRT and "watchdog: launch killed, it " in ran.errors
    return (ran.code == 1 and "Timeout (" in ran.errors) or by_heartbeat
