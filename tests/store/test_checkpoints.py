"""Checkpoints: how far a message has come, for whoever handles it next."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.errors import LeaseLost
from pollconsumer.store.records import rows
from tests.store.acting import HOUR, QUEUE, Launch, Looking, die, finish, message, release, retry
from tests.store.servers import snapshot

if TYPE_CHECKING:
    from pollconsumer.store.actions import MessageActions
    from pollconsumer.store.queues.redis_store import RedisStore
    from pollconsumer.store.records.reservations import Reservation


def at_page(store: RedisStore, launch: Launch, page: bytes = b"7") -> Reservation:
    (reservation,) = launch.reserve()
    store.checkpoint(launch.claim, reservation, page)
    return reservation


@pytest.fixture
def launch(store: RedisStore) -> Launch:
    store.enqueue([message("a")])
    return Launch(store)


def test_the_next_attempt_finds_the_last_one(store: RedisStore, launch: Launch) -> None:
    reservation = at_page(store, launch)
    assert reservation.has_checkpoint
    store.checkpoint(launch.claim, reservation, b"8")
    launch.settle(release(reservation))
    (again,) = launch.reserve()
    assert again.has_checkpoint
    assert store.recorded(again)[0] == b"8"


def test_there_is_none_to_begin_with(store: RedisStore, launch: Launch) -> None:
    (reservation,) = launch.reserve()
    assert not reservation.has_checkpoint
    assert store.recorded(reservation)[0] is None


@pytest.mark.parametrize("way", ["death of the process", "retry", "redrive"])
def test_it_outlives_an_attempt_that_fails(store: RedisStore, launch: Launch, person: MessageActions, way: str) -> None:
    reservation = at_page(store, launch)
    if way == "death of the process":
        launch = Launch(store, fence=2)
    elif way == "retry":
        launch.settle(retry(reservation))
        store.promote(launch.claim, QUEUE, 1)
    else:
        launch.settle(die(reservation))
        assert person.redrive(QUEUE, ["a"]) == ["a"]
    (again,) = launch.reserve()
    assert again.has_checkpoint
    assert store.recorded(again)[0] == b"7"


@pytest.mark.parametrize("end", ["complete", "finish", "cancel", "purge"])
def test_it_ends_with_the_message(
    store: RedisStore, launch: Launch, look: Looking, person: MessageActions, end: str
) -> None:
    reservation = at_page(store, launch)
    if end == "complete":
        launch.complete(reservation)
    elif end == "finish":
        launch.settle(finish(reservation))
    elif end == "cancel":
        launch.settle(retry(reservation, HOUR))
        person.cancel(QUEUE, "a")
    else:
        launch.settle(die(reservation))
        assert look.hash("checkpoints") == {"a": b"7"}
        person.purge(QUEUE, ["a"])
    assert look.hash("checkpoints") == {}


def test_trimming_leaves_none_behind(
    store: RedisStore, launch: Launch, look: Looking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pollconsumer.store.queues.maintenance.KEEP_FINISHED", 0)
    launch.complete(*launch.reserve())
    store.wire.command("HSET", look.key("checkpoints"), "a", "stray")
    store.maintenance.trim(QUEUE)
    assert look.hash("checkpoints") == {}


def test_an_overtaken_launch_writes_none(store: RedisStore, launch: Launch) -> None:
    (reservation,) = launch.reserve()
    Launch(store, fence=2)
    before = snapshot(store.wire)
    with pytest.raises(LeaseLost):
        store.checkpoint(launch.claim, reservation, b"7")
    assert snapshot(store.wire) == before
    assert not reservation.has_checkpoint


def test_nor_does_one_whose_message_was_not_offered_to_another_yet(
    store: RedisStore, launch: Launch, look: Looking
) -> None:
    """A launch announces itself before it recovers: in between the row is as it was, and the fence alone tells."""
    (reservation,) = launch.reserve()
    store.wire.command("HSET", look.key("announced"), launch.claim.lease_name, "2")
    before = snapshot(store.wire)
    with pytest.raises(LeaseLost):
        store.checkpoint(launch.claim, reservation, b"7")
    assert snapshot(store.wire) == before


def test_nor_does_one_whose_message_was_offered_to_another(store: RedisStore, launch: Launch) -> None:
    (reservation,) = launch.reserve(lasts_ms=0)
    store.maintenance.recover(QUEUE, [])
    launch.reserve()
    before = snapshot(store.wire)
    with pytest.raises(LeaseLost, match="a"):
        store.checkpoint(launch.claim, reservation, b"7")
    assert snapshot(store.wire) == before


def test_writing_it_again_after_a_lost_reply_is_no_loss(store: RedisStore, launch: Launch) -> None:
    reservation = at_page(store, launch)
    reserved = bytes([reservation.row[0] & ~rows.CHECKPOINT]) + reservation.row[1:]
    reservation.row = reserved
    store.checkpoint(launch.claim, reservation, b"7")
    assert store.recorded(reservation)[0] == b"7"
    assert launch.complete(reservation).stale == []
