"""Exceptions, with the exit code of a command.

    PollConsumerError               1    a bug in pollconsumer, unless it is a subclass
    ├── UsageError                  2    invalid flag or argument
    ├── BadData                     65   invalid data given by the user
    │   ├── PayloadTooLarge         65
    │   ├── Refused                 65   raised by a hook of the producer
    │   └── Conflict                65   the id belongs to a message with another handler or payload
    ├── NotFound                    66   no such message, queue, recurrence, batch, lease
    ├── NotCompleted                1    waited for a message that became a dead letter, was cancelled, or expired
    │   └── ChildFailed             1    the same, for a message that a handler called
    ├── WaitRefused                 1    a handler waited for a message that its launch could not handle meanwhile
    ├── QueueFull                   69   the queue has as many messages ready as max_ready allows
    ├── StoreUnreachable            69   no answer for the whole patience of the call
    │   ├── NodeLost                69   a node of a cluster does not answer; others do
    │   └── OutcomeUnknown          69   the call was sent, but the reply was lost: repeat it with the same id
    │       └── NotReplicated       69   the message is accepted, but too few replicas have it
    ├── CannotCreate                73   a file, a data directory, a socket
    ├── LeaseLost                   75   a newer launch holds the lease; nothing was written
    ├── PermissionDenied            77   by authentication, access rules, file modes
    └── ConfigurationError          78   a setting, a handler or its import is invalid
        └── StoreRefused            78   the store evicts, was replaced, is too old, or has keys of a wrong type
            └── WentBack            78   the store has lost what it had acknowledged

The text of an error is one line, ``WHAT: VALUE; FIX``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager

from pollconsumer.core.notation.text import printable

OPTIONS = {
    **dict.fromkeys(("countdown", "defer_by", "delay"), "in"),
    **dict.fromkeys(("defer_until", "eta", "run_after", "run_at"), "at"),
    **dict.fromkeys(("max_retries", "max_tries", "retries"), "max_attempts"),
    **dict.fromkeys(("autoretry_for", "backoff", "retry_backoff", "retry_delay"), "retry"),
    **dict.fromkeys(("job_timeout", "time_limit"), "timeout"),
    **dict.fromkeys(("job_id", "task_id"), "id"),
    "ttl": "expires",
    **dict.fromkeys(("tz", "time_zone"), "timezone"),
    "queue_name": "queue",
    "unique": "key",
}
FLAGS = {
    "burst": "until_empty",
    **dict.fromkeys(("max_jobs", "max_tasks"), "max_messages"),
}
STATES = {
    **dict.fromkeys(("deferred", "delayed"), "scheduled"),
    **dict.fromkeys(("pending", "queued", "todo", "waiting"), "ready"),
    **dict.fromkeys(("active", "doing", "running", "started"), "reserved"),
    **dict.fromkeys(("done", "finished", "succeeded", "success", "successful"), "completed"),
    **dict.fromkeys(("failed", "failure", "discarded"), "dead"),
    **dict.fromkeys(("aborted", "canceled", "revoked"), "cancelled"),
}
COMMANDS = {
    **dict.fromkeys(("consume", "consumer", "start", "work", "worker", "workers"), "run"),
    **dict.fromkeys(("call", "publish", "push", "send"), "enqueue"),
    **dict.fromkeys(("redrive", "replay", "requeue", "retry"), "dead redrive"),
    **dict.fromkeys(("jobs", "ls", "messages", "tasks"), "list"),
    **dict.fromkeys(("info", "inspect", "show", "stats"), "status"),
    **dict.fromkeys(("clear", "empty", "flush", "purge"), "queue purge"),
    **dict.fromkeys(("pause", "suspend"), "queue pause"),
    "resume": "queue resume",
    "queues": "queue list",
    **dict.fromkeys(("abort", "delete", "kill", "remove", "revoke", "rm"), "cancel"),
    **dict.fromkeys(("beat", "cron", "schedule", "scheduler"), "recurrences list"),
    **dict.fromkeys(("history", "log", "logs"), "launches"),
    **dict.fromkeys(("shutdown", "stop"), "init cron --uninstall"),
    "version": "--version",
    **{word: f"list --state {state}" for word, state in STATES.items()},
    **dict.fromkeys(("dlq", "failed", "failure"), "dead list"),
}
IN_GROUPS = {"cancel": ("cancel", "remove", "purge"), "init cron --uninstall": ("pause",)}
"""Commands that have another name within a group: the command in `COMMANDS` → the names to look for in the group."""


def command_for(word: str, group: str, known: list[str]) -> str | None:
    """The command that a user probably meant by ``word``, which is not among ``group``'s ``known`` commands; None if
    there is no likely one."""
    meant = COMMANDS.get(word.lower())
    verbs = IN_GROUPS.get(meant or "", ((meant or "").rpartition(" ")[2],))
    return next((f"{group} {verb}" for verb in verbs if group and verb in known), meant)


SHOWN_CHARACTERS = 80


def shown(value: object) -> str:
    """``value`` as an error shows it: escaped, cut to 80 characters."""
    text = printable(str(value)[: SHOWN_CHARACTERS + 1])
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


def similar(name: str, known: Iterable[str], most: int = 1, *, at_least: float = 0.6) -> list[str]:
    """Names of ``known`` that resemble ``name``, best first, ``most`` at most. ``at_least``: how much, from 0 to 1."""
    from difflib import get_close_matches  # no launch without such an error needs it

    return get_close_matches(name, known, most, at_least)


def suggestion(name: str, known: Collection[str], otherwise: str = "", *, beginning: str = "") -> str:
    """The last part of an error about an unknown ``name``: ``did you mean NAME?`` if a ``known`` name resembles it,
    else ``otherwise`` or a list of all ``known``. ``beginning``: a prefix of the names that is not compared."""
    by_word = {each.removeprefix(beginning).strip("-_").replace("-", "_"): each for each in known}
    word = name.removeprefix(beginning).strip("-_").replace("-", "_")
    meant = word if word in by_word else (OPTIONS | FLAGS | STATES).get(word.lower())
    close = [meant] if meant in by_word else similar(word, by_word, at_least=0.7)
    return f"did you mean {by_word[close[0]]}?" if close else otherwise or f"known here: {', '.join(sorted(known))}"


def unknown_options(unknown: Collection[str], known: Collection[str]) -> TypeError:
    """The error for unknown options of a call: a TypeError, as Python raises one."""
    whole = f"known here: {', '.join(sorted(known))}"
    if "in_" in known:  # options of a message
        whole = f"arguments of the handler go into the payload, a dict; {whole}"
    fix = next((fix for name in sorted(unknown) if (fix := suggestion(name, known, whole)) != whole), whole)
    return TypeError(f"unknown option: {', '.join(sorted(unknown))}; {fix}")


class PollConsumerError(Exception):
    """The base of all errors. Its text says what went wrong, with which value, and how to fix it. A command that the
    error ends exits with ``exit_code``."""

    exit_code: int = 1
    key = ""
    """The key for which the store refused a command, because of the value of that key or of another one in its slot."""
    traced = ""
    """The traceback of the user's code that caused the error."""
    shows_trace = False
    """Whether the traceback is always printed, even without -v."""

    def __init__(self, what: str, value: object = None, fix: str = "") -> None:
        text = what if value is None else f"{what}: {shown(value)}"
        super().__init__(printable(f"{text}; {fix}" if fix else text))


