"""All settings, with their defaults."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pollconsumer.core.choices import Dialect, HandOff, LauncherRule, Loop, Missed, Overlap
from pollconsumer.core.errors import ConfigurationError
from pollconsumer.core.notation.timespan import parse_duration
from pollconsumer.interface.named_files import other_than_directory
from pollconsumer.interface.settings.values import check_argv, check_exit_codes, parse_memory
from pollconsumer.runtime.own_files import OwnFiles, data_directory, state_directories

if TYPE_CHECKING:
    from pollconsumer.runtime.new_messages import Defaults

VERSION = "0.1.0"
PREFIX = "POLLCONSUMER_"
CONFIG_VARIABLE = f"{PREFIX}CONFIG"
NO_STATE = "none"

Duration = Annotated[float, parse_duration]
"""Seconds, parsed by the annotated function."""
NoDuration = Annotated[float | None, parse_duration]
"""Seconds, or None: no end, or to be learned."""
Argv = Annotated[tuple[str, ...], check_argv]
ExitCodes = Annotated[tuple[int, ...], check_exit_codes]
Memory = Annotated[int | None, parse_memory]
"""Bytes, or None for no limit."""


class Compared:
    """Equal where all values are.

    Every launch makes these classes: one function here is quicker than one made for each, and frozen classes with slots
    take three times as long.
    """

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    __hash__ = None  # type: ignore[assignment]  # they hold dicts

    def __repr__(self) -> str:
        shown = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(shown)})"


@dataclass(eq=False, repr=False)
class ConsumerSettings(Compared):
    """Options of a consumer's launch. Without ``queues`` it serves those of its handlers; ``min_margin`` unset is
    learned."""

    queues: tuple[str, ...] = ()
    """Queues to serve, in this order. Empty: those of the handlers, and ``default``."""
    timeout: Duration = 60.0
    """Longest running time of a launch."""
    schedule: str | None = None
    """When the platform launches, as a cron expression: a launch ends before the next one."""
    idle_time: Duration = 5.0
    """Longest pause after an empty poll; an enqueue ends it at once."""
    estimated_duration: Duration = 2.0
    """Handling duration assumed until one is measured."""
    tolerance_factor: float = 5.0
    """The average duration times this is part of the margin."""
    min_margin: NoDuration = None
    """Least time before the window's end at which nothing more is begun. Unset: learned from the last exits."""
    concurrency: int = 1
    """Messages handled at one time, 1 to 256."""
    grace: Duration = 10.0
    """How long after its window's end the watchdog ends the process."""
    handoff: HandOff = HandOff.DEADLINE
    """``deadline``: end before the next launch; ``baton``: work on until it waits for the lease."""
    overrun_target: float | None = None
    """Share of launches that may outlast their window, above 0, at most 1. Unset: by launcher."""
    loop: Loop = Loop.WOKEN
    """``woken``: the last wait lasts until the margin begins; ``article``: it waits only where idle_time fits."""
    launcher: LauncherRule = LauncherRule.AUTO
    """What the platform does at a tick while a launch is alive: ``parallel``, ``queue``, ``drop``; or ``auto``."""
    instances: int = 1
    """Launches that may share the queues, 1 to 64."""
    memory_limit: Memory = None
    """A launch stops when its resident memory exceeds it, as ``200MB``."""


@dataclass(eq=False, repr=False)
class MoverSettings(Compared):
    timeout: Duration = 60.0
    """Longest running time of a launch."""
    schedule: str | None = None
    """When the platform launches, as a cron expression."""
    idle_time: Duration = 1.0
    """Longest pause between looks at the schedule."""
    batch_size: int = 250
    """Messages promoted in one step, 1 to 500."""
    grace: Duration = 10.0
    """How long after its window's end the watchdog ends the process."""
    min_margin: NoDuration = None
    """Time for the exit. Unset: learned from the last exits."""
    handoff: HandOff = HandOff.DEADLINE
    """As a consumer's."""
    launcher: LauncherRule = LauncherRule.AUTO
    """As a consumer's."""


