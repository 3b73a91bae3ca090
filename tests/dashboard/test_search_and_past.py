"""The pages of a search, and of a day and a week."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pollconsumer.store.queues.redis_store import RedisStore
from tests.conftest import NAMESPACE
from tests.dashboard.pages import Document, browser, seen
from tests.dashboard.scenes import Scene, usual
from tests.store.acting import HOUR, Launch, die, finish, message

if TYPE_CHECKING:
    from pollconsumer.store.client.wire import Wire
    from tests.store.servers import Server


@pytest.fixture
def wire(valkey: Server) -> Wire:
    return valkey.wire()


def test_a_search_finds_the_messages_of_an_id_in_all_queues_and_handlers_by_a_part_of_their_names(wire: Wire) -> None:
    RedisStore(wire, NAMESPACE).enqueue([message("a", delay=HOUR), message("a", queue="reports"), message("b")])
    Scene(wire, NAMESPACE).durations(**{"Mail.send": 1.0, "report": 2.0})
    page = seen(browser(wire), "/search?q=+a+")
    assert [link for link in page.links() if link.startswith("message?")] == [
        "message?queue=mail&id=a",
        "message?queue=reports&id=a",
    ]
    assert [link for link in page.links() if link.startswith("handler?name=M")] == ["handler?name=Mail.send"]
    assert "Mail.send" in seen(browser(wire), "/search?q=mail").text


def test_a_search_finds_the_messages_with_a_header_by_state(wire: Wire) -> None:
    store = RedisStore(wire, NAMESPACE)
    seven = [
        message("a", headers={"customer": "7"}),
        message("b", headers={"customer": "7"}, queue="reports", delay=HOUR),
    ]
    others = [message("c", headers={"customer": "77"}), message("d", headers={"shop": "7"}), message("e")]
    store.enqueue([*seven, *others])
    page = seen(browser(wire), "/search?header=customer%3D7")
    assert [link for link in page.links() if link.startswith("message?")] == [
        "message?queue=reports&id=b",
        "message?queue=mail&id=a",
    ]
    assert [each["value"] for each in page.all("input") if each["name"] == "header"] == ["customer=7"]
    assert page.text.index("Scheduled") < page.text.index("Ready")


@pytest.mark.parametrize(
    ("address", "status", "said"),
    [
        ("/search", 200, "Messages with a header"),
        ("/search?header=customer%3D8", 200, "None with this header is among them"),
        ("/search?header=customer", 400, "header: customer; write NAME=VALUE"),
        ("/search?header=" + "x" * 1001, 404, "no header given"),
        ("/search?q=nobody", 200, "Give the whole id"),
        ("/search?q=<script>", 200, "<script>"),
        ("/search?q=+", 200, "Messages with a header"),
        ("/search?q=" + "x" * 1001, 404, "no text given"),
        ("/past?of=year", 404, "spans are: day, week"),
        ("/past", 404, "no such span"),
    ],
)
def test_a_search_for_nothing_and_another_time_are_told(address: str, status: int, said: str, wire: Wire) -> None:
    answer = browser(wire).get(address)
    assert answer.status_code == status
    assert said in Document(answer.text).text


def test_a_day_and_a_week_stand_beside_the_hour(wire: Wire) -> None:
    scene = Scene(wire, NAMESPACE, share=0.02)
    usual(scene)
    client = browser(wire)
    assert {"past?of=day", "past?of=week"} <= {*seen(client, "/").links()}
    for span in ("day", "week"):
        page = seen(client, f"/past?of={span}")
        pictures = [picture["aria-label"] for picture in page.all("svg")]
        assert pictures == [f"messages of the last {span}", f"launches of the last {span}"]
        assert "launches." in page.text
        assert sum(height > 0 for *_, height in page.boxes("work")) >= 2


def test_totals_count_each_outcome_of_a_handler_since_the_first_launch(wire: Wire) -> None:
    store = RedisStore(wire, NAMESPACE)
    store.enqueue([message(f"{n}") for n in range(3)])
    launch = Launch(store)
    first, second, third = launch.reserve(3)
    launch.settle(finish(first), finish(second), die(third))
    page = seen(browser(wire), "/past?of=day")
    assert "No launch in this time." in page.text
    row = page.text[page.text.index("other") :].split()
    assert row[row.index("handler") : row.index("handler") + 5] == ["handler", "2", "0", "1", "0"]
