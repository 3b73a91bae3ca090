"""``pollconsumer doctor``: what is wrong with the running system."""

from __future__ import annotations

import time
from collections.abc import Iterator

import click

from pollconsumer.core.notation.text import counted
from pollconsumer.core.notation.timespan import format_duration
from pollconsumer.interface.cli.group import current_settings
from pollconsumer.interface.cli.opened import opened
from pollconsumer.interface.cli.output import print_json, print_lines, wants_json
from pollconsumer.interface.cli.types import JSON_OBJECT
from pollconsumer.interface.configured_store import spool_of
from pollconsumer.interface.logs.logs import write_line
from pollconsumer.interface.settings.model import Settings
from pollconsumer.interface.settings.owners import REMEDY, OwnStore, own_store
from pollconsumer.watching.examiner import Examiner, expected_of
from pollconsumer.watching.facts import Expected, Finding
from pollconsumer.watching.findings import findings_of, unserved_times

SPOOLED_AT_MOST = 180.0
"""Seconds for which a file may wait, and twice the time between launches."""


def _of_owner(own: OwnStore | None) -> Iterator[Finding]:
    """Yield the finding about a configuration of another user, who has another store."""
    if own is not None and own.of_another:
        what = f"{own.config.name} is {own.owner}'s, but you are {own.user} and use a server of your own"
        yield Finding("owner", None, what, str(own.directory), f"{own.owner}'s launches never read it; {REMEDY}")


def _of_spool(settings: Settings, expected: Expected) -> Iterator[Finding]:
    """Yield findings about spooled messages that no launch has taken in, or could not."""
    if settings.spool is None:
        return
    state, place = spool_of(settings).state(), str(settings.spool_directory())
    age = 0.0 if state.oldest is None else time.time() - state.oldest / 1000
    if age > max(SPOOLED_AT_MOST, 2 * (expected.period or 0.0)):
        value = f"{counted(state.waiting, 'file')} in {place}, the oldest for {format_duration(age)}"
        fix = "check that launches run on this host, and reach the store"
        yield Finding("spool_waits", None, "messages in the spool are not enqueued yet", value, fix)
    if state.refused:
        fix = "'pollconsumer dead list --unreadable' shows why; rename a file without .refused to try it again"
        value = f"{counted(state.refused, 'file')} in {place}"
        yield Finding("spool_refused", None, "messages in the spool cannot be enqueued", value, fix)


@click.command(epilog="pollconsumer doctor\npollconsumer doctor --quiet")
@click.option("--quiet", is_flag=True, help="Print nothing when all is well. Print problems on standard error.")
@JSON_OBJECT
def doctor(quiet: bool) -> int:
    """Find problems in the running system: server, launches, queues, handlers. Exit with 1 if there are any.

    In an hourly crontab line, 'pollconsumer doctor --quiet' makes cron send a mail when there is a problem.
    """
    settings = current_settings()
    examiner = Examiner(opened(warn=lambda _: None))  # doctor looks for such problems itself
    own = own_store(settings)
    expected = expected_of(settings)._replace(alone=own.user if own else "")
    facts = examiner.facts(expected, settings.data_directory() if settings.is_embedded else None)
    found = [*_of_owner(own), *_of_spool(settings, expected), *findings_of(facts)]
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
        whose = "" if own is None or own.of_another else f"; the store is {own.user}'s alone"
        print_lines(found or [f"all is well: {server}{whose}"])
    return 1 if found else 0
