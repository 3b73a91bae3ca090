"""What follows from settings that are left as they are, changed where a test says."""

from __future__ import annotations

from typing import Any

from pollconsumer.core.choices import HandOff, LauncherRule
from pollconsumer.interface.settings.model import Settings, changed
from pollconsumer.tuning.forecast.consumer_rules import Rules
from pollconsumer.tuning.tune_command import rules_of
from pollconsumer.watching.expected import expected_of
from pollconsumer.watching.health.facts import Expected


def rules_as_set(handoff: HandOff = HandOff.DEADLINE, **changes: Any) -> Rules:
    """Of a forecast."""
    rules = rules_of(changed(Settings().consumer, handoff=handoff, overrun_target=0.01), LauncherRule.AUTO)
    return rules._replace(scheduled=True)._replace(**changes)


def expected_as_set(**changes: Any) -> Expected:
    """Of the running system."""
    return expected_of(Settings())._replace(**changes)
