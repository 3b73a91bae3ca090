"""The endpoint as URLs of a site: ``path("queue/", include("pollconsumer.django.launch_urls"))``. It serves the
application of `site_app`."""

from __future__ import annotations

from functools import cache
from threading import Lock
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from pollconsumer.django.web_view import respond, site_app
from pollconsumer.web.launch_endpoint import LaunchEndpoint

_making = Lock()  # the first requests of a site may come at the same time


def _respond(request: HttpRequest, **_: Any) -> HttpResponse:
    with _making:
        endpoint = _endpoint()
    return respond(request, endpoint.answer, request.path_info)


@cache
def _endpoint() -> LaunchEndpoint:
    return LaunchEndpoint(site_app())


urlpatterns = [path(route, csrf_exempt(_respond)) for route in ("launch", "messages", "messages/<str:id>")]
