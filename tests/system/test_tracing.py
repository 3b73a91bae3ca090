"""The code of docs/hooks.md for tracing, with the real SDKs: a trace goes on from a producer to its handler."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.site import Site

PAGE = (Path(__file__).parents[2] / "docs" / "hooks.md").read_text("utf-8").partition("## Tracing")[2]
OTEL, SENTRY = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
BOTH = """
import atexit, json, os
from pathlib import Path

told = []

@atexit.register
def keep():
    with (Path(__file__).parent / "told").open("a") as file:
        file.writelines(json.dumps(each) + "\\n" for each in told)
"""
HANDLERS = """
from pollconsumer import Backoff

@app.handler
def work():
    {inner}

@app.handler(max_attempts=2, retry=Backoff(first="10ms", factor=1, most="10ms"))
def fail():
    raise ValueError("not so")

import threading
both = threading.Barrier(2)

@app.handler(max_attempts=1)
def together(fails: bool):
    both.wait(30)
    if fails:
        raise ValueError("one of two")
"""
OTEL_SETUP = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

tracer = trace.get_tracer("work")
exporter, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
atexit.register(lambda: told.extend(json.loads(span.to_json()) for span in exporter.get_finished_spans()))
"""
OTEL_INNER = 'with tracer.start_as_current_span("inner"): pass'
OTEL_SENDING = """
with tracer.start_as_current_span("request"):
    work.enqueue()
    fail.enqueue()
"""
SENTRY_SETUP = """
import sentry_sdk
from sentry_sdk.transport import Transport

class InMemory(Transport):
    def capture_envelope(self, envelope):
        told.extend(item.payload.json for item in envelope.items if item.type in ("event", "transaction"))

sentry_sdk.init("https://key@sentry.invalid/1", transport=InMemory, traces_sample_rate=1.0)
"""
SENTRY_INNER = 'with sentry_sdk.start_span(name="inner"): pass'
SENTRY_SENDING = """
with sentry_sdk.start_transaction(name="request"):
    work.enqueue()
    fail.enqueue()
"""
LONG = "sentry-a=" + "x" * 3000 + ",sentry-b=" + "y" * 3000
OTEL_FROM_CLIENT = f"""
from opentelemetry import context, propagate
with tracer.start_as_current_span("request"):
    context.attach(propagate.extract({{"baggage": "{LONG}"}}, context.get_current()))
    app.enqueue("work", id="work")
"""
SENTRY_FROM_CLIENT = f"""
trace = "0af7651916cd43dd8448eb211c80319c"
client = {{"sentry-trace": trace + "-b7ad6b7169203331-1", "baggage": f"sentry-trace_id={{trace}},{LONG}"}}
with sentry_sdk.start_transaction(sentry_sdk.continue_trace(client, name="request")):
    app.enqueue("work", id="work")
"""
IN_BOTH_QUEUES = """
app.enqueue("together", {"fails": True}, id="same")
app.enqueue("together", {"fails": False}, id="same", queue="other")
"""


def told(site: Site, setup: str, recipe: str, inner: str, sending: str, *options: str) -> list[dict[str, Any]]:
    """What the SDK sent of a program that sends two messages, and of the launches that handle them."""
    (site.directory / "work.py").write_text(f"{BOTH}{setup}{recipe}{HANDLERS.format(inner=inner)}")
    (site.directory / "config.toml").write_text('handlers = ["work"]\n[consumer]\nqueues = ["default", "other"]\n')
    producer = site.start_program(
        [sys.executable, "-c", f"import sys; sys.path[:0] = ['.']; from work import *{sending}"]
    )
    assert producer.communicate() == ("", "")
    done = site.drain("--linger", "1s", *options)
    assert done.returncode == 0
    assert "hook" not in done.stderr
    return [json.loads(line) for line in (site.directory / "told").read_text().splitlines()]


@pytest.fixture(scope="module", autouse=True)
def sdks() -> None:
    for name in ("opentelemetry.sdk", "sentry_sdk"):
        pytest.importorskip(name)


