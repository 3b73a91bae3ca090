"""Answers requests of a site, and finds the application that answers them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from threading import Lock
from typing import Any, TypeVar

from django.conf import settings as django_settings
from django.http import HttpRequest, HttpResponse

from pollconsumer.django.site import application
from pollconsumer.interface.api.app import PollConsumer
from pollconsumer.web.web_exchange import WebAnswer, WebRequest

T = TypeVar("T")
VIEW, ACT = "pollconsumer.view_queuemessage", "pollconsumer.change_queuemessage"
"""The permission to look, and the permission to use every button and form. Superusers have both. Other users can get
them if ``pollconsumer.django`` is among ``INSTALLED_APPS``."""


def once(make: Callable[[], T]) -> Callable[[], T]:
    """A function that calls ``make`` only once, even if a site's first requests come at the same time."""
    making, made = Lock(), cache(make)

    @wraps(make)
    def get() -> T:
        with making:
            return made()

    return get


def respond(request: HttpRequest, answer: Callable[[WebRequest], WebAnswer], path: str) -> HttpResponse:
    """Django's response with the answer to ``request``. ``path``: the part of the address that is ours."""
    headers = {name.lower(): value for name, value in request.headers.items()}
    query = request.META.get("QUERY_STRING", "")
    answered = answer(WebRequest(request.method, path, headers, request.read, query, source=request))
    return HttpResponse(answered.body, status=answered.status, headers=dict(answered.headers()))


@once
def site_app() -> PollConsumer:
    """The application of our first backend in ``TASKS``; if there is none, one with the site's configuration."""
    if not getattr(django_settings, "TASKS", None):
        return application()
    from pollconsumer.django.task_handlers import own_backends, register_tasks  # they need the framework

    found = own_backends()
    if not found:
        return application()
    register_tasks(found[0].settings())
    return found[0].app


def may(user: Any, permission: str) -> bool:
    """Whether ``user`` is active, belongs to the site's staff, and has the ``permission``."""
    return bool(user.is_active and user.is_staff and user.has_perm(permission))
