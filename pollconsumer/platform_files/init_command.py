"""``pollconsumer init``: the files that a platform needs to launch pollconsumer with this configuration."""

from __future__ import annotations

import os
import re
import secrets
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import click

from pollconsumer.core.choices import HandOff, LauncherRule
from pollconsumer.core.coverage import unserved_time
from pollconsumer.core.errors import CannotCreate, ConfigurationError, UsageError, suggestion
from pollconsumer.core.notation.cron_expression import five_fields
from pollconsumer.core.notation.text import redacted
from pollconsumer.interface.assembly.handlers import import_handlers, load_handlers
from pollconsumer.interface.assembly.launch_roles import served_queues
from pollconsumer.interface.cli.group import current_settings
from pollconsumer.interface.cli.output import is_terminal, print_line, print_lines, print_notice
from pollconsumer.interface.cli.types import CRON, NAMED_PATH, WordType, option
from pollconsumer.interface.logs.logs import log
from pollconsumer.interface.settings.load import absolute, environment_in_force, read_settings
from pollconsumer.interface.settings.model import Settings
from pollconsumer.interface.settings.names import PREFIX
from pollconsumer.interface.settings.owners import refuse_writable_modules, user_and_home
from pollconsumer.interface.settings.reading import SERVICE_LINK
from pollconsumer.platform_files import hosted, images, machines
from pollconsumer.platform_files.calendar import least_gap
from pollconsumer.platform_files.crontabs import cron_files, install, installed_queues, uninstall
from pollconsumer.platform_files.files import PRIVATE, File, render, write_files
from pollconsumer.platform_files.installation import EVERY_MINUTE, STORE, Installation
from pollconsumer.store.client.address import several_hosts

