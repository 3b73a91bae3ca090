"""The backend for the tasks framework: ``django.tasks``, or else django-tasks, which has the same names. Tasks become
messages, whose handlers call the tasks' functions. Also results of tasks, and checks of the backend's settings."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import django
from asgiref.sync import sync_to_async
from django.apps import apps
from django.conf import settings
from django.core import checks
from django.db import transaction
from django.utils import timezone
from django.utils.module_loading import module_has_submodule

from pollconsumer.core.errors import NotFound, PollConsumerError, retelling, similar
from pollconsumer.core.lifecycle import State
from pollconsumer.core.messages.message import NewMessage, check_handler, check_queue
from pollconsumer.core.retry import Fatal, HandlerTimeout, ProcessDied
from pollconsumer.core.spans import Span
from pollconsumer.django.site import application, beside_site
from pollconsumer.interface.api.app import calls_of
from pollconsumer.interface.api.registry import HandlerOptions, Retrying, check_options
from pollconsumer.interface.settings.load import load_settings
from pollconsumer.interface.settings.model import Settings
from pollconsumer.runtime.handling.context import Context
from pollconsumer.runtime.new_messages import new_message
from pollconsumer.store.reading.messages import Message

if TYPE_CHECKING or django.VERSION < (6,):
    try:
        from django_tasks import TaskContext, TaskResult, TaskResultStatus, task_backends
        from django_tasks.backends.base import BaseTaskBackend
        from django_tasks.base import TASK_MAX_PRIORITY, Task, TaskError
        from django_tasks.exceptions import InvalidTaskError as InvalidTask
        from django_tasks.exceptions import TaskResultDoesNotExist
        from django_tasks.signals import task_enqueued, task_finished, task_started
        from django_tasks.utils import normalize_json
    except ModuleNotFoundError as missing:
        raise ImportError("Django before 6 needs django-tasks: pip install 'pollconsumer[django]'") from missing
else:
    from django.tasks import TaskContext, TaskResult, TaskResultStatus, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import TASK_MAX_PRIORITY, Task, TaskError
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json

__all__ = ["Task", "TaskResult", "task_backends", "task_finished", "task_started"]
"""Names of the framework that `task_handlers` imports from here. All other names of this module are its own."""
MODULE = "tasks"
"""The name of the module in each installed app that has its tasks."""
OPTIONS = tuple(name for name in HandlerOptions.__annotations__ if name != "queue")
STATUSES: dict[State, Any] = {
    State.RESERVED: TaskResultStatus.RUNNING,
    State.COMPLETED: TaskResultStatus.SUCCESSFUL,
}
"""State of a message → status of its result. In other states: FAILED if the message has ended, else READY."""
READY: Any = TaskResultStatus.READY
OURS = {kind.__name__: kind for kind in (Fatal, HandlerTimeout, ProcessDied)}
"""Our exception classes by name. An error of one of these may have no traceback."""
OF_PRODUCERS = ("config", "store", "namespace", "patience")


@dataclass(frozen=True, slots=True, kw_only=True)
class PollConsumerTask(Task):  # type: ignore[type-arg]  # that of Django 6 is not generic
    """A task of our backend. ``@task(max_attempts=1)`` sets an option of its handler. None: the backend's OPTIONS give
    the value."""

    max_attempts: int | None = None
    retry: Retrying | None = None
    fatal: type[BaseException] | tuple[type[BaseException], ...] | None = None
    timeout: Span | None = None
    isolation: Literal["none", "process"] | None = None
    result_ttl: Span | None = None
    delivery: Literal["at_least_once", "at_most_once"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PollConsumerTaskContext(TaskContext):
    """The first argument of a task with ``takes_context=True``. ``message``: the message's `Context`, with
    ``time_left()``, ``cancelled``, ``checkpoint`` and so on."""

    message: Context


def options_of(task: Task[Any, Any]) -> dict[str, Any]:
    """The handler's options that ``task`` sets. A task that was declared for another backend sets none."""
    given = {name: getattr(task, name, None) for name in OPTIONS}
    return {name: value for name, value in given.items() if value is not None}


_found: dict[str, Task[Any, Any]] = {}


def modules_of_tasks() -> list[str]:
    return [f"{app.name}.{MODULE}" for app in apps.get_app_configs() if module_has_submodule(app.module, MODULE)]


def find_tasks(around: Callable[[str], AbstractContextManager[object]] = nullcontext) -> dict[str, Task[Any, Any]]:
    """The tasks in the modules ``tasks`` of installed apps, by path. ``around(module)`` wraps the import of each."""
    found: dict[str, Task[Any, Any]] = {}
    for module in modules_of_tasks():
        with around(module):
            names = vars(import_module(module))
        for name, value in names.items():
            # Not isinstance, which would evaluate a lazy object of Django's to find its class.
            if issubclass(type(value), Task) and (name == value.name or value.module_path not in found):
                found[value.module_path] = value
    _found.update(found)
    return found


