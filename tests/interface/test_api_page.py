"""The reference of the API: each name says what it is, each example runs, and nothing stale is hidden."""

from __future__ import annotations

import re
from contextlib import ExitStack
from typing import Any

import pytest

import pollconsumer
from pollconsumer import Batch, BulkContext, Context, Draft, Item, PollConsumer, dashboard, django, testing, web
from pollconsumer.core import errors
from pollconsumer.interface.api.registry import registry
from pollconsumer.testing import Sandbox
from tests.interface.api_examples import EXAMPLES
from tests.interface.api_page import BETWEEN_PACKAGES, GIVEN, api

MAIN = {
    *("PollConsumer", "Context", "Handle", "Backoff", "Fatal", "app.handler(…)", "app.messages(…)", "app.recurrences"),
    *("app.batch(…)", "app.chain(…)"),
    *("pollconsumer.testing.Sandbox", "pollconsumer.django.PollConsumerBackend", "pollconsumer.web.LaunchEndpoint"),
    "pollconsumer.dashboard.DashboardEndpoint",
}


def sections() -> dict[str, str]:
    return dict(re.findall(r"^### `([^`]+)`\n(.*?)(?=^##|\Z)", api(), re.MULTILINE | re.DOTALL))


def test_no_name_and_no_member_is_without_a_description() -> None:
    found = sections()
    assert [name for name, text in found.items() if not re.match(r"\n[\w`]", text)] == []
    assert [name for name, text in found.items() if re.search(r"^- `[^`]+`: *$", text, re.MULTILINE)] == []


class Met:
    """Objects that a program is given, by their names on the page."""

    def __init__(self, app: PollConsumer, sandbox: Sandbox) -> None:
        self.app, self.objects = app, dict[str, object]()

        @app.before_enqueue
        def draft(draft: Draft) -> None:
            self.objects["Draft"] = draft

        @app.handler
        def member(context: Context) -> int:
            given = {"Context": context, "Batch": context.batch, "context.previous": context.previous}
            self.objects |= {name: thing for name, thing in given.items() if thing is not None}
            context.progress(1, 2)
            return 1

        @app.handler
        def starts(context: Context) -> None:
            self.objects["Batch, started"] = context.start_batch("started")

        @app.handler(bulk=2)
        def bulk(messages: list[Item], context: BulkContext) -> None:
            self.objects |= {"Item": messages[0], "BulkContext": context}

        @app.every("1h")
        def hourly() -> None: ...

        with app.batch("b", ended=member.args()) as opened:
            opened.add(member.args())
        starts.enqueue(), bulk.enqueue(n=1)
        sent, chain = member.using(then=member.args()).enqueue(), app.chain(member.args(), member.args())
        link = chain.enqueue()
        sandbox.run(raising=True)
        app.recurrences.trigger("hourly")
        sandbox.run(raising=True)
        found = app.batches.get("b")
        (outcome,) = found.results()
        self.objects |= {
            "PollConsumer": app,
            "app.handler(…)": member,
            "app.handler(…).using(…)": member.using(),
            "app.handler(…).args(…)": member.args(),
            "app.messages(…)": app.messages(),
            "app.batch(…)": opened,
            "app.batches": app.batches,
            "app.batches.get(…)": found,
            "app.batches.get(…).status()": found.status(),
            "app.batches.get(…).cancel()": found.cancel(),
            "batch.results(), batch.failures()": outcome,
            "app.batches.get(…).status().callbacks": found.status().callbacks[0],
            "app.chain(…)": chain,
            "app.chain(…).enqueue()": link,
            "Handle": sent,
            "handle.status()": sent.status(),
            "handle.progress": sent.progress,
            "app.recurrences": app.recurrences,
            "app.recurrences.get(…)": app.recurrences.get("hourly"),
            "app.recurrences.history(…)": app.recurrences.history("hourly")[0],
        }


def test_completion_shows_of_each_object_what_the_page_says_and_nothing_else(
    app: PollConsumer, sandbox: Sandbox
) -> None:
    found, met = sections(), Met(app, sandbox).objects
    batch = _named(found["Batch"])
    for name, thing in met.items():
        page = _named(found[name.removesuffix(", started")]) | BETWEEN_PACKAGES.get(name, set())
        if isinstance(thing, Batch):
            page |= batch
        assert {each for each in dir(thing) if each[0] != "_" and each not in dir(tuple)} == page - {*dir(tuple)}, name
    hidden = {name for name in met if name in BETWEEN_PACKAGES}
    assert hidden == {"app.recurrences.get(…)", "handle.status()"}


def _named(section: str) -> set[str]:
    """The members that a section names."""
    return {*re.findall(r"^- `([a-z]\w*)", section, re.MULTILINE)}


def test_a_member_that_is_hidden_is_there() -> None:
    kinds: dict[str, Any] = {**GIVEN, **{name: getattr(pollconsumer, name) for name in pollconsumer.__all__}}
    kinds |= {f"pollconsumer.testing.{name}": getattr(testing, name) for name in testing.__all__}
    kinds |= {f"pollconsumer.django.{name}": getattr(django, name) for name in django.__all__}
    kinds |= {f"pollconsumer.web.{name}": getattr(web, name) for name in web.__all__}
    kinds |= {f"pollconsumer.dashboard.{name}": getattr(dashboard, name) for name in dashboard.__all__}
    for name, hidden in BETWEEN_PACKAGES.items():
        assert hidden <= _members(kinds[name]), name


def _members(kind: type) -> set[str]:
    """All that objects of the class have, by the names in its `__init__`, too."""
    made = [getattr(vars(base).get("__init__"), "__code__", None) for base in kind.__mro__]
    assigned = {name for code in made if code is not None for name in code.co_names}
    return {*dir(kind), *assigned, *kind.__annotations__}


def test_each_error_that_the_page_names_can_be_imported() -> None:
    kinds = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}
    assert kinds & {*re.findall(r"\w+", api())} <= {*pollconsumer.__all__}


def test_each_main_name_has_an_example() -> None:
    assert MAIN <= {*EXAMPLES} <= {*sections()}


@pytest.mark.parametrize("name", EXAMPLES)
def test_each_example_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POLLCONSUMER_CONFIG", raising=False)
    code = compile(EXAMPLES[name].strip(), name, "exec")
    with registry.afresh(), ExitStack() as stack:
        if "Sandbox(" in EXAMPLES[name]:
            exec(code, {"__name__": "example"})
            return
        sandbox = stack.enter_context(Sandbox())
        exec(code, {"__name__": "example"})
        assert sandbox.run().failed == 0


def test_the_package_lists_its_public_names_and_no_other() -> None:
    listed = {name for name in dir(pollconsumer) if not name.startswith("__")}
    assert listed == set(pollconsumer.__all__)
    assert "__version__" in dir(pollconsumer)
