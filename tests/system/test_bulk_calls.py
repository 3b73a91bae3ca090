"""Bulk handlers in real launches: whose process dies, who is blamed, what is released."""

from __future__ import annotations

import json
import signal
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from tests.site import PATIENCE, Site, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.ends_with(9, -signal.SIGKILL)

BULK = """
from pollconsumer import Item, Partial

def tell(messages):
    note("call " + " ".join(str(each.payload["n"]) for each in messages))
    for each in messages:
        if each.payload.get("poison"):
            os.kill(os.getpid(), 9)
    for each in messages:
        note(f"handled {each.payload['n']}")

@app.handler("bulk", bulk=100)
def bulk(messages: list[Item]) -> None:
    tell(messages)

@app.handler("bulk.apart", bulk=100, isolation="process", retry=Backoff("1h", 1, "1h"))
def apart(messages: list[Item]) -> list[int]:
    tell(messages)
    return [each.payload["n"] for each in messages]

@app.handler("bulk.once", bulk=100, delivery="at_most_once")
def once(messages: list[Item]) -> None:
    tell(messages)

@app.handler("bulk.once.apart", bulk=100, delivery="at_most_once", isolation="process")
def once_apart(messages: list[Item]) -> None:
    tell(messages)

@app.handler("bulk.hanging", bulk=100)
def hanging(messages: list[Item]) -> None:
    tell(messages)
    while True:
        time.sleep(0.01)

@app.handler("bulk.partial", bulk=100, isolation="process", retry=Backoff("1h", 1, "1h"))
def partial(messages: list[Item]) -> None:
    raise Partial({1: ValueError("no"), 2: Fatal("never")})

@app.handler("bulk.waiting", bulk=100, bulk_wait="60s")
def waiting(messages: list[Item]) -> None:
    tell(messages)
"""


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    with (site.directory / "handlers.py").open("a") as handlers:
        handlers.write(BULK)
    yield site
    site.close()


def send(site: Site, handler: str, many: int, *, poison: int | None = None) -> None:
    lines = [{"id": f"{n}", "handler": handler, "payload": {"n": n, "poison": n == poison}} for n in range(many)]
    (site.directory / "lines").write_text("\n".join(map(json.dumps, lines)))
    assert site.command("enqueue", "--ndjson", str(site.directory / "lines")).returncode == 0


def messages(site: Site, what: str) -> list[Any]:
    """A field of each message, by its number."""
    return [each[what] for each in sorted(site.json("list", "--limit", "500"), key=lambda each: int(each["id"]))]


def handled(site: Site) -> Counter[str]:
    return Counter(note for note in site.notes() if note.startswith("handled"))


def calls(site: Site) -> list[str]:
    return [note.removeprefix("call ") for note in site.notes() if note.startswith("call")]


def test_the_neighbours_of_a_message_that_kills_its_process_are_completed(site: Site) -> None:
    """After the death of a call with all of them each is called alone."""
    send(site, "bulk", 12, poison=5)
    for _ in range(4):
        site.drain()
    assert calls(site)[0] == " ".join(map(str, range(12)))
    assert all(" " not in each for each in calls(site)[1:])
    assert messages(site, "state") == ["completed"] * 5 + ["dead"] + ["completed"] * 6
    assert handled(site) == Counter(f"handled {n}" for n in range(12) if n != 5)
    assert messages(site, "attempts") == [2] * 5 + [3] + [2] * 6
    assert site.json("status", "5")["last_error"].startswith("launch killed")


def test_the_neighbours_of_a_message_that_kills_an_isolated_process_are_not_charged(site: Site) -> None:
    send(site, "bulk.apart", 6, poison=2)
    site.drain()
    assert calls(site)[:4] == ["0 1 2 3 4 5", "0", "1", "2"]
    assert handled(site) == Counter(f"handled {n}" for n in (0, 1, 3, 4, 5))
    assert messages(site, "attempts") == [1] * 6
    assert messages(site, "state")[3:] == ["completed"] * 3
    assert site.json("status", "2")["last_error"] == "ProcessDied: signal SIGKILL"
    assert site.json("status", "3")["result"] == 3


HANGING = """
def stop_at_poison(messages):
    note("call " + " ".join(str(each.payload["n"]) for each in messages))
    while any(each.payload.get("poison") for each in messages):
        time.sleep(0.01)
    messages.clear()  # the handler has a copy

@app.handler("bulk.stuck", bulk=100, timeout="300ms", max_attempts=2, retry=Backoff("1ms", 1, "1ms"))
def stuck(messages: list[Item]) -> None:
    stop_at_poison(messages)

@app.handler("bulk.stuck.apart", bulk=100, timeout="300ms", isolation="process", max_attempts=2)
def stuck_apart(messages: list[Item]) -> None:
    stop_at_poison(messages)

@app.handler("bulk.stuck.async", bulk=100, timeout="300ms", max_attempts=2, retry=Backoff("1ms", 1, "1ms"))
async def stuck_async(messages: list[Item]) -> None:
    note("call " + " ".join(str(each.payload["n"]) for each in messages))
    while any(each.payload.get("poison") for each in messages):
        await asyncio.sleep(0.01)
"""