PLATFORMS: dict[str, Callable[[Installation], list[File]]] = {
    "cron": cron_files,
    "systemd": machines.systemd_files,
    "kubernetes": images.kubernetes_files,
    "keda": images.keda_files,
    "azure": hosted.azure_files,
    "docker": images.docker_files,
    "github": hosted.github_files,
    "cloudrun": images.cloudrun_files,
    "ecs": images.ecs_files,
    "containerapps": images.containerapps_files,
    "heroku": hosted.heroku_files,
    "render": hosted.render_files,
    "railway": hosted.railway_files,
    "gitlab": hosted.gitlab_files,
    "launchd": machines.launchd_files,
}
"""Platform → the function that returns its files. It raises ConfigurationError for unsuitable settings."""
PROJECT = "project"
LOCAL = ("cron", "systemd", "launchd")
WITH_IMAGE = ("kubernetes", "keda", "docker", "cloudrun", "ecs", "containerapps")
OWN_MACHINES = ("cron", "systemd", "launchd", "kubernetes", "docker", "azure")
"""Platforms that do not charge for the time of launches."""
WITHOUT_EMBEDDED = {
    "azure": "it is lost with the app's container, and /home is a network share",
    "github": "it ends with the run",
    "gitlab": "it ends with the job",
}
LONGEST_SLUG = 40
"""Maximum length, in characters, of the part of a project's namespace that its directory's name gives."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Asked(NamedTuple):
    """The arguments of the command. ``target``: DIR, for a project. ``directory``: the DIR of --write."""

    platform: str
    target: Path | None
    directory: Path | None
    force: bool
    installs: bool
    uninstalls: bool
    schedule: str | None
    image: str | None
    separate: tuple[str, ...]


@click.command(
    epilog="pollconsumer init project mail\npollconsumer init cron\npollconsumer init cron --install\n"
    "pollconsumer init systemd --write deploy"
)
@click.argument("platform", type=WordType((*PLATFORMS, PROJECT)))
@click.argument("target", required=False, type=NAMED_PATH, metavar="[DIR]")
@option("--write", "Write the files there instead of printing them.", NAMED_PATH, name="directory", metavar="DIR")
@click.option("--force", is_flag=True, help="With --write or --install: replace files that differ.")
@click.option("--install", "installs", is_flag=True, help="Add the lines to your crontab, or update them (cron only).")
@click.option("--uninstall", "uninstalls", is_flag=True, help="Remove the lines from your crontab (cron only).")
@option("--schedule", "When the platform starts launches. Default: consumer.schedule, or each minute.", CRON)
@click.option(
    "--queue", "separate", multiple=True, help="Queue that gets a crontab line of its own, for long work (cron only)."
)
@option("--image", f"Container image, for {', '.join(WITH_IMAGE)}.", metavar="NAME")
def init(**options: Any) -> None:
    """Print or write the files with which a platform starts launches of this configuration.

    azure is App Service on Linux, ecs is Fargate with EventBridge, launchd belongs to macOS. 'project' writes a first
    config.toml, handlers.py and a test into DIR, by default the current directory. It replaces no file."""
    asked = Asked(**options)
    _refuse_contradictions(asked)
    if asked.platform == PROJECT:
        begin(asked.target or Path())
    elif asked.uninstalls:
        uninstall(user_and_home()[0])
    else:
        installation = _installation(asked)
        files = PLATFORMS[asked.platform](installation)
        if asked.installs:
            write_files([file for file in files if not file.printed], installation.target, force=asked.force)
            install(installation)
        elif asked.directory is None:
            _print(files)
        else:
            write_files(files, asked.directory, force=asked.force)


def _refuse_contradictions(asked: Asked) -> None:
    """Raise UsageError for arguments that exclude each other."""
    if asked.platform == PROJECT:
        if any(asked[2:]):
            raise UsageError("init project", fix="it takes DIR, and no option")
    elif asked.target is not None:
        raise UsageError("unexpected argument", asked.target, "only 'init project' takes DIR; --write DIR writes files")
    elif asked.installs or asked.uninstalls:
        _refuse_beside_crontab(asked)
    elif asked.force and asked.directory is None:
        raise UsageError("--force", fix="it replaces files: give --write DIR, too")
    if asked.separate and asked.platform != "cron":
        raise UsageError("--queue", asked.separate[0], "only the crontab can have a line for one queue")
    if asked.image is not None and asked.platform not in WITH_IMAGE:
        raise UsageError("--image", asked.image, f"only {', '.join(WITH_IMAGE)} use an image")


def _refuse_beside_crontab(asked: Asked) -> None:
    option = "--install" if asked.installs else "--uninstall"
    if asked.platform != "cron":
        raise UsageError(option, asked.platform, "only 'init cron' can write to your crontab")
    if asked.installs and asked.directory is not None:
        raise UsageError(option, fix="it writes to your crontab: leave out --write")
    if asked.uninstalls and (asked.installs or asked.force or asked.directory or asked.schedule or asked.separate):
        raise UsageError("--uninstall", fix="it takes no other option")


def _installation(asked: Asked) -> Installation:
    settings = current_settings()
    schedule = five_fields(asked.schedule or settings.consumer.schedule or EVERY_MINUTE)
    problems = [*_problems(asked.platform, settings), *_rare(asked.platform, schedule, settings.consumer.timeout)]
    for problem in problems:
        log.warning("%s", problem)
    variables = {name: value for name, value in environment_in_force().items() if not re.fullmatch(SERVICE_LINK, name)}
    given = click.get_current_context().find_root().params
    flags = {PREFIX + name.upper(): given[name] for name in ("store", "namespace") if given[name] is not None}
    user, home = user_and_home()
    separate = _separate_queues(settings, asked)
    data = settings.data_directory() if settings.is_embedded else None
    return Installation(
        settings,
        _program(),
        user,
        schedule,
        environment=variables | flags,
        queues=_queues(settings) if asked.platform == "keda" or separate else (),
        separate=separate,
        data=data,
        data_home=data.parent if data and not settings.data and data.parent != home / ".local" / "share" else None,
        read=(Path(sys.base_prefix),),
        image=asked.image,
        written_to=None if asked.directory is None else asked.directory.absolute(),
        timeouts=_declared_timeouts(settings),
        options=(
            *(("--schedule", asked.schedule) if asked.schedule else ()),
            *(word for queue in asked.separate for word in ("--queue", queue)),
        ),
    )


def _declared_timeouts(settings: Settings) -> tuple[float, ...]:
    """The timeouts that handlers in Python declare, in seconds. Empty if the handlers cannot be imported, as on a
    machine where only the files are written."""
    try:
        return tuple(each.timeout for each in import_handlers(settings).values() if each.timeout is not None)
    except ConfigurationError as error:
        log.warning("%s; the files are made without the timeouts of Python handlers", error)
        return ()


def _problems(platform: str, settings: Settings) -> Iterator[str]:
    """Lines that name settings the user must change, since the platform runs launches on other machines."""
    if platform in LOCAL:
        return
    if settings.config and redacted(stored := read_settings(settings.config).store) != stored:
        yield f"store: the configuration file holds a password, and goes where the code goes: leave it to {STORE}"
    if settings.is_embedded and platform in WITHOUT_EMBEDDED:
        yield f"store: embedded; {WITHOUT_EMBEDDED[platform]}: name a redis:// or rediss:// URL"
    elif settings.client is None and _is_local(settings.store):
        yield f"store: {redacted(settings.store)}; only this machine reaches it: name the server as {platform} does"


def _is_local(store: str) -> bool:
    """Whether the URL ``store`` leads to the machine itself. It may have several hosts."""
    if store.startswith("unix:"):
        return True
    _, hosts, _, _ = several_hosts(store)
    return all(urlsplit(f"//{host}").hostname in LOOPBACK for host in hosts)


def _rare(platform: str, schedule: str, timeout: float) -> Iterator[str]:
    """A line if launches leave much of their period unserved, on a platform where a longer launch costs nothing."""
    rule, handoff = LauncherRule.PARALLEL, HandOff.DEADLINE
    if platform in OWN_MACHINES and (line := unserved_time((), timeout, rule, handoff, least_gap(schedule))):
        yield f"unserved: {line}"


def _program() -> tuple[str, ...]:
    """The words that run pollconsumer: the command in this interpreter's environment, else the module."""
    command = Path(sys.executable).with_name("pollconsumer")
    return (str(command),) if command.is_file() else (sys.executable, "-m", "pollconsumer")


