"""Queues of handlers that no launch serves, and queues served that nobody knows: said once, to whoever can mend it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, cast

import pytest

from pollconsumer.core.choices import HandOff
from pollconsumer.core.window import Window
from pollconsumer.runtime import consumer, launch_maintenance
from pollconsumer.runtime.consumer import report_unknown, report_unserved
from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.runtime.launch.launch import LaunchPlan
from pollconsumer.runtime.launch_maintenance import end_expired, served_for
from pollconsumer.store.actions import MessageActions
from pollconsumer.store.records.reservations import Claim
from pollconsumer.store.server import QueueService, service_of, unknown_queues
from tests.conftest import NAMESPACE
from tests.runtime.test_exchange import Exchanging
from tests.store.acting import HOUR, QUEUE, Launch, Looking, message
from tests.store.servers import server_ms

if TYPE_CHECKING:
    from pollconsumer.core.events import Event
    from pollconsumer.runtime.launch import launch
    from pollconsumer.store.client.wire import Wire
    from pollconsumer.store.queues.redis_store import RedisStore
    from tests.site import Site

HANDLERS = """
from pollconsumer import PollConsumer
app = PollConsumer()

@app.handler("mail.send", queue="mail")
def send() -> None: ...

@app.handler
def plain() -> None: ...
"""
HANDLER = {"mail.send": Handler("mail.send", lambda _payload, _context: None, queue=QUEUE)}


@pytest.fixture
def mailing(site: Site) -> Site:
    """A site with a handler that has a queue of its own."""
    (site.directory / "handlers.py").write_text(HANDLERS)
    return site


def test_a_launch_warns_of_a_queue_of_its_handlers_that_no_launch_serves(mailing: Site) -> None:
    assert mailing.drain("--queue", "default").stderr == ""  # nothing waits there
    mailing.enqueue("mail.send")
    assert mailing.drain("--queue", "default").stderr == "", "another launch may be about to serve it"
    done = mailing.drain("--queue", "default")
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    assert "warning: queue mail: 1 ready, and no launch serves it, though it is the queue of mail.send" in done.stderr
    assert "mail (of mail.send): 1 ready, and no launch has served it lately" in (
        mailing.command("check", POLLCONSUMER_CONSUMER__QUEUES="default").stdout
    )


def test_a_launch_warns_of_ready_messages_in_a_queue_that_nobody_names(mailing: Site) -> None:
    mailing.enqueue("plain", "--queue", "elsewhere")
    assert mailing.drain().stderr == ""
    done = mailing.drain()
    assert done.returncode == 0
    assert done.stderr.startswith(
        "pollconsumer: warning: queue elsewhere: 1 ready, and no launch serves it; start 'run --queue elsewhere' too, "
        "or name it in consumer.queues with the others (2 launches in "
    )
    assert mailing.drain("--queue", "elsewhere").stderr == ""
    assert "resolved: queue elsewhere: 1 ready, and no launch serves it (seen in 2 launches" in mailing.drain().stderr
    mailing.enqueue("plain", "--queue", "elsewhere")
    assert "warning: queue elsewhere: 1 ready" not in mailing.drain().stderr  # served lately


def test_of_many_queues_that_nobody_serves_a_launch_looks_at_some(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer, "MOST_LOOKED_AT", 2)
    store.enqueue([message("a")._replace(queue=queue) for queue in ("d", "c", "b", QUEUE)])
    assert [event.fields()["queue"] for event in told(store)] == [QUEUE, "b"]


def test_two_lines_over_one_module_each_with_a_queue_of_its_own_are_silent(mailing: Site) -> None:
    assert mailing.drain("--queue", "mail").stderr == ""
    mailing.enqueue("mail.send")
    assert mailing.drain("--queue", "default").stderr == ""
    report = mailing.command("check", POLLCONSUMER_CONSUMER__QUEUES="default").stdout
    assert "mail (of mail.send): other launches serve it" in report
    found = mailing.command("check", "--json", POLLCONSUMER_CONSUMER__QUEUES="default").stdout
    assert '"queues_not_served": ["mail"], "queues_served_elsewhere": ["mail"]' in found


def test_a_launch_warns_once_of_a_queue_that_nobody_knows(mailing: Site) -> None:
    done = mailing.drain("--queue", "tpyo", "--queue", "mail")
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    assert "warning: queue tpyo never had a message" in done.stderr
    assert mailing.drain("--queue", "tpyo", "--queue", "mail").stderr == ""


def test_a_queue_that_was_enqueued_to_paused_or_named_by_a_recurrence_is_no_misspelling(mailing: Site) -> None:
    with (mailing.directory / "config.toml").open("a") as config:
        config.write('[recurrences.r]\nhandler = "plain"\nevery = "1h"\nqueue = "recurring"\n')
    mailing.enqueue("plain", "--queue", "enqueued")
    mailing.command("queue", "pause", "paused")
    flags = [flag for queue in ("enqueued", "paused", "recurring", "mail", "default") for flag in ("--queue", queue)]
    assert mailing.drain(*flags).stderr == ""


def told(store: RedisStore) -> list[Event]:
    events: list[Event] = []
    report_unserved(store, set(), HANDLER, events.append)
    return events


def test_a_queue_counts_as_served_for_as_long_as_its_launch_said(store: RedisStore, wire: Wire) -> None:
    launch = Launch(store)
    store.enqueue([message("a")])
    assert service_of(wire, store.keys, [QUEUE]) == {QUEUE: QueueService(lately=False, paused=False, ready=1)}
    assert [event.messages for event in told(store)] == [1]  # type: ignore[attr-defined]  # of the one kind
    store.maintenance.announce(launch.claim, QUEUE, served_for=1200.0)
    assert service_of(wire, store.keys, [QUEUE])[QUEUE].lately
    assert 1_190_000 < wire.command("PTTL", store.keys.queue(QUEUE, "served")) <= 1_200_000
    assert told(store) == []
    store.maintenance.announce(launch.claim, QUEUE)  # as a mover does: it says nothing of service
    assert service_of(wire, store.keys, [QUEUE])[QUEUE].lately


def test_a_queue_that_is_paused_or_has_nothing_ready_is_not_told_of(store: RedisStore, wire: Wire) -> None:
    Launch(store)
    assert told(store) == []
    store.enqueue([message("later", delay=60_000)])
    assert told(store) == []
    store.enqueue([message("now", priority=3)])
    assert len(told(store)) == 1
    MessageActions(wire, NAMESPACE).pause(QUEUE, paused=True)
    assert told(store) == []


def test_queues_are_known_from_their_first_message_or_pause_on(store: RedisStore, wire: Wire) -> None:
    queues = ["enqueued", "paused", "unknown"]
    store.enqueue([message("a", queue="enqueued")])
    MessageActions(wire, NAMESPACE).pause("paused", paused=True)
    assert unknown_queues(wire, store.keys, queues) == ["unknown"]
    events: list[Event] = []
    report_unknown(store, queues, events.append)
    assert [event.queue for event in events] == ["unknown"]  # type: ignore[attr-defined]  # of the one kind


@pytest.mark.parametrize(
    ("timeout", "next_launches", "seconds"),
    [
        (60.0, None, 1200.0),
        (60.0, (30.0, 90.0), 1200.0),
        (900.0, (600.0, 1500.0), 1800.0),
        (60.0, (3600.0, 7200.0), 7200.0),
        (60.0, (3 * 86400.0, 4 * 86400.0), 6 * 86400.0),  # before a weekend
    ],
)
def test_a_queue_counts_as_served_for_twice_the_time_until_the_next_launch(
    timeout: float, next_launches: tuple[float, float] | None, seconds: float
) -> None:
    assert served_for(LaunchPlan(timeout, 10.0, handoff=HandOff.DEADLINE, next_launches=next_launches)) == seconds


@pytest.mark.parametrize(("limits", "seconds"), [([], 1200), ([300.0], 1500), ([300.0, 7200.0], 8400)])
def test_a_queue_counts_as_served_for_as_long_as_a_message_may_last_besides(limits: list[float], seconds: int) -> None:
    exchanging = Exchanging()
    launch = exchanging.launch
    launch.end.expect(limits)
    launch_maintenance.announce(launch, QUEUE, lambda _: None)
    assert launch.store.wire.command("PTTL", launch.store.keys.queue(QUEUE, "served")) == 1000 * seconds


PRODUCE = """
from handlers import *
with app.batch("b", ended=plain.args().using(queue="told")) as batch:
    batch.add(send.args().using(expires="1ms"))
    batch.add(send.args().using(expires="1ms", queue="elsewhere"))
