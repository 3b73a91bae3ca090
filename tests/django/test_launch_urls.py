"""The endpoint of launches and messages as URLs of a site."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.web.conftest import ENQUEUE_TOKEN, MANAGE_TOKEN, TOKEN
from tests.web.openapi import openapi
from tests.web.test_odd_requests import TEXTS

if TYPE_CHECKING:
    from tests.django.conftest import DjangoSite

CLIENT = """
from django.test import Client
client = Client(enforce_csrf_checks=True)

def told(method, path, body=None, token=""):
    given = {"HTTP_AUTHORIZATION": f"Bearer {token}"} if token else {}
    data = "" if body is None else json.dumps(body)
    answered = client.generic(method, path, data, content_type="application/json", **given)
    return [answered.status_code, answered.json(), answered.headers["Cache-Control"]]
"""
ODD = """
texts = TEXTS
statuses = {}
for text in texts:
    for method, path, body, given in [
        (text or "GET", "/queue/messages", "{}", {}), ("GET", f"/queue/messages/{text}", "", {}),
        ("POST", "/queue/messages", text, {}), ("POST", "/queue/messages", "{}", {"HTTP_AUTHORIZATION": text}),
        ("GET", f"/queue/launch?{text}", "", {"HTTP_AUTHORIZATION": text}),
        ("POST", "/queue/messages", "{}", {"CONTENT_LENGTH": text}),
    ]:
        given = {"HTTP_AUTHORIZATION": "Bearer TOKEN"} | given
        answered = client.generic(method, path, body, content_type="application/json", **given)
        statuses[f"{method} {path} {given}"[:80]] = answered.status_code
print(json.dumps({what: status for what, status in statuses.items() if status >= 500}))
"""
TOKENS = {
    f"POLLCONSUMER_WEB__{name}": token
    for name, token in (("TOKEN", TOKEN), ("ENQUEUE_TOKEN", ENQUEUE_TOKEN), ("MANAGE_TOKEN", MANAGE_TOKEN))
}


@pytest.fixture
def urls(django_site: DjangoSite) -> DjangoSite:
    django_site.append("website.py", "ROOT_URLCONF = 'urls'\nALLOWED_HOSTS = ['*']\n")
    django_site.write(
        "urls.py",
        """
        from django.urls import include, path

        urlpatterns = [path("queue/", include("pollconsumer.django.launch_urls"))]
        """,
    )
    return django_site


def asked(site: DjangoSite, *requests: str) -> Any:
    return site.plain_program(f"{CLIENT}\nprint(json.dumps([{', '.join(requests)}]))", **TOKENS)


def test_a_task_is_sent_by_a_request_and_handled_by_the_launch_of_another(urls: DjangoSite) -> None:
    task = {"handler": "shop.tasks.record", "payload": {"args": ["a"], "kwargs": {"times": 2}}, "id": "t"}
    recurrence = {"handler": "shop.tasks.record", "every": "1h", "payload": {"args": ["a"]}, "first": "next"}
    sent, unknown, refused, launched, state, again, put, removed = asked(
        urls,
        f"told('POST', '/queue/messages', {task}, {ENQUEUE_TOKEN!r})",
        f"told('POST', '/queue/messages', {task | {'handler': 'shop.tasks.note', 'id': 'n'}}, {ENQUEUE_TOKEN!r})",
        f"told('POST', '/queue/messages', {task}, {TOKEN!r})",
        f"told('GET', '/queue/launch', None, {TOKEN!r})",
        f"told('GET', '/queue/messages/t', None, {ENQUEUE_TOKEN!r})",
        f"told('POST', '/queue/messages/t/rerun', None, {MANAGE_TOKEN!r})",
        f"told('PUT', '/queue/recurrences/a:b', {recurrence}, {MANAGE_TOKEN!r})",
        f"told('DELETE', '/queue/recurrences/a:b', None, {MANAGE_TOKEN!r})",
    )
    assert sent == [202, {"id": "t", "duplicate": False}, "no-store"]
    assert unknown[0] == 400
    assert refused[0] == 401
    assert launched[:2] == [200, {"stop_reason": "empty", "handled": 1, "failed": 0}]
    assert (state[0], state[1]["state"]) == (200, "completed")
    assert (again[0], again[1].get("rerun_of")) == (200, "t")
    assert (put[0], put[1].get("rule")) == (200, "every 1h")
    assert removed[:2] == [200, {"name": "a:b", "removed": True}]
    assert urls.notes() == ["a", "a"]


def test_the_site_has_each_path_of_the_endpoint(urls: DjangoSite) -> None:
    routes = urls.plain_program("from pollconsumer.django.launch_urls import ROUTES; print(json.dumps(ROUTES))")
    assert {route.replace("<str:", "{").replace(">", "}") for route in routes} == {
        path[1:] for path in openapi()["paths"]
    }


def test_a_site_without_a_backend_of_ours_has_the_application_of_its_settings(urls: DjangoSite) -> None:
    urls.append("website.py", "TASKS = {}\n")
    (urls.directory / "config.toml").write_text('[commands.touch]\ncommand = ["/usr/bin/touch", "touched"]\n')
    sent, launched = asked(
        urls,
        f"told('POST', '/queue/messages', {{'handler': 'touch'}}, {ENQUEUE_TOKEN!r})",
        f"told('POST', '/queue/launch', None, {TOKEN!r})",
    )
    assert sent[0] == 202
    assert launched[1]["handled"] == 1
    assert (urls.directory / "touched").exists()


TOGETHER = """
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, BrokenBarrierError
from pollconsumer.django import task_handlers
find, meeting = task_handlers._backend_of, Barrier(2)

def find_with_another(task):
    try:
        meeting.wait(0.3)
    except BrokenBarrierError:
        pass  # the other waits for this one
    return find(task)

task_handlers._backend_of = find_with_another
with ThreadPoolExecutor(2) as threads:
    asked = [threads.submit(told, "GET", "/queue/messages/none", None, TOKEN) for _ in range(2)]
print(json.dumps([each.result()[0] for each in asked]))
"""


def test_requests_that_come_first_at_the_same_time_are_answered_by_one_endpoint(urls: DjangoSite) -> None:
    assert urls.plain_program(CLIENT + TOGETHER.replace("TOKEN", repr(ENQUEUE_TOKEN)), **TOKENS) == [404, 404]


def test_an_odd_text_in_a_request_has_a_status(urls: DjangoSite) -> None:
    program = CLIENT + ODD.replace("TEXTS", repr(TEXTS)).replace("TOKEN", ENQUEUE_TOKEN)
    assert urls.plain_program(program, **TOKENS) == {}
