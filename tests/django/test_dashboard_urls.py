"""The dashboard as URLs of a site: its login, its staff, its permissions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.django.conftest import DjangoSite

PEOPLE = """
from urllib.parse import urlencode
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.test import Client

call_command("migrate", verbosity=0)

def browser(name, *permissions, staff=True, superuser=False):
    user = User.objects.create(username=name, is_staff=staff, is_superuser=superuser)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    client = Client(enforce_csrf_checks=True)
    client.force_login(user)
    return client

looks, acts = ["view_queuemessage"], ["view_queuemessage", "change_queuemessage"]
browsers = [browser("ada", superuser=True), browser("act", *acts), browser("look", *looks), browser("none"),
            browser("guest", *acts, staff=False)]
"""


@pytest.fixture
def urls(django_site: DjangoSite) -> DjangoSite:
    django_site.append(
        "website.py",
        """
        ROOT_URLCONF = "urls"
        ALLOWED_HOSTS = ["*"]
        INSTALLED_APPS += ["pollconsumer.django", "django.contrib.auth", "django.contrib.contenttypes",
                           "django.contrib.sessions"]
        MIDDLEWARE = ["django.contrib.sessions.middleware.SessionMiddleware",
                      "django.middleware.csrf.CsrfViewMiddleware",
                      "django.contrib.auth.middleware.AuthenticationMiddleware"]
        DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
        """,
    )
    django_site.write(
        "urls.py",
        """
        from django.urls import include, path

        urlpatterns = [path("queue/", include("pollconsumer.django.dashboard_urls"))]
        """,
    )
    return django_site


def asked(site: DjangoSite, code: str) -> Any:
    site.program('record.enqueue("a")')
    return site.program(PEOPLE + code)


def test_staff_with_the_permission_look_and_who_may_change_has_buttons(urls: DjangoSite) -> None:
    found = asked(
        urls,
        """
answers = [client.get("/queue/queue?name=default") for client in browsers]
print(json.dumps([[each.status_code, 'action="act"' in each.text] for each in answers]))
""",
    )
    assert found == [[200, True], [200, True], [200, False], [403, False], [403, False]]


def test_who_has_not_signed_in_is_sent_to_the_login(urls: DjangoSite) -> None:
    found = asked(urls, 'print(json.dumps(Client().get("/queue/dead?queue=default").headers["Location"]))')
    assert found == "/accounts/login/?next=/queue/dead%3Fqueue%3Ddefault"


def test_a_button_works_for_who_may_change_and_from_the_sites_own_page_alone(urls: DjangoSite) -> None:
    found = asked(
        urls,
        """
form = {"what": "pause", "queue": "default", "token": "site"}
ours = {"HTTP_SEC_FETCH_SITE": "same-origin"}

def sent(client, **headers):
    kind = "application/x-www-form-urlencoded"
    return client.post("/queue/act", urlencode(form), content_type=kind, **headers).status_code

codes = [sent(client, **ours) for client in browsers]
codes += [sent(browsers[0]), sent(browsers[0], HTTP_SEC_FETCH_SITE="cross-site")]
print(json.dumps([codes, "Resume" in browsers[0].get("/queue/").text]))
""",
    )
    assert found == [[303, 303, 404, 403, 403, 403, 403], True]
