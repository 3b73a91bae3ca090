"""Launches that end when there is nothing left to handle: what nothing left means."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.site import Site

if TYPE_CHECKING:
    from collections.abc import Iterator

HANDLERS = """
from pollconsumer import Context, Yield

@app.handler(queue="first")
def parent(context: Context, generations: int, how: str = "") -> None:
    note(f"generation {generations}")
    if generations:
        context.enqueue("parent", {"generations": generations - 1}, queue="first" if generations % 2 else "second")

@app.handler
def give_way(context: Context) -> None:
    note("gave way")
    raise Yield
"""


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site('[consumer]\nqueues = ["first", "second"]\n[queues.first]\nquota = "3/1d"\n')
    with (site.directory / "handlers.py").open("a") as handlers:
        handlers.write(HANDLERS)
    yield site
    site.close()


def stopped(site: Site) -> str:
    reason: str = site.json("launches")[0]["stop_reason"]
    return reason


@pytest.mark.parametrize("concurrency", ["1", "3"])
def test_what_the_last_handlers_enqueued_with_their_completion_is_handled_too(site: Site, concurrency: str) -> None:
    site.enqueue("parent", "--queue", "second", generations=4)
    done = site.drain("--concurrency", concurrency)
    assert (done.returncode, done.stderr) == (0, "")
    assert site.notes() == [f"generation {n}" for n in (4, 3, 2, 1, 0)]
    assert stopped(site) == "empty"


def test_messages_that_a_quota_holds_back_are_a_reason_of_their_own(site: Site) -> None:
    for n in range(5):
        site.enqueue("record", "--queue", "first", name=f"{n}")
    assert site.drain().returncode == 0
    assert site.notes() == ["0", "1", "2"]
    assert stopped(site) == "held_back"


def test_a_paused_queue_is_not_empty(site: Site) -> None:
    site.enqueue("record", "--queue", "second", name="a")
    assert site.command("queue", "pause", "second").returncode == 0
    assert site.drain().returncode == 0
    assert stopped(site) == "held_back"


def test_messages_that_yielded_are_counted_apart_from_those_that_were_never_started(site: Site) -> None:
    site.enqueue("give_way", "--queue", "second")
    done = site.command("-v", "run", "--until-empty")
    assert site.notes() == ["gave way"]
    ended = next(line for line in done.stderr.splitlines() if "consumer ended" in line)
    assert ended.endswith(": 1 asleep")
    entry = site.json("launches")[0]
    assert (entry["released"], entry["yielded"]) == (0, 1)
