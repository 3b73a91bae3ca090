"""How long the mover waits, and what it tells of."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from hypothesis import given
from hypothesis import strategies as st

from pollconsumer.core.events import OrphansRecovered, QueueLeftOut
from pollconsumer.core.window import Window
from pollconsumer.runtime.mover import Mover, MoverOptions
from pollconsumer.store.queues.outbox import pack
from pollconsumer.store.records.reservations import Claim
from tests.site import wait_until
from tests.store import acting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pollconsumer.core.events import Event
    from pollconsumer.runtime.launch.launch import Launch
    from pollconsumer.store.queues.redis_store import RedisStore


MARGIN = 0.25


def mover_of(launch: SimpleNamespace, wake: object = None, idle_time: float = 1.0) -> Mover:
    launch.bare_wire, launch.min_margin = lambda: None, MARGIN
    mover = Mover(cast("Launch", launch), MoverOptions(idle_time, 100))
    mover._wake = cast("Any", wake)  # noqa: SLF001  it waits as a test says
    return mover


class Waits:
    def __init__(self) -> None:
        self.seconds: list[float] = []

    def wait(self, seconds: float) -> bool:
        self.seconds.append(seconds)
        return False


@given(
    now=st.floats(0, 100),
    stop_before=st.floats(0, 100),
    idle_time=st.floats(0.001, 60),
    next_due=st.just(inf) | st.floats(0, 1000),
)
def test_no_wait_is_negative_or_outlasts_idle_time_due_time_or_window(
    now: float, stop_before: float, idle_time: float, next_due: float
) -> None:
    waits = Waits()
    launch = SimpleNamespace(window=Window(0.0, stop_before), clock=lambda: now, store=None, claim=None, emit=None)
    mover = mover_of(launch, waits, idle_time)
    mover.idle(next_due)
    (seconds,) = waits.seconds
    assert 0 <= seconds <= idle_time
    assert seconds <= max(0.0, stop_before - now - MARGIN)
    assert seconds <= next_due


class Queues:
    """A store without queues, which counts how often it is asked for them."""

    def __init__(self) -> None:
        self.asked = 0

    def queues(self) -> list[str]:
        self.asked += 1
        return []

    def part(self, _: Sequence[str]) -> None: ...


def test_the_set_of_queues_is_read_once_a_second_and_when_woken() -> None:
    clock, store, woken = SimpleNamespace(now=0.0), Queues(), SimpleNamespace(wait=lambda _: True)
    progress = SimpleNamespace(count=lambda _: None)
    launch = SimpleNamespace(
        window=Window(0.0, 60.0), clock=lambda: clock.now, store=store, claim=None, emit=None, progress=progress
    )
    mover = mover_of(launch, woken)
    for _ in range(3):
        mover.promote()
    assert store.asked == 1
    mover.idle(inf)
    mover.promote()
    assert store.asked == 2
    clock.now = 1.0
    mover.promote()
    assert store.asked == 3


def test_the_first_look_at_a_queue_tells_of_the_orphans_that_it_recovers(store: RedisStore) -> None:
    dead = acting.Launch(store)
    store.enqueue([acting.message("orphan")])
    dead.reserve()
    store.wire.command("HSET", store.keys.queue(acting.QUEUE, "announced"), dead.claim.lease_name, 2)  # and died, too
    told: list[Event] = []
    launch = SimpleNamespace(
        window=Window(0.0, 60.0),
        clock=lambda: 0.0,
        store=store,
        claim=Claim("mover:0", "3", "mover"),
        emit=told.append,
        attendance=SimpleNamespace(seen_ms=4),
    )
    mover = mover_of(launch)
    assert mover.queues() == [acting.QUEUE]
    assert told == [OrphansRecovered(acting.QUEUE, 1)]
    assert not store.wire.command("EXISTS", store.keys.queue(acting.QUEUE, "served"))


def test_of_two_queues_the_one_whose_keys_cannot_be_used_is_left_out_not_the_sender(store: RedisStore) -> None:
    told: list[Event] = []
    launch = SimpleNamespace(
        window=Window(0.0, 60.0),
        clock=lambda: 0.0,
        store=store,
        claim=Claim("mover:0", "3", "mover"),
        emit=told.append,
        attendance=SimpleNamespace(seen_ms=4),
        progress=SimpleNamespace(count=lambda _: None),
        leases=SimpleNamespace(live_fences=list),
    )
    store.enqueue([acting.message("there", queue="broken")])
    store.enqueue([acting.message("late", delay=acting.HOUR)])
    mover = mover_of(launch)
    assert sorted(mover.queues()) == ["broken", acting.QUEUE]
    store.wire.command(
        "RPUSH", store.keys.queue(acting.QUEUE, "outbox"), pack([acting.message("x", queue="broken")], 0)
    )
    store.wire.all([("DEL", key := store.keys.queue("broken", "rows")), ("SET", key, "a text")])
    mover.promote()
    mover.maintain()
    assert [cast("Any", event).queue for event in told if isinstance(event, QueueLeftOut)] == ["broken"]
    store.enqueue([acting.message("later", delay=1)])
    wait_until(lambda: mover.promote()[0] == 1, "the message that is due")
