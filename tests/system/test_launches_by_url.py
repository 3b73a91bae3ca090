"""Launches that requests start: whole processes, with the embedded server of the installation."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from pollconsumer import PollConsumer
from pollconsumer.web import LaunchEndpoint, launch_starter
from tests.system.test_coming_from import code
from tests.web.conftest import TOKEN, request_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pollconsumer.web.web_exchange import WebAnswer
    from tests.site import Site

WORKER = f"""
from pollconsumer import PollConsumer
from pollconsumer.web import LaunchEndpoint
from pollconsumer.web.web_exchange import WebRequest

headers = {{"authorization": "Bearer {TOKEN}"}}
LaunchEndpoint(PollConsumer(config="config.toml")).answer(WebRequest("POST", "/launch", headers, lambda _: b""))
"""


@pytest.fixture(autouse=True)
def of_the_site(site: Site) -> Iterator[None]:
    web = {"TOKEN": TOKEN, "BUDGET": "60s", "LINGER": "10ms"}
    site.environment |= {f"POLLCONSUMER_WEB__{name}": value for name, value in web.items()}
    with mock.patch.dict(os.environ, site.environment, clear=True):
        yield


def launched(site: Site, **environment: str) -> WebAnswer:
    with mock.patch.dict(os.environ, environment):
        endpoint = LaunchEndpoint(PollConsumer(config=site.directory / "config.toml"))
        return endpoint.answer(request_of("POST", "/launch", TOKEN))


def test_a_request_has_a_launch_handle_what_is_ready(site: Site, capfd: pytest.CaptureFixture[Any]) -> None:
    messages = [site.enqueue("record", name=name) for name in ("a", "b")]
    site.enqueue("fatal")
    answered = launched(site)
    assert (answered.status, json.loads(answered.body)) == (200, {"stop_reason": "empty", "handled": 2, "failed": 1})
    assert sorted(site.notes()) == ["a", "b"]
    assert [site.state(message) for message in messages] == ["completed"] * 2
    printed = capfd.readouterr()
    assert "never again" in printed.err
    assert printed.out == ""


def test_a_launch_that_lingers_for_its_budget_ends_with_its_window_and_not_when_nothing_is_left(site: Site) -> None:
    message = site.enqueue("record", name="a")
    answered = launched(site, POLLCONSUMER_WEB__BUDGET="8s", POLLCONSUMER_WEB__LINGER="budget")
    assert (answered.status, json.loads(answered.body)["handled"]) == (200, 1)
    assert json.loads(answered.body)["stop_reason"] in ("no_time_to_handle", "no_time_to_idle")
    assert site.state(message) == "completed"


def test_while_another_launch_holds_the_lease_the_answer_comes_at_once_and_nobody_waits(site: Site) -> None:
    other = site.start("run", "--timeout", "10m")
    site.await_holder(other.pid)
    answered = launched(site)
    outcome = {"stop_reason": "lease_held", "handled": 0, "failed": 0}
    assert (answered.status, json.loads(answered.body)) == (200, outcome)
    assert other.poll() is None
    assert "next:consumer:default" not in site.control_keys()


def test_a_handlers_import_that_fails_is_said_by_the_launch_and_not_to_the_client(
    site: Site, capfd: pytest.CaptureFixture[Any]
) -> None:
    (site.directory / "handlers.py").write_text("import nowhere_to_be_found")
    answered = launched(site)
    assert (answered.status, json.loads(answered.body)["exit_code"]) == (500, 78)
    assert b"nowhere_to_be_found" not in answered.body
    assert "nowhere_to_be_found" in capfd.readouterr().err


def test_a_store_that_is_away_is_said_without_its_address(
    site: Site, capfd: pytest.CaptureFixture[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch_starter, "FOR_END", 58.0)  # on a machine that may be busy
    store = f"unix://user:hush@{site.directory}/nowhere.sock"
    answered = launched(site, POLLCONSUMER_STORE=store, POLLCONSUMER_WEB__BUDGET="60s")
    assert (answered.status, json.loads(answered.body)["exit_code"]) == (503, 69)
    assert b"nowhere" not in answered.body
    assert "hush" not in capfd.readouterr().err


def test_a_launch_outlives_the_worker_that_has_started_it(site: Site) -> None:
    message = site.enqueue("hold", name="a")
    worker = site.start_program([sys.executable, "-c", WORKER])
    site.await_note("begin a")
    worker.kill()
    worker.wait()
    site.open_gate()
    site.await_note("end a")
    site.await_release()
    assert site.state(message) == "completed"
    assert [entry["stop_reason"] for entry in site.json("launches")] == ["empty"]


BLOCKS = code("launches-by-url.md", "python")
MAILS, *_ = code("producers.md", "python", "In a web site")
OF_THE_PAGE = """
import json, warnings
warnings.simplefilter("ignore")  # of the clients
from fastapi import FastAPI
from fastapi.testclient import TestClient
from flask import Flask

