"""A backend for Django's tasks framework, and the parts of a launch that belong to a Django site.

The framework is ``django.tasks`` of Django 6, or the package django-tasks for earlier versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

try:
    import django  # noqa: F401
except ModuleNotFoundError as missing:
    raise ImportError("Django is not installed here: pip install 'pollconsumer[django]'") from missing

if TYPE_CHECKING:
    from pollconsumer.django.task_backend import PollConsumerBackend, PollConsumerTask, PollConsumerTaskContext

__all__ = ["PollConsumerBackend", "PollConsumerTask", "PollConsumerTaskContext"]


def __getattr__(name: str) -> Any:
    # A site without the framework still has handlers that use its models.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pollconsumer.django import task_backend

    return getattr(task_backend, name)
