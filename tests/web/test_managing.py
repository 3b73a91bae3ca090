"""Messages and recurrences that requests manage: the same calls as the shell's, and what is told of them."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pollconsumer import PollConsumer
from pollconsumer.core.messages.payloads import MAX_PAYLOAD_BYTES
from pollconsumer.store.audit_log import audit_of
from pollconsumer.web import LaunchEndpoint
from pollconsumer.web.launch_endpoint import PUT_KEYS
from tests.conftest import NAMESPACE
from tests.inner import calls_of
from tests.web.conftest import ENQUEUE_TOKEN, MANAGE_TOKEN, request_of, sending

if TYPE_CHECKING:
    from pathlib import Path

    from pollconsumer.store.audit_log import Intervention
    from tests.site import Site

HOURLY = {"handler": "report", "every": "1h", "payload": {"day": 1}}


@pytest.fixture
def app(app: PollConsumer) -> PollConsumer:
    @app.handler("report", queue="reports")
    def report(day: int) -> dict[str, int]:
        return {"rows": day}

    return app


def asked(endpoint: LaunchEndpoint, method: str, path: str, value: Any = None, token: str = MANAGE_TOKEN) -> Any:
    request = request_of(method, path, token) if value is None else sending(method, path, token, value)
    answered = endpoint.answer(request)
    return answered.status, json.loads(answered.body)


def noted(app: PollConsumer) -> list[Intervention]:
    return calls_of(app).ask(lambda store: audit_of(store.wire, NAMESPACE, 10))


# Messages


def test_a_message_that_waits_is_cancelled_and_the_audit_log_says_so(
    app: PollConsumer, endpoint: LaunchEndpoint
) -> None:
    message = app.enqueue("report", {"day": 1})
    cancelled = (200, {"id": message.id, "queue": "reports", "state": "cancelled"})
    assert [asked(endpoint, "DELETE", f"/messages/{message.id}") for _ in range(2)] == [cancelled, cancelled]
    assert message.state == "cancelled"
    [note] = noted(app)
    assert (note.who, note.what, note.queue, note.names) == ("web", "cancel", "reports", (message.id,))


def test_of_two_messages_of_one_id_the_queue_says_which(app: PollConsumer, endpoint: LaunchEndpoint) -> None:
    messages = [app.enqueue("report", {"day": 1}, queue=queue, id="a") for queue in ("one", "two")]
    for method in ("GET", "DELETE"):
        assert asked(endpoint, method, "/messages/a")[0] == 400
        assert asked(endpoint, method, "/messages/a?queue=two words")[0] == 400
        assert asked(endpoint, method, "/messages/a?queue=three")[0] == 404
        status, said = asked(endpoint, method, "/messages/a?queue=two")
        assert (status, said["queue"]) == (200, "two")
    assert [each.state for each in messages] == ["ready", "cancelled"]


def test_a_message_that_has_ended_runs_again(app: PollConsumer, endpoint: LaunchEndpoint) -> None:
    message = app.enqueue("report", {"day": 1}, created_by="ann")
    waits = asked(endpoint, "POST", f"/messages/{message.id}/rerun")
    error = f"cannot rerun: {message.id}; it is ready: the next launch of its queue handles it"
    assert waits == (409, {"error": error})
    message.cancel()
    status, said = asked(endpoint, "POST", f"/messages/{message.id}/rerun?queue=reports")
    assert (status, said) == (200, {"id": said["id"], "queue": "reports", "rerun_of": message.id})
    again = app.message(said["id"]).status()
    assert (again.state, again.payload, again.created_by) == ("ready", {"day": 1}, f"rerun of {message.id}")
    [note] = noted(app)
    assert (note.who, note.what, note.queue, note.names) == ("web", "rerun", "reports", (message.id,))
    assert asked(endpoint, "POST", "/messages/none/rerun")[0] == 404
    assert asked(endpoint, "GET", f"/messages/{message.id}/rerun")[0] == 405
    assert asked(endpoint, "POST", f"/messages/{message.id}/rerun", token=ENQUEUE_TOKEN)[0] == 401


def test_a_message_is_cancelled_in_the_name_of_no_person_where_a_program_does_it(app: PollConsumer) -> None:
    app.enqueue("report", {"day": 1}).cancel()
    assert noted(app) == []


# Recurrences


def test_a_recurrence_is_put_as_by_python_told_of_and_removed(app: PollConsumer, endpoint: LaunchEndpoint) -> None:
    put = HOURLY | {
        "first": "2030-01-31T09:00:00Z",
        "until": 1927530000,
        "times": 3,
        "created_by": "ann",
        "priority": 2,
    }
    status, stands = asked(endpoint, "PUT", "/recurrences/check:42", put)
    assert (status, stands["rule"], stands["queue"], stands["payload"]) == (200, "every 1h", "reports", {"day": 1})
    assert (stands["next"], stands["created_by"], stands["times"]) == ("2030-01-31T09:00:00.000Z", "ann", 3)
    rule = app.recurrences.get("check:42").recurrence
    assert rule is not None
    assert (rule.until, rule.at_run_time) == (datetime(2031, 1, 30, 9, tzinfo=UTC), True)
    assert asked(endpoint, "GET", "/recurrences/check:42") == (200, stands)
    assert asked(endpoint, "PUT", "/recurrences/check:42", put) == (200, stands)
    assert asked(endpoint, "DELETE", "/recurrences/check:42") == (200, {"name": "check:42", "removed": True})
    assert [*app.recurrences] == []
    assert asked(endpoint, "GET", "/recurrences/check:42")[0] == 404
    assert asked(endpoint, "DELETE", "/recurrences/check:42")[0] == 404
    did = [(note.who, note.what, note.names) for note in noted(app)]
    assert did == [("web", what, ("check:42",)) for what in ("remove", "put", "put")]


def test_putting_without_an_instant_begins_at_once(app: PollConsumer, endpoint: LaunchEndpoint) -> None:
    before = datetime.now(UTC)
    _, stands = asked(endpoint, "PUT", "/recurrences/n", {"handler": "backup", "cron": "0 9 * * *", "first": None})
    assert datetime.fromisoformat(stands["next"]).timestamp() >= before.timestamp() - 1
    [found] = app.recurrences
    assert (found.name, found.queue) == ("n", "default")


@pytest.mark.parametrize(
    ("name", "put", "said"),
    [
        ("n", b"", "must be JSON"),
        ("n", [], "must be a JSON object"),
        ("n", {"every": "1h"}, "handler; give one, as text"),
        ("n", HOURLY | {"handler": "reprot"}, "did you mean report?"),
        ("n", HOURLY | {"evry": "1h"}, "did you mean every?"),
        ("n", HOURLY | {"cron": "* * * * *"}, "give cron or every"),
        ("n", HOURLY | {"every": "soon"}, "every"),
        ("n", HOURLY | {"every": []}, "every"),
        ("n", HOURLY | {"first": "soon"}, "first: soon; write ISO 8601"),
        ("n", HOURLY | {"first": 60}, "first: 60; a number is seconds since the epoch"),
        ("n", HOURLY | {"until": "2030-01-31"}, "until: 2030-01-31; needs an offset or Z"),
        ("n", HOURLY | {"until": "now"}, "until: now; write ISO 8601"),
        ("n", HOURLY | {"times": 0}, "times"),
        ("n", HOURLY | {"payload": {"day": "first"}}, "arguments of report"),
        ("n", HOURLY | {"payload": []}, "payload"),
        ("n", HOURLY | {"name": "m"}, "unknown key"),
        ("a b", HOURLY, "recurrence name"),
        ("", HOURLY, "recurrence name"),
        ("x" * 101, HOURLY, "recurrence name"),
        ("\udc80", HOURLY, "recurrence name"),
    ],
    ids=repr,
)
def test_what_is_no_recurrence_is_refused(
    app: PollConsumer, endpoint: LaunchEndpoint, name: str, put: Any, said: str
) -> None:
    status, answered = asked(endpoint, "PUT", f"/recurrences/{name}", put)
    assert status == 400
    assert said in answered["error"]
    assert [*app.recurrences] == []


@pytest.mark.parametrize("name", ["", "a b", "%00", "x" * 10_000, "\udc80", "ä"])
@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_a_recurrence_that_is_not_there_is_not_found(endpoint: LaunchEndpoint, method: str, name: str) -> None:
    assert asked(endpoint, method, f"/recurrences/{name}")[0] == 404


def test_a_body_that_does_not_come_or_is_too_long_is_refused(endpoint: LaunchEndpoint) -> None:
    def cut(_: int) -> bytes:
        raise ConnectionError

    assert endpoint.answer(request_of("PUT", "/recurrences/n", MANAGE_TOKEN, cut)).status == 408
    too_long = sending("PUT", "/recurrences/n", MANAGE_TOKEN, b" " * (MAX_PAYLOAD_BYTES + 1))
    assert endpoint.answer(too_long).status == 413


def test_a_store_that_is_away_is_no_fault_of_who_manages(config: Path) -> None:
    away = PollConsumer(config=config, store="redis://127.0.0.1:1/0", patience=0.01)
    away.handler("report")(lambda day: day)
    for method, path in (("DELETE", "/messages/a"), ("GET", "/recurrences/n"), ("DELETE", "/recurrences/n")):
        assert asked(LaunchEndpoint(away), method, path)[0] == 503
    assert asked(LaunchEndpoint(away), "PUT", "/recurrences/n", HOURLY)[0] == 503


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["day", "x"]), inner),
    max_leaves=5,
)


@given(options=st.dictionaries(st.sampled_from([key for key in PUT_KEYS if key != "handler"]), VALUES, max_size=4))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_put_is_accepted_or_refused(endpoint: LaunchEndpoint, options: dict[str, Any]) -> None:
    given = {"every": "1h"} | options | {"handler": "backup"}
    assert asked(endpoint, "PUT", "/recurrences/n", given)[0] in (200, 400)


# As users have it

SERVER = """
from wsgiref.simple_server import make_server
from handlers import app
from pollconsumer.web import LaunchEndpoint
server = make_server("127.0.0.1", 0, LaunchEndpoint(app))
print(server.server_port, flush=True)
server.serve_forever()
"""
NIGHTLY = "[recurrences.nightly]\nhandler = 'record'\ncron = '30 2 * * *'\n"


@pytest.mark.crossing
def test_requests_manage_what_the_shell_sees(site: Site) -> None:
    with (site.directory / "config.toml").open("a") as config:
        config.write(f"[web]\nenqueue_token = '{ENQUEUE_TOKEN}'\nmanage_token = '{MANAGE_TOKEN}'\n{NIGHTLY}")
    with (site.directory / "handlers.py").open("a") as handlers:
        handlers.write("\n@app.handler\ndef double(n: int) -> int:\n    return 2 * n\n")
    completed, dead = site.enqueue("double", n=4), site.enqueue("fatal")
    assert site.drain().returncode == 0
    waiting = site.enqueue("record", "--in", "1h", name="later")
    server = site.start_program([sys.executable, "-c", SERVER])
    assert server.stdout is not None
    port = server.stdout.readline().strip()
    headers = {"Authorization": f"Bearer {MANAGE_TOKEN}"}
    with httpx.Client(base_url=f"http://127.0.0.1:{port}/", headers=headers, timeout=90) as client:
        for message_id in (completed, dead, waiting):
            told, shown = client.get(f"messages/{message_id}").json(), site.json("status", message_id)
            assert told == {name: shown[name] for name in told}
            assert {"last_error", "result", "timestamps", "payload"} - told.keys() == {"payload"}
        assert client.get(f"messages/{completed}").json()["result"] == 8
        assert client.get(f"messages/{dead}").json()["last_error"] == "Fatal: never again"
        sender = {"Authorization": f"Bearer {ENQUEUE_TOKEN}"}
        told = client.get(f"messages/{completed}", headers=sender).json()
        assert told.keys() == {"id", "queue", "handler", "state", "attempts"}

        refused = client.delete(f"messages/{completed}")
        error = f"cannot cancel: {completed}; it is completed already"
        assert (refused.status_code, refused.json()) == (409, {"error": error})
        assert client.delete(f"messages/{waiting}").json()["state"] == "cancelled"
        assert site.state(waiting) == "cancelled"

        hourly = {"handler": "record", "every": "1h", "payload": {"name": "x"}}
        taken = client.put("recurrences/nightly", json=hourly)
        assert (taken.status_code, "a configuration defines one" in taken.json()["error"]) == (409, True)
        stands = client.put("recurrences/check:7", json=hourly | {"first": "next", "created_by": "ann"}).json()
        assert [stands] == site.json("recurrences", "list", "--created-by", "ann")
        assert client.get("recurrences/check:7").json() == stands
        assert client.delete("recurrences/check:7").json() == {"name": "check:7", "removed": True}
        assert site.json("recurrences", "list", "--created-by", "ann") == []
    done = [(each["who"], each["what"], each["names"]) for each in site.json("audit")]
    assert done == [("web", "remove", ["check:7"]), ("web", "put", ["check:7"]), ("web", "cancel", [waiting])]
