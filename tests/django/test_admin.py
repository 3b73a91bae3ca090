"""Messages and batches in the admin of a site: lists, filters, search, actions, permissions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.django.test_dashboard_urls import PEOPLE

if TYPE_CHECKING:
    from tests.django.conftest import DjangoSite

LIST = "/admin/pollconsumer/queuemessage/"
BATCHES = "/admin/pollconsumer/queuebatch/"
TOOLS = """
import re
ada, act, look, none, guest = browsers

def ids(path, client=ada):
    page = client.get(path).text
    return re.findall(r'<th class="field-(?:message|batch)_id"><a [^>]*>([^<]*)</a>', page)

def sent(action, *keys, client=ada, path="/admin/pollconsumer/queuemessage/", everything="0"):
    form = client.get(path)
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', form.text)[1]
    data = {"action": action, "_selected_action": keys, "select_across": everything, "csrfmiddlewaretoken": token}
    page = client.post(path, data, follow=True).text
    return re.findall(r'<li class="(?:success|warning|error)">(.*?)</li>', page)
"""


@pytest.fixture
def admin(django_site: DjangoSite) -> DjangoSite:
    django_site.append(
        "website.py",
        """
        ROOT_URLCONF = "urls"
        ALLOWED_HOSTS = ["*"]
        INSTALLED_APPS += ["pollconsumer.django", "django.contrib.admin", "django.contrib.auth",
                           "django.contrib.contenttypes", "django.contrib.messages", "django.contrib.sessions"]
        MIDDLEWARE = ["django.contrib.sessions.middleware.SessionMiddleware",
                      "django.middleware.csrf.CsrfViewMiddleware",
                      "django.contrib.auth.middleware.AuthenticationMiddleware",
                      "django.contrib.messages.middleware.MessageMiddleware"]
        TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True,
                      "OPTIONS": {"context_processors": ["django.template.context_processors.request",
                                                         "django.contrib.auth.context_processors.auth",
                                                         "django.contrib.messages.context_processors.messages"]}}]
        STATIC_URL = "/static/"
        """,
    )
    django_site.write(
        "urls.py",
        """
        from django.contrib import admin
        from django.urls import path

        urlpatterns = [path("admin/", admin.site.urls)]
        """,
    )
    return django_site


def asked(site: DjangoSite, code: str) -> Any:
    send = """
from pollconsumer.django.web_view import site_app
app = site_app()
"""
    return site.program(f"{send}{PEOPLE}{TOOLS}{code}")


def send(site: DjangoSite) -> None:
    """Two dead letters, one completed, one ready, one scheduled message."""
    site.program(
        """
from pollconsumer.django.web_view import site_app
for n in range(2):
    site_app().enqueue("shop.tasks.fail_once", {"args": ["x"], "kwargs": {}}, id=f"dead-{n}", queue="mail")
site_app().enqueue("shop.tasks.record", {"args": ["a"], "kwargs": {}}, id="done", queue="default")
"""
    )
    site.drain()
    site.program(
        """
from pollconsumer.django.web_view import site_app
site_app().enqueue("shop.tasks.record", {"args": ["b"], "kwargs": {}}, id="ready", queue="default")
site_app().enqueue("shop.tasks.record", {"args": ["c"], "kwargs": {}}, id="later:1@x", queue="default", in_="1h")
from pollconsumer.django.task_handlers import app as tasks
from tests.inner import handler_named
with site_app().batch("import") as batch:
    batch.add(handler_named(tasks, "shop.tasks.record").args(args=["m"], kwargs={}))
"""
    )


def test_messages_are_filtered_searched_shown_cancelled_and_redriven(admin: DjangoSite) -> None:
    send(admin)
    found = asked(
        admin,
        f"""
