"""A handler that waits for another message ends in its launch, whether that message can be handled meanwhile or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.site import Site, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

HANDLERS = """
RETRY = {"retry": Backoff(first="1h", most="1h")}

@app.handler
def child(n: int) -> int:
    return n + 1

def awaited(queue: str | None):
    handle = child.using(queue=queue).enqueue(n=1)
    note(f"waits for {handle.id}")
    return handle.wait()

@app.handler(**RETRY)
def plain(queue: str | None = None) -> int:
    return awaited(queue)

@app.handler(**RETRY)
async def awaiting(queue: str | None = None) -> int:
    handle = await child.using(queue=queue).enqueue_async(n=1)
    note(f"waits for {handle.id}")
    return await handle.wait_async()

@app.handler(isolation="process", **RETRY)
def isolated(queue: str | None = None) -> int:
    return awaited(queue)

@app.handler(isolation="process", **RETRY)
def dies() -> None:
    from pollconsumer.runtime.handling import slot_waits
    slot_waits.of_process.begin()
    os._exit(9)

@app.handler(**RETRY)
def after(message: str) -> bool:
    from pollconsumer.runtime.handling import slot_waits
    while app.message(message).state != "scheduled":
        time.sleep(0.01)
    waits = slot_waits.of_process
    return waits.may_be_stuck(waits.begin(), "default", "a third one")
"""
KINDS = pytest.mark.parametrize("handler", ["plain", "awaiting", "isolated"])


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site('[consumer]\nmin_margin = "100ms"\nestimated_duration = "1ms"\n')
    with (site.directory / "handlers.py").open("a") as handlers:
        handlers.write(HANDLERS)
    yield site
    site.close()


def awaited_by(site: Site) -> list[str]:
    return [note.split()[-1] for note in site.notes() if note.startswith("waits for")]


@KINDS
def test_a_handler_in_the_only_slot_fails_at_once_and_the_message_that_it_waits_for_is_handled(
    site: Site, handler: str
) -> None:
    message = site.enqueue(handler)
    assert site.drain("--timeout", "10m").returncode == 0
    (awaited,) = awaited_by(site)
    found = site.json("status", message)
    assert (found["state"], found["attempts"]) == ("scheduled", 1)
    assert found["last_error"].startswith(f"WaitRefused: cannot wait for message: {awaited} of queue default")
    assert "consumer.concurrency" in found["last_error"]
    assert site.state(awaited) == "completed"


@pytest.mark.parametrize(
    "handlers", [["plain"] * 3, ["awaiting"] * 3, ["isolated"] * 3, ["plain", "awaiting", "isolated"]], ids="-".join
)
def test_of_several_that_wait_in_all_slots_one_fails_and_the_others_get_their_results(
    site: Site, handlers: list[str]
) -> None:
    messages = [site.enqueue(handler) for handler in handlers]
    assert site.drain("--concurrency", "3", "--timeout", "10m").returncode == 0
    found = [site.json("status", message) for message in messages]
    ends = sorted((each["state"], each["attempts"], each["result"]) for each in found)
    assert ends == [("completed", 1, 2), ("completed", 1, 2), ("scheduled", 1, None)]


def test_a_wait_whose_process_died_keeps_no_other_one_from_its_result(site: Site) -> None:
    died = site.enqueue("dies")
    later = site.enqueue("after", message=died)
    assert site.drain("--queue", "default", "--concurrency", "2", "--timeout", "10m").returncode == 0
    assert site.json("status", later)["result"] is False
    assert site.json("status", died)["last_error"].startswith("ProcessDied: ")


@KINDS
def test_a_handler_waits_for_a_message_that_another_launch_can_handle(site: Site, handler: str) -> None:
    message = site.enqueue(handler, queue="apart")
    other = site.start("run", "--queue", "apart", "--timeout", "10m")
    wait_until(lambda: other.pid in site.holders(), "the other launch")
    assert site.drain("--queue", "default", "--queue", "apart", "--timeout", "10m").returncode == 0
    assert site.json("status", message)["result"] == 2
    other.terminate()
    assert other.wait(90) == 0


@KINDS
def test_a_wait_ends_with_the_limit_of_its_handler_where_nobody_handles_the_message(site: Site, handler: str) -> None:
    message = site.enqueue(handler, queue="apart")
    assert site.outlast("waits for", "--queue", "default").returncode == 0
    found = site.json("status", message)
    assert (found["state"], found["attempts"]) == ("scheduled", 1)
    (awaited,) = awaited_by(site)
    said = f"cannot wait for message: {awaited} of queue apart, which is ready; the limit of its handler ends"
    assert found["last_error"] == f"WaitRefused: {said}"
