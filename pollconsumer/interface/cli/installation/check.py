"""``pollconsumer check``: validates the configuration, and shows the next window."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import click

from pollconsumer.core.choices import After, HandOff, LauncherRule
from pollconsumer.core.coverage import unserved_time, usual_margin
from pollconsumer.core.errors import BadData, ConfigurationError, PermissionDenied, retelling, shown, suggestion
from pollconsumer.core.launcher import (
    BY_PRODUCERS,
    Found,
    Observed,
    allowance,
    given_launcher,
    learned,
    past_launch,
    read_observed,
    recorded_launcher,
)
from pollconsumer.core.notation.instants import iso
from pollconsumer.core.notation.text import counted, site_of
from pollconsumer.core.recurrence import Recurrence, zone_of
from pollconsumer.core.spans import format_duration
from pollconsumer.core.window import predict_stop
from pollconsumer.interface.api.registry import registry
from pollconsumer.interface.api.slips import check_arguments
from pollconsumer.interface.assembly import log_outputs
from pollconsumer.interface.assembly.handlers import (
    NO_POLICIES,
    LongHandler,
    beyond_requests,
    load_handlers,
    load_recurrences,
    long_handlers,
    optional_part,
)
from pollconsumer.interface.assembly.launch_roles import launcher_of, served_queues
from pollconsumer.interface.cli.group import current_settings, limit_command
from pollconsumer.interface.cli.opened import command_patience
from pollconsumer.interface.cli.output import given_row, print_json, print_lines, print_table, printed_as_json
from pollconsumer.interface.cli.types import JSON_OBJECT
from pollconsumer.interface.configured_store import opener_of, program_to_start, server_of, spool_of
from pollconsumer.interface.logs.logs import log
from pollconsumer.interface.settings.load import django_site, other_config, warn_of_former_names
from pollconsumer.interface.settings.model import ConsumerSettings, MoverSettings, Settings
from pollconsumer.interface.settings.names import NO_STATE
from pollconsumer.interface.settings.owners import OwnStore, group_writable, others_among, own_store
from pollconsumer.runtime.children.command import Command
from pollconsumer.runtime.handling.handler import Handler, aliases_among
from pollconsumer.runtime.launch.next_launches import next_launches
from pollconsumer.runtime.launch.pings import dialect_of
from pollconsumer.runtime.system.own_files import OwnFiles
from pollconsumer.runtime.system.signals import raising_terminations
from pollconsumer.runtime.system.watchdog import WATCHDOG, watch
from pollconsumer.store.client.patience import Budget
from pollconsumer.store.rights import LAUNCH, lacking
from pollconsumer.store.server import NO_SERVICE, QueueService, service_of
from pollconsumer.store.server_trial import ServerTrial
from pollconsumer.store.store import Store

LAUNCHES_LEARNED_FROM = 100
REACH_BUDGET = 5.0
IMPORT_WITHIN = 20.0
"""Timeout of importing the user's modules, in seconds."""
LAUNCHES_SHOWN = 5
RULES = {
    LauncherRule.PARALLEL: "a new launch may start beside a running one",
    LauncherRule.QUEUE: "a new launch starts when the running one has ended",
    LauncherRule.DROP: "no launch is started while one is running",
}


class OnlyRead(OwnFiles):
    """The files of a launch, for ``check``, which must not write them."""

    def write(self, name: str, content: bytes) -> bool:  # noqa: ARG002  its signature
        return False


