"""Pages of batches: a queue's, and one with its callbacks and dead members; what can be done there."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest

from pollconsumer.dashboard.files import write_pages
from pollconsumer.dashboard.page_actions import SWEEP_WITHIN
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.reading.batch_reader import PER_CHUNK
from tests.conftest import NAMESPACE
from tests.dashboard.batch_scene import SIDE, a_batch
from tests.dashboard.pages import Document, acting, admitted, browser, reading, seen
from tests.store.acting import QUEUE, Launch, die
from tests.store.batching import HOME, OTHER, OneBatch, member, new_batch

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.testclient import TestClient

    from pollconsumer.store.client.wire import Wire
    from tests.store.servers import Server

BATCH = f"batch?queue={HOME}&id=b"


@pytest.fixture
def wire(valkey: Server) -> Wire:
    return valkey.wire()


@pytest.fixture
def batch(wire: Wire) -> OneBatch:
    return a_batch(wire)


def kinds(page: Document) -> set[str]:
    return {link.partition("?")[0] for link in page.links()}


def press(client: TestClient, what: str) -> Document:
    """Press a button of the batch's page. Returns the page that follows."""
    form = next(form for form in seen(client, BATCH).forms() if form["what"] == what)
    answer = client.post("/act", data=form)
    assert answer.status_code == 303
    return seen(client, answer.headers["location"])


@pytest.mark.usefixtures("batch")
def test_a_queue_leads_to_its_batches_and_these_show_how_far_they_are(wire: Wire) -> None:
    client = browser(wire)
    address = next(link for link in seen(client, f"queue?name={HOME}").links() if link.startswith("batches"))
    page = seen(client, address)
    assert "1 of 4 completed" in page.text
    assert page.all("progress") == [{"max": "4", "value": "1"}]
    assert f"{BATCH}&first=0" in page.links()
    assert "batches" not in kinds(seen(client, f"queue?name={SIDE}"))


@pytest.mark.usefixtures("batch")
def test_the_page_of_a_batch_has_its_counts_its_callbacks_and_its_dead_members(wire: Wire) -> None:
    page = seen(browser(wire), BATCH)
    words = " ".join(page.text.split())
    for text in ("closed", "total4 outstanding2 completed1 dead1", "waiting"):
        assert text.replace(" ", "") in words.replace(" ", "")
    assert f"message?queue={SIDE}&id=b.1" in page.links()
    assert f"message?queue={HOME}&id=b%3Afailed" in page.links()
    assert page.forms() == []


def test_members_and_callbacks_lead_to_their_batch_while_it_is_kept(wire: Wire, batch: OneBatch) -> None:
    client = browser(wire)
    for address in (f"message?queue={SIDE}&id=b.1", f"message?queue={HOME}&id=b:failed"):
        assert f"{BATCH}&first=0" in seen(client, address).links()
    wire.command("HDEL", batch.store.keys.queue(HOME, "batches"), "b")
    assert "batch" not in kinds(seen(client, f"message?queue={SIDE}&id=b.1"))
    assert client.get(BATCH).status_code == 404


def test_dead_members_return_to_their_queues(wire: Wire, batch: OneBatch) -> None:
    page = press(admitted(wire), "redrive_batch")
    assert "1 member redriven." in page.text
    assert [form["what"] for form in page.forms()] == ["redrive_batch", "cancel_batch"]
    assert f"message?queue={SIDE}&id=b.1" not in page.links()
    assert [each.id for each in Launch(batch.store, queue=SIDE).reserve()] == [b"b.1"]


@pytest.mark.usefixtures("batch")
def test_outstanding_members_are_cancelled_and_those_in_hand_are_asked_to_stop(wire: Wire) -> None:
    assert "1 member cancelled, 1 asked to stop." in press(admitted(wire), "cancel_batch").text
    assert reading(wire).message("b.3", OTHER).message.state == "cancelled"
    assert reading(wire).message("b.2", SIDE).message.stop_asked_at is not None


def test_many_batches_and_many_dead_members_are_shown_in_parts(wire: Wire) -> None:
    batch = OneBatch(RedisStore(wire, NAMESPACE))
    for number in range(60):
        batch.batches.open(new_batch(f"b{number}"))
    batch.add(*(member(number) for number in range(700)))
    batch.close(700)
    launch = batch.launches[QUEUE]
    reserved = [each for _ in range(7) for each in launch.reserve(100)]
    launch.settle(*(die(each) for each in reserved[:70]))
    launch.settle(die(reserved[-1]))
    batch.send()
    pages = reading(wire)
    parts = [pages.batches(HOME, skip).batches for skip in (0, 50, 100)]
    assert [len(part) for part in parts] == [50, 11, 0]
    assert len({each.id for part in parts for each in part}) == 61
    first = pages.batch(HOME, "b")
    assert (len(first.dead), first.after) == (50, 50)
    second = pages.batch(HOME, "b", 50)
    assert ([each.id for each in second.dead[19:]], second.after) == (["b.69", "b.699"], None)
    assert f"{BATCH}&first=50" in seen(browser(wire), BATCH).links()


def test_dead_members_of_an_open_batch_are_shown_after_many_that_are_not(wire: Wire) -> None:
    batch = OneBatch(RedisStore(wire, NAMESPACE))
    batch.add(*(member(number) for number in range(PER_CHUNK + 1)))
    launch = batch.launches[QUEUE]
    *_, last = (each for _ in range(6) for each in launch.reserve(100))
    launch.settle(die(last))
    batch.send()
    assert [each.id for each in reading(wire).batch(HOME, "b").dead] == [f"b.{PER_CHUNK}"]


def test_an_action_on_a_large_batch_ends_in_time_and_says_that_there_is_more(wire: Wire) -> None:
    batch = OneBatch(RedisStore(wire, NAMESPACE))
    batch.add(*(member(number) for number in range(1, 4 * PER_CHUNK, PER_CHUNK)))
    batch.close(4 * PER_CHUNK)
    form = {"what": "cancel_batch", "queue": HOME, "id": "b"}
    clock = count(0.0, SWEEP_WITHIN / 3)
    acts = acting(wire, clock=lambda: next(clock))
    *_, said = acts.act(form)
    assert said == "3 members cancelled; that took 20 s: press the button again for the rest"


@pytest.mark.usefixtures("batch")
def test_batches_have_files_to_which_links_lead(wire: Wire, tmp_path: Path) -> None:
    write_pages(reading(wire), tmp_path / "a")

    def links(name: str) -> list[str]:
        return Document((tmp_path / "a" / name).read_text("utf-8")).links()

    assert "batches-home.html" in links("queue-home~ready.html")
    assert "batch-home~b.html" in links("batches-home.html")
    dead = next(link for link in links("batch-home~b.html") if link == "message-side~b.1.html")
    assert "batch-home~b.html" in links(dead)


def test_a_hostile_id_is_shown_and_does_nothing(wire: Wire) -> None:
    hostile = "</title><script>alert('x')</script>\"onmouseover=\"x"
    OneBatch(RedisStore(wire, NAMESPACE)).batches.open(new_batch(hostile, total=1))
    client = admitted(wire)
    listed = seen(client, f"batches?queue={HOME}")
    address = next(link for link in listed.links() if "script" in link)
    for page in (listed, seen(client, address)):
        assert hostile in page.text
        assert page.all("script") == []
        assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)
