"""Messages whose process dies: who is blamed, and for how long they are tried."""

from __future__ import annotations

import signal
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.durations import Histogram
from pollconsumer.store.client.patience import Budget
from pollconsumer.store.client.wire import Wire
from pollconsumer.store.leases import Leases
from tests.site import PATIENCE, Site

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.ends_with(9, -signal.SIGKILL, -signal.SIGSEGV)

QUICK = """
from pollconsumer import Context

def quick(context, name, how):
    note(f"{name} {context.attempt}")
    if how == "die":
        os._exit(9)
    if how == "crash":
        import ctypes
        ctypes.string_at(0)

@app.handler("quick")
def patient(context: Context, name: str, how: str = "") -> None:
    quick(context, name, how)

@app.handler("quick.twice", max_attempts=2)
def twice(context: Context, name: str, how: str = "") -> None:
    quick(context, name, how)

@app.handler("quick.single", max_attempts=1)
def single(context: Context, name: str, how: str = "") -> None:
    quick(context, name, how)

@app.handler("quick.once", delivery="at_most_once")
def only(context: Context, name: str, how: str = "") -> None:
    note(f"{name} {context.attempt}")
    if how == "kill":
        os.kill(os.getpid(), 9)
    if how == "vanish":
        leave(how)
"""


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    with (site.directory / "handlers.py").open("a") as handlers:
        handlers.write(QUICK)
    yield site
    site.close()


def learn(site: Site, handler: str) -> None:
    """So that the next launch reserves ahead, and settles what is quick together."""
    assert site.command("store", "start").returncode == 0
    remembered = Histogram(0.01, {0: 100})
    group = "consumer:" + ",".join(sorted(site.json("check")["queues"]))
    wire = Wire(f"unix://{site.json('store', 'path')['socket']}", lambda: Budget(PATIENCE))
    Leases(wire, "pollconsumer").learn(group, {handler: remembered})
    wire.close()


def test_what_was_told_to_be_a_dead_letter_is_one_although_the_next_message_kills_the_process(site: Site) -> None:
    learn(site, "quick.single")
    first = site.enqueue("quick.single", name="a", how="die")
    site.drain()
    site.enqueue("quick.single", name="b", how="die")
    assert f"dead letter: {first}" in site.drain().stderr
    assert (site.notes(), site.state(first)) == (["a 1", "b 1"], "dead")


def test_a_message_that_ended_in_its_last_attempt_is_completed_although_the_next_one_kills_the_process(
    site: Site,
) -> None:
    learn(site, "quick.single")
    ended = [site.enqueue("quick.single", name=name) for name in ("a", "b")]
    poison = site.enqueue("quick.single", name="poison", how="die")
    assert site.drain().returncode == 9
    assert site.drain().returncode == 0
    assert site.notes() == ["a 1", "b 1", "poison 1"]
    assert [site.state(message) for message in (*ended, poison)] == ["completed", "completed", "dead"]


def test_three_deaths_in_flight_make_a_dead_letter(site: Site) -> None:
    message = site.enqueue("leave", how="die")
    for _ in range(4):
        site.drain()
    assert site.notes() == ["leave die"] * 3
    status = site.json("status", message)
    assert (status["state"], status["attempts"]) == ("dead", 3)
    assert status["last_error"].startswith("launch killed")


def test_what_was_merely_reserved_beside_a_death_is_not_charged(site: Site) -> None:
    site.enqueue("record", name="quick")
    site.drain()  # so that the durations learned make the next launch reserve ahead
    site.enqueue("leave", how="die")
    beside = [site.enqueue("record", name=f"{n}") for n in range(5)]
    site.drain()
    for message in beside:
        status = site.json("status", message)
        assert (status["state"], status["attempts"]) == ("ready", 0)