@click.command(epilog="pollconsumer --config /etc/pollconsumer/config.toml check\npollconsumer check --compat")
@click.option(
    "--compat", is_flag=True, help="Test the server's commands, in a temporary namespace, and list what it lacks."
)
@click.option("--schema", is_flag=True, help="Print the JSON Schema of config.toml, for editors, and check nothing.")
@JSON_OBJECT
def check(compat: bool, schema: bool) -> int:
    """Validate configuration and handlers, connect to the store, and show when the next launches start and end."""
    if schema:
        from pollconsumer.interface.settings import declared  # pydantic, which only this option needs

        print_json(declared.Settings.model_json_schema())
        return 0
    settings = current_settings()
    if compat:
        return _try_server(settings)
    log_outputs.check(settings.logs, settings.directory)
    handlers = _import_in_time(settings)
    limit_command()
    unchecked = _unchecked_arguments()
    files = OnlyRead(settings.state_files().directories)
    recurrences = load_recurrences(settings, handlers)
    store = _reached(settings, files)
    queues = served_queues(settings, handlers)
    _check_handlers(recurrences, handlers)
    _warn_of_alarms_of_nobody(settings, handlers)
    unserved = _unserved(store, queues, handlers, recurrences)
    past = _ledger_of(store)
    launches = _by_role(past, queues)
    roles = {role: usual_margin(found) for role, found in launches.items() if found or role == "consumer"}
    now = datetime.now().astimezone()
    windows = _next_windows(settings, now, launches, _longest_limit(settings, handlers, queues))
    report: dict[str, Any] = {
        **_locations_of(settings, store, files.writable_directory()),
        "queues": list(queues),
        "handlers": sorted({handler.name for handler in handlers.values()}),
        "aliases": dict(sorted(aliases_among(handlers).items())),
        "commands": _described_commands(settings, handlers, own_queues(queues, past)),
        "long_work": {each.name: str(each) for each in _long_work(settings, handlers, queues, past, windows, store)},
        "not_begun_by_url": beyond_requests(handlers, settings),
        "unserved": _unserved_time(launches["consumer"], windows["consumer"], settings.consumer.handoff),
        "rates": _rates_of(settings, handlers),
        "recurrences": sorted(each.name for each in recurrences),
        "next_occurrences": _next_occurrences(recurrences, now),
        "queues_not_served": list(unserved),
        "queues_served_elsewhere": [queue for queue, service in unserved.items() if service.lately],
        "arguments_not_checked": unchecked,
        **windows,
    }
    own = own_store(settings)
    if own is not None and own.is_anothers:
        log.warning("%s", own)
    if not printed_as_json(report):
        not_served = [_not_served(queue, service, handlers, report["commands"]) for queue, service in unserved.items()]
        _print(report, settings, not_served, roles, own, runs=store is not None)
    for other in registry.other_configs(settings):
        log.warning("%s", other_config(other, settings))
    warn_of_former_names(settings)
    dropped = [role for role in roles if _drops_ticks(windows[role], launches[role])]
    _warn_of_hindrances(store, dropped, recurrences, unserved)
    return 0


def _ledger_of(store: Store | None) -> list[dict[str, Any]]:
    """The ledger's entries of the last launches, newest first. Empty if the ledger cannot be read."""
    if store is not None:
        with suppress(PermissionDenied):  # a producer has no right to read the ledger
            return store.inspector.launches(LAUNCHES_LEARNED_FROM)
    return []