@pytest.mark.parametrize("concurrency", ["1", "2"])
@pytest.mark.parametrize("handler", ["bulk.stuck", "bulk.stuck.apart", "bulk.stuck.async"])
def test_the_neighbours_of_a_message_that_hangs_are_completed_uncharged(
    site: Site, handler: str, concurrency: str
) -> None:
    """They share the launch with another bulk handler's messages."""
    module = site.directory / "handlers.py"
    module.write_text(f"import asyncio\n{module.read_text()}{HANGING}")
    send(site, handler, 8, poison=3)
    for n in range(8):
        site.enqueue("bulk", "--id", f"{8 + n}", n=n)
    site.drain("--concurrency", concurrency)
    assert calls(site)[0] == " ".join(map(str, range(8)))
    states = messages(site, "state")
    assert (states[:3] + states[4:], messages(site, "attempts")[4:]) == (["completed"] * 15, [1] * 12)
    assert site.json("status", "3")["last_error"].startswith("HandlerTimeout")


@pytest.mark.parametrize("concurrency", ["1", "2"])
def test_a_launch_with_a_limit_of_messages_does_not_count_those_of_a_call_that_died(
    site: Site, concurrency: str
) -> None:
    send(site, "bulk.apart", 3, poison=1)
    site.drain("--max-messages", "3", "--concurrency", concurrency)
    assert calls(site) == ["0 1 2", "0", "1", "2"]
    assert messages(site, "state") == ["completed", "scheduled", "completed"]


@pytest.mark.parametrize("handler", ["bulk.once", "bulk.once.apart"])
def test_messages_of_a_dead_call_that_are_handled_at_most_once_are_not_handled_again(site: Site, handler: str) -> None:
    send(site, handler, 4, poison=1)
    for _ in range(2):
        site.drain()
    assert calls(site) == ["0 1 2 3"]
    assert messages(site, "state") == ["dead"] * 4


def test_a_signal_releases_what_waits_for_a_call_uncharged(site: Site) -> None:
    send(site, "bulk.waiting", 3)
    launch = site.start("run", "--timeout", "600")
    wait_until(lambda: messages(site, "state") == ["reserved"] * 3, "their reservation")
    launch.send_signal(signal.SIGTERM)
    assert launch.wait(PATIENCE) == 0
    assert (calls(site), messages(site, "state"), messages(site, "attempts")) == ([], ["ready"] * 3, [0] * 3)


@pytest.mark.parametrize("concurrency", ["1", "3"])
def test_a_backlog_is_handled_in_full_calls(site: Site, concurrency: str) -> None:
    send(site, "bulk", 250)
    site.drain("--concurrency", concurrency)
    assert handled(site) == Counter(f"handled {n}" for n in range(250))
    assert sorted(len(each.split()) for each in calls(site)) == [50, 100, 100]


CROWDED = """
import threading
small = threading.Event()

@app.handler("bulk.crowded", bulk=500)
def crowded(messages: list[Item]) -> None:
    if len(messages) < 500:
        small.set()
    note(f"call {len(messages)}")
    assert small.wait(60)
"""


def test_calls_go_on_after_so_many_messages_were_in_flight_as_may_be(site: Site) -> None:
    with (site.directory / "handlers.py").open("a") as handlers:
        handlers.write(CROWDED)
    send(site, "bulk.crowded", 1600)
    done = site.drain("--concurrency", "4", "--timeout", "20s", "--estimated-duration", "1ms")
    assert done.returncode == 0
    assert (calls(site)[:2], sum(map(int, calls(site)))) == (["500", "500"], 1600)
    assert [each["handled"] for each in site.json("launches")] == [1600]


def test_a_call_is_interrupted_when_all_of_its_messages_are_to_stop(site: Site) -> None:
    send(site, "bulk.hanging", 2)
    launch = site.start("run", "--until-empty")
    wait_until(lambda: calls(site) == ["0 1"], "the call")
    assert site.command("cancel", "--running", "0").returncode == 0
    assert site.command("cancel", "--running", "1").returncode == 0
    assert launch.wait(PATIENCE) == 0
    assert messages(site, "state") == ["cancelled"] * 2


def test_an_isolated_handler_may_fail_some_of_its_messages(site: Site) -> None:
    send(site, "bulk.partial", 4)
    site.drain()
    assert messages(site, "state") == ["completed", "scheduled", "dead", "completed"]
    assert [site.json("status", each)["last_error"] for each in "12"] == ["ValueError: no", "Fatal: never"]
