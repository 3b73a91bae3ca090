"""The dashboard as URLs of a site, behind its login: ``path("queue/", include("pollconsumer.django.dashboard_urls"))``.
It shows the store of the application that `site_app` returns."""

from __future__ import annotations

from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from pollconsumer.dashboard.access import DashboardEndpoint, Visitor
from pollconsumer.django.web_view import ACT, VIEW, may, once, respond, site_app


def _respond(request: HttpRequest, page: str = "") -> HttpResponse:
    if not request.user.is_authenticated:
        return redirect_to_login(request.get_full_path())
    return respond(request, _endpoint().answer, f"/{page}")


@once
def _endpoint() -> DashboardEndpoint:
    return DashboardEndpoint(site_app(), _visitor)


def _visitor(request: HttpRequest) -> Visitor | None:
    user = request.user
    return Visitor(user.get_username(), acts=may(user, ACT)) if may(user, VIEW) else None


# The browser's headers show, here as everywhere, that a form comes from its own pages: see `SiteAccess`.
urlpatterns = [path(route, csrf_exempt(_respond)) for route in ("", "<str:page>")]
