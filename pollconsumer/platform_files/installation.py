"""The values that the files of a platform depend on, and what follows from them for all files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path

from pollconsumer.core.errors import ConfigurationError
from pollconsumer.core.notation.text import printable
from pollconsumer.interface.settings.model import Settings
from pollconsumer.interface.settings.names import ENVIRONMENT_FILE, PREFIX, VERSION
from pollconsumer.platform_files.calendar import least_gap
from pollconsumer.platform_files.files import PRIVATE, File, quoted, render

EVERY_MINUTE = "* * * * *"
STORE = "POLLCONSUMER_STORE"
LONGEST_HANDLER = 30.0
"""Seconds that the longest handler is assumed to take at least."""
LONGEST_RARE = 3_600.0
MINUTES_TO_INSTALL = 10
MIB = 1 << 20


@dataclass(frozen=True)
class Installation:
    """What the files depend on. ``program``: the words that run pollconsumer. ``schedule``: the platform's schedule.
    ``environment``: variables in force that the configuration file does not have. ``data``: the embedded server's
    directory. ``data_home``: the XDG_DATA_HOME that holds ``data``; None if none is needed. ``read``: other
    directories that a launch reads. ``separate``: groups of ``queues``, each served by its own launch. ``written_to``:
    the files' directory; None for the configuration's. ``timeouts``: of handlers in Python, in seconds; those of
    programs are in the settings. ``options``: the flags of ``init`` on which the files depend."""

    settings: Settings
    program: tuple[str, ...]
    user: str
    schedule: str = EVERY_MINUTE
    environment: Mapping[str, str] = field(default_factory=dict)
    queues: tuple[str, ...] = ("default",)
    data: Path | None = None
    data_home: Path | None = None
    read: tuple[Path, ...] = ()
    separate: tuple[tuple[str, ...], ...] = ()
    image: str | None = None
    written_to: Path | None = None
    timeouts: tuple[float, ...] = ()
    options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        paths = [*self.program, self.target, *([self.settings.config] if self.settings.config else [])]
        for value in (*map(str, paths), self.user, *self.environment.values(), self.image or ""):
            if printable(value) != value or "\n" in value:
                raise ConfigurationError("control character in a path or a value", value, "no file can be written")

    @property
    def name(self) -> str:
        """The name for units, and for resources of Kubernetes: at most 52 characters of a-z, 0-9 and dashes."""
        slug = re.sub(r"[^a-z0-9]+", "-", self.settings.namespace.lower()).strip("-")[:52].strip("-")
        return slug if slug[:1].isalpha() else f"pollconsumer-{slug}"[:52].strip("-")

    @property
    def target(self) -> Path:
        return self.written_to or self.settings.directory

    @property
    def environment_file(self) -> Path:
        return self.target / ENVIRONMENT_FILE

    @property
    def remote_environment(self) -> dict[str, str]:
        """Variables for other machines, sorted: also the store's URL, since its password should not be in the file."""
        store = {} if self.settings.client else {STORE: self.settings.store}
        return dict(sorted((store | dict(self.environment)).items()))

    @property
    def secret_names(self) -> dict[str, str]:
        """Variable of `remote_environment` → name of its secret, for platforms that keep secrets by name."""
        slugs = {
            each: re.sub(r"[^a-z0-9]+", "-", each.removeprefix(PREFIX).lower()).strip("-")
            for each in self.remote_environment
        }
        return {variable: f"{self.name}-{slug}" for variable, slug in slugs.items()}

    @property
    def in_repository(self) -> str:
        """The configuration's directory, relative to the top of its repository: other checkouts have another top."""
        directory = self.settings.directory
        top = next((each for each in (directory, *directory.parents) if (each / ".git").exists()), directory)
        return str(directory.relative_to(top))

    @property
    def installs(self) -> str:
        """The command that installs the packages of the repository's requirements.txt."""
        return shlex.join(["pip", "install", "--requirement", str(Path(self.in_repository) / "requirements.txt")])

    @property
    def image_name(self) -> str:
        return self.image or f"registry.example.org/{self.name}:{VERSION}"

    def environment_files(self, *, printed: bool = True) -> list[File]:
        """The file of `environment`, which cron, systemd and launchd read. No file if there are no variables."""
        if not self.environment:
            return []
        return [File(ENVIRONMENT_FILE, environment_text(self.environment), PRIVATE, printed=printed)]

    def render(self, template: str, **values: object) -> str:
        """The template with ``values``, and with the values that all templates may use."""
        common = {
            "name": self.name,
            "user": self.user,
            "namespace": self.settings.namespace,
            "image": quoted(self.image_name),
            "install": quoted(self.installs),
            "stop_grace": self.stop_grace,
            "longest": self.longest_run,
            "memory": self.memory_mib,
            "tasks": self.tasks,
        }
        return render(template, **common | values)

    def run(self, *options: str, schedule: str | None = None) -> tuple[str, ...]:
        """The command of a launch on this machine."""
        return (*self.program, *self._run(self.settings.config, options, schedule))

    def launches(self) -> list[tuple[str, ...]]:
        """The commands of the launches at a tick: one for all queues; or one for each group, and one for the other
        queues."""
        rest = tuple(queue for queue in self.queues if not any(queue in group for group in self.separate))
        parts = [each for each in (rest, *self.separate) if each] if self.separate else [()]
        return [self.run(*(word for queue in part for word in ("--queue", queue))) for part in parts]

    def move(self) -> tuple[str, ...]:
        schedule_option = () if self.schedule == self.settings.mover.schedule else ("--schedule", self.schedule)
        return (*self.command("move"), *schedule_option)

    def command(self, *words: str) -> tuple[str, ...]:
        """A command for this configuration, on this machine."""
        return (*self.program, *words, *_named(self.settings.config))

    def doctor(self) -> tuple[str, ...]:
        """The command of the alarm, for an hourly line."""
        return self.command("doctor", "--quiet")

    def run_at(self, program: str, directory: str, *options: str, schedule: str | None = None) -> tuple[str, ...]:
        """The command of a launch where ``directory`` is a copy of the configuration's directory."""
        config = self.settings.config
        return (program, *self._run(Path(directory) / config.name if config else None, options, schedule))

    def run_in_repository(self, *options: str, schedule: str) -> tuple[str, ...]:
        """The command of a launch for a platform that launches rarely and charges for time. It ends when its queues are
        empty, at the next one, or after an hour."""
        window = self._rare_window(schedule)
        longest = () if window == self.settings.consumer.timeout else ("--timeout", f"{window:.0f}s")
        return self.run_at("pollconsumer", self.in_repository, "--until-empty", *longest, *options, schedule=schedule)

    def _rare_window(self, schedule: str) -> float:
        """How many seconds a launch may last if launches are rare: their period, but an hour at most."""
        return max(self.settings.consumer.timeout, min(least_gap(schedule), LONGEST_RARE))

    def _run(self, config: Path | None, options: tuple[str, ...], schedule: str | None) -> tuple[str, ...]:
        schedule = schedule or self.schedule
        schedule_option = () if schedule == self.settings.consumer.schedule else ("--schedule", schedule)
        return ("run", *_named(config), *schedule_option, *options)

    # How long a launch, and its end, may take; in whole seconds

    @property
    def after_window(self) -> float:
        """How many seconds a launch may run after its window: the longest limit of a handler, and the grace."""
        consumer = self.settings.consumer
        return max(consumer.handler_limit, *self._declared, 0.0) + consumer.grace

    @property
    def hard_end(self) -> int:
        """Seconds after a launch's start at which its watchdog ends it at the latest."""
        return ceil(self.settings.consumer.timeout + self.after_window)

    @property
    def longest_run(self) -> int:
        """Seconds after which the platform kills a launch that hangs. A launch with a baton may use two windows."""
        return self.hard_end + ceil(self.settings.consumer.timeout) + 60

    def ci_minutes(self, schedule: str) -> int:
        """Minutes after which CI ends its job."""
        return ceil((self._rare_window(schedule) + self.after_window) / 60) + MINUTES_TO_INSTALL

    @property
    def stop_grace(self) -> int:
        """Seconds from SIGTERM to SIGKILL, enough for the handler with the longest declared timeout to finish."""
        return ceil(max(LONGEST_HANDLER, *self._declared, 0.0)) + 15

    @property
    def _declared(self) -> list[float]:
        return [*self.timeouts, *(command.timeout or 0.0 for command in self.settings.commands.values())]

    @property
    def tasks(self) -> int:
        """The allowed number of threads and processes: a slot needs a thread, or a process with some threads."""
        return max(32, 24 + 4 * self.settings.consumer.concurrency)

    @property
    def memory_mib(self) -> int:
        """The platform's memory limit. It exceeds ``memory_limit``, above which a launch ends by itself."""
        return max(256, ceil((self.settings.consumer.memory_limit or 0) * 1.25 / MIB))


def _named(config: Path | None) -> tuple[str, ...]:
    """The flag ``--config`` with its value. Empty without a configuration file."""
    return ("--config", str(config)) if config else ()


def environment_text(variables: Mapping[str, str], *, quoted: bool = True) -> str:
    """An environment file for sh and systemd; if not ``quoted``, for docker."""
    lines = ["# Variables of pollconsumer's launches. It may hold a password: mode 600, and in no repository."]
    for name, value in sorted(variables.items()):
        text = value.replace("'", "%27") if name == STORE else value
        if quoted and "'" in text:
            raise ConfigurationError(f"{name} holds a quote", None, "set it in the configuration file")
        lines.append(f"{name}='{text}'" if quoted else f"{name}={text}")
    return "\n".join(lines) + "\n"


def refuse_local_store(settings: Settings) -> None:
    """Raise ConfigurationError if only this machine can reach the store."""
    if settings.is_embedded or settings.store.startswith("unix:"):
        what = "a server in a container ends with it" if settings.is_embedded else "a container has no such socket"
        raise ConfigurationError("store", settings.store.partition("?")[0], f"{what}: name a redis:// or rediss:// URL")
