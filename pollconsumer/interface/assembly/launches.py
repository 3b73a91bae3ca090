"""Builds launches from settings."""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from pollconsumer.interface.assembly.options import consumer_options, mover_options, plan_of, served_queues
from pollconsumer.interface.event_log import listener
from pollconsumer.interface.logs import STANDING, about, log
from pollconsumer.interface.store_opener import opener_of
from pollconsumer.runtime.consumer_role import consume
from pollconsumer.runtime.handling.executor import executor_of
from pollconsumer.runtime.launch.run import run_launch
from pollconsumer.store.leases import Group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pollconsumer.core.window import StopReason
    from pollconsumer.interface.settings.model import Settings
    from pollconsumer.runtime.handling.handler import Handler
    from pollconsumer.runtime.launch.held import Launch
    from pollconsumer.runtime.launch.run import Work
    from pollconsumer.runtime.programs.notes import Programs

MOVER = Group("mover", (), 1)


def launch_consumer(settings: Settings, *, until_empty: bool, max_messages: int | None) -> None:
    chosen, programs = settings.consumer, _programs(settings)

    def prepare() -> tuple[Group, Work]:
        # Imported lazily: the mover does not need it.
        from pollconsumer.interface.assembly.handlers import load_handlers
        from pollconsumer.interface.assembly.recurrences import load_recurrences

        handlers = load_handlers(settings, programs)
        recurrences = load_recurrences(settings, handlers)
        if not handlers:
            log.warning(
                "no handlers: messages will be parked; name their modules as handlers in the configuration",
                extra=about("no handlers", kind=STANDING),
            )
        queues = served_queues(settings, handlers)
        options = consumer_options(settings, queues, until_empty=until_empty, max_messages=max_messages)

        def work(launch: Launch) -> StopReason:
            with _ready(handlers, settings, programs, launch.check_lease) as ready:
                return consume(launch, options, ready, recurrences, executor_of(chosen.concurrency))

        return Group("consumer", tuple(sorted(queues)), chosen.instances), work

    on_death = None if programs is None else programs.clear
    run_launch(plan_of(chosen), opener_of(settings), listener(), prepare, on_death)


def launch_mover(settings: Settings) -> None:
    from pollconsumer.runtime.mover import move  # a consumer needs nothing of it

    work = partial(move, options=mover_options(settings))
    run_launch(plan_of(settings.mover), opener_of(settings), listener(), lambda: (MOVER, work))


def _programs(settings: Settings) -> Programs | None:
    """The notes of programs; None if no handler is one."""
    if not settings.commands:
        return None
    from pollconsumer.interface.assembly.programs import running_programs

    return running_programs(settings)


@contextmanager
def _ready(
    handlers: Mapping[str, Handler], settings: Settings, programs: Programs | None, check_lease: Callable[[], None]
) -> Iterator[Mapping[str, Handler]]:
    """``handlers``, isolated ones with their processes. These, and survivors of programs, end with the block."""
    if programs is not None:
        programs.clear()
    try:
        if any(handler.isolated for handler in handlers.values()):
            from pollconsumer.interface.isolation.launch_side import isolating

            with isolating(handlers, settings, check_lease) as ready:
                yield ready
        else:
            yield handlers
    finally:
        if programs is not None:
            programs.clear(os.getpid())
