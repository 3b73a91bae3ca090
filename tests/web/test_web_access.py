"""Who is refused, and how: before a process is started, a body read, or the store asked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.web import launch_starter
from pollconsumer.web.web_exchange import WebAnswer, json_answer
from tests.inner import calls_of
from tests.web.conftest import ENQUEUE_TOKEN, MANAGE_TOKEN, TOKEN, request_of

if TYPE_CHECKING:
    from pollconsumer import PollConsumer
    from pollconsumer.web import LaunchEndpoint

SENDING = [("POST", "/messages"), ("GET", "/messages/a")]
MANAGING = [
    *(("GET", "/messages/a"), ("DELETE", "/messages/a")),
    *((method, "/recurrences/a") for method in ("GET", "PUT", "DELETE")),
]
ROUTES = [("POST", "/launch"), ("GET", "/launch"), *SENDING, *MANAGING[1:]]


@pytest.fixture(autouse=True)
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry for each launch. No process is started."""
    found: list[str] = []

    def start(_: Any, within: float, *, by_producer: bool) -> WebAnswer:  # noqa: ARG001  its signature
        found.append(f"within {within}")
        return json_answer(200, {})

    monkeypatch.setattr(launch_starter.LaunchStarter, "start", start)
    return found


@pytest.mark.matrix
@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize(
    "given",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong-token-of-them",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN}x",
        f"Basic {TOKEN}",
        TOKEN,
        f"Bearer {TOKEN.upper()}",
        "Bearer tökén-öf-láunches",
        "Bearer \udce9\udc00",
        f"Bearer {TOKEN}\0",
        "Bearer " + "x" * 100_000,
    ],
    ids=repr,
)
def test_a_request_without_its_token_is_refused(
    endpoint: LaunchEndpoint, started: list[str], method: str, path: str, given: str | None
) -> None:
    request = request_of(method, path) if given is None else request_of(method, path, authorization=given)
    answered = endpoint.answer(request)
    assert answered.status == 401
    assert ("WWW-Authenticate", "Bearer") in answered.headers()
    assert not started
    for secret in (TOKEN, ENQUEUE_TOKEN, MANAGE_TOKEN):
        assert secret.encode() not in answered.body


@pytest.mark.matrix
@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_the_token_of_the_other_kind_of_request_is_refused(
    endpoint: LaunchEndpoint, started: list[str], method: str, path: str
) -> None:
    others = {
        TOKEN: path == "/launch",
        ENQUEUE_TOKEN: (method, path) in SENDING,
        MANAGE_TOKEN: (method, path) in MANAGING,
    }
    for other in (token for token, is_taken in others.items() if not is_taken):
        assert endpoint.answer(request_of(method, path, other)).status == 401
    assert not started


@pytest.mark.parametrize("unset", ["enqueue_token", "manage_token"])
def test_the_state_of_a_message_is_told_for_either_token_though_the_other_is_unset(
    endpoint: LaunchEndpoint, config: Path, unset: str
) -> None:
    config.write_text("\n".join(line for line in config.read_text().splitlines() if unset not in line))
    tokens = {"enqueue_token": ENQUEUE_TOKEN, "manage_token": MANAGE_TOKEN}
    for name, token in tokens.items():
        status = endpoint.answer(request_of("GET", "/messages/a", token)).status
        assert status == (401 if name == unset else 404)


@pytest.mark.matrix
@pytest.mark.parametrize(("method", "path"), ROUTES)
@pytest.mark.parametrize("token", ["", "None", TOKEN, MANAGE_TOKEN])
def test_where_no_token_is_set_every_request_is_refused(
    app: PollConsumer, endpoint: LaunchEndpoint, config: Path, started: list[str], method: str, path: str, token: str
) -> None:
    config.write_text("")
    answered = endpoint.answer(request_of(method, path, token))
    assert answered.status == 403
    assert b"unset" in answered.body
    assert not started
    assert calls_of(app).settings().web.token is None


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_scheme_may_be_written_in_any_case(endpoint: LaunchEndpoint, started: list[str], scheme: str) -> None:
    assert endpoint.answer(request_of("POST", "/launch", authorization=f"{scheme} {TOKEN}")).status == 200
    assert started == ["within inf"]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        *((verb, "/launch", "GET, POST") for verb in ("PUT", "DELETE", "HEAD", "OPTIONS", "post", "")),
        *((verb, "/messages", "POST") for verb in ("GET", "PUT", "HEAD")),
        *((verb, "/messages/a", "GET, DELETE") for verb in ("POST", "PUT", "HEAD")),
        *((verb, "/recurrences/a", "GET, PUT, DELETE") for verb in ("POST", "PATCH", "HEAD")),
    ],
)
def test_a_verb_that_a_path_does_not_have_is_refused(
    endpoint: LaunchEndpoint, started: list[str], method: str, path: str, allowed: str
) -> None:
    answered = endpoint.answer(request_of(method, path, TOKEN if path == "/launch" else ENQUEUE_TOKEN))
    assert (answered.status, answered.further) == (405, (("Allow", allowed),))
    assert not started


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/launch/",
        "/launches",
        "launch/x",
        "/Launch",
        "/launch%00",
        "/.env",
        "//",
        "/recurrences",
        "/recurrences/a/b",
    ],
)
def test_there_are_no_other_paths(endpoint: LaunchEndpoint, started: list[str], path: str) -> None:
    assert endpoint.answer(request_of("POST", path, TOKEN)).status == 404
    assert not started


@pytest.mark.parametrize("path", ["/launch", "/api/launch", "/stage/queue/launch", "launch"])
def test_the_paths_may_stand_below_any_other(endpoint: LaunchEndpoint, started: list[str], path: str) -> None:
    assert endpoint.answer(request_of("GET", path, TOKEN)).status == 200
    assert len(started) == 1


@pytest.mark.parametrize(
    ("where", "sent", "status"),
    [
        (None, "true", 401),  # anybody may send it
        ("", "true", 401),
        ("flex", "true", 401),
        ("not-standard", "true", 401),
        ("standard", "true", 200),
        ("standard_second", "true", 200),
        ("standard", "false", 401),
        ("standard", "", 401),
    ],
)
def test_the_header_of_app_engines_cron_counts_only_where_others_cannot_send_it(
    endpoint: LaunchEndpoint, monkeypatch: pytest.MonkeyPatch, where: str | None, sent: str, status: int
) -> None:
    if where is not None:
        monkeypatch.setenv("GAE_ENV", where)
    assert endpoint.answer(request_of("GET", "/launch", x_appengine_cron=sent)).status == status
    assert endpoint.answer(request_of("GET", "/messages/a", x_appengine_cron=sent)).status == 401


def test_app_engine_needs_no_token(
    endpoint: LaunchEndpoint, config: Path, monkeypatch: pytest.MonkeyPatch, started: list[str]
) -> None:
    config.write_text("")
    monkeypatch.setenv("GAE_ENV", "standard")
    assert endpoint.answer(request_of("GET", "/launch", x_appengine_cron="true")).status == 200
    assert endpoint.answer(request_of("GET", "/launch")).status == 403
    assert len(started) == 1
