"""Everything that is wrong, the server's first."""

from __future__ import annotations

from pollconsumer.core.health.facts import Facts, Finding
from pollconsumer.core.health.groups import groups_of
from pollconsumer.core.health.of_launches import of_launches
from pollconsumer.core.health.of_queues import of_queues
from pollconsumer.core.health.of_server import of_server


def findings_of(facts: Facts) -> list[Finding]:
    groups = groups_of(facts.launches, facts.now)
    found = [*of_server(facts.server, facts.expected), *of_queues(facts, groups), *of_launches(facts, groups)]
    if facts.server.lacking and all(group.absent for group in groups):
        lacking = " ".join(each.lower() for each in facts.server.lacking)
        fix = "grant them (docs/store.md): a launch of this user cannot start"
        found.append(Finding("rights", None, "rights of a launch missing", lacking, fix))
    return found
