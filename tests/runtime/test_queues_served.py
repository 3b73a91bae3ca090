"""Queues of handlers that no launch serves, and queues served that nobody knows: said once, to whoever can mend it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.choices import HandOff
from pollconsumer.runtime import consumer_role
from pollconsumer.runtime.consumer_role import report_unknown, report_unserved
from pollconsumer.runtime.handling.handler import Handler
from pollconsumer.runtime.launch.held import LaunchPlan
from pollconsumer.runtime.launch_upkeep import served_for
from pollconsumer.store.queues.interventions import Interventions
from pollconsumer.store.server import QueueService, service_of, unknown_queues
from tests.conftest import NAMESPACE
from tests.store.acting import QUEUE, Launch, message

if TYPE_CHECKING:
    from pollconsumer.core.news.events import Event
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
    done = mailing.drain("--queue", "default")
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    assert "warning: queue mail: 1 ready, and no launch serves it, though it is that of mail.send" in done.stderr
    assert "mail, that of mail.send: 1 ready, and no launch came for it lately" in (
        mailing.command("check", POLLCONSUMER_CONSUMER__QUEUES="default").stdout
    )


def test_a_launch_warns_of_ready_messages_in_a_queue_that_nobody_names(mailing: Site) -> None:
    mailing.enqueue("plain", "--queue", "elsewhere")
    warning = "warning: queue elsewhere: 1 ready, and no launch serves it; add it to consumer.queues, or launch"
    done = mailing.drain()
    assert (done.returncode, done.stderr) == (0, f"pollconsumer: {warning} 'run --queue elsewhere'\n")
    assert mailing.drain("--queue", "elsewhere").stderr == ""
    mailing.enqueue("plain", "--queue", "elsewhere")
    assert "warning: queue elsewhere: 1 ready" not in mailing.drain().stderr  # served lately


def test_of_many_queues_that_nobody_serves_a_launch_looks_at_some(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_role, "MOST_LOOKED_AT", 2)
    store.enqueue([message("a")._replace(queue=queue) for queue in ("d", "c", "b", QUEUE)])
    assert [event.fields()["queue"] for event in told(store)] == [QUEUE, "b"]


def test_two_lines_over_one_module_each_with_a_queue_of_its_own_are_silent(mailing: Site) -> None:
    assert mailing.drain("--queue", "mail").stderr == ""
    mailing.enqueue("mail.send")
    assert mailing.drain("--queue", "default").stderr == ""
    report = mailing.command("check", POLLCONSUMER_CONSUMER__QUEUES="default").stdout
    assert "mail, that of mail.send: other launches serve it" in report
    found = mailing.command("check", "--json", POLLCONSUMER_CONSUMER__QUEUES="default").stdout
    assert '"queues_not_served": ["mail"], "queues_served_elsewhere": ["mail"]' in found


def test_a_launch_warns_once_of_a_queue_that_nobody_knows(mailing: Site) -> None:
    done = mailing.drain("--queue", "tpyo", "--queue", "mail")
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    assert "warning: queue tpyo: nobody ever enqueued to it" in done.stderr
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
    store.upkeep.announce(launch.holder, QUEUE, served_for=1200.0)
    assert service_of(wire, store.keys, [QUEUE])[QUEUE].lately
    assert 1_190_000 < wire.command("PTTL", store.keys.queue(QUEUE, "served")) <= 1_200_000
    assert told(store) == []
    store.upkeep.announce(launch.holder, QUEUE)  # as a mover does: it says nothing of service
    assert service_of(wire, store.keys, [QUEUE])[QUEUE].lately


def test_a_queue_that_is_paused_or_has_nothing_ready_is_not_told_of(store: RedisStore, wire: Wire) -> None:
    Launch(store)
    assert told(store) == []
    store.enqueue([message("later", delay=60_000)])
    assert told(store) == []
    store.enqueue([message("now", priority=3)])
    assert len(told(store)) == 1
    Interventions(wire, NAMESPACE).pause(QUEUE, paused=True)
    assert told(store) == []


def test_queues_are_known_from_their_first_message_or_pause_on(store: RedisStore, wire: Wire) -> None:
    queues = ["enqueued", "paused", "unknown"]
    store.enqueue([message("a", queue="enqueued")])
    Interventions(wire, NAMESPACE).pause("paused", paused=True)
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
