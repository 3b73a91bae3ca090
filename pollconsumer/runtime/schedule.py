"""When the platform launches next, read off the cron expression that it goes by."""

from __future__ import annotations

from datetime import datetime, timedelta

OUR_OWN = 1.0
"""Seconds: a launch time no further away than this is taken for the one that started us, a little early."""


def next_launches(expression: str, now: datetime | None = None) -> tuple[float, float]:
    """Seconds from now until the next two launches of ``expression``, in local time as cron reads it."""
    from cronsim import CronSim

    moment = now or datetime.now().astimezone()
    ahead = CronSim(expression, moment + timedelta(seconds=OUR_OWN))
    first, second = next(ahead), next(ahead)
    return (first - moment).total_seconds(), (second - moment).total_seconds()
