"""What people do is noted: who, when, what; what a program does is not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer import PollConsumer
from pollconsumer.audit import acting_as, interventions
from pollconsumer.core.errors import BadData
from pollconsumer.core.notation.instants import epoch_ms
from pollconsumer.core.recurrence import Recurrence
from pollconsumer.store import audit_log
from pollconsumer.store.actions import HandlerPauses, MessageActions
from pollconsumer.store.audit_log import Intervention, audit_of
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.recurrence_actions import Recurrences
from pollconsumer.store.recurrences import LaunchRecurrences
from tests.conftest import NAMESPACE
from tests.store.acting import HOUR, QUEUE, Launch, die, message
from tests.store.servers import server_ms

if TYPE_CHECKING:
    from pollconsumer.store.client.wire import Wire
    from tests.store.servers import Server


def noted(wire: Wire) -> list[tuple[str, str, str, tuple[str, ...], int]]:
    return [each[1:6] for each in reversed(audit_of(wire, NAMESPACE, 10_000))]


def test_each_intervention_is_noted_with_who_did_what_to_which(server: Server) -> None:
    wire = server.wire()
    store, acting = RedisStore(wire, NAMESPACE), MessageActions(wire, NAMESPACE)
    store.enqueue([message(name) for name in ("dead", "dead-2", "held")])
    launch = Launch(store)
    first, second, _ = launch.reserve(3)
    launch.settle(die(first), die(second))
    store.enqueue([message(name, delay=HOUR) for name in ("a", "b", "c")])
    before = server_ms(wire)
    with acting_as("ada"):
        acting.cancel(QUEUE, "a")
        acting.change(QUEUE, "b", delay=5)
        acting.stop(QUEUE, "held")
        assert acting.cancel_all(QUEUE, ["a", "b", "c", "held"]) == ["b", "c"]
    with acting_as("bob"):
        acting.redrive(QUEUE, ["dead", "gone"])
        acting.purge(QUEUE, ["dead-2"])
        acting.pause(QUEUE, paused=True)
        acting.pause(QUEUE, paused=False)
    assert noted(wire) == [
        ("ada", "cancel", QUEUE, ("a",), 1),
        ("ada", "change", QUEUE, ("b",), 1),
        ("ada", "stop", QUEUE, ("held",), 1),
        ("ada", "cancel", QUEUE, ("b", "c"), 2),
        ("bob", "redrive", QUEUE, ("dead",), 1),
        ("bob", "purge", QUEUE, ("dead-2",), 1),
        ("bob", "pause", QUEUE, (), 0),
        ("bob", "resume", QUEUE, (), 0),
    ]
    assert all(before <= epoch_ms(each.at) <= server_ms(wire) for each in audit_of(wire, NAMESPACE, 10))
    assert [each.what for each in audit_of(wire, NAMESPACE, 2)] == ["resume", "pause"]


def test_what_a_person_does_with_a_recurrence_is_noted(server: Server) -> None:
    wire = server.wire()
    tick = Recurrence("tick", "handler", every=3600.0, queue=QUEUE)
    RedisStore(wire, NAMESPACE).enqueue([message("a", delay=HOUR)])
    LaunchRecurrences(wire, NAMESPACE).define("consumer:mail", [QUEUE], [tick], lambda _: None)
    recurrences = Recurrences(wire, NAMESPACE)
    with acting_as("ada"):
        recurrences.trigger(recurrences.find("tick"))
        recurrences.pause(recurrences.find("tick"))
        recurrences.resume(recurrences.find("tick"))
        recurrences.remove("tick")
    assert noted(wire) == [("ada", what, QUEUE, ("tick",), 1) for what in ("trigger", "pause", "resume", "remove")]


def test_what_a_person_does_with_a_handler_is_noted(server: Server) -> None:
    wire = server.wire()
    RedisStore(wire, NAMESPACE).enqueue([message("a", delay=HOUR)])
    with acting_as("ada"):
        HandlerPauses(wire, NAMESPACE).pause("mail.send")
        HandlerPauses(wire, NAMESPACE).resume("mail.send")
    assert noted(wire) == [("ada", what, "", ("mail.send",), 1) for what in ("pause", "resume")]


def test_nothing_is_noted_of_a_program_nor_of_what_was_refused_or_reached_nothing(server: Server) -> None:
    wire = server.wire()
    store, acting = RedisStore(wire, NAMESPACE), MessageActions(wire, NAMESPACE)
    store.enqueue([message("a", delay=HOUR)])
    acting.cancel(QUEUE, "a")
    with acting_as("ada"):
        with pytest.raises(BadData):
            acting.stop(QUEUE, "a")
        assert acting.redrive(QUEUE, ["a"]) == []
        assert acting.cancel_all(QUEUE, []) == []
    assert noted(wire) == []
    assert not wire.command("EXISTS", store.keys.control("audit"))


def test_the_oldest_notes_are_forgotten_and_corrupt_ones_are_left_out(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = server.wire()
    monkeypatch.setattr(audit_log, "MOST_NOTED", 3)
    store, acting = RedisStore(wire, NAMESPACE), MessageActions(wire, NAMESPACE)
    store.enqueue([message(f"{n}", delay=HOUR) for n in range(5)])
    with acting_as("ada"):
        for n in range(5):
            acting.cancel(QUEUE, f"{n}")
    assert [names for *_, names, _ in noted(wire)] == [("2",), ("3",), ("4",)]
    key = store.keys.control("audit")
    for corrupt in (b"x", b"1 null", b'1 {"who": 1, "what": "", "queue": "", "names": [], "number": 0}', b"1 \xff"):
        wire.command("LPUSH", key, corrupt)
    assert len(noted(wire)) == 3


def test_only_the_first_names_of_many_are_kept(server: Server) -> None:
    wire = server.wire()
    RedisStore(wire, NAMESPACE).enqueue([message(f"{n}", delay=HOUR) for n in range(50)])
    with acting_as("x" * 500):
        MessageActions(wire, NAMESPACE).cancel_all(QUEUE, [f"{n}" for n in range(50)])
    [(who, _, _, names, count)] = noted(wire)
    assert (len(who), len(names), count) == (200, 20, 50)


def test_a_program_names_who_acts_and_reads_what_was_done(valkey: Server) -> None:
    app = PollConsumer(store=valkey.url, namespace=NAMESPACE)
    handles = [app.enqueue("mail.send", queue="mail", in_="1h", id=f"{n}") for n in range(3)]

    async def cancel() -> None:
        with acting_as("bob"):
            await handles[1].cancel_async()
        await handles[2].cancel_async()

    with acting_as("ada"):
        handles[0].cancel()
    asyncio.run(cancel())
    found: list[Any] = interventions(app)
    assert [(each.who, each.names) for each in found] == [("bob", ("1",)), ("ada", ("0",))]
    assert isinstance(found[0], Intervention)
