"""Builds launches from settings."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext, suppress
from functools import partial
from logging import DEBUG, ERROR, INFO
from pathlib import Path
from typing import TYPE_CHECKING

from pollconsumer.core.choices import LauncherRule
from pollconsumer.core.durations import OVERRUN_TARGET_OF_BUDGETS, OVERRUN_TARGETS, MarginRule
from pollconsumer.core.launcher import FLOOR, UNLEARNED_EXIT, Found, Punctuality, find_launcher, given_launcher, run_id
from pollconsumer.core.notation.digests import sha256
from pollconsumer.core.spans import parse_quota, parse_rate
from pollconsumer.core.window import StopReason
from pollconsumer.interface.api.registry import registry
from pollconsumer.interface.assembly.handlers import (
    load_handlers,
    load_recurrences,
    long_handlers,
    optional_part,
    running_programs,
)
from pollconsumer.interface.configured_store import opener_of, producer_of, spool_of
from pollconsumer.interface.logs.event_log import listener
from pollconsumer.interface.logs.logs import PERSISTENT, about, identify, log
from pollconsumer.interface.settings.load import NO_HANDLERS, other_config, refuse_nowhere
from pollconsumer.interface.settings.model import ConsumerSettings, MoverSettings, QueueSettings, Settings, as_values
from pollconsumer.interface.settings.names import OUTCOME_VARIABLE
from pollconsumer.interface.settings.owners import warn_of_another_store
from pollconsumer.interface.settings.values import parse_keep
from pollconsumer.interface.user_imports import shadowed
from pollconsumer.runtime.handling import kept_lines, slot_waits
from pollconsumer.runtime.handling.handler import Handler, begin_launch
from pollconsumer.runtime.handling.slot_waits import ServedQueues, SlotWaits
from pollconsumer.runtime.launch.launch import Launch, LaunchPlan, Work, run_launch
from pollconsumer.runtime.launch.next_launches import launched_ago, next_launches
from pollconsumer.runtime.system.process import ancestors
from pollconsumer.runtime.system.signals import CALL, SIGNALS, handle_signals_plainly_in_forks
from pollconsumer.runtime.system.watchdog import before_exit
from pollconsumer.store.client.patience import Budget
from pollconsumer.store.leases import Group
from pollconsumer.store.records.steps import Kept, Limits, Retention

if TYPE_CHECKING:
    from threading import Event

    from pollconsumer.runtime.children.command import Programs
    from pollconsumer.runtime.launch.pings import Monitors
    from pollconsumer.runtime.mover import MoverOptions
    from pollconsumer.runtime.session.pace import ConsumerOptions

MOVER = Group("mover", (), 1)
INTAKE_BUDGET = 2.0
"""Seconds that enqueueing a spooled file waits for the store. If it fails, the launch tries again later."""


class ConsumerRole:
    """What a consumer's launch prepares, and what it does under the lease. Before that, ``launch`` is None."""

    def __init__(
        self,
        settings: Settings,
        programs: Programs | None,
        options_of: Callable[[tuple[str, ...], LauncherRule], ConsumerOptions],
    ) -> None:
        """``options_of`` returns the consumer's options, given the queues that it serves and the launcher's rule."""
        self._settings, self._programs, self._options_of = settings, programs, options_of
        self.launch: Launch | None = None
        self.handlers: Collection[str] = ()

    def prepare(self) -> tuple[Group, Work]:
        # Imported here, while the launch before may still hold the lease, and not by a mover, which needs none of it.
        from pollconsumer.runtime.consumer import consume
        from pollconsumer.runtime.handling.executors import executor_of

        settings, programs = self._settings, self._programs
        handle_signals_plainly_in_forks((*SIGNALS, CALL))
        handlers = self.handlers = load_handlers(settings, programs)
        recurrences = load_recurrences(settings, handlers)
        if is_watched := log.isEnabledFor(INFO):  # few are, and it reads the file of each application
            for other in registry.other_configs(settings):
                log.info("%s", other_config(other, settings))
        if not handlers:
            refuse_nowhere(settings)
            log.warning("%s", NO_HANDLERS, extra=about("no handlers", kind=PERSISTENT))
        queues = served_queues(settings, handlers)
        if is_watched:
            consumer = settings.consumer
            for each in long_handlers(handlers, queues, consumer.timeout, {}, settings.commands, consumer.concurrency):
                log.info("%s", each)
        names = sha256("\n".join(sorted(handlers)).encode("utf-8", "surrogateescape"))[:8]

        def work(launch: Launch) -> StopReason:
            options = self._begin(launch, queues)
            with _ready(handlers, settings, programs, launch.check_lease) as ready:
                launch.end.expect([each.timeout for each in ready.values()])

                def serve() -> StopReason:
                    with taking_in(settings, launch) as taken_in:
                        spooling = options._replace(taken_in=taken_in)
                        return consume(launch, spooling, ready, recurrences, executor_of(settings.consumer.concurrency))

                if settings.consumer.on_demand is None:
                    return serve()
                from pollconsumer.interface.on_demand import present_during

                return present_during(launch, settings, queues, serve)

        return Group("consumer", tuple(sorted(queues)), settings.consumer.instances, names), work

    def _begin(self, launch: Launch, queues: tuple[str, ...]) -> ConsumerOptions:
        """Name the launch in log records, let handlers wait for results of messages, and call the hooks ``on_launch``.
        The hooks ``on_launch_end`` are called after the lease is released. ConfigurationError if a hook raises."""
        self.launch = launch
        chosen, flight = self._settings.consumer, launch.progress.flight
        identify(launch.id, launch.plan.run_id, flight.the_one)
        until, shared = launch.end.latest, chosen.instances > 1
        served = ServedQueues(launch.id, queues, chosen.concurrency, until, shared, flight.in_flight)
        slot_waits.of_process = SlotWaits(served)
        hooks = [app.hooks for app in registry.apps if app.hooks.on_launch or app.hooks.on_launch_end]
        if hooks:
            before_exit(begin_launch(hooks))
        options = self._options_of(queues, launch.plan.launcher.rule)
        monitors = partial(_monitors, self._settings, launch)
        margin = options.margin._replace(min_margin=launch.min_margin)
        return options._replace(new_monitors=monitors, margin=margin, kept_lines=kept_lines.of_process)


