"""The settings of tables whose keys the user chooses: queues, recurrences, programs."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from pollconsumer.core.choices import After, Missed, Overlap
from pollconsumer.core.messages.message import MOST_ATTEMPTS
from pollconsumer.core.notation.timespan import YEAR
from pollconsumer.core.rates import MOST_IN_A_PERIOD
from pollconsumer.interface.settings.declaration import declared_types as kinds
from pollconsumer.runtime.handling.handler import MAX_ATTEMPTS


class Section(BaseModel):
    """A section of the file: keys that are not declared are refused."""

    model_config = ConfigDict(extra="forbid")


class QueueSettings(Section):
    """A queue's limits, per period and in flight; its weight among other queues; what is kept of it."""

    quota: kinds.Quota | None = Field(
        default=None, description="Most messages handed out in any such period, as `100/1m`."
    )
    rate: kinds.Rate | None = Field(
        default=None,
        description="Most messages with one rate key handed out in any such period, as `60/1h`, "
        f"{MOST_IN_A_PERIOD} at most; those with a rate of their own have that.",
    )
    max_in_flight: kinds.Whole | None = Field(
        default=None, ge=1, le=1_000_000, description="Most messages reserved at one time, over all launches."
    )
    weight: kinds.Whole | None = Field(
        default=None,
        ge=1,
        le=1000,
        description="Share among the consumer's queues. Without any weight their order decides.",
    )
    keep_completed: kinds.Keep | None = Field(
        default=None,
        description="How long completed, cancelled and expired messages are kept, how many of each, or both, as "
        "`1d/10000`, which it is if unset.",
    )
    keep_dead: kinds.Keep | None = Field(
        default=None, description="The same of dead letters. Unset: until a person redrives or purges them."
    )


class RecurrenceSettings(Section):
    """A recurring message, by ``cron`` in ``timezone``, or ``every`` period. Its values are checked together, as those
    of ``PollConsumer.every``, by ``recurrence_rules.py``."""

    handler: str = Field(default="", description="Of its occurrences.")
    cron: str | None = Field(
        default=None, description="When it recurs, as a cron expression in `timezone`; or `every`."
    )
    every: kinds.Period | None = Field(default=None, description="Its period, as `90s`.")
    timezone: str = Field(default="UTC", description="Of `cron`, as `Europe/Paris`.")
    queue: str | None = Field(default=None, description="Of its occurrences. Unset: the handler's.")
    payload: dict[str, Any] = Field(default={}, description="Of its occurrences, a table.")
    priority: kinds.Whole = Field(default=0, description="Of its occurrences; smaller is sooner.")
    missed: Missed = Field(
        default=Missed.ONCE,
        description="Which missed occurrences are enqueued later: `skip`, `once` (the last), `all`.",
    )
    overlap: Overlap = Field(
        default=Overlap.ALLOW, description="`skip`: none is enqueued while the one before is unfinished."
    )
    after: After = Field(
        default=After.DUE, description="`end`: its period counts from the end of the occurrence before."
    )
    enabled: kinds.Switch = Field(default=True, description="`false`: it is listed, and yields nothing.")
    ping: str | None = Field(
        default=None, repr=False, description="URL that is told how each occurrence begins and ends; a secret."
    )


class CommandSettings(Section):
    """A handler that is a program."""

    command: kinds.Argv = Field(default=(), description="The program and its arguments, a list; no shell.")
    timeout: kinds.Duration | None = Field(
        default=None, gt=0, le=YEAR, description="How long it may run; then its process group gets SIGTERM."
    )
    kill_after: kinds.Duration = Field(
        default=5.0, ge=0, le=YEAR, description="How long after SIGTERM the rest of the group gets SIGKILL."
    )
    queue: kinds.Name = Field(default="default", description="Where its messages go when the producer names none.")
    rate: kinds.Rate | None = Field(
        default=None,
        description=f"Most of its messages handed out in any such period, as `60/1h`, {MOST_IN_A_PERIOD} at most.",
    )
    rate_key: kinds.MemberName | None = Field(
        default=None, description="The member of the payload of which each value counts by itself."
    )
    max_attempts: kinds.Whole = Field(
        default=MAX_ATTEMPTS, ge=1, le=MOST_ATTEMPTS, description="After so many failures the message is a dead letter."
    )
    retry: dict[str, Any] = Field(
        default={}, description="Delays between attempts: `first`, `factor`, `most`, `jitter`."
    )
    fatal: kinds.ExitCodes = Field(default=(), description="Exit codes for which no further attempt can help.")
    environment: tuple[kinds.VariableName, ...] = Field(
        default=(), description="Names of further variables to pass on."
    )
    directory: str | None = Field(
        default=None, description="Its working directory, relative to the configuration file's, which is the default."
    )
