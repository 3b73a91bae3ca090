"""The settings of tables whose keys the user chooses: queues, recurrences, programs."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from pollconsumer.core.choices import After, Missed, Overlap
from pollconsumer.core.messages.message import MOST_ATTEMPTS
from pollconsumer.core.notation.timespan import YEAR
from pollconsumer.core.spans import MOST_IN_A_PERIOD
from pollconsumer.interface.settings.declaration import declared_types as kinds
from pollconsumer.runtime.handling.handler import MAX_ATTEMPTS


class Section(BaseModel):
    """A section of the file: keys that are not declared are refused."""

    model_config = ConfigDict(extra="forbid")


class QueueSettings(Section):
    """A queue's limits, per period and in flight; its weight among other queues; what is kept of it."""

    quota: kinds.Quota | None = Field(
        default=None, description="How many messages launches may take from the queue, as `100/1m`: 100 in any minute."
    )
    rate: kinds.Rate | None = Field(
        default=None,
        description="How many messages with the same rate key launches may take, as `60/1h`: 60 in any hour; at most "
        f"{MOST_IN_A_PERIOD}. For messages without a rate of their own.",
    )
    max_in_flight: kinds.Whole | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="How many messages may be in flight at the same time, over all launches.",
    )
    weight: kinds.Whole | None = Field(
        default=None,
        ge=1,
        le=1000,
        description="Share of this queue if several have messages. Without weights, the order of "
        "`consumer.queues` decides.",
    )
    keep_completed: kinds.Keep | None = Field(
        default=None,
        description="How long completed, cancelled and expired messages are kept, how many of each, or both. "
        "Default: `1d/10000`.",
    )
    keep_dead: kinds.Keep | None = Field(
        default=None,
        description="How long, or how many, dead letters are kept. Default: until a person redrives or purges them.",
    )


class RecurrenceSettings(Section):
    """A recurring message, by ``cron`` in ``timezone``, or ``every`` period. Its values are checked together, as those
    of ``PollConsumer.every``, by ``recurrence_rules.py``."""

    handler: str = Field(default="", description="Handler of its messages.")
    cron: str | None = Field(default=None, description="When it recurs, as a cron expression. Give `cron` or `every`.")
    every: kinds.Period | None = Field(
        default=None, description="How often it recurs, as `90s`. Give `cron` or `every`."
    )
    timezone: str = Field(default="UTC", description="Time zone of `cron`, as `Europe/Paris`.")
    queue: str | None = Field(default=None, description="Queue of its messages. Default: that of its handler.")
    payload: dict[str, Any] = Field(default={}, description="Payload of its messages, a table.")
    priority: kinds.Whole = Field(default=0, description="Priority of its messages. Smaller numbers come first.")
    missed: Missed = Field(
        default=Missed.ONCE,
        description="Occurrences missed while no launch ran: `skip` them, enqueue the last one `once`, or "
        "enqueue `all`.",
    )
    overlap: Overlap = Field(
        default=Overlap.ALLOW,
        description="`skip`: no new message while the last one is unfinished. `allow`: enqueue it anyway.",
    )
    after: After = Field(
        default=After.DUE,
        description="`due`: `every` counts from due time to due time. `end`: it counts from the end of the last "
        "message.",
    )
    enabled: kinds.Switch = Field(default=True, description="`false`: it is listed, but enqueues nothing.")
    ping: str | None = Field(
        default=None, repr=False, description="Monitor URL to ping when an occurrence starts and ends. Keep it secret."
    )


class CommandSettings(Section):
    """A handler that is a program."""

    command: kinds.Argv = Field(
        default=(),
        description="Program and arguments, a list; no shell. The program reads the payload from standard input.",
    )
    timeout: kinds.Duration | None = Field(
        default=None,
        gt=0,
        le=YEAR,
        description="How long the program may run. Then its process group gets SIGTERM. Default: "
        "`consumer.handler_limit`.",
    )
    kill_after: kinds.Duration = Field(
        default=5.0, ge=0, le=YEAR, description="How long after SIGTERM the process group gets SIGKILL."
    )
    queue: kinds.Name = Field(default="default", description="Queue of its messages, if the producer names none.")
    rate: kinds.Rate | None = Field(
        default=None,
        description="How many of its messages launches may take, as `60/1h`: 60 in any hour; at most "
        f"{MOST_IN_A_PERIOD}.",
    )
    rate_key: kinds.MemberName | None = Field(
        default=None, description="Key of the payload: `rate` counts separately for each of its values."
    )
    max_attempts: kinds.Whole = Field(
        default=MAX_ATTEMPTS,
        ge=1,
        le=MOST_ATTEMPTS,
        description="After this many failed attempts a message is a dead letter.",
    )
    retry: dict[str, Any] = Field(
        default={},
        description="Delays between attempts, a table: `first`, then times `factor`, at most `most`; each shortened at "
        'random by the share `jitter` at most. Default: `{ first = "1s", factor = 2, most = "10m", jitter = 0.5 }`.',
    )
    fatal: kinds.ExitCodes = Field(default=(), description="Exit codes that make the message a dead letter at once.")
    environment: tuple[kinds.VariableName, ...] = Field(
        default=(),
        description="Names of environment variables that the program gets, besides PATH, HOME, USER, LOGNAME, SHELL, "
        "LANG, LANGUAGE, LC_*, TZ, TMPDIR and XDG_*.",
    )
    directory: str | None = Field(
        default=None,
        description="Working directory, relative to the configuration file. Default: the directory of that file.",
    )
