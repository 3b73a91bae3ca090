"""The OpenAPI document is valid, and says what the endpoint does: its paths, methods, tokens and answers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import PollConsumer
from pollconsumer.core.messages.payloads import MAX_PAYLOAD_BYTES
from pollconsumer.web import LaunchEndpoint, launch_starter
from pollconsumer.web.launch_starter import RUNNING, UNFINISHED
from pollconsumer.web.web_exchange import WebAnswer, failure, json_answer
from tests.web.conftest import CONFIG, ENQUEUE_TOKEN, MANAGE_TOKEN, TOKEN, request_of, sending
from tests.web.openapi import openapi

if TYPE_CHECKING:
    from pathlib import Path

    from pollconsumer.web.web_exchange import WebRequest

DOCUMENT = openapi()
TOKENS = {"token": TOKEN, "enqueue_token": ENQUEUE_TOKEN, "manage_token": MANAGE_TOKEN}
OPERATIONS = [
    (method.upper(), path) for path, given in DOCUMENT["paths"].items() for method in given if method != "parameters"
]
PUT = {"handler": "backup", "every": "1h"}
Told = tuple[str, str, int]


@pytest.fixture(autouse=True)
def starts(monkeypatch: pytest.MonkeyPatch) -> list[WebAnswer]:
    """Answers of the next launches. No process is started."""
    found: list[WebAnswer] = []

    def start(*_: object, **__: object) -> WebAnswer:
        return found.pop(0) if found else RUNNING

    monkeypatch.setattr(launch_starter.LaunchStarter, "start", start)
    return found


def of(operation: tuple[str, str]) -> dict[str, Any]:
    method, path = operation
    found: dict[str, Any] = DOCUMENT["paths"][path][method.lower()]
    return found


def address(path: str) -> str:
    return path.replace("{id}", "a").replace("{name}", "a")


def test_the_document_is_valid() -> None:
    pytest.importorskip("openapi_spec_validator").validate(DOCUMENT)


def test_the_paths_are_those_that_the_endpoint_has(endpoint: LaunchEndpoint) -> None:
    said = json.loads(endpoint.answer(request_of("GET", "/")).body)["error"]
    named = {path.replace("{id}", "ID").replace("{name}", "NAME") for path in DOCUMENT["paths"]}
    assert {word.strip(",") for word in said.split() if word.startswith("/")} == named


@pytest.mark.parametrize("path", DOCUMENT["paths"])
def test_the_methods_of_a_path_are_those_that_are_allowed(endpoint: LaunchEndpoint, path: str) -> None:
    answered = endpoint.answer(request_of("TRACE", address(path)))
    assert dict(answered.headers())["Allow"].split(", ") == [method for method, of in OPERATIONS if of == path]


@pytest.mark.parametrize("operation", OPERATIONS, ids=" ".join)
def test_the_tokens_of_an_operation_are_those_that_are_accepted(
    endpoint: LaunchEndpoint, operation: tuple[str, str]
) -> None:
    method, path = operation
    documented = {name for each in of(operation)["security"] for name in each}
    answers = {name: endpoint.answer(sending(method, address(path), token, b"")) for name, token in TOKENS.items()}
    assert {name for name, answered in answers.items() if answered.status != 401} == documented


class Asker:
    """Asks an endpoint, and checks each answer by the schema that the document has for it."""

    def __init__(self, app: PollConsumer) -> None:
        self.endpoint, self.seen = LaunchEndpoint(app), set[Told]()

    def ask(self, request: WebRequest, path: str, status: int) -> Any:
        answered = self.endpoint.answer(request)
        said = json.loads(answered.body)
        assert (request.method, path, answered.status, said) == (request.method, path, status, said)
        schema = of((request.method, path))["responses"][str(status)]["content"]["application/json"]["schema"]
        jsonschema = pytest.importorskip("jsonschema")
        jsonschema.validate(said, schema | {"components": DOCUMENT["components"]})
        self.seen.add((request.method, path, status))
        return said

    def ask_any(self, operation: tuple[str, str], status: int, token: str | None = None) -> None:
        """Ask for an operation without minding what it does."""
        method, path = operation
        own = TOKENS[next(iter(of(operation)["security"][0]))]
        value = PUT if method == "PUT" else {"handler": "backup"}
        self.ask(sending(method, address(path), own if token is None else token, value), path, status)


def test_each_documented_answer_is_given_and_fits_its_schema(
    app: PollConsumer, config: Path, starts: list[WebAnswer]
) -> None:
    asker = Asker(app)
    starts += [json_answer(200, {"stop_reason": "empty", "handled": 3, "failed": 0}), RUNNING, UNFINISHED, UNFINISHED]
    starts += [failure(status, error="why", exit_code=1) for status in (500, 500, 503, 503)]
    for status in (200, 202, 500, 503):
        for operation in OPERATIONS[:2]:
            asker.ask_any(operation, status)

    one, item, again, named = "/messages", "/messages/{id}", "/messages/{id}/rerun", "/recurrences/{name}"
    asker.ask(sending("POST", one, ENQUEUE_TOKEN, {"handler": "backup", "id": "a", "at": 1893456000}), one, 202)
    asker.ask(sending("POST", one, ENQUEUE_TOKEN, {"handler": "backup", "id": "a", "payload": {"b": 1}}), one, 409)
    asker.ask(sending("POST", one, ENQUEUE_TOKEN, {"handler": "none"}), one, 400)
    for status in (202, 429):
        asker.ask(sending("POST", one, ENQUEUE_TOKEN, {"handler": "backup", "queue": "short"}), one, status)
    for token in (ENQUEUE_TOKEN, MANAGE_TOKEN):
        asker.ask(request_of("GET", "/messages/a", token), item, 200)
    later = {"handler": "backup", "queue": "short", "id": "later", "in": "1h"}
    asker.ask(sending("POST", one, ENQUEUE_TOKEN, later), one, 202)
    for waiting in ("a", "later"):
        asker.ask(request_of("POST", f"/messages/{waiting}/rerun", MANAGE_TOKEN), again, 409)
        asker.ask(request_of("DELETE", f"/messages/{waiting}", MANAGE_TOKEN), item, 200)
    for path, status in (("a", 200), ("later", 429), ("none", 404)):
        asker.ask(request_of("POST", f"/messages/{path}/rerun", MANAGE_TOKEN), again, status)
    asker.ask(request_of("POST", "/messages/a/rerun?queue=*", MANAGE_TOKEN), again, 400)
    for method in ("GET", "DELETE"):
        asker.ask(request_of(method, "/messages/none", MANAGE_TOKEN), item, 404)
        asker.ask(request_of(method, "/messages/a?queue=*", MANAGE_TOKEN), item, 400)
        asker.ask(request_of(method, "/recurrences/none", MANAGE_TOKEN), named, 404)

    asker.ask(sending("PUT", "/recurrences/r", MANAGE_TOKEN, PUT | {"until": 1893456000}), named, 200)
    asker.ask(request_of("GET", "/recurrences/r", MANAGE_TOKEN), named, 200)
    asker.ask(request_of("DELETE", "/recurrences/r", MANAGE_TOKEN), named, 200)
    asker.ask(sending("PUT", "/recurrences/r", MANAGE_TOKEN, {"handler": "backup"}), named, 400)
    for method, path, token in (("POST", one, ENQUEUE_TOKEN), ("PUT", named, MANAGE_TOKEN)):
        asker.ask(sending(method, address(path), token, b" " * (MAX_PAYLOAD_BYTES + 1)), path, 413)
        asker.ask(request_of(method, address(path), token, _cut), path, 408)
    _ask_for_conflicts(asker)

    away = Asker(PollConsumer(config=config, store="redis://127.0.0.1:1/0", patience=0.01))
    for operation in OPERATIONS:
        away.ask_any(operation, 401, "no-token-of-this-site")
        if operation[1] != "/launch":
            away.ask_any(operation, 503)
    for text, status in (("", 403), ("[web]\ntoken = 'short'", 500)):
        config.write_text(text)
        refusing = Asker(PollConsumer(config=config))
        for operation in OPERATIONS:
            refusing.ask_any(operation, status)
        away.seen |= refusing.seen

    documented = {
        (method, path, int(status)) for method, path in OPERATIONS for status in of((method, path))["responses"]
    }
    assert asker.seen | away.seen == documented


def _cut(_: int) -> bytes:
    raise ConnectionError


def _ask_for_conflicts(asker: Asker) -> None:
    from pollconsumer.core.errors import BadData

    class Taken:
        """A store whose states have changed."""

        def __getattr__(self, _: str) -> Any:
            raise BadData("cannot", "a", "it is reserved already")

    asker.endpoint._calls.ask = lambda question: question(Taken())  # type: ignore[method-assign, arg-type]  # noqa: SLF001
    asker.ask_any(("DELETE", "/messages/{id}"), 409)
    asker.ask_any(("PUT", "/recurrences/{name}"), 409)


def test_the_test_has_the_configuration_of_the_document() -> None:
    assert all(f'{name} = "{token}"' in CONFIG for name, token in TOKENS.items())
