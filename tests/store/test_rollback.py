"""A store that went back to an earlier state: who notices it, what is said, and what becomes of fences."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.errors import WentBack
from pollconsumer.store import suitability
from pollconsumer.store.actions import MessageActions
from pollconsumer.store.leases import Group, Leases
from pollconsumer.store.queues.producer import Producer, new_id
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.records.reservations import Claim
from pollconsumer.store.records.steps import Kept, Retention
from pollconsumer.store.suitability import Rollback, Suitability
from tests.conftest import NAMESPACE
from tests.store.acting import QUEUE, Launch, finish, message
from tests.store.servers import server_ms
from tests.store.test_suitability import Memo

if TYPE_CHECKING:
    from collections.abc import Callable

    from pollconsumer.store.client.wire import Wire
    from tests.store.servers import Server

FENCES = f"{{{NAMESPACE}}}:fences"
GROUP = Group("consumer", (QUEUE,), 1)


class Watermarks:
    """What is kept in a file."""

    def __init__(self) -> None:
        self.text = ""

    def read_watermarks(self) -> str:
        return self.text

    def write_watermarks(self, text: str) -> None:
        self.text = text


class Host:
    """Processes of one user: what they remember, and what they print."""

    def __init__(self, server: Server, *, refuse: bool = False, confirmed: bool = False) -> None:
        self.watermarks, self.said = Watermarks(), list[str]()
        self._server, self._refuse, self._confirmed, self._memo = server, refuse, confirmed, Memo()
        self.wire().command("PING")  # the store is known here

    def wire(self) -> Wire:
        """That of a new process."""
        noticing = Rollback(
            NAMESPACE, self.watermarks, self.said.append, refuse=self._refuse, confirmed=self._confirmed
        )
        self.note = noticing.note
        return self._server.wire(greet=Suitability(NAMESPACE, self._memo, self.said.append, rollback=noticing))

    def leases(self) -> Leases:
        return Leases(self.wire(), NAMESPACE)


@pytest.fixture
def going_back(valkey: Server) -> Callable[[], Callable[[], None]]:
    """Keeps the present state. What it returns brings that back."""
    wire = valkey.wire()

    def keep() -> Callable[[], None]:
        kept = {key: wire.command("DUMP", key) for key in wire.command("KEYS", "*")}

        def bring_back() -> None:
            wire.command("FLUSHALL")
            for key, content in kept.items():
                wire.command("RESTORE", key, 0, content)

        return bring_back

    return keep


def take(leases: Leases, launch: str = "one") -> Claim:
    acquired = leases.acquire(GROUP, launch, "{}", "{}")
    assert isinstance(acquired, Claim)
    return acquired


def renew(leases: Leases, claim: Claim) -> bool | None:
    return leases.renew(claim, "{}")


# The mark


def test_the_mark_rises_with_each_acquisition_renewal_and_release(valkey: Server) -> None:
    wire = valkey.wire()
    leases, before = Leases(wire, NAMESPACE), server_ms(wire)

    def mark() -> int:
        return int(wire.command("HGET", FENCES, "mark"))

    claim = take(leases)
    marks = [mark()]
    renew(leases, claim)
    marks.append(mark())
    leases.release(claim, "{}")
    marks.append(mark())
    marks.append(int(take(leases, "two").fence))
    assert before <= marks[0]
    assert all(one < other for one, other in itertools.pairwise(marks))


def test_a_renewal_finds_that_the_store_went_back_once(
    valkey: Server, going_back: Callable[[], Callable[[], None]]
) -> None:
    leases = Leases(valkey.wire(), NAMESPACE)
    claim = take(leases)
    bring_back = going_back()
    assert renew(leases, claim)
    seen = leases._wire.watermarks.seen  # noqa: SLF001  that of the store
    assert leases.rollback is None
    bring_back()
    assert renew(leases, claim)
    assert leases.rollback == (seen, int(claim.fence))
    assert renew(leases, claim)
    assert leases.rollback is None


def test_a_renewal_that_finds_its_lease_lost_says_why(
    valkey: Server, going_back: Callable[[], Callable[[], None]]
) -> None:
    leases = Leases(valkey.wire(), NAMESPACE)
    valkey.wire().command("HSET", FENCES, "last", 1)
    bring_back = going_back()
    claim = take(leases)
    bring_back()
    assert renew(leases, claim) is False
    assert leases.rollback == (int(claim.fence), 0)


def test_a_later_process_says_so_once_with_both_instants(
    valkey: Server, going_back: Callable[[], Callable[[], None]]
) -> None:
    host, other = Host(valkey), Host(valkey)
    first = host.leases()
    bring_back = going_back()
    take(first)
    host.note(first._wire)  # noqa: SLF001  as a launch does at its end
    bring_back()
    for each in (host, other, host, host):
        each.wire().command("PING")
    (line,) = host.said
    assert line.startswith("store rolled back: it had reached 20")
    assert "; messages accepted since its beginning may be lost" in line
    assert other.said == []


def test_a_connection_that_is_made_anew_compares_with_what_its_process_has_seen(
    valkey: Server, going_back: Callable[[], Callable[[], None]]
) -> None:
    host = Host(valkey)
    leases = host.leases()
    bring_back = going_back()
    take(leases)
    bring_back()
    wire = leases._wire  # noqa: SLF001  that of the store
    wire.close()
    wire.command("PING")
    assert len(host.said) == 1


def test_a_mark_that_another_launch_leaves_behind_meanwhile_is_no_loss(valkey: Server) -> None:
    class Meanwhile(Watermarks):
        def read_watermarks(self) -> str:
            fence = take(Leases(valkey.wire(), NAMESPACE), new_id()).fence
            return f"{fence} {fence}"

    host = Host(valkey)
    host.watermarks = Meanwhile()
    host.wire().command("PING")
    assert host.said == []


def test_where_writers_wait_for_replicas_what_was_merely_read_is_no_loss(
    valkey: Server, going_back: Callable[[], Callable[[], None]]
) -> None:
    """Its writer may not have been told of it: a promoted replica lacks it then, and nothing that was acknowledged."""
    host = Host(valkey, confirmed=True)
    bring_back = going_back()
    take(Leases(valkey.wire(), NAMESPACE))
    wire = host.wire()
    wire.command("PING")
    bring_back()
    wire.close()
    for each in (wire, host.wire()):
        each.command("PING")
    assert host.said == []


def test_where_writers_wait_for_replicas_what_they_were_told_of_is_missed_once(
    valkey: Server, going_back: Callable[[], Callable[[], None]]
) -> None:
    host = Host(valkey, confirmed=True)
    leases = host.leases()
    wire = leases._wire  # noqa: SLF001  that of the store
    bring_back = going_back()
    take(leases)
    host.note(wire)
    bring_back()
    wire.close()
    for each in (wire, host.wire()):
        each.command("PING")
    assert len(host.said) == 1


def test_a_store_that_is_to_be_refused_stays_so_until_it_is_accepted(
    valkey: Server, going_back: Callable[[], Callable[[], None]]
) -> None:
    host = Host(valkey, refuse=True)
    leases = host.leases()
    bring_back = going_back()
    take(leases)
    host.note(leases._wire)  # noqa: SLF001  as a launch does at its end
    bring_back()
    for _ in range(2):
        with pytest.raises(WentBack, match=r"store rolled back: .*; see what is missing, then .* store adopt"):
            host.wire().command("PING")
        take(Leases(valkey.wire(), NAMESPACE))  # others go on
    host.watermarks.text = ""
    host.wire().command("PING")
    assert host.said == []


@pytest.mark.parametrize("garbage", ["", "x", "nan", "-1", "9" * 30])
def test_a_mark_that_is_no_number_counts_as_none(valkey: Server, garbage: str) -> None:
    host, wire = Host(valkey), valkey.wire()
    leases = Leases(wire, NAMESPACE)
    claim = take(leases)
    wire.command("HSET", FENCES, "mark", garbage)
    host.wire().command("PING")
    assert renew(leases, claim)
    assert leases.rollback == (int(claim.fence), 0)


@pytest.mark.parametrize("garbage", ["", "1", "x y", "1 2 3", f"{1 << 48} {1 << 48}", "9" * 5000])
def test_a_file_of_marks_that_cannot_be_meant_counts_as_none(valkey: Server, garbage: str) -> None:
    host = Host(valkey)
    host.watermarks.text = garbage
    host.wire().command("PING")
    assert host.said == []


# Fences


def test_a_fence_is_above_all_that_its_launch_has_seen_though_the_store_has_lost_them(
    valkey: Server, going_back: Callable[[], Callable[[], None]]
) -> None:
    wire, host = valkey.wire(), Host(valkey)
    wire.command("HSET", FENCES, "last", server_ms(wire) + 10**9)  # its clock was set back: it does not help
    bring_back = going_back()
    lost = host.leases()
    fence = int(take(lost).fence)
    host.note(lost._wire)  # noqa: SLF001  as a launch does at its end
    bring_back()
    stranger = int(take(Leases(wire, NAMESPACE), "stranger").fence)
    bring_back()
    assert stranger == fence  # who has seen nothing cannot know
    assert int(take(host.leases(), "two").fence) > fence
    assert int(take(host.leases(), "two").fence) > fence  # the same launch


# The last message


@pytest.fixture
def producer(valkey: Server) -> tuple[Producer, list[str]]:
    host = Host(valkey)
    return Producer(host.wire(), NAMESPACE), host.said


def anew(store: Producer) -> None:
    store.wire.close()
    store.wire.command("PING")


def one(store: Producer, message_id: str) -> None:
    store.enqueue_one(message(message_id))


def with_options(store: Producer, message_id: str) -> None:
    store.enqueue([message(message_id, priority=1)])


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("enqueue", [one, with_options])
def test_a_producer_says_that_a_message_is_gone(
    enqueue: Callable[[Producer, str], None],
    known: bool,
    producer: tuple[Producer, list[str]],
    going_back: Callable[[], Callable[[], None]],
) -> None:
    store, said = producer
    if known:
        enqueue(store, new_id())
    bring_back, lost = going_back(), "tells-no-time"
    enqueue(store, lost)
    anew(store)
    assert said == []
    bring_back()
    anew(store)
    anew(store)
    (line,) = said
    assert line.startswith(
        f"store rolled back: message {lost}, which was accepted, is not there; messages accepted since "
    )


def test_a_launch_says_that_a_completed_message_is_to_be_handled_again(
    valkey: Server, going_back: Callable[[], Callable[[], None]]
) -> None:
    host = Host(valkey)
    launch = Launch(RedisStore(host.wire(), NAMESPACE))
    launch.store.enqueue([message("a")])
    bring_back = going_back()
    launch.complete(*launch.reserve())
    anew(launch.store.producer)
    assert host.said == []
    bring_back()
    anew(launch.store.producer)
    (line,) = host.said
    assert "message a, which was completed, would be handled again; " in line


def test_what_was_forgotten_or_removed_is_no_loss(producer: tuple[Producer, list[str]], valkey: Server) -> None:
    store, said = producer
    acting = RedisStore(valkey.wire(), NAMESPACE)
    launch = Launch(acting)
    store.enqueue([message("completed")])
    launch.complete(*launch.reserve())
    acting.maintenance.trim(QUEUE, Retention(Kept(0, 0)))
    anew(store)
    store.enqueue([message("with a result")])
    (reservation,) = launch.reserve()
    launch.settle(finish(reservation, "1"))
    anew(store)
    store.enqueue([message("cancelled")])
    MessageActions(valkey.wire(), NAMESPACE).cancel(QUEUE, "cancelled")
    acting.maintenance.trim(QUEUE, Retention(Kept(0, 0)))
    anew(store)
    store.enqueue([message("holder", key="k")])
    store.enqueue([message("duplicate", key="k")])
    anew(store)
    assert said == []


@pytest.mark.parametrize("enqueue", [one, with_options])
def test_what_may_be_forgotten_by_now_is_not_missed(
    enqueue: Callable[[Producer, str], None],
    producer: tuple[Producer, list[str]],
    valkey: Server,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, said = producer
    for _ in range(2):  # the first of a queue goes another way
        enqueue(store, new_id())
    monkeypatch.setattr(suitability, "REPEAT_WITHIN_MS", -60_000)
    valkey.wire().command("DEL", store.keys.queue(QUEUE, "records"))
    anew(store)
    assert said == []
