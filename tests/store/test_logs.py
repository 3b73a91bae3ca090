"""What attempts have logged, as the store keeps it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.core.errors import LeaseLost
from pollconsumer.core.messages.message_steps import Progress
from pollconsumer.core.notation.instants import epoch_ms
from pollconsumer.store.reading.inspector import Inspector
from pollconsumer.store.records.steps import LogEntry
from tests.conftest import NAMESPACE
from tests.store.acting import HOUR, QUEUE, Launch, Looking, die, finish, message, release, retry

if TYPE_CHECKING:
    from pollconsumer.store.actions import MessageActions
    from pollconsumer.store.queues.redis_store import RedisStore
    from pollconsumer.store.records.reservations import Reservation
    from pollconsumer.store.records.steps import Reports

MOST = 60


@pytest.fixture
def launch(store: RedisStore) -> Launch:
    store.enqueue([message("a"), message("b")])
    return Launch(store)


def told(*reserved: tuple[int, int, str], name: bytes = b"a", most: int = MOST) -> dict[bytes, LogEntry]:
    """Reports of attempts: when each was reserved, its number, and its text."""
    return {b"%b\n%d" % (name, at): LogEntry(f"[{at},{attempt},", f'"{text}"', most) for at, attempt, text in reserved}


def log(launch: Launch, *reserved: tuple[int, int, str], **options: Any) -> None:
    launch.store.report(launch.claim, {QUEUE: told(*reserved, **options)})


def seen(store: RedisStore, name: str = "a") -> list[tuple[int, int, str]]:
    found = Inspector(store.wire, NAMESPACE).message(name, QUEUE).log
    return [(epoch_ms(each.at), each.attempt, each.text) for each in found]


def test_people_see_what_each_attempt_has_logged_last(store: RedisStore, launch: Launch) -> None:
    launch.reserve(2)
    log(launch, (1, 1, "one"))
    log(launch, (1, 1, "one, two"))
    log(launch, (12, 2, "three é"))
    log(launch, (1, 1, "of b"), name=b"b")
    assert seen(store) == [(1, 1, "one, two"), (12, 2, "three é")]
    assert seen(store, "b") == [(1, 1, "of b")]
    assert [each.log for each in Inspector(store.wire, NAMESPACE).messages(None, QUEUE, 9)] == [[], []], "not in lists"


def test_earlier_attempts_stay_while_all_fit_together(store: RedisStore, launch: Launch) -> None:
    launch.reserve()
    for attempt in range(1, 6):
        log(launch, (attempt, attempt, "x" * 20))
    assert [attempt for _, attempt, _ in seen(store)] == [4, 5]
    log(launch, (6, 6, "y" * 100))
    assert [attempt for _, attempt, _ in seen(store)] == [6], "the last one stays, however long it is"


def test_a_step_takes_lines_and_progress_along(store: RedisStore, launch: Launch) -> None:
    (reservation,) = launch.reserve()
    reports: Reports = {QUEUE: {b"a": Progress(1), **told((1, 1, "one"))}}
    store.step(launch.claim, [], lasts_ms=HOUR, now=lambda: 0.0, reports=reports)
    assert seen(store, reservation.name) == [(1, 1, "one")]
    assert Inspector(store.wire, NAMESPACE).message("a", QUEUE).progress is not None


@pytest.mark.parametrize("end", [finish, die, retry, release])
def test_they_stay_when_the_attempt_has_ended_and_come_after_it_as_well(
    store: RedisStore, launch: Launch, end: Any
) -> None:
    (reservation,) = launch.reserve()
    log(launch, (1, 1, "one"))
    launch.settle(end(reservation))
    log(launch, (1, 1, "one, two"))
    assert seen(store) == [(1, 1, "one, two")]


def test_lines_of_a_launch_that_was_overtaken_are_refused(store: RedisStore, launch: Launch) -> None:
    launch.reserve()
    log(launch, (1, 1, "of the first"))
    newer = Launch(store, fence=2)
    newer.reserve()
    with pytest.raises(LeaseLost):
        log(launch, (1, 1, "too late"))
    log(Launch(store, fence=3, slot=1), (1, 1, "of another one"))
    assert seen(store) == [(1, 1, "of the first")]


def test_they_are_forgotten_with_their_message(store: RedisStore, launch: Launch, person: MessageActions) -> None:
    dying, completed = launch.reserve(2)
    log(launch, (1, 1, "x"))
    log(launch, (1, 1, "x"), name=b"b")
    launch.settle(die(dying), finish(completed))
    person.purge(QUEUE, ["a"])
    store.wire.run("trim", store.keys, QUEUE, [10, HOUR, 10, 0, 0, "", ""])
    assert Looking(store).hash("logs") == {}


def test_lines_of_a_message_that_was_forgotten_are_not_stored(store: RedisStore, launch: Launch) -> None:
    (reservation,) = launch.reserve()
    launch.settle(finish(reservation))
    store.wire.run("trim", store.keys, QUEUE, [10, HOUR, 10, 0, 0, "", ""])
    log(launch, (1, 1, "x"))
    assert Looking(store).hash("logs") == {}


@pytest.mark.parametrize(
    "stored", [b"", b"x", b"[1]", b'["1",2,""]', b"{}", b"[1,{},3]", b'[1,"x",""]', b"[1,1,2]", b"\n\n"]
)
def test_what_is_no_log_shows_as_none(store: RedisStore, launch: Launch, stored: bytes) -> None:
    launch.reserve()
    store.wire.command("HSET", store.keys.queue(QUEUE, "logs"), "a", stored + b'\n[1,1,"x"]')
    assert seen(store) == [(1, 1, "x")]


def test_an_encoded_entry_is_shown_as_it_is_stored(store: RedisStore, launch: Launch) -> None:
    (reservation,) = launch.reserve()
    _report(launch, reservation, '{"x":"y"}')
    assert Inspector(store.wire, NAMESPACE).message("a", QUEUE).log[0].text == {"x": "y"}


def _report(launch: Launch, reservation: Reservation, text: str) -> None:
    launch.store.report(launch.claim, {QUEUE: {reservation.id + b"\n1": LogEntry("[1,1,", text, MOST)}})