@contextmanager
def retelling(
    caught: type[Exception] | tuple[type[Exception], ...], kind: Callable[[str], Exception], begin: str = ""
) -> Iterator[None]:
    """Replace an exception of type ``caught`` from the block by ``kind(text)``: ``begin`` and the exception's text."""
    try:
        yield
    except caught as error:
        raise kind(f"{begin}{error}") from None


class UsageError(PollConsumerError):
    """A call or a command line lacks something, has parts that exclude each other, or is not allowed here."""

    exit_code = 2


class BadData(PollConsumerError, ValueError):
    """A value that the caller gave is invalid."""

    exit_code = 65


class PayloadTooLarge(BadData):
    """The payload exceeds the limit of 1 MiB of JSON."""


class Refused(BadData):
    """Raised by a hook ``before_enqueue`` so that the message is not enqueued."""


class Conflict(BadData):
    """The ``id`` belongs to a message with another handler or payload, which is unchanged.

    ``at``: position of the refused message, from 0. ``accepted``: ids that the same call has enqueued before it."""

    id: str = ""
    at: int = 0
    accepted: list[str] = []  # noqa: RUF012  replaced, never changed


class NotFound(PollConsumerError, LookupError):
    """What the caller names does not exist, such as a message, queue, recurrence, batch or lease."""

    exit_code = 66