def launch_consumer(
    settings: Settings,
    *,
    if_free: bool,
    until_empty: bool,
    linger: float,
    max_messages: int | None,
    reports_completed: bool = False,
) -> None:
    """Run a launch with the flags of ``run``; ``linger`` in seconds. ``reports_completed``: see `LaunchPlan`."""
    programs, pinger = running_programs(settings) if settings.commands else None, None
    if settings.pings.url is not None:
        from pollconsumer.runtime.launch.pings import Pinger

        pinger = Pinger(settings.pings.url, settings.pings.dialect)
    plan = plan_of(settings, settings.consumer)._replace(
        reports_completed=reports_completed or bool(settings.alarms.handlers),
        if_free=if_free,
        handler_limit=settings.consumer.handler_limit,
        window_is_budget=OUTCOME_VARIABLE in os.environ,  # a request waits for the launch
    )
    options_of = partial(
        consumer_options, settings, until_empty=until_empty, linger=linger, max_messages=max_messages,
        window_is_budget=plan.window_is_budget,
    )  # fmt: skip
    role = ConsumerRole(settings, programs, options_of)
    listen = listener(lambda: role.handlers)
    if OUTCOME_VARIABLE in os.environ:
        listen = optional_part("telling_outcome")(listen)  # the request that started the launch gets the outcome, too
    alarms = None
    if settings.reports_findings or settings.alarms.handlers:
        alarms = optional_part("LaunchAlarms")(settings, listen, shows_completed=reports_completed)
        listen = alarms.listen
    warn_of_another_store(settings)
    on_death = None if programs is None else programs.clear
    run_launch(plan, opener_of(settings), listen, role.prepare, on_death, pinger=pinger)
    if role.launch is not None and settings.dashboard.static is not None:
        before_exit(optional_part("write_at_end")(settings, settings.dashboard.static))
    if role.launch is not None and alarms is not None:
        before_exit(role.launch.unlearned(alarms.report))