def _queues(settings: Settings) -> tuple[str, ...]:
    return served_queues(settings, {} if settings.consumer.queues else load_handlers(settings))


def _separate_queues(settings: Settings, asked: Asked) -> tuple[tuple[str, ...], ...]:
    """The groups of queues that have crontab lines of their own: those already installed, and the one asked for.
    UsageError if no launch would serve a queue that is asked for."""
    # The first line serves the queues that have none of their own.
    installed = installed_queues(settings.config)[1:] if asked.installs and settings.config else []
    if not (installed or asked.separate):
        return ()
    queues = _queues(settings)
    for queue in asked.separate:
        if queue not in queues:
            raise UsageError("--queue", queue, suggestion(queue, queues))
    for queue in (queue for group in installed for queue in group if queue not in queues):
        print_notice(f"no launch serves queue {queue} any more: the crontab has no line for it now")
    kept = (tuple(queue for queue in group if queue in queues and queue not in asked.separate) for group in installed)
    return tuple(group for group in (*kept, asked.separate) if group)


def _print(files: list[File]) -> None:
    """Print the ``printed`` files. If they are several, each stands below a comment with its name. A file that may hold
    a password is not printed at a terminal."""
    shown = is_terminal(sys.stdout)
    printed = [file for file in files if file.printed and not (shown and file.mode == PRIVATE)]
    for file in printed:
        if len(printed) > 1:
            print_line(f"{file.comment} {file.name}")
            if file.name.endswith(".yaml"):
                print_line("---")
        print_lines(file.text.splitlines())
    for file in files:
        if file not in printed:
            print_notice(f"{file.name} is not printed, as it may hold a password: --write DIR writes it")


def project_files(directory: Path) -> list[File]:
    """The configuration, a handler and a test for a first project. Its namespace is unique, even if another project's
    directory has the same name."""
    slug = re.sub(r"[^a-z0-9]+", "-", directory.name.lower())[:LONGEST_SLUG].strip("-")
    config = render("project.config.toml", namespace=f"{slug or 'project'}-{secrets.token_hex(3)}")
    written = {name: render(f"project.{name}") for name in ("handlers", "test_handlers")}
    return [File("config.toml", config), *(File(f"{name}.py", text) for name, text in written.items())]


def begin(directory: Path) -> None:
    """Write the files of a first project. CannotCreate if one exists. ConfigurationError if a launch would refuse
    modules in the directory."""
    target = absolute(directory)
    begun = project_files(target)
    for file in begun:
        if os.path.lexists(directory / file.name):
            fix = "it is kept, and no other written: name another DIR"
            raise CannotCreate("file exists", directory / file.name, fix)
    if os.path.isdir(target):  # noqa: PTH112  it never raises
        refuse_writable_modules(target)
    write_files(begun, directory, force=False)
    there = [] if target == Path.cwd() else [f"cd {shlex.quote(str(directory))}"]
    print_lines(["", "next:", *there, *render("project.next").splitlines()])
