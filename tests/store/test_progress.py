"""How far messages have come, as the store keeps it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.errors import LeaseLost
from pollconsumer.core.messages.message_steps import Progress
from pollconsumer.core.notation.instants import epoch_ms
from pollconsumer.store.reading.inspector import Inspector
from pollconsumer.store.records.steps import QueueStep
from tests.conftest import NAMESPACE
from tests.store.acting import HOUR, QUEUE, Launch, Looking, die, finish, message, release, retry
from tests.store.servers import server_ms

if TYPE_CHECKING:
    from pollconsumer.store.actions import MessageActions
    from pollconsumer.store.queues.redis_store import RedisStore

HALF = Progress(1, 2, "half of it")


@pytest.fixture
def launch(store: RedisStore) -> Launch:
    store.enqueue([message("a"), message("b")])
    return Launch(store)


def seen(store: RedisStore, name: str = "a") -> Progress | None:
    return Inspector(store.wire, NAMESPACE).message(name, QUEUE).progress


def report(launch: Launch, **progress: Progress) -> None:
    launch.store.report(launch.claim, {QUEUE: {name.encode(): each for name, each in progress.items()}})


def test_people_see_the_last_report_and_when_the_server_had_it(store: RedisStore, launch: Launch) -> None:
    launch.reserve(2)
    assert seen(store) is None
    before = server_ms(store.wire)
    report(launch, a=Progress(0), b=Progress(2.5, None, "x\u20ac\ud800"))
    report(launch, a=HALF)
    found = seen(store)
    assert found is not None
    assert found[:3] == HALF[:3]
    assert before <= epoch_ms(found.at) <= server_ms(store.wire)
    other = seen(store, "b")
    assert other is not None
    assert other[:3] == (2.5, None, "x\u20ac\ud800")


def test_a_step_takes_a_report_along_before_it_settles(store: RedisStore, launch: Launch) -> None:
    (reservation,) = launch.reserve()
    launch.settle(retry(reservation))
    store.promote(launch.claim, QUEUE, 1)
    first, second = launch.reserve(2)
    launch.store.step(
        launch.claim, [], lasts_ms=HOUR, now=lambda: 0.0, reports={QUEUE: {first.id: HALF, second.id: HALF}}
    )
    assert (seen(store, first.name) or HALF)[:3] == (seen(store, second.name) or ())[:3] == HALF[:3]


def test_a_checkpoint_takes_a_report_along(store: RedisStore, launch: Launch) -> None:
    (reservation,) = launch.reserve()
    store.checkpoint(launch.claim, reservation, b"{}", {QUEUE: {b"a": HALF}})
    assert (seen(store) or ())[:3] == HALF[:3]


@pytest.mark.parametrize("end", [finish, die, retry, release])
def test_it_stays_when_the_attempt_has_ended(store: RedisStore, launch: Launch, end: object) -> None:
    (reservation,) = launch.reserve()
    report(launch, a=HALF)
    launch.settle(end(reservation))  # type: ignore[operator]
    assert (seen(store) or ())[:3] == HALF[:3]


def test_the_last_report_counts_even_if_the_server_knows_the_script_only_after_the_settlement(
    store: RedisStore, launch: Launch
) -> None:
    (reservation,) = launch.reserve()
    store.wire.command("SCRIPT", "FLUSH")
    queue_step = QueueStep(QUEUE)
    queue_step.complete([finish(reservation)])
    launch.store.step(launch.claim, [queue_step], lasts_ms=HOUR, now=lambda: 0.0, reports={QUEUE: {b"a": HALF}})
    assert (seen(store) or ())[:3] == HALF[:3]


def test_a_launch_that_was_overtaken_reports_nothing(store: RedisStore, launch: Launch) -> None:
    launch.reserve()
    newer = Launch(store, fence=2)
    newer.reserve()
    with pytest.raises(LeaseLost):
        report(launch, a=HALF)
    other = Launch(store, fence=3, slot=1)
    report(other, a=HALF)
    assert seen(store) is None, "another launch has it"


def test_it_is_forgotten_with_its_message(store: RedisStore, launch: Launch, person: MessageActions) -> None:
    dying, completed = launch.reserve(2)
    report(launch, a=HALF, b=HALF)
    launch.settle(die(dying), finish(completed))
    person.purge(QUEUE, ["a"])
    store.wire.run("trim", store.keys, QUEUE, [10, HOUR, 10, 0, 0, "", ""])
    assert Looking(store).hash("progress") == {}


@pytest.mark.parametrize("stored", [b"", b"xxxxxx", b"xxxxxx[1]", b'xxxxxx["1",2,""]', b"xxxxxx{}", b"xxxxxx[1,2,3]"])
def test_what_is_no_progress_shows_as_none(store: RedisStore, launch: Launch, stored: bytes) -> None:
    launch.reserve()
    store.wire.command("HSET", store.keys.queue(QUEUE, "progress"), "a", stored)
    assert seen(store) is None
