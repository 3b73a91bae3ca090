"""What launches with these settings are to be like: what `doctor` compares the running system with."""

from __future__ import annotations

from datetime import datetime

from pollconsumer.core.choices import HandOff
from pollconsumer.interface.settings.model import Settings
from pollconsumer.runtime.launch.next_launches import next_launches
from pollconsumer.watching.health.facts import Expected


def expected_of(settings: Settings) -> Expected:
    """What launches with these settings are to be like."""
    consumer, period, launches = settings.consumer, None, 1
    if consumer.schedule:
        first, second = next_launches(consumer.schedule, datetime.now().astimezone())
        period = second - first
    if consumer.handoff is HandOff.BATON:
        launches = 2
    window = min(consumer.timeout, period or consumer.timeout) * launches
    replicas = (settings.strict.replicas or 1) if settings.durability == "strict" and not settings.is_embedded else None
    program = settings.server_program() if settings.is_embedded else None
    return Expected(
        consumer.queues,
        period,
        window,
        consumer.grace,
        consumer.overrun_target,
        replicas,
        settings.doctor.recent,
        program=str(program or ""),
        handoff=consumer.handoff,
    )
