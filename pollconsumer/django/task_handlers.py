"""Tasks as the handlers of a launch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import iscoroutinefunction
from typing import Any

from django.db import close_old_connections

from pollconsumer.django.site import application
from pollconsumer.django.task_backend import (
    PollConsumerBackend,
    PollConsumerTaskContext,
    Task,
    TaskResult,
    find_tasks,
    modules_of_tasks,
    running_result,
    stored_result,
    succeed,
    task_at,
    task_backends,
    task_finished,
    task_started,
)
from pollconsumer.interface.api.app import calls_of
from pollconsumer.interface.api.registry import registry
from pollconsumer.interface.logs.logs import PERSISTENT, about, log
from pollconsumer.interface.settings.model import Settings
from pollconsumer.interface.settings.owners import refuse_writable_modules
from pollconsumer.interface.user_imports import importing
from pollconsumer.runtime.handling.context import Context

Args = list[Any] | None
Kwargs = dict[str, Any] | None
"""Arguments by name. None if the message, from the command line or a recurrence, has none."""

app = application()
"""The application to which the handlers of tasks belong."""


def register_tasks(settings: Settings) -> None:
    """Register the site's tasks as handlers, if the site has a backend of pollconsumer. A task's message names one of
    these, and causes no further import or lookup."""
    backends = own_backends()
    if not backends:
        return
    registry.add(calls_of(app))
    if not settings.trust_writable:
        refuse_writable_modules(settings.directory, modules_of_tasks())
    for path, task in find_tasks(partial(importing, "INSTALLED_APPS")).items():
        if path not in calls_of(app).handlers:
            backend = _backend_of(task)
            options = backend.options_of(task)
            app.handler(path, **options)(_calling(task, backend))
    calls_of(app).queues = {queue for backend in backends for queue in backend.queues}
    chosen = [backend.settings() for backend in backends]
    if all((each.shown_store, each.namespace) != (settings.shown_store, settings.namespace) for each in chosen):
        log.warning(
            "TASKS: the site sends tasks to another store or namespace than this launch's; name its config in OPTIONS",
            extra=about("TASKS", "another store", kind=PERSISTENT),
        )


@app.on_dead
def _announce(context: Context, error: BaseException) -> None:
    """Send ``task_finished`` to its receivers when a task has failed for good."""
    task = task_at(context.handler)
    if task is None:
        return
    backend = _backend_of(task)
    try:
        result = stored_result(calls_of(app).look(context.queue, context.id), task, backend.alias)
        try:
            raise error  # receivers log sys.exc_info()
        except BaseException:
            task_finished.send_robust(type(backend), task_result=result)
    finally:
        if registry.stand_in is None:  # a test's connections have a transaction of their own
            close_old_connections()


def own_backends() -> list[PollConsumerBackend]:
    return [backend for backend in task_backends.all() if isinstance(backend, PollConsumerBackend)]


def _backend_of(task: Task[Any, Any]) -> PollConsumerBackend:
    """The task's own backend, if it is a `PollConsumerBackend`. Otherwise the site's first `PollConsumerBackend`, since
    only such backends send messages."""
    own = task.get_backend()
    return own if isinstance(own, PollConsumerBackend) else own_backends()[0]


def _calling(task: Task[Any, Any], backend: PollConsumerBackend) -> Callable[..., Any]:
    """The handler's function, which calls the task's function. Exceptions of signal receivers have no effect."""
    sender = type(backend)

    def begun(context: Context, args: Args, kwargs: Kwargs) -> tuple[TaskResult[Any], list[Any], dict[str, Any]]:
        """The result so far, and the arguments by position and by name for the task's function."""
        result = running_result(context, task, backend.alias, args or [], kwargs or {})
        first = [PollConsumerTaskContext(task_result=result, message=context)] if task.takes_context else []
        return result, [*first, *(args or [])], kwargs or {}

    def handle(context: Context, args: Args = None, kwargs: Kwargs = None) -> Any:
        result, positional, named = begun(context, args, kwargs)
        task_started.send_robust(sender, task_result=result)
        value = task.func(*positional, **named)
        succeed(result, value)
        task_finished.send_robust(sender, task_result=result)
        return value

    async def handle_async(context: Context, args: Args = None, kwargs: Kwargs = None) -> Any:
        result, positional, named = begun(context, args, kwargs)
        await task_started.asend_robust(sender, task_result=result)
        value = await task.func(*positional, **named)
        succeed(result, value)
        await task_finished.asend_robust(sender, task_result=result)
        return value

    return handle_async if iscoroutinefunction(task.func) else handle