class NotCompleted(PollConsumerError):
    """The message that a caller waited for was not completed: it ended in ``state``, because of ``last_error``."""

    id: str
    state: str
    last_error: str | None

    def __init__(self, id: str, state: str, last_error: str | None) -> None:  # noqa: A002  the attribute `id`
        self.id, self.state, self.last_error = id, state, last_error
        super().__init__(f"message {id} is {state}", last_error)


class ChildFailed(NotCompleted):
    """The message ``id`` that a handler called with ``context.call`` was not completed: it ended in ``state`` because
    of ``last_error``. If ``state`` is empty, it did not end in time, or its result did not fit."""

    def __init__(self, id: str, state: str, last_error: str | None) -> None:  # noqa: A002  the attribute `id`
        super().__init__(id, state or "unfinished", last_error)
        self.state = state


class WaitRefused(PollConsumerError, TimeoutError):
    """A handler waited for a message that cannot end before the handler does, or was still waiting when its launch had
    to end. Unless the handler catches this error, the attempt fails."""

    def __init__(self, id: str, queue: str, state: str, fix: str) -> None:  # noqa: A002  the attribute `id`
        super().__init__("cannot wait for message", f"{id} of queue {queue}, which is {state}", fix)


class QueueFull(PollConsumerError):
    """The queue has as many messages ready as its ``max_ready`` allows. ``accepted``: ids that the call has
    enqueued."""

    exit_code = 69
    accepted: list[str] = []  # noqa: RUF012  replaced, never changed


class StoreUnreachable(PollConsumerError):
    """The store did not answer. ``sent``: the call was sent, and may have been carried out. ``accepted``: ids that the
    call has enqueued. ``full``: the store answers, but writes nothing, since its memory or its disk is full."""

    exit_code = 69
    sent: bool = False
    full: bool = False
    accepted: list[str] = []  # noqa: RUF012  replaced, never changed


class OutcomeUnknown(StoreUnreachable):
    """The call was sent, but its reply was lost. If it is repeated with the same ``ids``, nothing is done twice."""

    ids: list[str]

    def __init__(self, ids: list[str], what: str = "outcome unknown") -> None:
        self.ids = ids
        super().__init__(what, ", ".join(ids), "repeat the call with the same id: nothing is doubled")


class NodeLost(StoreUnreachable):
    """A node of a cluster does not answer. Queues on other nodes are still served."""


class NotReplicated(OutcomeUnknown):
    """The messages ``ids`` are accepted, but will be lost if a replica without them is promoted."""

    def __init__(self, ids: list[str], problem: str) -> None:
        super().__init__(ids, f"accepted, but {problem}")


class CannotCreate(PollConsumerError):
    """A file or directory cannot be created. ``accepted``: ids that the same call has enqueued before."""

    exit_code = 73
    accepted: list[str] = []  # noqa: RUF012  replaced, never changed


class LeaseLost(PollConsumerError):
    """The launch no longer holds its lease, or no longer has a message that it had reserved. From then on the store
    refuses what the launch writes, and another launch handles its messages."""

    exit_code = 75


class PermissionDenied(PollConsumerError):
    """The store refused the login or a command, or the system refused a file or directory."""

    exit_code = 77


class ConfigurationError(PollConsumerError):
    """A setting, a handler's declaration or its import is invalid."""

    exit_code = 78


class StoreRefused(ConfigurationError):
    """The store must not be used: it evicts keys, was replaced or emptied, is too old, or has keys of another program.
    Or the embedded server cannot be started. The error's text says which."""


class WentBack(StoreRefused):
    """The store has lost writes that it had acknowledged. Raised if that happened while a batch was open, or if the
    setting ``strict.on_rollback`` is ``refuse``."""


OF_ANY_QUEUE = (LeaseLost, PermissionDenied, StoreUnreachable)
"""Errors that do not come from the keys of a single queue."""
