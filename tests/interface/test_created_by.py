"""Who created a message: given by its producer, or by who put its recurrence; shown, and messages selected by it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import BadData, PollConsumer
from pollconsumer.core.messages.message import MAX_HEADERS_BYTES
from pollconsumer.core.recurrence import Recurrence
from pollconsumer.store.records.occurrences import record_of

if TYPE_CHECKING:
    from pollconsumer.testing import Sandbox
    from tests.site import Site


@pytest.fixture
def handling(app: PollConsumer) -> PollConsumer:
    app.handler("work")(lambda: None)
    return app


def test_the_creator_is_a_header_which_the_handler_has_too(handling: PollConsumer, sandbox: Sandbox) -> None:
    message = handling.enqueue("work", created_by="ada", headers={"a": "b"}).status()
    assert (message.created_by, dict(message.headers)) == ("ada", {"a": "b", "created-by": "ada"})
    assert handling.enqueue("work", headers={"created-by": "bob"}).status().created_by == "bob"
    assert handling.enqueue("work").status().created_by is None
    sandbox.run()
    assert [each.state for each in handling.messages(created_by="ada")] == ["completed"]


@pytest.mark.parametrize("who", ["", "x" * 201, "a\nb", 5, ["ada"], "\ud800"], ids=repr)
def test_what_is_no_name_is_refused(handling: PollConsumer, who: Any) -> None:
    with pytest.raises(BadData, match=r"created_by: .*; 1 to 200 printable characters"):
        handling.enqueue("work", created_by=who)
    with pytest.raises(BadData, match="created_by"):
        handling.messages(created_by=who)


def test_messages_are_selected_by_creator_and_header(handling: PollConsumer, sandbox: Sandbox) -> None:  # noqa: ARG001  the store
    for who, n in (("ada", "1"), ("ada", "2"), ("bob", "1")):
        handling.enqueue("work", created_by=who, headers={"n": n}, id=f"{who}:{n}")
    assert [each.id for each in handling.messages(created_by="ada")] == ["ada:1", "ada:2"]
    assert [each.id for each in handling.messages(created_by="ada", header={"n": "2"})] == ["ada:2"]
    assert [*handling.messages(created_by="nobody")] == []


def test_occurrences_are_created_by_who_put_their_recurrence(handling: PollConsumer, sandbox: Sandbox) -> None:
    handling.recurrences.put("n", handler="work", every="1h", created_by="ada", headers={"a": "b"})
    sandbox.run()
    [occurrence] = handling.recurrences.history("n")
    assert (occurrence.message.created_by, occurrence.message.headers["a"]) == ("ada", "b")
    handling.recurrences.put("m", handler="work", every="1h")
    assert handling.recurrences.trigger("m").status().created_by is None


@pytest.mark.parametrize(
    ("who", "headers"),
    [
        ("a\nb", {"a": "b"}),  # a header may not have it, while a recurrence may
        ("ada", {"a": "x" * (MAX_HEADERS_BYTES - 10)}),
        ("ada", {"created_by": "x"}),  # one variable of a program
    ],
)
def test_what_cannot_be_a_header_leaves_an_occurrence_as_it_is(who: str, headers: dict[str, str]) -> None:
    recurrence = Recurrence("n", "work", every=60.0, at_run_time=True, created_by=who, headers=headers)
    assert json.dumps({"headers": headers}, separators=(",", ":")).encode() in record_of(recurrence, 1)


def test_a_header_of_that_name_stands_before_who_put_the_recurrence() -> None:
    recurrence = Recurrence("n", "work", every=60.0, created_by="ada", headers={"created-by": "bob"})
    assert b'{"headers":{"created-by":"bob"}}' in record_of(recurrence, 1)


def test_the_shell_gives_shows_and_selects_it(site: Site) -> None:
    mine = site.enqueue("record", "--created-by", "ada", "--header", "n=1", name="a")
    line = {"handler": "record", "payload": {"name": "b"}, "created_by": "bob", "id": "b"}
    (site.directory / "lines").write_text(json.dumps(line))
    assert site.command("enqueue", "--ndjson", "lines").returncode == 0
    site.enqueue("record", name="c")
    assert site.json("status", mine)["created_by"] == "ada"
    shown = site.command("status", mine).stdout
    assert [row.split() for row in shown.splitlines() if "created" in row or "header" in row] == [
        ["header", "n:", "1"],
        ["created", "by", "ada"],
    ]
    assert [each["id"] for each in site.json("list", "--created-by", "ada", "--header", "n=1")] == [mine]
    assert site.json("list", "--created-by", "ada", "--header", "n=2") == []
    listed = site.command("list").stdout.splitlines()
    assert "created by" in listed[0]
    assert {row.split()[0] for row in listed if "bob" in row} == {"b"}
    assert "created by" not in site.command("list", "--recurrence", "none").stdout
    assert site.json("cancel", "--created-by", "bob", "--yes") == {"cancelled": 1, "left": []}
    dead = site.enqueue("fatal", "--created-by", "eve")
    site.drain()
    assert [each["id"] for each in site.json("dead", "list", "--created-by", "eve")] == [dead]
    assert site.json("dead", "redrive", "--created-by", "eve") == {"redriven": 1, "left": []}
