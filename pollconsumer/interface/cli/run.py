"""``pollconsumer run``: one bounded launch of the consumer."""

from __future__ import annotations

import os
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import click

from pollconsumer.interface.assembly.handlers import load_handlers
from pollconsumer.interface.assembly.options import consumer_options, served_queues
from pollconsumer.interface.assembly.recurrences import load_recurrences
from pollconsumer.interface.cli import current_settings
from pollconsumer.interface.cli.types import Cron, Duration, MemorySize, Once, QueueName
from pollconsumer.interface.event_log import listener
from pollconsumer.interface.logs import STANDING, about, log
from pollconsumer.interface.settings.load import with_flags
from pollconsumer.interface.store_opener import opener_of
from pollconsumer.runtime.launch.frame import LaunchPlan, run_launch
from pollconsumer.runtime.launch.mover_process import companion
from pollconsumer.runtime.launch.next_launches import next_launches
from pollconsumer.runtime.roles import consume
from pollconsumer.store.leases import Group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pollconsumer.core.recurrence import Recurrence
    from pollconsumer.core.window import StopReason
    from pollconsumer.interface.settings.model import Settings
    from pollconsumer.runtime.handling.handler import Handler
    from pollconsumer.runtime.launch.frame import HeldLaunch
    from pollconsumer.runtime.programs.notes import Programs

positive = Duration(positive=True)


@click.command()
@click.option(
    "--queue",
    "queues",
    type=QueueName(),
    multiple=True,
    help="Queue to serve, in this order; repeatable. Without it those of the handlers.",
)
@click.option("--timeout", cls=Once, type=positive, help="Longest running time.")
@click.option("--schedule", cls=Once, type=Cron(), help="When the platform launches: stop before the next time.")
@click.option("--idle-time", cls=Once, type=positive, help="Longest wait between polls.")
@click.option(
    "--estimated-duration", cls=Once, type=Duration(), help="Handling duration assumed before any is measured."
)
@click.option("--tolerance-factor", cls=Once, type=float, help="Average duration times this is the margin.")
@click.option("--min-margin", cls=Once, type=Duration(), help="Least margin.")
@click.option("--concurrency", cls=Once, type=click.IntRange(1, 256), help="Messages handled at one time.")
@click.option("--grace", cls=Once, type=Duration(), help="The watchdog ends the process this long after its window.")
@click.option(
    "--handoff", cls=Once, type=click.Choice(["deadline", "baton"]), help="When to make way for the next launch."
)
@click.option("--instances", cls=Once, type=click.IntRange(1, 64), help="Launches that may share the queues.")
@click.option("--memory-limit", cls=Once, type=MemorySize(), help="Stop when resident memory exceeds it.")
@click.option("--until-empty", is_flag=True, help="Stop when there is nothing to handle.")
@click.option("--max-messages", cls=Once, type=click.IntRange(1), help="Stop after so many messages.")
@click.option("--with-mover", is_flag=True, help="Run a launch of the mover beside it.")
def run(until_empty: bool, max_messages: int | None, with_mover: bool, **flags: Any) -> None:
    """One bounded launch of the consumer."""
    settings = with_flags(current_settings(), "consumer", flags)
    chosen = settings.consumer
    plan = LaunchPlan(
        timeout=chosen.timeout,
        grace=chosen.grace,
        baton=chosen.handoff == "baton",
        next_launches=next_launches(chosen.schedule) if chosen.schedule else None,
    )
    programs = _programs(settings)
    handlers: dict[str, Handler] = {}
    recurrences: list[Recurrence] = []

    def prepare() -> Group:
        handlers.update(load_handlers(settings, programs))
        recurrences.extend(load_recurrences(settings, handlers))
        if not handlers:
            log.warning(
                "no handlers: messages will be parked; name their modules as handlers in the configuration",
                extra=about("no handlers", kind=STANDING),
            )
        return Group("consumer", tuple(sorted(served_queues(settings, handlers))), chosen.instances)

    def work(held: HeldLaunch) -> StopReason:
        queues = served_queues(settings, handlers)
        options = consumer_options(settings, queues, until_empty=until_empty, max_messages=max_messages)
        with _ready(handlers, settings, programs, held.watch.check) as ready:
            return consume(held, options, ready, recurrences, chosen.concurrency)

    with companion(*_mover(flags)) if with_mover else nullcontext():
        run_launch(
            plan,
            opener_of(settings),
            listener(),
            prepare,
            work,
            on_launch_death=None if programs is None else programs.clear,
        )


def _programs(settings: Settings) -> Programs | None:
    """Where programs that run for messages are noted; None where no handler is one."""
    if not settings.commands:
        return None
    from pollconsumer.interface.assembly.programs import running_programs

    return running_programs(settings)


@contextmanager
def _ready(
    handlers: dict[str, Handler], settings: Settings, programs: Programs | None, check_lease: Callable[[], None]
) -> Iterator[Mapping[str, Handler]]:
    """``handlers``, with the processes that some of them want; what those and programs leave behind ends with the
    block."""
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


def _mover(flags: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    """Arguments and environment of a mover with our settings and, where flags bound it, our window.

    The store goes through the environment: a password must not show in the list of processes.
    """
    given = click.get_current_context().find_root().params
    arguments = ["--config", given["config"]] if given["config"] else []
    arguments += ["-" + "v" * given["verbosity"]] if given["verbosity"] else []
    arguments += ["-q"] if given["quiet"] else []
    arguments += ["move"]
    for name in ("timeout", "schedule"):
        if flags[name] is not None:
            arguments += [f"--{name}", str(flags[name])]
    environment = {f"POLLCONSUMER_{name.upper()}": given[name] for name in ("store", "namespace") if given[name]}
    return arguments, environment
