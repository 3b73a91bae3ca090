"""Builds launches of the mover from settings."""

from __future__ import annotations

from pollconsumer.core.window import StopReason
from pollconsumer.interface.assembly.launch_roles import keeping_of, plan_of, taking_in
from pollconsumer.interface.configured_store import opener_of
from pollconsumer.interface.logs.event_log import listener
from pollconsumer.interface.logs.log_records import identify
from pollconsumer.interface.settings.model import Settings
from pollconsumer.runtime.launch.launch import Launch, run_launch
from pollconsumer.runtime.mover import MoverOptions, move
from pollconsumer.store.leases import Group

MOVER = Group("mover", (), 1)


def launch_mover(settings: Settings) -> None:
    """Run one launch of the mover."""
    options = mover_options(settings)

    def work(launch: Launch) -> StopReason:
        identify(launch.id, launch.plan.run_id)
        with taking_in(settings, launch):
            return move(launch, options._replace(margin=launch.min_margin))

    run_launch(plan_of(settings, settings.mover), opener_of(settings), listener(), lambda: (MOVER, work))


def mover_options(settings: Settings) -> MoverOptions:
    return MoverOptions(settings.mover.idle_time, settings.mover.page_size, keeping=keeping_of(settings))