def launch_mover(settings: Settings) -> None:
    """Run one launch of the mover."""
    from pollconsumer.runtime.mover import Mover  # a consumer needs none

    options, holder = mover_options(settings), list[Launch]()

    def work(launch: Launch) -> StopReason:
        holder.append(launch)
        identify(launch.id, launch.plan.run_id)
        with taking_in(settings, launch):
            return Mover(launch, options).run()

    listen = listener()
    run_launch(plan_of(settings, settings.mover), opener_of(settings), listen, lambda: (MOVER, work))
    if holder and settings.reports_findings:
        alarms = optional_part("LaunchAlarms")(settings, listen, shows_completed=False)
        before_exit(holder[0].unlearned(alarms.report))


def mover_options(settings: Settings) -> MoverOptions:
    from pollconsumer.runtime.mover import MoverOptions

    return MoverOptions(settings.mover.idle_time, settings.mover.page_size, keeping_of(settings))


def _monitors(settings: Settings, launch: Launch) -> Monitors:
    from pollconsumer.runtime.launch.pings import Monitors

    monitors = Monitors(settings.pings.dialect, launch.clock)
    before_exit(lambda left: monitors.wait(left, launch.emit))
    return monitors


@contextmanager
def _ready(
    handlers: Mapping[str, Handler], settings: Settings, programs: Programs | None, check_lease: Callable[[], bool]
) -> Iterator[Mapping[str, Handler]]:
    """Yield ``handlers``, with the isolated ones running in processes of their own. These processes, and programs that
    still run, end with the block."""
    if programs is not None:
        programs.clear()
    try:
        is_any = any(handler.isolated for handler in handlers.values())
        with isolating(handlers, settings, check_lease) if is_any else nullcontext(handlers) as ready:
            yield ready
    finally:
        if programs is not None:
            programs.clear(os.getpid())


@contextmanager
def taking_in(settings: Settings, launch: Launch) -> Iterator[Event | None]:
    """Enqueue spooled messages during the block: those spooled before it, and those that are spooled during it. Yields
    an event that is set once the first look at the spool is over; None without a spool."""
    if settings.spool is None:
        yield None
        return
    from pollconsumer.runtime.spool import Intake

    wire = opener_of(settings, warn=lambda _: None).wire(lambda: Budget(INTAKE_BUDGET))
    producer = producer_of(settings, wire)
    producer.most_ready = {}  # spooled messages count as accepted
    intake = Intake(spool_of(settings), producer, launch.emit)
    intake.begin()
    try:
        yield intake.taken_in
    finally:
        intake.end()


def plan_of(settings: Settings, chosen: ConsumerSettings | MoverSettings) -> LaunchPlan:
    ahead = ago = None
    if chosen.schedule:
        ahead = next_launches(chosen.schedule)
        ago = launched_ago(chosen.schedule, ahead)
    found = launcher_of(chosen)
    return LaunchPlan(
        chosen.timeout,
        chosen.grace,
        chosen.handoff,
        ahead,
        launched_ago=ago,
        launcher=found,
        observes=found.is_watched and chosen.launcher is LauncherRule.AUTO,
        min_margin=chosen.min_margin,
        run_id=run_id(os.environ),
        config=_location_of(settings),
        least_exit=UNLEARNED_EXIT if settings.reports_findings else 0.0,
    )


def _location_of(settings: Settings) -> str:
    """The path of the configuration; without a configuration, the directory in which the launch was started.

    If the shell reached that directory by a symbolic link, the path contains the link (from PWD). So the path stays the
    same when the link is set to a new version of the project."""
    config_path, written = settings.config or settings.directory, Path(os.environ.get("PWD", ""))
    with suppress(OSError, ValueError):  # no such directory, or the configuration is elsewhere
        here = Path.cwd()
        if written.is_absolute() and written.samefile(here):
            return str(written / config_path.relative_to(here))
    return str(config_path)