@dataclass(eq=False, repr=False)
class DashboardSettings(Compared):
    """Web pages about the installation."""

    static: str | None = None
    """A directory where each launch of the consumer writes the pages at its end. Relative to the file's directory."""
    token: str | None = field(default=None, repr=False)
    """What one must know to see the pages that `dashboard` serves. Unset: made at its start, where one is needed."""


@dataclass(eq=False, repr=False)
class DoctorSettings(Compared):
    """What `doctor` reports."""

    recent: Duration = 3600.0
    """For how long a dead letter, or a skipped occurrence, is a finding; 0: never."""


@dataclass(eq=False, repr=False)
class StrictSettings(Compared):
    """What ``durability = "strict"`` waits for. ``replicas`` unset: one, if the server has any."""

    replicas: int | None = None
    """How many must have a change, 1 to 99. Unset: one, if the server has any."""
    within: Duration = 0.5
    """How long `enqueue` waits for them, and a launch until it tries again."""
    aof: bool = False
    """Wait until it is in the append-only file of the server, and of these replicas: Redis 7.2, or Valkey."""
    on_rollback: Literal["warn", "refuse"] = "warn"
    """What to do with a store that lost what it had acknowledged, whatever the durability."""


@dataclass(eq=False, repr=False)
class PingsSettings(Compared):
    """A monitor that is told of each launch of the consumer."""

    url: str | None = field(default=None, repr=False)
    """Of the monitor; a secret. Unset: nobody is told."""
    dialect: Dialect = Dialect.AUTO
    """``healthchecks``, ``cronitor``, ``sentry``, ``snitch``, ``plain``; or ``auto``: by the URL."""


@dataclass(eq=False, repr=False)
class LogsSettings(Compared):
    """The log of launches."""

    format: Literal["text", "json", "journal"] = "text"
    """``text``: a line each; ``json``: an object each; ``journal``: with the priority before it, for systemd."""
    target: str = "stderr"
    """``stderr``, ``syslog``, or a file; warnings and errors of ours reach standard error, too."""


@dataclass(eq=False, repr=False)
class QueueSettings(Compared):
    """A queue's limits, per period and in flight; its weight among other queues; what is kept of it."""

    quota: str | None = None
    """Most messages handed out in any such period, as ``100/1m``."""
    rate: str | None = None
    """Most messages with one rate key handed out in any such period, as ``60/1h``, 1000 at most; those with a rate of
    their own have that."""
    max_in_flight: int | None = None
    """Most messages reserved at one time, over all launches."""
    weight: int | None = None
    """Share among the consumer's queues. Without any weight their order decides."""
    keep_completed: str | None = None
    """How long completed, cancelled and expired messages are kept, how many of each, or both, as ``1d/10000``, which
    it is if unset."""
    keep_dead: str | None = None
    """The same of dead letters. Unset: until a person redrives or purges them."""


@dataclass(eq=False, repr=False)
class RecurrenceSettings(Compared):
    """A recurring message, by ``cron`` in ``timezone``, or ``every`` period; by default in the handler's queue."""

    handler: str = ""
    """Of its occurrences."""
    cron: str | None = None
    """When it recurs, as a cron expression in ``timezone``; or ``every``."""
    every: str | None = None
    """Its period, as ``90s``."""
    timezone: str = "UTC"
    """Of ``cron``, as ``Europe/Paris``."""
    queue: str | None = None
    """Of its occurrences. Unset: the handler's."""
    payload: dict[str, Any] = field(default_factory=dict)
    """Of its occurrences, a table."""
    priority: int = 0
    """Of its occurrences; smaller is sooner."""
    missed: Missed = Missed.ONCE
    """Which missed occurrences are enqueued later: ``skip``, ``once`` (the last), ``all``."""
    overlap: Overlap = Overlap.ALLOW
    """``skip``: none is enqueued while the one before is unfinished."""
    enabled: bool = True
    """``false``: it is listed, and yields nothing."""
    ping: str | None = field(default=None, repr=False)
    """URL that is told how each occurrence begins and ends; a secret."""


