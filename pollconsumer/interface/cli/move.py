"""``pollconsumer move``: one bounded launch of the mover."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pollconsumer.interface.cli import current_settings
from pollconsumer.interface.cli.types import Cron, Duration, Once
from pollconsumer.interface.event_log import listener
from pollconsumer.interface.settings.load import with_flags
from pollconsumer.interface.store_opener import opener_of
from pollconsumer.runtime import roles
from pollconsumer.runtime.launch.frame import LaunchPlan, run_launch
from pollconsumer.runtime.launch.next_launches import next_launches
from pollconsumer.runtime.mover import MoverOptions
from pollconsumer.store.leases import Group

if TYPE_CHECKING:
    from pollconsumer.core.window import StopReason
    from pollconsumer.runtime.launch.frame import HeldLaunch

positive = Duration(positive=True)


@click.command()
@click.option("--timeout", cls=Once, type=positive, help="Longest running time.")
@click.option("--schedule", cls=Once, type=Cron(), help="When the platform launches: stop before the next time.")
@click.option("--idle-time", cls=Once, type=positive, help="Longest wait between looks at the schedule.")
@click.option("--batch-size", cls=Once, type=click.IntRange(1, 500), help="Messages promoted in one step.")
@click.option(
    "--handoff", cls=Once, type=click.Choice(["deadline", "baton"]), help="When to make way for the next launch."
)
def move(**flags: Any) -> None:
    """One bounded launch of the mover."""
    settings = with_flags(current_settings(), "mover", flags)
    chosen = settings.mover
    plan = LaunchPlan(
        timeout=chosen.timeout,
        grace=chosen.grace,
        baton=chosen.handoff == "baton",
        next_launches=next_launches(chosen.schedule) if chosen.schedule else None,
    )
    options = MoverOptions(idle_time=chosen.idle_time, batch_size=chosen.batch_size, baton=plan.baton)

    def work(held: HeldLaunch) -> StopReason:
        return roles.move(held, options)

    run_launch(plan, opener_of(settings), listener(), lambda: Group("mover", (), 1), work)
