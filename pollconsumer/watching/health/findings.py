"""Everything that is wrong, the server's first."""

from __future__ import annotations

from collections.abc import Iterator

from pollconsumer.watching.health.facts import Expected, Facts, Finding, ServerFacts
from pollconsumer.watching.health.groups import groups_of
from pollconsumer.watching.health.of_launches import of_launches
from pollconsumer.watching.health.of_queues import of_batches, of_queues
from pollconsumer.watching.health.of_server import of_server

UNRECORDED = ("launch_absent", "mover_absent", "launches_died")
"""Findings that a server which cannot write leads to: no launch can record that it came, or how it ended."""


def findings_of(facts: Facts) -> list[Finding]:
    groups = groups_of(facts.launches, facts.now, facts.expected)
    found = [*_of_lost(facts)]
    found += [each for server in (facts.server, *facts.others) for each in _of_server(server, facts.expected)]
    found += [*of_queues(facts, groups), *of_batches(facts, groups), *of_launches(facts, groups)]
    if facts.server.lacking and all(group.absent for group in groups):
        lacking = " ".join(each.lower() for each in facts.server.lacking)
        fix = "grant them (docs/reference/rights.md): launches with this login cannot start"
        found.append(Finding("rights", None, "the store's user lacks rights of a launch", lacking, fix))
    if facts.server.broken:  # GUARD what is only not recorded
        found = [each for each in found if each.name not in UNRECORDED]
    return found


def _of_lost(facts: Facts) -> Iterator[Finding]:
    if facts.lost:
        waiting = f"; these queues wait: {', '.join(facts.unreachable)}" if facts.unreachable else ""
        fix = f"start them, or replicas of them{waiting}"
        yield Finding("node_lost", None, "nodes of the cluster do not answer", ", ".join(facts.lost), fix)


def _of_server(server: ServerFacts, expected: Expected) -> Iterator[Finding]:
    for finding in of_server(server, expected):
        yield finding._replace(what=f"{finding.what} at {server.place}") if server.place else finding