path = {LIST!r}
told = {{
    "dead": ids(path + "?state=dead"), "queue": sorted(ids(path + "?queue=mail")),
    "handler": ids(path + "?handler=shop.tasks.record&state=ready"), "id": ids(path + "?q=done"),
    "odd": [ids(path + "?" + each + "=nope") == ids(path) != [] for each in ("state", "queue", "handler")],
    "none": ids(path + "?q=nobody"), "both": ids(path + "?q=done&state=dead"),
}}
page = ada.get(path + "default_2Flater_3A1_40x/change/").text
told["shown"] = ["shop.tasks.record" in page, "later:1@x" in page, 'name="_save"' in page]
failed = ada.get(path + "mail_2Fdead-0/change/").text
told["traced"] = re.search(r"<pre>Traceback .*\\n  File ", failed) is not None
told["gone"] = ada.get(path + "default_2Fgone/change/").status_code
told["cancelled"] = sent("cancel", "default/ready", "default/done")
told["redriven"] = sent("redrive", "mail/dead-0")
told["states"] = [app.message("ready").state, app.message("dead-0").state]
told["all"] = sent("redrive", "mail/dead-1", path=path + "?state=dead", everything="1")
told["after"] = ids(path + "?state=dead")
from pollconsumer.audit import interventions
told["noted"] = [[each.who, each.what, *each.names] for each in interventions(app)]
print(json.dumps(told))
""",
    )
    assert found == {
        "dead": ["dead-0", "dead-1"],
        "queue": ["dead-0", "dead-1"],
        "handler": ["ready", "import.0"],
        "id": ["done"],
        "odd": [True] * 3,
        "none": [],
        "both": [],
        "shown": [True, True, False],
        "traced": True,
        "gone": 302,
        "cancelled": ["1 cancelled, 1 left: only scheduled and ready ones can be."],
        "redriven": ["1 redriven."],
        "states": ["cancelled", "ready"],
        "all": ["1 redriven."],
        "after": [],
        "noted": [["ada", "redrive", "dead-1"], ["ada", "redrive", "dead-0"], ["ada", "cancel", "ready"]],
    }


def test_who_may_only_look_has_no_action_and_others_see_nothing(admin: DjangoSite) -> None:
    send(admin)
    found = asked(
        admin,
        f"""
path = {LIST!r}
print(json.dumps([
    [client.get(path).status_code for client in browsers], len(ids(path, act)), len(ids(path, look)),
    ["Cancel selected" in client.get(path).text for client in (act, look)],
    sent("cancel", "default/ready", client=look), app.message("ready").state,
    sent("cancel", "default/ready", client=act), app.message("ready").state,
    [client.get(path + "add/").status_code for client in (ada, act)],
    [client.get(path + "default_2Fready/delete/").status_code for client in (ada, act)],
]))
""",
    )
    assert found[:4] == [[200, 200, 200, 403, 302], 6, 6, [True, False]]
    assert found[4:8] == [[], "ready", ["1 cancelled."], "cancelled"]
    assert found[8:] == [[403, 403], [403, 403]]


def test_batches_are_listed_shown_and_cancelled(admin: DjangoSite) -> None:
    send(admin)
    found = asked(
        admin,
        f"""
path = {BATCHES!r}
listed = ids(path), ids(path + "?state=ended"), ids(path + "?q=import"), ids(path + "?q=other")
home = app.batches.get("import").listed.queue
shown = "import" in ada.get(path + f"{{home}}_2Fimport/change/").text
did = sent("cancel", f"{{home}}/import", path=path), sent("redrive", f"{{home}}/import", path=path)
print(json.dumps([listed, shown, did, app.message("import.0").state]))
""",
    )
    assert found == [[["import"], [], ["import"], []], True, [["1 cancelled."], ["0 redriven."]], "cancelled"]


def test_a_batch_beyond_the_longest_list_is_found_by_its_id_and_by_filters(admin: DjangoSite) -> None:
    send(admin)
    found = asked(
        admin,
        f"""
from pollconsumer.django import admin
from pollconsumer.django.task_handlers import app as tasks
from tests.inner import handler_named
record = handler_named(tasks, "shop.tasks.record")
for id, home in ("next", "default"), ("last", "mail"):
    with app.batch(id, ended=record.args(args=["e"], kwargs={{}}).using(queue=home)) as batch:
        batch.add(record.args(args=["m"], kwargs={{}}))
admin.MOST = 1
path = {BATCHES!r}
every = [each.id for each in app.batches]
homes = {{each.id: each.listed.queue for each in app.batches}}
print(json.dumps([
    len(every), ids(path) == every[:1], [ids(path + "?q=" + each) for each in every] == [[each] for each in every],
    ids(path + "?queue=" + homes["last"]), ids(path + "?queue=nope&q=nobody"),
    ids(path + "?queue=default&q=last"),
]))
""",
    )
    assert found == [3, True, True, ["last"], [], []]


def test_a_store_that_is_away_is_said_in_a_line_on_each_page(admin: DjangoSite) -> None:
    script = f"""
told = []
for path in {LIST!r}, {BATCHES!r}:
    for page in "", "default_2Fx/change/", "default_2Fx/history/", "default_2Fx/delete/":
        answer = ada.get(path + page, follow=True)
        told.append([answer.redirect_chain, "Store unreachable" in answer.text])
print(json.dumps(told))
"""
    away = f"unix://{admin.directory}/nowhere.sock"
    admin.append("website.py", f'TASKS["default"]["OPTIONS"] |= {{"store": {away!r}, "patience": "0.1s"}}\n')
    assert asked(admin, script) == 8 * [[[["/admin/", 302]], True]]
