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
    assert found == [[303, 303, 403, 403, 403, 403, 403], True]


FORMS = """
[completed, dead] = [next(iter(site_app().messages(state=state))).id for state in ("completed", "dead")]
task, once = "shop.tasks.record", "shop.tasks.fail_once"
rule = {"what": "put", "name": "nightly", "handler": task, "payload": '{"args": ["n"]}', "first": "next"}
FORMS = {
    "enqueue": {"handler": task, "payload": '{"args": ["form"]}'},
    "put": rule | {"every": "1h"},
    "put again": rule | {"every": "2h", "edited": "nightly"},
    "pause_recurrence": {"name": "nightly"},
    "resume_recurrence": {"name": "nightly"},
    "trigger": {"name": "nightly"},
    "remove_recurrence": {"name": "nightly"},
    "pause": {"queue": "mail"},
    "resume": {"queue": "mail"},
    "pause_handler": {"name": once},
    "resume_handler": {"name": once},
    "rerun": {"queue": "default", "id": completed},
    "redrive": {"queue": "mail", "id": dead},
    "enqueue later": {"handler": task, "payload": '{"args": ["later"]}', "in_": "1h"},
}

def send(client, what):
    form = {"what": what.partition(" ")[0], "token": "site"} | FORMS[what]
    kind = "application/x-www-form-urlencoded"
    return client.post("/queue/act", urlencode(form), content_type=kind, HTTP_SEC_FETCH_SITE="same-origin")

def audit():
    return [[each.who, each.what, *each.names] for each in reversed(interventions(site_app()))]

_, acts, looks, nobody, guest = browsers
"""


def with_ended_messages(site: DjangoSite, code: str) -> Any:
    """What the code prints in a site that has a completed message and a dead letter."""
    site.program('record.enqueue("a"); fail_once.enqueue("b")')
    site.drain()
    imports = "from pollconsumer.audit import interventions\nfrom pollconsumer.django.web_view import site_app\n"
    return site.program(PEOPLE + imports + FORMS + code)


def test_who_may_only_look_sees_no_form_and_each_is_refused_with_nothing_done(urls: DjangoSite) -> None:
    codes, pages, forms, noted, states = with_ended_messages(
        urls,
        """
codes = [[send(client, what).status_code for what in FORMS] for client in (looks, nobody, guest, Client())]
addresses = ["", "queue?name=mail&state=dead", "dead", f"message?id={completed}", f"message?id={dead}",
             f"handler?name={task}", "audit"]
pages = [looks.get(f"/queue/{each}") for each in addresses]
shown = [[each.status_code, 'action="act"' in each.text, 'href="enqueue' in each.text, 'href="put' in each.text]
         for each in pages]
forms = [looks.get(f"/queue/{each}").status_code for each in ("enqueue", f"enqueue?handler={task}", "put")]
states = sorted(each.state for each in site_app().messages())
print(json.dumps([codes, shown, forms, audit(), states]))
""",
    )
    assert codes == [[403] * 14, [403] * 14, [403] * 14, [302] * 14]
    assert pages == [[200, False, False, False]] * 7
    assert forms == [403, 403, 403]
    assert (noted, states) == ([], ["completed", "dead"])


def test_who_may_change_has_each_form_done_and_stands_in_the_audit_log_by_name(urls: DjangoSite) -> None:
    answers, noted, creators, shown = with_ended_messages(
        urls,
        """
pages = [f"message?id={completed}", f"message?id={dead}", f"handler?name={task}", f"enqueue?handler={task}", "put"]
shown = [[what for what in ("rerun", "redrive", "pause_handler", "enqueue", "put")
          if f'name="what" value="{what}"' in acts.get(f"/queue/{page}").text] for page in pages]
answers = [[what, send(acts, what).status_code] for what in FORMS]
made = [each.status() for each in site_app().messages() if each.id not in (completed, dead)]
creators = sorted((each.created_by or "").replace(completed, "a") for each in made)
print(json.dumps([answers, audit(), creators, shown]))
""",
    )
    assert {code for _, code in answers} == {303}, answers
    assert shown == [["rerun"], ["rerun", "redrive"], ["pause_handler"], ["enqueue"], ["put"]]
    assert {who for who, *_ in noted} == {"act"}
    done = [what for _, what, *_ in noted]
    assert done == [what.partition(" ")[0].partition("_")[0] for what, _ in answers]
    assert creators == ["act", "act", "act", "rerun of a"]  # of two forms, and of an occurrence
    urls.drain()
    assert sorted(urls.notes()) == ["a", "a", "form", "n", "try b", "try b"]