@dataclass(eq=False, repr=False)
class CommandSettings(Compared):
    """A handler that is a program."""

    command: Argv = ()
    """The program and its arguments, a list; no shell."""
    timeout: NoDuration = None
    """How long it may run; then its process group gets SIGTERM."""
    kill_after: Duration = 5.0
    """How long after SIGTERM the rest of the group gets SIGKILL."""
    queue: str = "default"
    """Where its messages go when the producer names none."""
    rate: str | None = None
    """Most of its messages handed out in any such period, as ``60/1h``, 1000 at most."""
    rate_key: str | None = None
    """The member of the payload of which each value counts by itself."""
    max_attempts: int = 5
    """After so many failures the message is a dead letter."""
    retry: dict[str, Any] = field(default_factory=dict)
    """Delays between attempts: ``first``, ``factor``, ``most``, ``jitter``."""
    fatal: ExitCodes = ()
    """Exit codes for which no further attempt can help."""
    environment: tuple[str, ...] = ()
    """Names of further variables to pass on."""
    directory: str | None = None
    """Its working directory, relative to the configuration file's, which is the default."""


@dataclass(eq=False, repr=False)
class Settings(Compared):
    """All settings. ``directory`` is that of the configuration file ``config``, else the current one."""

    namespace: str = "pollconsumer"
    """Prefix of every key in the store."""
    store: str = field(default="embedded", repr=False)
    """``embedded``, or the URL of your own: ``redis://``, ``rediss://``, ``unix://``, ``redis+sentinel://``,
    ``redis+cluster://``."""
    handlers: tuple[str, ...] = ()
    """Modules to import; each registers its handlers."""
    durability: Literal["everysec", "strict"] = "everysec"
    """``strict``: what is acknowledged is on disk (embedded), or on a replica."""
    data: str | None = None
    """Directory of the embedded server that the users of a group share. Unset: each user has one."""
    state: str | None = None
    """Directory in which launches remember the store and their warnings; ``none`` keeps nothing. Unset: the user's."""
    trust_writable: bool = False
    """Accept modules and programs that others may write."""
    consumer: ConsumerSettings = field(default_factory=ConsumerSettings)
    mover: MoverSettings = field(default_factory=MoverSettings)
    strict: StrictSettings = field(default_factory=StrictSettings)
    dashboard: DashboardSettings = field(default_factory=DashboardSettings)
    doctor: DoctorSettings = field(default_factory=DoctorSettings)
    pings: PingsSettings = field(default_factory=PingsSettings)
    logs: LogsSettings = field(default_factory=LogsSettings)
    queues: dict[str, QueueSettings] = field(default_factory=dict)
    recurrences: dict[str, RecurrenceSettings] = field(default_factory=dict)
    commands: dict[str, CommandSettings] = field(default_factory=dict)
    directory: Path = field(default_factory=Path.cwd)
    config: Path | None = None

    def defaults_of(self, handler: str) -> Defaults:
        """Of messages whose producer does not know the handler."""
        from pollconsumer.runtime.new_messages import Defaults  # a mover needs none of it

        command = self.commands.get(handler)
        return Defaults() if command is None else Defaults(command.queue, command.rate, command.rate_key)

    def data_directory(self) -> Path:
        """Of the embedded server: the users' who share ``data``, or this user's. CannotCreate without a home."""
        return data_directory() if self.data is None else self.directory / self.data

    def state_files(self) -> OwnFiles:
        """Files that outlive a launch: below ``state``, unless that is none, or in the user's directories.
        ConfigurationError if it is something else than a directory."""
        if self.state is None or self.state == NO_STATE:
            return OwnFiles([] if self.state else state_directories())
        directory = self.directory / Path(self.state).expanduser()
        if (found := other_than_directory(directory)) is not None:
            raise ConfigurationError("state", directory, f"is {found}: name a directory, or {NO_STATE}")
        return OwnFiles([directory])


SECTIONS = {
    "consumer": ConsumerSettings,
    "mover": MoverSettings,
    "strict": StrictSettings,
    "dashboard": DashboardSettings,
    "doctor": DoctorSettings,
    "pings": PingsSettings,
    "logs": LogsSettings,
}
TABLES = {"queues": QueueSettings, "recurrences": RecurrenceSettings, "commands": CommandSettings}
"""Sections whose keys are chosen by the user."""
PLACE = ("directory", "config")
"""Fields of Settings that are not keys of the file: where the others were found."""
