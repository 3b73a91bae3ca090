"""Keys of ours in which somebody else wrote: refused where it matters, passed over where it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pollconsumer.core.durations import Histogram
from pollconsumer.core.errors import StoreRefused
from pollconsumer.store.leases import Group
from pollconsumer.store.queues import maintenance
from pollconsumer.store.records.reservations import Claim
from tests.conftest import NAMESPACE
from tests.store.acting import QUEUE, Launch, message

if TYPE_CHECKING:
    from pollconsumer.store.client.wire import Wire
    from pollconsumer.store.leases import Leases
    from pollconsumer.store.queues.redis_store import RedisStore
    from pollconsumer.store.reading.inspector import Inspector

GROUP = Group("consumer", ("mail",), 1)
LEASE = "lease:consumer:mail:0"
CONTROL_TYPES = {
    "fences": "hash",
    "leases": "set",
    "launches": "list",
    "ledger": "hash",
    LEASE: "hash",
    "next:consumer:mail": "string",
}
GARBAGE = ["", "garbage", "-1", "1.5", "1e300", "nan", "0x10", "9" * 40]


def control(name: str) -> str:
    return f"{{{NAMESPACE}}}:{name}"


def everything(wire: Wire) -> dict[bytes, bytes]:
    keys = sorted(wire.command("KEYS", "*"))
    return dict(zip(keys, wire.all([("TYPE", key) for key in keys]), strict=True)) if keys else {}


def refused(leases: Leases) -> str:
    with pytest.raises(StoreRefused) as caught:
        leases.acquire(GROUP, "one", "{}", "{}")
    return str(caught.value)


@pytest.mark.parametrize("name", CONTROL_TYPES)
def test_a_lease_is_not_taken_where_a_key_has_another_type(leases: Leases, wire: Wire, name: str) -> None:
    kind = CONTROL_TYPES[name]
    wire.command(*(("SET", control(name), "x") if kind != "string" else ("RPUSH", control(name), "x")))
    before = everything(wire)
    assert refused(leases).startswith("key of a wrong type: ")
    assert everything(wire) == before


@pytest.mark.parametrize("garbage", [*GARBAGE, str(2**48 - 1)])  # no row can hold the fence after that
@pytest.mark.parametrize("field", ["last", "mark"])
def test_a_lease_is_not_taken_where_last_fence_or_mark_is_no_number(
    leases: Leases, wire: Wire, field: str, garbage: str
) -> None:
    wire.command("HSET", control("fences"), field, garbage)
    before = everything(wire)
    assert refused(leases).startswith(f"key of another program: {control('fences')}; ")
    assert everything(wire) == before


@pytest.mark.parametrize(
    "fields",
    [
        ("a", "b"),
        ("fence", "7"),
        ("fence", "x", "seq", "0", "launch", "two", "since", "1"),
        ("fence", "7", "seq", "x", "launch", "two", "since", "1"),
        ("fence", "7", "seq", "0", "launch", "one", "since", "x"),
    ],
)
def test_what_is_no_lease_is_neither_taken_nor_waited_for(leases: Leases, wire: Wire, fields: tuple[str, ...]) -> None:
    wire.command("HSET", control(LEASE), *fields)
    before = everything(wire)
    assert refused(leases).startswith(f"key of another program: {control(LEASE)}; ")
    assert everything(wire) == before


@pytest.mark.parametrize("garbage", GARBAGE)
def test_a_queue_with_a_fence_that_is_no_number_is_refused(store: RedisStore, wire: Wire, garbage: str) -> None:
    wire.command("HSET", store.keys.queue("mail", "announced"), "consumer:other:0", garbage)
    with pytest.raises(StoreRefused, match="key of another program"):
        store.maintenance.announce(Claim("consumer:mail:0", "7", GROUP.name), "mail")


@pytest.mark.parametrize(
    "garbage",
    ["", "garbage", "1.5", "0.5 4", "- 7:1", "e+ 7:1", "nan 7:1", "1e999 7:1", "-1 7:1", "1.5 7", "1 9999:1", "1 :"],
)
def test_durations_that_are_none_are_passed_over_and_learned_anew(leases: Leases, wire: Wire, garbage: str) -> None:
    wire.command("HSET", control(f"durations:{GROUP.name}"), "a", garbage)
    assert leases.learned(GROUP.name, ["a"]) == {}
    leases.learn(GROUP.name, {"a": Histogram(0.5, {7: 4})})
    assert leases.learned(GROUP.name, ["a"])["a"].counts == {7: 4}


def test_a_number_of_messages_that_is_none_begins_anew(leases: Leases, wire: Wire) -> None:
    wire.command("HSET", control(f"durations:{GROUP.name}"), "", "garbage")
    leases.learn(GROUP.name, {"a": Histogram(0.5, {7: 4})})
    assert wire.command("HGET", control(f"durations:{GROUP.name}"), "") == b"4"


def test_a_fence_that_is_no_number_counts_as_no_live_one(leases: Leases, wire: Wire) -> None:
    acquired = leases.acquire(GROUP, "one", "{}", "{}")
    assert isinstance(acquired, Claim)
    wire.command("SADD", control("leases"), "consumer:other:0")
    wire.command("HSET", control("lease:consumer:other:0"), "fence", "garbage")
    assert leases.live_fences() == [acquired.fence.encode()]


def test_an_instant_at_which_the_mover_was_seen_that_is_none_counts_as_never(inspector: Inspector, wire: Wire) -> None:
    wire.command("HSET", control("seen"), "mover", "garbage")
    assert inspector.overview().mover_seen_seconds_ago is None


@pytest.mark.parametrize("garbage", GARBAGE)
def test_a_beginning_of_the_memory_of_ids_that_is_none_is_replaced(
    store: RedisStore, wire: Wire, monkeypatch: pytest.MonkeyPatch, garbage: str
) -> None:
    monkeypatch.setattr(maintenance, "KEEP_FINISHED", 0)
    store.enqueue([message("a")])
    launch = Launch(store)
    launch.complete(*launch.reserve(1))
    wire.command("HSET", store.keys.queue(QUEUE, "counters"), "id memory began", garbage)
    assert store.maintenance.trim(QUEUE) == 1
    assert store.enqueue([message("a")])[0].duplicate