flask, fastapi, aws = {}, {}, {}
flask["site"], fastapi["site"] = Flask("site"), FastAPI()
for block, names in zip(BLOCKS, [flask, fastapi, None, aws]):
    if names is not None:
        exec(block, names)
given = {"Authorization": f"Bearer {TOKEN}"}
event = {"rawPath": "/launch", "requestContext": {"http": {"method": "POST"}}, "headers": given}
statuses = [
    flask["site"].test_client().post("/queue/launch").status_code,
    TestClient(fastapi["site"]).post("/queue/launch").status_code,
    aws["handler"](event, None)["statusCode"],
]
print(json.dumps(statuses))
"""


def test_the_code_of_the_page_answers_under_flask_fastapi_and_lambda(site: Site) -> None:
    (site.directory / "mails.py").write_text(MAILS)
    (site.directory / "config.toml").write_text('handlers = ["mails"]\n')
    program = f"BLOCKS, TOKEN = {BLOCKS!r}, {TOKEN!r}\n{OF_THE_PAGE}"
    output, errors = site.start_program([sys.executable, "-c", program]).communicate()
    assert (output, errors) == ("[401, 401, 200]\n", "")


LONG = """
from pathlib import Path
from pollconsumer import PollConsumer

app = PollConsumer()

def note(name: str) -> None:
    with open(Path(__file__).parent / "notes", "a") as notes:
        notes.write(f"{name}\\n")

app.handler("render", timeout="10m")(note)
app.handler("ship", timeout="10m", delivery="at_most_once")(note)
app.handler("default-limit", timeout="5m")(note)
app.handler("brief", timeout="50s")(note)
"""


def test_a_handler_is_not_begun_that_declares_more_than_a_launch_by_a_url_has(
    site: Site, capfd: pytest.CaptureFixture[Any]
) -> None:
    (site.directory / "handlers.py").write_text(LONG)
    kept = [site.enqueue(name, name=name) for name in ("render", "ship")]
    kept.append(site.enqueue("brief", "--timeout", "3m", name="a message's own"))
    for name in ("default-limit", "brief"):
        site.enqueue(name, name=name)
    answered = launched(site)
    assert (answered.status, json.loads(answered.body)["handled"], json.loads(answered.body)["failed"]) == (200, 2, 0)
    assert sorted(site.notes()) == ["brief", "default-limit"]
    errors = [site.json("status", each)["last_error"] for each in kept]
    assert [error.split(":")[1].split(" is ")[0] for error in errors] == [" timeout 10m", " timeout 10m", " timeout 3m"]
    assert [site.json("status", each)["attempts"] for each in kept] == [0, 0, 0]
    assert (
        "cannot start messages of ship: timeout 10m is longer than the 56s of a launch by a URL"
        in capfd.readouterr().err
    )
    assert sorted(site.json("check")["not_begun_by_url"]) == ["render", "ship"]
    site.environment.pop("POLLCONSUMER_WEB__TOKEN")
    assert site.json("check")["not_begun_by_url"] == {}