def task_at(path: str) -> Task[Any, Any] | None:
    """The task with that path in the modules that `find_tasks` imports; else None. The path is not imported."""
    return _found.get(path) or find_tasks().get(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredError(TaskError):
    @property
    def exception_class(self) -> type[BaseException]:
        """The error's class. ValueError unless the class's module is imported already: a store must cause no import."""
        module, _, name = self.exception_class_path.rpartition(".")
        found = getattr(sys.modules.get(module), "__dict__", {}).get(name)
        if not isinstance(found, type) or not issubclass(found, BaseException):
            raise ValueError(f"{self.exception_class_path!r} is no exception of a module that is imported here")
        return found


def new_result(task: Task[Any, Any], message_id: str, alias: str, **known: Any) -> TaskResult[Any]:
    """A result with the fields ``known``. Its other fields are empty, or None."""
    instants: dict[str, Any] = dict.fromkeys(("enqueued_at", "started_at", "finished_at", "last_attempted_at"))
    others: dict[str, Any] = {"status": READY, "args": [], "kwargs": {}, "errors": [], "worker_ids": []}
    return TaskResult(task=task, id=message_id, backend=alias, **(instants | others | known))


def stored_result(message: Message, task: Task[Any, Any], alias: str) -> TaskResult[Any]:
    """The result of ``message`` as the store has it. Its arguments are empty if they are no longer stored."""
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
    """The result of the message that is being handled, made without the store."""
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
        object.__setattr__(result, name, changed)  # like the framework, whose results are frozen


def worker_ids(attempts: int) -> list[str]:
    """The same name for each attempt: the framework counts these names. The store does not know which launches made
    earlier attempts."""
    return ["pollconsumer"] * attempts


def _as_sent(task: Task[Any, Any], message: Message, alias: str) -> Task[Any, Any]:
    """``task`` with the message's options; unchanged if ``alias`` refuses these, since another backend sent them."""
    priority = max(-TASK_MAX_PRIORITY, min(TASK_MAX_PRIORITY, -message.row.priority))
    due = _datetime(message.timestamps.due_at)
    try:
        return task.using(priority=priority, queue_name=message.queue, run_after=due, backend=alias)
    except InvalidTask:
        return task


def _datetime(moment: datetime | None) -> datetime | None:
    return moment if moment is None or settings.USE_TZ else timezone.make_naive(moment)


def _error(text: str, trace: str | None) -> StoredError:
    """The error of an attempt. A traceback ends with the path of the exception's class and the error's text. Without
    a traceback the class is one of pollconsumer's."""
    name = text.partition(":")[0]
    kind = OURS.get(name, Fatal)
    path = f"{kind.__module__}.{kind.__qualname__}"
    if raised := re.findall(rf"^((?:\w+\.)*){re.escape(name)}(?::|$)", trace or "", re.MULTILINE):
        path = f"{raised[-1] or 'builtins.'}{name}"
    return StoredError(exception_class_path=path, traceback=trace or text)


class PollConsumerBackend(BaseTaskBackend):
    """OPTIONS: ``config``, ``store``, ``namespace`` and ``patience`` as in `PollConsumer`. Options of handlers, such as
    ``max_attempts``, are defaults for tasks. ENQUEUE_ON_COMMIT: enqueue when the transaction commits."""

    task_class = PollConsumerTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.app = _application(**{name: value for name, value in self.options.items() if name in OF_PRODUCERS})
        self._calls = calls_of(self.app)
        self.handler_options = {name: value for name, value in self.options.items() if name not in OF_PRODUCERS}
        self._on_commit = bool(params.get("ENQUEUE_ON_COMMIT"))

    def settings(self) -> Settings:
        """The settings by OPTIONS and by this process's environment. Raises the errors of ``load_settings``."""
        config, store, namespace = map(self.options.get, OF_PRODUCERS[:3])
        named = None if config is None else Path(config)
        return load_settings(named, store=store, namespace=namespace, beside=beside_site())

    def options_of(self, task: Task[Any, Any]) -> HandlerOptions:
        """The options of the task's handler. They are not checked."""
        options: Any = self.handler_options | options_of(task) | {"queue": task.queue_name}
        given: HandlerOptions = options
        return given

    def validate_task(self, task: Task[Any, Any]) -> None:
        super().validate_task(task)
        with retelling((PollConsumerError, TypeError), InvalidTask):
            check_handler(task.module_path)
            check_queue(task.queue_name)
            check_options(self.options_of(task))

    def enqueue(self, task: Task[Any, Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult[Any]:
        """Enqueue a message for ``task``. Raises the errors of `PollConsumer.enqueue`, InvalidTask, and TypeError for
        arguments without JSON form."""
        message, result = self._prepared(task, args, kwargs)
        if self._on_commit:
            transaction.on_commit(partial(self._send, message, result))
        else:
            self._send(message, result)
        return result

    async def aenqueue(self, task: Task[Any, Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult[Any]:
        """`enqueue` without blocking the event loop."""
        if self._on_commit:  # a transaction belongs to the thread of blocking calls
            return await sync_to_async(self.enqueue)(task, args, kwargs)
        message, result = self._prepared(task, args, kwargs)
        await self._calls.enqueue_one_async(message)
        await task_enqueued.asend_robust(type(self), task_result=result)
        return result

    def _prepared(
        self, task: Task[Any, Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[NewMessage, TaskResult[Any]]:
        self.validate_task(task)
        if task_at(task.module_path) is None:
            rule = f"define or import it in the module '{MODULE}' of an installed app, where a launch finds it"
            raise InvalidTask(f"Task {task.module_path} cannot be found; {rule}.")
        after = task.run_after
        message = new_message(
            task.module_path,
            {"args": normalize_json(args), "kwargs": normalize_json(kwargs)},
            queue=task.queue_name,
            priority=-task.priority,
            at=timezone.make_aware(after) if after is not None and timezone.is_naive(after) else after,
        )
        now = timezone.now()
        known = {"enqueued_at": now, "args": list(args), "kwargs": dict(kwargs)}
        return message, new_result(task, message.id, self.alias, **known)

    def _send(self, message: NewMessage, result: TaskResult[Any]) -> None:
        self._calls.enqueue_one(message)
        task_enqueued.send_robust(type(self), task_result=result)  # an exception of a receiver changes nothing

    def get_result(self, result_id: str) -> TaskResult[Any]:
        """The result of the task whose message has this id. TaskResultDoesNotExist if the id is unknown, if the message
        is no longer kept, or if no task belongs to its handler."""
        with retelling(NotFound, TaskResultDoesNotExist):
            return self._result(self._calls.look(None, result_id))

    async def aget_result(self, result_id: str) -> TaskResult[Any]:
        """`get_result` without blocking the event loop."""
        with retelling(NotFound, TaskResultDoesNotExist):
            return self._result(await self._calls.look_async(None, result_id))

    def _result(self, message: Message) -> TaskResult[Any]:
        if (task := task_at(message.handler)) is None:
            raise TaskResultDoesNotExist(f"message {message.id} is of no task: {message.handler}")
        return stored_result(message, task, self.alias)

    def check(self, **_: Any) -> Iterable[checks.CheckMessage]:
        return problems(self)


_application = cache(application)
"""The applications of backends. The framework creates a backend for each thread, and these share an application."""


def problems(backend: PollConsumerBackend) -> Iterator[checks.CheckMessage]:
    where = f"TASKS[{backend.alias!r}]"
    yield from _unknown_options(backend, where)
    for queue in sorted(backend.queues):
        try:
            check_queue(queue)
        except PollConsumerError as error:
            yield checks.Error(f"{where}: QUEUES: {error}", id="pollconsumer.E002")
    try:
        check_options({name: value for name, value in backend.handler_options.items() if name in OPTIONS})  # type: ignore[arg-type]  # names of options
    except (PollConsumerError, TypeError) as error:
        yield checks.Error(f"{where}: OPTIONS: {error}", id="pollconsumer.E003")
    try:
        yield from _unserved(backend, backend.settings(), where)
    except PollConsumerError as error:
        yield checks.Error(f"{where}: OPTIONS: {error}", id="pollconsumer.E004")
    try:
        find_tasks()
    except Exception as error:
        hint = f"Importing the modules {MODULE!r} of the installed apps raised this; a launch imports them, too."
        yield checks.Error(f"{type(error).__name__}: {error}", hint=hint, id="pollconsumer.E005")


def _unknown_options(backend: PollConsumerBackend, where: str) -> Iterator[checks.CheckMessage]:
    known = [*OF_PRODUCERS, *OPTIONS]
    for name in sorted(backend.options.keys() - {*known}):
        close = similar(name, known)
        hint = f"Did you mean {close[0]}?" if close else f"Known are {', '.join(known)}."
        yield checks.Error(f"{where}: OPTIONS: unknown option {name}.", hint=hint, id="pollconsumer.E001")


def _unserved(backend: PollConsumerBackend, settings: Settings, where: str) -> Iterator[checks.CheckMessage]:
    """A warning for each queue of the backend that no launch of its configuration serves."""
    served = settings.consumer.queues
    for queue in sorted(backend.queues - {*served}) if served else ():
        file = settings.config or "the environment"
        hint = f"Add it to consumer.queues in {file}, or launch 'pollconsumer run --queue {queue}', too."
        yield checks.Warning(
            f"{where}: QUEUES: {queue} is not among consumer.queues.", hint=hint, id="pollconsumer.W001"
        )
