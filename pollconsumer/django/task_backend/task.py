"""Tasks with the options of handlers, the context of a running one, and where tasks are found."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

from django.apps import apps
from django.utils.module_loading import module_has_submodule

from pollconsumer.core.notation.timespan import Span
from pollconsumer.django.task_backend.framework import Task, TaskContext
from pollconsumer.interface.api.handler_options import HandlerOptions, Retrying
from pollconsumer.runtime.handling.context import Context

MODULE = "tasks"
"""The module of each installed app in which tasks are found."""
OPTIONS = tuple(name for name in HandlerOptions.__annotations__ if name != "queue")


@dataclass(frozen=True, slots=True, kw_only=True)
class PollConsumerTask(Task):  # type: ignore[type-arg]  # that of Django 6 is not generic
    """A task of our backend. ``@task(max_attempts=1)`` sets an option of its handler; None leaves it to the backend."""

    max_attempts: int | None = None
    retry: Retrying | None = None
    fatal: type[BaseException] | tuple[type[BaseException], ...] | None = None
    timeout: Span | None = None
    isolation: Literal["none", "process"] | None = None
    result_ttl: Span | None = None
    delivery: Literal["at_least_once", "at_most_once"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PollConsumerTaskContext(TaskContext):
    """What a task with ``takes_context=True`` is given. ``message``: our own context, with ``time_left()``,
    ``cancelled``, ``checkpoint`` and the others."""

    message: Context


def options_of(task: Task[Any, Any]) -> dict[str, Any]:
    """The options of its handler that a task sets; one declared for another backend sets none."""
    given = {name: getattr(task, name, None) for name in OPTIONS}
    return {name: value for name, value in given.items() if value is not None}


_found: dict[str, Task[Any, Any]] = {}


def modules_of_tasks() -> list[str]:
    return [f"{app.name}.{MODULE}" for app in apps.get_app_configs() if module_has_submodule(app.module, MODULE)]


def find_tasks(around: Callable[[str], AbstractContextManager[object]] = nullcontext) -> dict[str, Task[Any, Any]]:
    """The tasks in the modules ``tasks`` of the installed apps, by path. Each module is imported within ``around``."""
    found: dict[str, Task[Any, Any]] = {}
    for module in modules_of_tasks():
        with around(module):
            names = vars(import_module(module))
        for name, value in names.items():
            # Not isinstance: a lazy object of Django's would be made to find its class.
            if issubclass(type(value), Task) and (name == value.name or value.module_path not in found):
                found[value.module_path] = value
    _found.update(found)
    return found


def task_at(path: str) -> Task[Any, Any] | None:
    """The task of that path, if it is among those that can be found. Nothing is imported by the path."""
    return _found.get(path) or find_tasks().get(path)