def launcher_of(chosen: ConsumerSettings | MoverSettings) -> Found:
    """The launcher of this process. If ``chosen`` gives a rule, the launcher has that rule."""
    return given_launcher(chosen.launcher, find_launcher(os.environ, ancestors()))


def _limits(table: QueueSettings) -> Limits:
    """The limits of a queue. Periods are in milliseconds."""
    quota = parse_quota(table.quota) if table.quota else (None, None)
    rate = parse_rate(table.rate) if table.rate else (None, None)
    return Limits(table.max_in_flight, *quota, *rate)


def keeping_of(settings: Settings) -> dict[str, Retention]:
    """Queue → how many ended messages it keeps, and how long, for each queue whose settings say that."""
    keeping = {}
    for name, table in settings.queues.items():
        if table.keep_completed is not None or table.keep_dead is not None:
            finished = None if table.keep_completed is None else Kept(*parse_keep(table.keep_completed))
            keeping[name] = Retention(
                finished, Kept() if table.keep_dead is None else Kept(*parse_keep(table.keep_dead))
            )
    return keeping


def served_queues(settings: Settings, handlers: Mapping[str, Handler]) -> tuple[str, ...]:
    """The queues that a launch with these handlers serves, in order: those of the settings, or else ``default`` and the
    queues of handlers and applications."""
    if settings.consumer.queues:
        return tuple(dict.fromkeys(settings.consumer.queues))
    return ("default", *sorted(({handler.queue for handler in handlers.values()} | registry.queues()) - {"default"}))


def consumer_options(
    settings: Settings,
    queues: tuple[str, ...],
    rule: LauncherRule,
    *,
    until_empty: bool,
    linger: float = 0.0,
    max_messages: int | None,
    window_is_budget: bool = False,
) -> ConsumerOptions:
    from pollconsumer.runtime.session.pace import ConsumerOptions

    chosen = settings.consumer
    tables = {name: settings.queues[name] for name in queues if name in settings.queues}
    limits = {name: _limits(table) for name, table in tables.items()}
    weighted = any(table.weight for table in tables.values())
    target = OVERRUN_TARGET_OF_BUDGETS if window_is_budget else OVERRUN_TARGETS[rule]
    margin = MarginRule(
        chosen.estimated_duration,
        chosen.tolerance_factor,
        Punctuality().exit + FLOOR if chosen.min_margin is None else chosen.min_margin,
        target if chosen.overrun_target is None else chosen.overrun_target,
        chosen.loop,
    )
    return ConsumerOptions(
        queues=queues,
        keeping=keeping_of(settings),
        idle_time=chosen.idle_time,
        margin=margin,
        instances=chosen.instances,
        until_empty=until_empty,
        linger=linger,
        max_messages=max_messages,
        memory_limit=chosen.memory_limit,
        limits=limits,
        weights={name: table.weight or 1 for name, table in tables.items()} if weighted else {},
    )


@contextmanager
def isolating(
    handlers: Mapping[str, Handler], settings: Settings, check_lease: Callable[[], bool]
) -> Iterator[Mapping[str, Handler]]:
    """Yield ``handlers``, with the isolated ones running in processes of their own, which end with the block."""
    from pollconsumer.runtime.children.pool import Processes  # few handlers are isolated

    streaks = log.streaks
    introduction = {
        "shadowed": shadowed(settings),
        "path": sys.path,
        "settings": as_values(settings),
        "directory": str(settings.directory),
        "config": settings.config and str(settings.config),
        "verbosity": {INFO: 1, DEBUG: 2}.get(log.threshold, 0),
        "quiet": log.threshold == ERROR,
        "streaks": streaks and {"name": streaks.name, "launch": streaks.launch},
        "identity": log.identity,
        "defaults": {name: handler.defaults for name, handler in handlers.items()},
    }
    program = Path(__file__).with_name("child_main.py")
    with closing(Processes(program, introduction, check_lease)) as processes:
        limit = settings.consumer.handler_limit
        timed = {name: each if each.timeout else each.with_timeout(limit) for name, each in handlers.items()}
        yield {**handlers, **processes.around({name: each for name, each in timed.items() if each.isolated})}
