"""The endpoint as URLs of a site: ``path("queue/", include("pollconsumer.django.launch_urls"))``. It serves the
application that `site_app` returns."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from pollconsumer.django.web_view import once, respond, site_app
from pollconsumer.web.launch_endpoint import LaunchEndpoint


def _respond(request: HttpRequest, **_: Any) -> HttpResponse:
    return respond(request, _endpoint().answer, request.path_info)


@once
def _endpoint() -> LaunchEndpoint:
    return LaunchEndpoint(site_app())


ROUTES = ("launch", "messages", "messages/<str:id>", "messages/<str:id>/rerun", "recurrences/<str:name>")
urlpatterns = [path(route, csrf_exempt(_respond)) for route in ROUTES]
