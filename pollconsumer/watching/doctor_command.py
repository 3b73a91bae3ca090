"""``pollconsumer doctor``: what is wrong with the running system.

If the settings name somebody to tell, launches look for the same findings by themselves, and report them (`alarms`)."""

from __future__ import annotations

from collections.abc import Sequence

import click

from pollconsumer.interface.cli.group import current_settings
from pollconsumer.interface.cli.opened import opened
from pollconsumer.interface.cli.output import print_json, print_lines, wants_json
from pollconsumer.interface.cli.types import JSON_OBJECT
from pollconsumer.interface.logs.logs import log, write_line
from pollconsumer.store.client.patience import Budget
from pollconsumer.watching.alarms import FindingTeller
from pollconsumer.watching.examiner import look
from pollconsumer.watching.facts import Facts, Finding
from pollconsumer.watching.findings import unserved_times

REPORT_WITHIN = 10.0
"""Seconds that `doctor` may take to report its findings, after it has printed them."""


@click.command(epilog="pollconsumer doctor\npollconsumer doctor --quiet")
@click.option("--quiet", is_flag=True, help="Print nothing when all is well. Print problems on standard error.")
@JSON_OBJECT
def doctor(quiet: bool) -> int:
    """Find problems in the running system: server, launches, queues, handlers. Exit with 1 if there are any.

    In an hourly crontab line, 'pollconsumer doctor --quiet' makes cron send a mail when there is a problem."""
    settings, store = current_settings(), opened(warn=lambda _: None)  # doctor itself looks for such problems
    store.inspector.now()  # wait here for a store that is away; else the teller and the look would both wait
    teller = FindingTeller(settings, store)
    with teller.turn(unrecorded=True) as is_ours:
        facts, found = look(settings, store)
        # Printed first, since reporting waits for mail and requests.
        _print(facts, found, quiet=quiet)
        for problem in teller.report(found, facts.now, Budget(REPORT_WITHIN).left) if is_ours else ():
            log.warning("%s", problem)
    return 1 if found else 0


def _print(facts: Facts, found: Sequence[Finding], *, quiet: bool) -> None:
    """Print what was ``found``. With ``--json``, also the server's version and program. If ``quiet``, as warnings on
    standard error, and nothing without a finding. Otherwise as lines, after warnings about unserved time. Without a
    finding, a line says so and names the server, and the user if only that user's launches read the store."""
    if wants_json():
        if found or not quiet:
            findings = [finding._asdict() for finding in found]
            program = facts.server.program or None
            print_json({"well": not found, "server": facts.server.version, "program": program, "findings": findings})
    elif quiet:
        for finding in found:
            write_line("warning", str(finding))
    else:
        for line in unserved_times(facts):
            write_line("warning", line)
        server = ", ".join(filter(None, (facts.server.version, facts.server.program)))
        whose = f"; the store is {facts.expected.alone}'s alone" if facts.expected.alone else ""
        print_lines(found or [f"all is well: {server}{whose}"])
