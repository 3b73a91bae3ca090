"""Results of the framework, made from stored messages, and from a message in hand."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.utils import timezone

from pollconsumer.core.lifecycle import State
from pollconsumer.core.retry import Fatal, HandlerTimeout, ProcessDied
from pollconsumer.django.task_backend.framework import (
    TASK_MAX_PRIORITY,
    InvalidTask,
    Task,
    TaskError,
    TaskResult,
    TaskResultStatus,
)
from pollconsumer.runtime.handling.context import Context
from pollconsumer.store.reading.messages import Message

STATUSES: dict[State, Any] = {
    State.RESERVED: TaskResultStatus.RUNNING,
    State.COMPLETED: TaskResultStatus.SUCCESSFUL,
}
"""The status of a message by its state; in all other states it is FAILED if the message has ended, else READY."""
READY: Any = TaskResultStatus.READY
OURS = {kind.__name__: kind for kind in (Fatal, HandlerTimeout, ProcessDied)}
"""Classes of ours, by name, whose errors may have no traceback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredError(TaskError):
    @property
    def exception_class(self) -> type[BaseException]:
        """The class of the error. ValueError unless its module is imported already: nothing that a store names is
        imported."""
        module, _, name = self.exception_class_path.rpartition(".")
        found = getattr(sys.modules.get(module), "__dict__", {}).get(name)
        if not isinstance(found, type) or not issubclass(found, BaseException):
            raise ValueError(f"{self.exception_class_path!r} is no exception of a module that is imported here")
        return found


def new_result(task: Task[Any, Any], message_id: str, alias: str, **known: Any) -> TaskResult[Any]:
    """A result of which all else is empty, or None."""
    instants: dict[str, Any] = dict.fromkeys(("enqueued_at", "started_at", "finished_at", "last_attempted_at"))
    others: dict[str, Any] = {"status": READY, "args": [], "kwargs": {}, "errors": [], "worker_ids": []}
    return TaskResult(task=task, id=message_id, backend=alias, **(instants | others | known))


def stored_result(message: Message, task: Task[Any, Any], alias: str) -> TaskResult[Any]:
    """The result as the store has it. Its arguments are empty if the store no longer has them."""
    times, payload = message.timestamps, message.payload or {}
    started, other = _datetime(times.started_at), TaskResultStatus.FAILED if message.state.has_ended else READY
    result = new_result(
        _as_sent(task, message, alias),
        message.id,
        alias,
        status=STATUSES.get(message.state, other),
        enqueued_at=_datetime(times.scheduled_at or times.enqueued_at),
        started_at=started,
        finished_at=_datetime(times.ended_at),
        last_attempted_at=started,
        args=payload.get("args", []),
        kwargs=payload.get("kwargs", {}),
        errors=[] if message.last_error is None else [_error(message.last_error, message.traceback)],
        worker_ids=worker_ids(message.attempts),
    )
    object.__setattr__(result, "_return_value", message.result)
    return result


def running_result(
    context: Context, task: Task[Any, Any], alias: str, args: list[Any], kwargs: dict[str, Any]
) -> TaskResult[Any]:
    """The result of the message in hand, without a look into the store."""
    now = timezone.now()
    return new_result(
        task,
        context.id,
        alias,
        status=TaskResultStatus.RUNNING,
        started_at=now,
        last_attempted_at=now,
        args=args,
        kwargs=kwargs,
        worker_ids=worker_ids(context.attempt),
    )


def succeed(result: TaskResult[Any], value: Any) -> None:
    for name, changed in (
        ("status", TaskResultStatus.SUCCESSFUL),
        ("finished_at", timezone.now()),
        ("_return_value", value),
    ):
        object.__setattr__(result, name, changed)  # as the framework does, whose results are frozen


def worker_ids(attempts: int) -> list[str]:
    """Names of workers, one for each attempt, since the framework counts attempts by them. Which launches made earlier
    attempts is not kept."""
    return ["pollconsumer"] * attempts


def _as_sent(task: Task[Any, Any], message: Message, alias: str) -> Task[Any, Any]:
    """``task`` with the message's options, if the backend accepts them: other backends may have sent the message."""
    priority = max(-TASK_MAX_PRIORITY, min(TASK_MAX_PRIORITY, -message.row.priority))
    due = _datetime(message.timestamps.due_at)
    try:
        return task.using(priority=priority, queue_name=message.queue, run_after=due, backend=alias)
    except InvalidTask:
        return task


def _datetime(moment: datetime | None) -> datetime | None:
    return moment if moment is None or settings.USE_TZ else timezone.make_naive(moment)


def _error(text: str, trace: str | None) -> StoredError:
    return StoredError(exception_class_path=_class_path(text, trace or ""), traceback=trace or text)


def _class_path(text: str, trace: str) -> str:
    """The class of an error: a traceback ends with its path and text; without one it is of ours."""
    name = text.partition(":")[0]
    said = re.findall(rf"^((?:\w+\.)*){re.escape(name)}(?::|$)", trace, re.MULTILINE)
    if said:
        return f"{said[-1] or 'builtins.'}{name}"
    kind = OURS.get(name, Fatal)
    return f"{kind.__module__}.{kind.__qualname__}"