def _by_role(past: Sequence[dict[str, Any]], queues: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
    """Role → earlier launches: those of a consumer that served the same ``queues``, and those of the mover."""
    return {
        "consumer": [each for each in past if each["queues"] == sorted(queues)],
        "mover": [each for each in past if each["role"] == "mover"],
    }


def _next_windows(
    settings: Settings, now: datetime, launches: Mapping[str, list[dict[str, Any]]], longest: float
) -> dict[str, dict[str, Any]]:
    """Role → its next window. ``launches``: earlier launches by role. ``longest``: see `next_window`; it holds for the
    consumer."""
    schedules: dict[str, str | None] = {role: getattr(settings, role).schedule for role in launches}
    if schedules["consumer"] is None and settings.config is not None:  # this user's crontab may give one
        schedules["consumer"] = optional_part("installed_schedule")(settings.config)
    longest_of = {"consumer": longest}
    return {
        role: next_window(getattr(settings, role), now, found, longest_of.get(role, 0.0), schedules[role])
        for role, found in launches.items()
    }


def _unserved_time(launches: list[dict[str, Any]], window: Mapping[str, Any], handoff: HandOff) -> str | None:
    """A line about the time between launches that no launch serves. None if it is little."""
    instants = [datetime.fromisoformat(each) for each in window["next_launches"][:2]]
    period = (instants[1] - instants[0]).total_seconds() if instants else None
    return unserved_time(launches, window["window_seconds"], window["launcher"], handoff, period)


def _reached(settings: Settings, files: OwnFiles) -> Store | None:
    """The store, on a connection that has answered. None for an embedded server that is not running, since ``check``
    does not start it. If such a server could not start, the start's error is raised, if it can be found beforehand."""
    opener = opener_of(settings, files)
    if settings.is_embedded and (server := server_of(settings)).status() is None:
        server.check_start()
        return None
    store = Store(opener.persons_wire(lambda: Budget(REACH_BUDGET)), settings.namespace)
    store.inspector.now()
    return store


def _unserved(
    store: Store | None,
    queues: Collection[str],
    handlers: Mapping[str, Handler],
    recurrences: Iterable[Recurrence],
) -> dict[str, QueueService]:
    """Queues of handlers and recurrences that this configuration's launches do not serve, and whether others do."""
    wanted = {handler.queue for handler in handlers.values()} | {each.queue for each in recurrences if each.enabled}
    others = sorted(wanted - set(queues))
    return dict.fromkeys(others, NO_SERVICE) if store is None else service_of(store.wire, store.keys, others)


def _long_work(
    settings: Settings,
    handlers: Mapping[str, Handler],
    queues: Collection[str],
    past: Sequence[Mapping[str, Any]],
    windows: Mapping[str, Any],
    store: Store | None,
) -> list[LongHandler]:
    """The handlers that may outlast the window of this configuration's launches, by their timeouts and their durations
    in earlier launches. Handlers are left out if this user's crontab has launches for their queue alone."""
    measured: dict[str, float] = {}
    if store is not None and past:
        with suppress(PermissionDenied):
            remembered = store.leases.remembered(f"consumer:{','.join(sorted(queues))}")
            measured = {name: each.longest for name, each in remembered.items()}
    own = own_queues(queues, past)
    served = [queue for queue in queues if queue in own]
    window, slots = windows["consumer"]["window_seconds"], settings.consumer.concurrency
    found = [*long_handlers(handlers, served, window, measured, settings.commands, slots)]
    # The crontab is read only if there are handlers to name.
    installed = optional_part("installed_queues")(settings.config) if found and settings.config else []
    return [each for each in found if [each.queue] not in installed]


def _locations_of(settings: Settings, store: Store | None, state: Path | None) -> dict[str, Any]:
    """Where configuration, store, state and the like are; which files other users own, or a group may write."""
    data, program = (settings.data_directory(), settings.server_program()) if settings.is_embedded else (None, None)
    if settings.spool is not None:
        spool_of(settings).check()
    modules = [found for name in settings.handlers if (found := sys.modules.get(name)) is not None and found.__file__]
    run = [settings.config, settings.directory, program, *(Path(str(module.__file__)) for module in modules)]
    monitor, doctor = settings.pings.url, settings.doctor
    alarm_targets = [doctor.url and f"{site_of(doctor.url)}, {optional_part('form_of')(doctor.url)}", doctor.mail]
    return {
        "config": settings.config and str(settings.config),
        "store": settings.shown_store,
        "primary": store.wire.location if store is not None and settings.store.startswith("redis+sentinel:") else None,
        "namespace": settings.namespace,
        "pings": monitor and f"{site_of(monitor)}, {dialect_of(monitor, settings.pings.dialect)}",  # its path is secret
        "alarms": [each for each in alarm_targets if each],
        "data": data and str(data),
        "spool": (spool := settings.spool_directory()) and str(spool),
        "server": program_to_start(settings),
        "owners": {str(path): owner for path, owner in others_among([*run, data])},
        "group_writable": [str(path) for path in group_writable(settings.config, settings.directory)],
        "state": state and str(state),
    }


def _import_in_time(settings: Settings) -> dict[str, Handler]:
    """Import the handlers. A ConfigurationError shows its traceback. If the import takes too long, the process ends.
    Then restore the time zone, which a Django site may change: a launch reads its schedule before the import."""
    names = ", ".join([*filter(None, [django_site()]), *settings.handlers])
    until = time.monotonic() + IMPORT_WITHIN
    watch(lambda: until, lambda: f"handlers: {shown(names)}: import took longer than {IMPORT_WITHIN:g}s")
    own_zone = os.environ.get("TZ")
    try:
        return load_handlers(settings)
    except ConfigurationError as error:
        error.shows_trace = True
        raise
    finally:
        WATCHDOG.lift()
        if os.environ.get("TZ") != own_zone:
            os.environ.pop("TZ", None)
            if own_zone is not None:
                os.environ["TZ"] = own_zone
            time.tzset()


def _drops_ticks(window: Mapping[str, Any], launches: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the launcher drops ticks, and no schedule is known. ``launches``: those of the role, newest first."""
    # A line of the crontab may give the schedule to its launch alone, as the lines of `init cron` do.
    known = window["schedule"] is not None or any(each.get("next_tick_seconds") for each in launches[:1])
    return window["launcher"] is LauncherRule.DROP and not known


def _warn_of_hindrances(
    store: Store | None,
    dropped: Sequence[str],
    recurrences: Iterable[Recurrence],
    unserved: Mapping[str, QueueService],
) -> None:
    """Warn of what keeps launches from their work: rights that the store's user lacks, roles whose ticks are
    ``dropped``, and recurrences whose queues no launch has served lately."""
    if store is not None and (refused := lacking(store.wire, LAUNCH, store.keys.control("fences"))):
        log.warning(
            "store: launches cannot start, since the store's user may not run %s; grant these commands",
            " ".join(each.decode().lower() for each in refused),
        )
    for role in dropped:
        log.warning(
            "%s: no launch is started while one is running, and no schedule is set: each would run past the next "
            "tick, which is lost; set %s.schedule",
            role,
            role,
        )
    for each in recurrences:
        if each.enabled and each.queue in unserved and not unserved[each.queue].lately:
            log.warning(
                "recurrence %s: no launch serves its queue %s; start 'run --queue %s' too, or name it in "
                "consumer.queues with the others",
                each.name,
                each.queue,
                each.queue,
            )


def _warn_of_alarms_of_nobody(settings: Settings, handlers: Mapping[str, Handler]) -> None:
    for name in settings.alarms.handlers.keys() - handlers:
        log.warning("alarms.handlers.%s: %s", name, suggestion(name, handlers, "no handler has this name"))


def _check_handlers(recurrences: Sequence[Recurrence], handlers: Mapping[str, Handler]) -> None:
    """Raise ConfigurationError for a recurrence with an unknown handler, or with arguments that do not fit it."""
    functions = registry.handlers()
    for each in recurrences:
        if each.handler not in handlers:
            fix = suggestion(each.handler, handlers, "no handler has this name: add its module to handlers")
            raise ConfigurationError(f"recurrences.{each.name}: handler", each.handler, fix)
        if (known := functions.get(each.handler)) is not None:
            with retelling(BadData, ConfigurationError, f"recurrences.{each.name}: "):
                check_arguments(known, each.payload, each.options.get("retry"), recurs=True)
        elif retry := each.options.get("retry"):
            raise ConfigurationError(f"recurrences.{each.name}: retry", repr(retry), NO_POLICIES)


def _not_served(queue: str, service: QueueService, handlers: Mapping[str, Handler], commands: Mapping[str, Any]) -> str:
    names = ", ".join(sorted({each.name for each in handlers.values() if each.queue == queue})) or "recurrences"
    if service.lately:
        longest = max((each["timeout_seconds"] or 0 for each in commands.values() if each["queue"] == queue), default=0)
        needed = f", which need a timeout above {format_duration(longest)}" if longest else ""
        return f"{queue} (of {names}): other launches serve it{needed}"
    remedy = f"start 'run --queue {queue}' too, or name it in consumer.queues with the others"
    return f"{queue} (of {names}): {service.ready} ready, and no launch has served it lately; {remedy}"


def _next_occurrences(recurrences: Iterable[Recurrence], now: datetime) -> dict[str, dict[str, Any]]:
    """Recurrence → the next instant of its rule. None while it is disabled, or if its period counts from ends."""
    found = {}
    for each in sorted(recurrences, key=lambda each: each.name):
        known = each.enabled and each.after is After.DUE
        instant = each.next_after(round(now.timestamp() * 1000)) if known else None
        there = {"rule": each.rule, "timezone": each.timezone, "enabled": each.enabled}
        found[each.name] = there | {"next": None if instant is None else iso(instant)}
    return found


def _described_next(of: Mapping[str, Any]) -> str:
    if not of["enabled"]:
        return f"{of['rule']}, switched off"
    if of["next"] is None:
        return of["rule"] or ""
    there = datetime.fromisoformat(of["next"]).astimezone(zone_of(of["timezone"]))
    return f"{of['rule']}, next {there.isoformat(timespec='seconds')} ({of['timezone']})"


def _unchecked_arguments() -> dict[str, str]:
    """HANDLER.PARAMETER → why its values are not checked. ConfigurationError for a handler that no message can call."""
    unchecked: dict[str, str] = {}
    for registered in registry.handlers().values():
        name, (impossible, unreadable) = registered.definition.name, registered.arguments.problems()
        for parameter, reason in impossible.items():
            raise ConfigurationError(
                f"handlers: {name}, parameter {parameter}", reason, "annotate a type that JSON has, or give a default"
            )
        unchecked |= {f"{name}.{parameter}": shown(reason) for parameter, reason in unreadable.items()}
    return unchecked


def _print(
    report: dict[str, Any],
    settings: Settings,
    not_served: list[str],
    roles: Mapping[str, float | None],
    own: OwnStore | None,
    *,
    runs: bool,
) -> None:
    """Print the report as a table. ``runs``: whether the embedded server is running. ``roles``: the roles whose windows
    to show, each with its usual margin."""
    server = "its server runs" if runs else "its server does not run yet: a launch or enqueue starts it"
    no_state = "none" if settings.state == NO_STATE else "not writable, set state to a directory"
    rows: list[tuple[str, object]] = [
        ("store", f"{report['store']}, {server}" if settings.is_embedded else report["store"]),
        *given_row("primary", report["primary"]),
        ("namespace", settings.namespace),
        ("state", report["state"] or f"{no_state}: a replaced store is not noticed"),
        ("queues", ", ".join(report["queues"])),
        ("handlers", ", ".join(report["handlers"]) or "none: messages are kept until a launch has their handler"),
        *((f"alias {alias}", f"handled by {name}") for alias, name in report["aliases"].items()),
        *given_row("pings", report["pings"]),
        *(("alarms", each) for each in report["alarms"]),
        *given_row("data", report["data"]),
        *given_row("whose store", None if own is None or own.is_anothers else str(own)),
        *given_row("spool", report["spool"]),
        *given_row("server", report["server"]),
        *(("owner", f"{path}: {owner}") for path, owner in report["owners"].items()),
        *(
            ("group-writable", f"{path}: users of its group can change the code that launches run")
            for path in report["group_writable"]
        ),
        *((f"command {name}", shlex.join(command["command"])) for name, command in report["commands"].items()),
        *(("long work", each) for each in report["long_work"].values()),
        *(("not begun by a URL", each) for each in report["not_begun_by_url"].values()),
        *given_row("unserved", report["unserved"]),
        *_described_rates(report["rates"]),
        *((f"recurrence {name}", _described_next(each)) for name, each in report["next_occurrences"].items()),
        *(("not served here", problem) for problem in not_served),
        *(("argument not checked", f"{each}: {reason}") for each, reason in report["arguments_not_checked"].items()),
        *(
            (f"{role} {name}", value)
            for role, margin in roles.items()
            for name, value in described_window(report[role], getattr(settings, role).handoff, margin)
        ),
    ]
    found = settings.config or f"none in {settings.directory} or above it: all defaults; --config names one"
    print_table(("config", str(found)), rows)


def _described_commands(
    settings: Settings, handlers: Mapping[str, Handler], own: Collection[str]
) -> dict[str, dict[str, object]]:
    """Handlers that are programs. ``own``: the queues that launches serve. ``fits``: whether the program has a timeout,
    so that a launch can wait for its end; None if its queue is not in ``own``."""
    found: dict[str, dict[str, object]] = {}
    for name, command in settings.commands.items():
        run, timeout = handlers[name].run, command.timeout
        assert isinstance(run, Command)
        fits = None if command.queue not in own else timeout is not None
        found[name] = {"command": list(run.argv), "queue": command.queue, "timeout_seconds": timeout, "fits": fits}
    return found


def own_queues(queues: Collection[str], past: Sequence[Mapping[str, Any]]) -> set[str]:
    """The ``queues`` that launches of this configuration serve. A queue is left out if the launch that served it last
    had other ``--queue`` options, since that launch's window is unknown here. A launch that served `default`, and
    lacked only queues that no launch has served yet, counts as an earlier launch of this configuration."""
    last = {queue: each["queues"] for each in reversed(past) for queue in each["queues"]}
    known = sorted(queue for queue in queues if queue in last)
    together = known if "default" in known else sorted(queues)
    return {queue for queue in queues if last.get(queue, together) in (together, sorted(queues))}


def _longest_limit(settings: Settings, handlers: Mapping[str, Handler], queues: Collection[str]) -> float:
    """How many seconds a message of ``queues`` can be handled at most, by timeouts and the default limit."""
    default = settings.consumer.handler_limit
    served = (each.timeout for each in handlers.values() if each.queue in queues)
    return max((default if timeout is None else timeout for timeout in served), default=0.0)


def _rates_of(settings: Settings, handlers: Mapping[str, Handler]) -> dict[str, dict[str, Any]]:
    """The rates of queues, which hold for messages with a rate key; and the rates of handlers, each with the argument
    that is the key."""
    rated = {name: each for name, each in sorted(handlers.items()) if each.rate or each.rate_key}
    return {
        "queues": {name: queue.rate for name, queue in settings.queues.items() if queue.rate},
        "handlers": {name: {"rate": each.rate, "rate_key": each.rate_key} for name, each in rated.items()},
    }


def _described_rates(rates: dict[str, dict[str, Any]]) -> list[tuple[str, object]]:
    """The result of `_rates_of`, as rows for people."""
    rows: list[tuple[str, object]] = [
        (f"rate of queue {name}", f"{rate} for each rate key") for name, rate in rates["queues"].items()
    ]
    for name, given in rates["handlers"].items():
        each = "" if given["rate_key"] is None else f" for each {given['rate_key']}"
        rows.append((f"rate of {name}", f"{given['rate'] or 'that of its queue'}{each}"))
    return rows


def _try_server(settings: Settings) -> int:
    """Print what the server of the settings lacks, or ``ok``. Returns the command's exit code."""
    opener = opener_of(settings)
    wire, another = opener.keeper_wire(command_patience), opener.bare_wire(command_patience)
    with raising_terminations():
        found = ServerTrial(wire, another, settings.namespace).lacks()
    lacks = [{"step": each.step, "problem": str(each.error)} for each in found]
    if not printed_as_json({"ok": not found, "lacks": lacks}):
        print_lines([f"{each.step}: {each.error}" for each in found] or ["ok"])
    return max((each.exit_code for each in found), default=0)


def next_window(
    role: ConsumerSettings | MoverSettings,
    now: datetime,
    past: list[dict[str, Any]],
    longest: float,
    schedule: str | None,
) -> dict[str, Any]:
    """The window of the launch that the platform starts next; without a ``schedule``, of a launch that starts now.
    ``past``: earlier launches, newest first, which show the launcher, since a person starts ``check`` itself.
    ``longest``: how many seconds a message can be handled that begins at the end of the window."""
    launches, at = list[str](), now
    while schedule and len(launches) < LAUNCHES_SHOWN:
        at += timedelta(seconds=next_launches(schedule, at)[0])
        launches.append(_iso(at))
    start = datetime.fromisoformat(launches[0]) if launches else now
    ahead = next_launches(schedule, start) if schedule else None
    found, observed = _launcher_of(role, past)
    launches_before = [past_launch(each) for each in past]
    punctuality = learned(launches_before, found.rule)
    late, margin = allowance(found, punctuality, role.min_margin)
    handoff = found.rule.handoff(role.handoff)
    begin = 0.0 if ahead is None else punctuality.offset
    offset_known = any(each.offset is not None for each in launches_before)
    exit_known = any(each.exit is not None for each in launches_before)
    stop = predict_stop(begin, role.timeout, ahead, handoff, late)
    window = stop - begin
    return {
        "launcher": found.rule,
        "platform": found.platform or None,
        "observed": {"rule": observed.rule, "times": observed.times} if observed.times else None,
        "launch_offset_seconds": punctuality.offset if offset_known else None,
        "exit_seconds": punctuality.exit if exit_known else None,
        "margin_seconds": min(margin, window / 2) if role.min_margin is None else margin,
        "schedule": schedule,
        "next_launches": launches,
        "window_seconds": window,
        "stop_before": _iso(start + timedelta(seconds=stop)),
        "hard_end": _iso(start + timedelta(seconds=stop + longest + role.grace)),
    }


def _launcher_of(role: ConsumerSettings | MoverSettings, past: list[dict[str, Any]]) -> tuple[Found, Observed]:
    """The launcher of the role (the one that started this process, else the one that an earlier launch recorded), and
    what launches observed of its rule. Unless the rule is known or set, the observations decide it."""
    found = launcher_of(role)
    if not found.platform:
        known = (
            recorded_launcher(each["platform"], each["launcher"])
            for each in past
            if each["platform"] not in ("", *BY_PRODUCERS)
        )
        found = given_launcher(role.launcher, next(known, found))
    if not found.is_watched or role.launcher is not LauncherRule.AUTO or not past:
        return found, Observed()
    observed = read_observed(past[0].get("observed"))
    return found._replace(rule=observed.decides), observed


def described_window(window: dict[str, Any], chosen: HandOff, margin: float | None) -> list[tuple[str, str]]:
    """The result of `next_window`, as rows for people. ``chosen``: the hand-off of the settings. ``margin``: the usual
    margin of earlier launches; None: the least margin is shown."""
    before = window["margin_seconds"] if margin is None else margin
    if window["launcher"].handoff(chosen).on_call:
        before = 0.0  # a launch works on until the next one calls
    last = datetime.fromisoformat(window["stop_before"]) - timedelta(seconds=before)
    limit = format_duration(window["window_seconds"])
    launches = "  ".join(map(_local, window["next_launches"])) or f"none; a launch runs for {limit}"
    seen, rule = window["observed"], window["launcher"]
    found = f"seen {counted(seen['times'], 'time')}" if seen else window["platform"] or "not known yet"
    unused = f"{chosen} is set and not used: {RULES[rule]}; where that is wrong, set launcher to parallel"
    offset, leaving = window["launch_offset_seconds"], window["exit_seconds"]
    timing = [] if offset is None else [f"starts {max(0.0, offset):.1f}s after its tick"]
    timing += [] if leaving is None else [f"exits within {leaving:.1f}s"]
    return [
        ("launcher", f"{found}; {RULES[rule]}"),
        *([] if rule.handoff(chosen) is chosen else [("handoff", unused)]),
        *([("timing", ", ".join(timing))] if timing else []),
        ("window", limit),
        ("next launches" if window["next_launches"] else "schedule", launches),
        ("takes no new message after", _local(last.isoformat())),
        ("killed if it still runs at", _local(window["hard_end"])),
    ]


def _iso(moment: datetime) -> str:
    return iso(round(moment.timestamp() * 1000))


def _local(moment: str) -> str:
    """An instant of the report, in this machine's time zone."""
    return datetime.fromisoformat(moment).astimezone().isoformat(timespec="seconds")