"""


@pytest.mark.parametrize("act", ["run", "move"])
def test_the_end_of_any_launch_or_a_mover_ends_a_batch_whose_members_have_expired_where_nobody_serves(
    mailing: Site, act: str
) -> None:
    done = mailing.start_program([sys.executable, "-c", PRODUCE])
    assert done.communicate() == ("", "")
    assert mailing.command("queue", "pause", "elsewhere").returncode == 0
    if act == "run":
        assert mailing.drain("--queue", "default").returncode == 0
    else:
        assert mailing.command("move", "--timeout", "4s").returncode == 0
    shown = json.loads(mailing.command("batch", "show", "b", "--json").stdout)
    assert (shown["state"], shown["expired"]) == ("ended", 2)
    assert json.loads(mailing.command("status", "b:ended", "--json").stdout)["state"] == "ready"


class AtItsEnd:
    """A launch that has handled all."""

    def __init__(self, store: RedisStore, *, fence: int = 0, left: float = 60.0) -> None:
        self.store, self.claim = store, Claim("consumer:x:0", str(fence), "consumer:x")
        self.window, self.min_margin, self.now = Window(0.0, left), 10.0, 0.0

    def emit(self, event: Event) -> None:
        raise AssertionError(event)

    def clock(self) -> float:
        """Each look at it takes a tenth of a second."""
        self.now += 0.1
        return self.now

    def end_expired(self, *queues: str) -> list[str]:
        """Returns the queues of which anything has expired."""
        end_expired(cast("launch.Launch", self), queues)
        return [queue for queue in queues if Looking(self.store, queue).listed("expired")]


def expiring(store: RedisStore, *queues: str) -> None:
    store.enqueue([message(f"of-{queue}", queue=queue, expires=1) for queue in queues])
    now = server_ms(store.wire)
    while server_ms(store.wire) <= now + 1:
        pass


def test_a_launch_looks_at_queues_that_nobody_serves_for_a_moment_and_the_next_at_others(store: RedisStore) -> None:
    queues = ("a", "b", "c", "d")
    expiring(store, *queues)
    assert AtItsEnd(store, fence=3).end_expired(*queues) == ["d"]
    assert AtItsEnd(store, fence=5).end_expired(*queues) == ["b", "d"]
    assert AtItsEnd(store, fence=4, left=5.15).end_expired(*queues) == ["b", "d"]  # half a margin is for its exit
    assert AtItsEnd(store).end_expired() == []


def test_a_queue_whose_keys_cannot_be_used_is_passed_over(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_maintenance, "EXPIRING_FOR", 60.0)
    expiring(store, "a", "b")
    store.wire.command("SET", store.keys.queue("a", "outbox"), "x")
    assert AtItsEnd(store).end_expired("a", "b") == ["b"]
    assert Looking(store, "a").listed("ready") == ["of-a"]


def test_a_queue_in_which_only_what_is_scheduled_waits_is_looked_at_and_one_that_is_served_is_not(
    store: RedisStore,
) -> None:
    store.enqueue([message("a", queue="scheduled", delay=HOUR), message("b", queue="served", delay=HOUR)])
    Launch(store, queue="empty")
    store.maintenance.announce(Launch(store, queue="served").claim, "served", served_for=60.0)
    assert report_unserved(store, set(), {}, lambda _: None) == ["scheduled"]
    assert report_unserved(store, {"scheduled"}, {}, lambda _: None) == []
