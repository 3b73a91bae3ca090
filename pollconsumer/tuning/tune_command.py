"""``pollconsumer tune``: settings with which the recorded launches would have been better off."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import click

from pollconsumer.core.choices import LauncherRule
from pollconsumer.core.durations import OVERRUN_TARGETS
from pollconsumer.core.histogram import Histogram
from pollconsumer.core.notation.text import counted
from pollconsumer.core.notation.timespan import format_duration
from pollconsumer.interface.cli.group import current_settings
from pollconsumer.interface.cli.opened import opened
from pollconsumer.interface.cli.output import print_json, print_line, print_table
from pollconsumer.interface.cli.types import JSON_OBJECT
from pollconsumer.interface.settings.model import ConsumerSettings
from pollconsumer.store.leases import Leases
from pollconsumer.store.reading.inspector import Inspector
from pollconsumer.tuning.config_edit import edit_consumer
from pollconsumer.tuning.forecast.consumer_rules import Rules
from pollconsumer.tuning.launch_facts import LaunchFacts, launcher_of, launches_of, lineage_to_tune
from pollconsumer.tuning.proposal import Proposal, propose
from pollconsumer.tuning.replay import ReplayOutcome

LAUNCHES_READ = 2_000
SEED = 1


class Tuned(NamedTuple):
    """A setting: its name in `Rules`, how it is shown, and how it is written in the file."""

    rule: str
    show: Callable[[float], str]
    as_setting: Callable[[float], float | str]


def _in_seconds(seconds: float) -> str:
    return f"{seconds:.15g}s"


def _number(value: float) -> float:
    return int(value) if value == int(value) else value


DURATION, NUMBER = (format_duration, _in_seconds), ("{:g}".format, _number)
TUNED = {
    "timeout": Tuned("timeout", *DURATION),
    "idle_time": Tuned("idle_time", *DURATION),
    "tolerance_factor": Tuned("tolerance_factor", *NUMBER),
    "overrun_target": Tuned("overrun_target", "{:g}".format, float),
    "concurrency": Tuned("slots", *NUMBER),
}
NAMES = {tuned.rule: name for name, tuned in TUNED.items()}
OUTCOMES: dict[str, tuple[str, Callable[[float], str]]] = {
    "overruns": ("overruns", "{:.1%}".format),
    "ended_by_watchdog": ("ended by the watchdog", "{:.1%}".format),
    "coverage": ("coverage", "{:.1%}".format),
    "dropped": ("dropped ticks", "{:.1%}".format),
    "wait": ("wait, average", format_duration),
    "wait_p99": ("wait, p99", format_duration),
}


@click.command(epilog="pollconsumer tune\npollconsumer tune --apply")
@click.option("--apply", is_flag=True, help="Write the proposed settings into the configuration file.")
@JSON_OBJECT
def tune(apply: bool, as_json: bool) -> None:
    """Propose timeout, idle time, tolerance factor, overrun target and concurrency of the consumer.

    The recorded launches are simulated with the measured durations, under today's settings and under others. If there
    are several consumers, the one that handled most is tuned; 'consumer.queues' chooses another.
    """
    settings = current_settings()
    entries = opened(Inspector).launches(LAUNCHES_READ)
    lineage = lineage_to_tune(entries, settings.consumer.queues)
    found = launcher_of(entries, lineage, settings.consumer.launcher)
    durations = Histogram()
    group = (lineage or "").rpartition(":")[0]
    for each in opened(Leases).remembered(group).values():
        durations.include(each)
    facts = LaunchFacts(launches_of(entries, lineage), durations, rules_of(settings.consumer, found.rule), found)
    proposal = propose(facts, lambda: Random(SEED))
    applied = None
    if apply and proposal.changes:
        proposed = {NAMES[each.setting]: each.proposed for each in proposal.changes}
        written = {name: TUNED[name].as_setting(value) for name, value in proposed.items()}
        applied = str(edit_consumer(settings, written, proposed))
    queues = [*filter(None, group.partition(":")[2].split(","))]
    if as_json:
        print_json(_as_json(facts, proposal, queues, applied))
    else:
        _print(facts, proposal, queues, applied)


def rules_of(consumer: ConsumerSettings, launcher: LauncherRule) -> Rules:
    """The rules of a forecast of launches with these settings."""
    target = consumer.overrun_target
    return Rules(
        handoff=consumer.handoff,
        timeout=consumer.timeout,
        grace=consumer.grace,
        idle_time=consumer.idle_time,
        estimated_duration=consumer.estimated_duration,
        tolerance_factor=consumer.tolerance_factor,
        min_margin=consumer.min_margin,
        overrun_target=OVERRUN_TARGETS[launcher] if target is None else target,
        slots=consumer.concurrency,
        loop=consumer.loop,
        scheduled=consumer.schedule is not None,
        handler_limit=consumer.handler_limit,
    )


def _as_json(facts: LaunchFacts, proposal: Proposal, queues: list[str], applied: str | None) -> dict[str, Any]:
    enough = not proposal.missing
    return {
        "queues": queues,
        "launches": len(facts.launches),
        "messages": facts.durations.count,
        "missing": proposal.missing,
        "simulated_launches": proposal.simulated,
        "today": _column(facts.rules, proposal.today),
        "proposed": _column(proposal.rules, proposal.proposed) if enough else None,
        "changes": [
            {"setting": NAMES[each.setting], "today": each.today, "proposed": each.proposed, "reason": each.reason}
            for each in proposal.changes
        ],
        "applied_to": applied,
    }


def _column(rules: Rules, outcome: ReplayOutcome | None) -> dict[str, Any]:
    values = {name: getattr(rules, tuned.rule) for name, tuned in TUNED.items()}
    measured = None if outcome is None else outcome._asdict()
    seconds = {"timeout", "idle_time", "wait", "wait_p99"}
    return {
        f"{name}_seconds" if name in seconds else name: value for name, value in (values | (measured or {})).items()
    }


def _print(facts: LaunchFacts, proposal: Proposal, queues: list[str], applied: str | None) -> None:
    print_line(
        f"{counted(len(facts.launches), 'launch')} of {', '.join(queues) or 'no queue'}, "
        f"durations of {counted(facts.durations.count, 'message')}"
    )
    if proposal.missing:
        print_line("too little is known:")
        for each in proposal.missing:
            print_line(f"  {each}")
        return
    assert proposal.today is not None
    assert proposal.proposed is not None
    rows = [
        (name, *(tuned.show(getattr(rules, tuned.rule)) for rules in (facts.rules, proposal.rules)))
        for name, tuned in TUNED.items()
    ]
    rows += [
        (name, *(show(getattr(outcome, field)) for outcome in (proposal.today, proposal.proposed)))
        for field, (name, show) in OUTCOMES.items()
    ]
    print_table(("", "today", "proposed"), rows)
    for change in proposal.changes:
        tuned = TUNED[NAMES[change.setting]]
        values = f"{tuned.show(change.today)} -> {tuned.show(change.proposed)}"
        print_line(f"{NAMES[change.setting]}: {values}; {change.reason}")
    if not proposal.changes:
        print_line("nothing to change: no setting makes messages wait noticeably less")
    print_line(f"simulated: {counted(proposal.simulated, 'launch')}")
    if applied is not None:
        print_line(f"written to {applied}")
