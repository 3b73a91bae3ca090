"""The endpoint as URLs of a site: ``path("queue/", include("pollconsumer.django.launch_urls"))``.

It serves the application of the site's backend, the first one of ours in ``TASKS``; without one, that of the settings.
"""

from __future__ import annotations

from functools import cache
from threading import Lock
from typing import Any

from django.conf import settings as django_settings
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from pollconsumer.interface.api.app import PollConsumer
from pollconsumer.web.launch_endpoint import LaunchEndpoint
from pollconsumer.web.web_exchange import WebRequest

_making = Lock()  # the first requests of a site may come at the same time


def _respond(request: HttpRequest, **_: Any) -> HttpResponse:
    headers = {name.lower(): value for name, value in request.headers.items()}
    with _making:
        endpoint = _endpoint()
    answered = endpoint.answer(WebRequest(request.method, request.path_info, headers, request.read))
    return HttpResponse(answered.content(), status=answered.status, headers=dict(answered.headers()))


@cache
def _endpoint() -> LaunchEndpoint:
    if not getattr(django_settings, "TASKS", None):
        return LaunchEndpoint(PollConsumer())
    from pollconsumer.django.task_handlers import own_backends, register_tasks  # they need the framework

    found = own_backends()
    if not found:
        return LaunchEndpoint(PollConsumer())
    register_tasks(found[0].settings())
    return LaunchEndpoint(found[0].app)


urlpatterns = [path(route, csrf_exempt(_respond)) for route in ("launch", "messages", "messages/<str:id>")]