def test_spans_of_opentelemetry_go_on_in_the_handler_and_record_its_failures(site: Site) -> None:
    spans = told(site, OTEL_SETUP, OTEL, OTEL_INNER, OTEL_SENDING)
    assert len({span["context"]["trace_id"] for span in spans}) == 1
    (request,) = (span for span in spans if span["name"] == "request")
    (work,) = (span for span in spans if span["name"] == "work default")
    (inner,) = (span for span in spans if span["name"] == "inner")
    failed = [span for span in spans if span["name"] == "fail default"]
    assert inner["parent_id"] == work["context"]["span_id"]
    assert {span["parent_id"] for span in (work, *failed)} == {request["context"]["span_id"]}
    assert (work["kind"], work["status"]["status_code"]) == ("SpanKind.CONSUMER", "UNSET")
    assert [span["attributes"]["pollconsumer.attempt"] for span in failed] == [1, 2]
    assert [link["context"]["span_id"] for link in work["links"]] == [request["context"]["span_id"]]
    named = {name: value for name, value in work["attributes"].items() if not name.endswith((".id", ".attempt"))}
    assert named == {
        "messaging.system": "pollconsumer",
        "messaging.operation.type": "process",
        "messaging.operation.name": "work",
        "messaging.destination.name": "default",
    }
    assert {span["attributes"]["error.type"] for span in failed} == {"ValueError"}
    assert {span["status"]["status_code"] for span in failed} == {"ERROR"}
    assert {span["events"][0]["attributes"]["exception.message"] for span in failed} == {"not so"}


def test_transactions_and_errors_of_sentry_have_the_trace_of_the_producer(site: Site) -> None:
    events = told(site, SENTRY_SETUP, SENTRY, SENTRY_INNER, SENTRY_SENDING)
    assert len({event["contexts"]["trace"]["trace_id"] for event in events}) == 1
    (request,) = (event for event in events if event.get("transaction") == "request")
    (work,) = (event for event in events if event.get("transaction") == "work")
    failed = [event for event in events if event.get("type") == "transaction" and event["transaction"] == "fail"]
    errors = [event for event in events if "exception" in event]
    assert [span["description"] for span in work["spans"]] == ["inner"]
    parents = {event["contexts"]["trace"]["parent_span_id"] for event in (work, *failed)}
    assert parents == {request["contexts"]["trace"]["span_id"]}
    assert [event["contexts"]["trace"]["status"] for event in failed] == ["internal_error"] * 2
    assert [event["exception"]["values"][0]["value"] for event in errors] == ["not so"] * 2
    assert {event["tags"]["message"] for event in errors} == {event["tags"]["message"] for event in failed}
    assert work["tags"]["message"] not in {event["tags"]["message"] for event in errors}


@pytest.mark.parametrize(
    ("setup", "recipe", "inner", "sending", "name"),
    [
        (OTEL_SETUP, OTEL, OTEL_INNER, OTEL_FROM_CLIENT, "traceparent"),
        (SENTRY_SETUP, SENTRY, SENTRY_INNER, SENTRY_FROM_CLIENT, "sentry-trace"),
    ],
)
def test_a_clients_baggage_however_long_refuses_no_message(
    site: Site, setup: str, recipe: str, inner: str, sending: str, name: str
) -> None:
    told(site, setup, recipe, inner, sending)
    message = site.json("status", "work")
    assert (message["state"], [*message["headers"]]) == ("completed", [name])


def test_messages_of_two_queues_with_one_id_have_spans_of_their_own(site: Site) -> None:
    spans = told(site, OTEL_SETUP, OTEL, OTEL_INNER, IN_BOTH_QUEUES, "--concurrency", "2")
    ended = {span["name"]: (span["status"]["status_code"], [*span["attributes"]][-1]) for span in spans}
    assert ended == {
        "together default": ("ERROR", "error.type"),
        "together other": ("UNSET", "pollconsumer.attempt"),
    }


def test_messages_of_two_queues_with_one_id_have_transactions_of_their_own(site: Site) -> None:
    events = told(site, SENTRY_SETUP, SENTRY, SENTRY_INNER, IN_BOTH_QUEUES, "--concurrency", "2")
    traces = [event["contexts"]["trace"] for event in events if event.get("type") == "transaction"]
    ended = {trace["data"]["messaging.destination.name"]: trace.get("status") for trace in traces}
    assert ended == {"default": "internal_error", "other": None}


def test_what_was_never_sent_with_a_trace_has_a_span_of_its_own_trace_and_no_link(site: Site) -> None:
    spans = told(site, OTEL_SETUP, OTEL, OTEL_INNER, "\nwork.enqueue()")
    (work,) = (span for span in spans if span["name"] == "work default")
    assert (work["parent_id"], work["links"]) == (None, [])


@pytest.mark.parametrize(("wing", "package"), [("otel", "opentelemetry"), ("sentry", "sentry_sdk")])
def test_an_extra_that_is_not_installed_is_named(site: Site, wing: str, package: str) -> None:
    script = f"import sys; sys.modules[{package!r}] = None\nimport pollconsumer.{wing}"
    output, errors = site.start_program([sys.executable, "-c", script]).communicate()
    assert errors.splitlines()[-1].endswith(f"is not installed here: pip install 'pollconsumer[{wing}]'")
    assert output == ""