def test_what_was_merely_reserved_beside_is_not_blamed_where_the_heartbeat_dies_too(site: Site) -> None:
    """As all processes of a container do."""
    for _ in range(3):
        site.enqueue("record", name="quick")
    site.drain()  # so that the durations learned make the next launch reserve ahead
    poison = site.enqueue("leave", how="vanish")
    beside = [site.enqueue("record", name=f"{n}") for n in range(5)]
    for _ in range(4):
        site.drain()
        site.command("lease", "break", "--yes")
    assert site.state(poison) == "dead"
    assert [site.state(message) for message in beside] == ["completed"] * 5
    assert site.notes().count("leave vanish") == 3


def test_a_neighbour_of_a_message_that_kills_its_process_is_completed(site: Site) -> None:
    poison = site.enqueue("leave", how="die")
    neighbour = site.enqueue("hold", name="a")
    launch = site.start("run", "--until-empty", "--concurrency", "2")
    launch.wait(90)
    site.open_gate()
    for _ in range(4):
        site.drain("--concurrency", "2")
    assert site.state(poison) == "dead"
    assert site.state(neighbour) == "completed"
    assert site.notes().count("end a") == 1


@pytest.mark.crossing
@pytest.mark.parametrize(("handler", "deaths"), [("quick", 3), ("quick.twice", 2)])
def test_no_two_executions_have_the_same_attempt_and_none_begins_beyond_the_last(
    site: Site, handler: str, deaths: int
) -> None:
    learn(site, handler)
    ended = [site.enqueue(handler, name=name) for name in ("a", "b")]
    poison = site.enqueue(handler, name="poison", how="die")
    for _ in range(deaths):
        assert site.drain().returncode == 9
    assert site.drain().returncode == 0
    executions = site.notes()
    assert executions[:3] == ["a 1", "b 1", "poison 1"]
    assert max(Counter(executions).values()) == 1
    starts = Counter(note.split()[0] for note in executions)
    assert starts["poison"] == deaths
    status = site.json("status", poison)
    assert (status["state"], status["attempts"]) == ("dead", deaths)
    assert status["last_error"].startswith("launch killed ")
    for name, message in zip(("a", "b"), ended, strict=True):
        status = site.json("status", message)
        assert (status["state"], status["attempts"]) == ("completed", starts[name])
        assert starts[name] <= 2  # once, if a slow machine settled it before the poison was handled


def test_what_ended_in_its_last_attempt_and_was_not_settled_is_not_handled_again(site: Site) -> None:
    learn(site, "quick.twice")
    first = site.enqueue("quick.twice", name="a")
    for name in ("one", "other"):
        site.enqueue("quick.twice", name=name, how="die")
    for _ in range(5):
        site.drain()
    assert [note for note in site.notes() if note.startswith("a ")] == ["a 1", "a 2"]
    assert site.json("status", first)["attempts"] == 2


@pytest.mark.parametrize("how", ["kill", "vanish"])
def test_of_messages_handled_at_most_once_a_death_ends_the_one_in_hand_alone(site: Site, how: str) -> None:
    """Where the heartbeat dies, too, the others are handled by the next launch as orphans."""
    learn(site, "quick.once")
    messages = {name: site.enqueue("quick.once", name=name, how=how * (name == "c")) for name in "abcdef"}
    site.drain()
    site.command("lease", "break", "--yes")
    assert site.drain().returncode == 0
    notes = [note for note in site.notes() if not note.startswith("leave")]
    assert notes == ["a 1", "b 1", "c 1", *(f"{name} {1 + (how == 'vanish')}" for name in "def")]
    assert {name: site.state(message) for name, message in messages.items()} == dict.fromkeys("abdef", "completed") | {
        "c": "dead"
    }
    assert site.json("status", messages["c"])["last_error"].startswith("skipped: ")


@pytest.mark.parametrize(("how", "code"), [("die", 9), ("crash", -11)])
def test_a_launch_that_dies_says_in_a_line_what_it_was_handling(site: Site, how: str, code: int) -> None:
    message = site.enqueue("quick", name="poison", how=how)
    done = site.drain()
    assert done.returncode == code
    line = f"pollconsumer: error: launch died: while handling {message} (quick); the next launch goes on"
    assert done.stderr.splitlines().count(line) == 1
    assert ("Segmentation fault" in done.stderr and "in quick" in done.stderr) == (how == "crash")
