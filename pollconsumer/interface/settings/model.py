"""All settings, with their defaults."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pollconsumer.core.choices import HandOff, LauncherRule, Loop, Missed, Overlap
from pollconsumer.core.notation.timespan import parse_duration
from pollconsumer.interface.settings.values import check_argv, check_exit_codes, parse_memory
from pollconsumer.runtime.own_files import OwnFiles, state_directories

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


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """Options of a consumer's launch. Without ``queues`` it serves those of its handlers; ``min_margin`` unset is
    learned."""

    queues: tuple[str, ...] = ()
    timeout: Duration = 60.0
    schedule: str | None = None
    idle_time: Duration = 5.0
    estimated_duration: Duration = 2.0
    tolerance_factor: float = 5.0
    min_margin: NoDuration = None
    concurrency: int = 1
    grace: Duration = 10.0
    handoff: HandOff = HandOff.DEADLINE
    overrun_target: float | None = None
    loop: Loop = Loop.WOKEN
    launcher: LauncherRule = LauncherRule.AUTO
    instances: int = 1
    memory_limit: Memory = None


@dataclass(frozen=True, slots=True)
class MoverSettings:
    timeout: Duration = 60.0
    schedule: str | None = None
    idle_time: Duration = 1.0
    batch_size: int = 250
    grace: Duration = 10.0
    min_margin: NoDuration = None
    handoff: HandOff = HandOff.DEADLINE
    launcher: LauncherRule = LauncherRule.AUTO


@dataclass(frozen=True, slots=True)
class StrictSettings:
    """Replication that ``durability = "strict"`` waits for. ``replicas`` unset: one, if the server has any."""

    replicas: int | None = None
    within: Duration = 0.5


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """A queue's limits, per period and in flight; and its weight among other queues."""

    quota: str | None = None
    max_in_flight: int | None = None
    weight: int | None = None


@dataclass(frozen=True, slots=True)
class RecurrenceSettings:
    """A recurring message, by ``cron`` in ``timezone``, or ``every`` period; by default in the handler's queue."""

    handler: str = ""
    cron: str | None = None
    every: str | None = None
    timezone: str = "UTC"
    queue: str | None = None
    payload: dict[str, Any] = field(default_factory=dict)
    priority: int = 0
    missed: Missed = Missed.ONCE
    overlap: Overlap = Overlap.ALLOW
    enabled: bool = True


@dataclass(frozen=True, slots=True)
class CommandSettings:
    """A handler that is a program."""

    command: Argv = ()
    timeout: NoDuration = None
    kill_after: Duration = 5.0
    queue: str = "default"
    max_attempts: int = 5
    retry: dict[str, Any] = field(default_factory=dict)
    fatal: ExitCodes = ()
    environment: tuple[str, ...] = ()
    directory: str | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings. ``directory`` is that of the configuration file ``config``, else the current one."""

    namespace: str = "pollconsumer"
    store: str = field(default="embedded", repr=False)
    handlers: tuple[str, ...] = ()
    durability: Literal["everysec", "strict"] = "everysec"
    state: str | None = None
    trust_writable: bool = False
    consumer: ConsumerSettings = field(default_factory=ConsumerSettings)
    mover: MoverSettings = field(default_factory=MoverSettings)
    strict: StrictSettings = field(default_factory=StrictSettings)
    queues: dict[str, QueueSettings] = field(default_factory=dict)
    recurrences: dict[str, RecurrenceSettings] = field(default_factory=dict)
    commands: dict[str, CommandSettings] = field(default_factory=dict)
    directory: Path = field(default_factory=Path.cwd)
    config: Path | None = None

    def queue_of(self, handler: str) -> str:
        """The queue of messages whose producer names none and does not know the handler."""
        return self.commands[handler].queue if handler in self.commands else "default"

    def state_files(self) -> OwnFiles:
        """Files that outlive a launch: below ``state``, unless that is none, or in the user's directories."""
        if self.state is None:
            return OwnFiles(state_directories())
        return OwnFiles([] if self.state == NO_STATE else [self.directory / Path(self.state).expanduser()])


SECTIONS = {"consumer": ConsumerSettings, "mover": MoverSettings, "strict": StrictSettings}
TABLES = {"queues": QueueSettings, "recurrences": RecurrenceSettings, "commands": CommandSettings}
"""Sections whose keys are chosen by the user."""
PLACE = ("directory", "config")
"""Fields of Settings that are not keys of the file: where the others were found."""
