"""What follows from settings that are left as they are, changed where a test says."""

from __future__ import annotations

from typing import Any

from pollconsumer.core.choices import HandOff
from pollconsumer.interface.settings.model import Settings
from pollconsumer.watching.examiner import expected_of
from pollconsumer.watching.facts import Expected
from tests.forecast.consumer_rules import Rules


def rules_as_set(handoff: HandOff = HandOff.DEADLINE, **changes: Any) -> Rules:
    """Of a forecast."""
    consumer = Settings().consumer
    rules = Rules(
        handoff=handoff,
        timeout=consumer.timeout,
        grace=consumer.grace,
        idle_time=consumer.idle_time,
        estimated_duration=consumer.estimated_duration,
        tolerance_factor=consumer.tolerance_factor,
        min_margin=consumer.min_margin,
        overrun_target=0.01,
        slots=consumer.concurrency,
        loop=consumer.loop,
        handler_limit=consumer.handler_limit,
    )
    return rules._replace(**changes)


def expected_as_set(**changes: Any) -> Expected:
    """Of the running system."""
    return expected_of(Settings())._replace(**changes)
