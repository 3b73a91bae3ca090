"""The backend: tasks become messages, whose handlers are the tasks' functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import Any

from asgiref.sync import sync_to_async
from django.core.checks import CheckMessage
from django.db import transaction
from django.utils import timezone

from pollconsumer.core.errors import NotFound, PollConsumerError
from pollconsumer.core.messages.message import NewMessage, check_handler, check_queue
from pollconsumer.django.site_place import application, beside_site
from pollconsumer.django.task_backend.framework import (
    BaseTaskBackend,
    InvalidTask,
    Task,
    TaskResult,
    TaskResultDoesNotExist,
    normalize_json,
    task_enqueued,
)
from pollconsumer.django.task_backend.result import new_result, stored_result
from pollconsumer.django.task_backend.task import MODULE, PollConsumerTask, options_of, task_at
from pollconsumer.interface.api.app import PollConsumer, calls_of
from pollconsumer.interface.api.handler_options import HandlerOptions, check_options
from pollconsumer.interface.settings.load import load_settings
from pollconsumer.interface.settings.model import Settings
from pollconsumer.runtime.new_messages import new_message
from pollconsumer.store.reading.messages import Message

OF_PRODUCERS = ("config", "store", "namespace", "patience")


class PollConsumerBackend(BaseTaskBackend):
    """OPTIONS: ``config``, ``store``, ``namespace`` and ``patience`` are those of `PollConsumer`. Options of handlers,
    such as ``max_attempts``, are for tasks that set none. ENQUEUE_ON_COMMIT: send when the transaction commits."""

    task_class = PollConsumerTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        # The framework makes a backend for each thread; they share a connection.
        self.app = _application(**{name: value for name, value in self.options.items() if name in OF_PRODUCERS})
        self._calls = calls_of(self.app)
        self.handler_options = {name: value for name, value in self.options.items() if name not in OF_PRODUCERS}
        self._on_commit = bool(params.get("ENQUEUE_ON_COMMIT"))

    def settings(self) -> Settings:
        """The settings of its OPTIONS and of this process's environment. Errors as in ``load_settings``."""
        config, store, namespace = map(self.options.get, OF_PRODUCERS[:3])
        named = None if config is None else Path(config)
        return load_settings(named, store=store, namespace=namespace, beside=beside_site())

    def options_of(self, task: Task[Any, Any]) -> HandlerOptions:
        """The options of the task's handler, unchecked."""
        options: Any = self.handler_options | options_of(task) | {"queue": task.queue_name}
        given: HandlerOptions = options
        return given

    def validate_task(self, task: Task[Any, Any]) -> None:
        super().validate_task(task)
        try:
            check_handler(task.module_path)
            check_queue(task.queue_name)
            check_options(self.options_of(task))
        except (PollConsumerError, TypeError) as error:
            raise InvalidTask(str(error)) from None

    def enqueue(self, task: Task[Any, Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult[Any]:
        """Enqueue a message for ``task``. Errors as of `PollConsumer.enqueue`; TypeError for arguments without a JSON
        form."""
        message, result = self._prepared(task, args, kwargs)
        if self._on_commit:
            transaction.on_commit(partial(self._send, message, result))
        else:
            self._send(message, result)
        return result

    async def aenqueue(self, task: Task[Any, Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult[Any]:
        """Do the same as ``enqueue``, without blocking the event loop."""
        if self._on_commit:  # a transaction belongs to the thread that makes blocking calls
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
        message = new_message(
            task.module_path,
            {"args": normalize_json(args), "kwargs": normalize_json(kwargs)},
            queue=task.queue_name,
            priority=-task.priority,
            at=_aware(task.run_after),
        )
        now = timezone.now()
        known = {"enqueued_at": now, "args": list(args), "kwargs": dict(kwargs)}
        return message, new_result(task, message.id, self.alias, **known)

    def _send(self, message: NewMessage, result: TaskResult[Any]) -> None:
        self._calls.enqueue_one(message)
        task_enqueued.send_robust(type(self), task_result=result)  # what a receiver raises changes nothing

    def get_result(self, result_id: str) -> TaskResult[Any]:
        """The result of the message with this id. TaskResultDoesNotExist for an unknown id, one that is no longer kept,
        and a message of no task."""
        with _missing():
            return self._result(self._calls.look(None, result_id))

    async def aget_result(self, result_id: str) -> TaskResult[Any]:
        """The same as ``get_result``, without blocking the event loop."""
        with _missing():
            return self._result(await self._calls.look_async(None, result_id))

    def _result(self, message: Message) -> TaskResult[Any]:
        if (task := task_at(message.handler)) is None:
            raise TaskResultDoesNotExist(f"message {message.id} is of no task: {message.handler}")
        return stored_result(message, task, self.alias)

    def check(self, **_: Any) -> Iterable[CheckMessage]:
        from pollconsumer.django.task_backend.checks import problems  # for manage.py check alone

        return problems(self)


@contextmanager
def _missing() -> Iterator[None]:
    try:
        yield
    except NotFound as error:
        raise TaskResultDoesNotExist(str(error)) from None


@cache
def _application(**options: Any) -> PollConsumer:
    return application(**options)


def _aware(moment: datetime | None) -> datetime | None:
    return timezone.make_aware(moment) if moment is not None and timezone.is_naive(moment) else moment
