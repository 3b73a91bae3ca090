"""A store is closed, exported, and imported elsewhere: all of it, or nothing that is served."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.core.errors import BadData, NotFound, PollConsumerError, StoreRefused, StoreUnreachable
from pollconsumer.moving import store_export
from pollconsumer.moving.store_closer import KeyName, StoreCloser
from pollconsumer.moving.store_export import Import, digest_of, export, pages
from pollconsumer.store.client.patience import Budget
from pollconsumer.store.keyspace import QUEUE_KEYS
from pollconsumer.store.leases import Group, Leases, TurnedAway
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.records.reservations import Claim
from pollconsumer.store.suitability import Suitability
from tests.conftest import NAMESPACE, empty_server
from tests.interface.keyspace_page import BY_GROUP, CONTROL_KEYS
from tests.leaving_out import long
from tests.site import wait_until
from tests.store.acting import QUEUE, Launch, message, names
from tests.store.moving import exported, imported, unexpected
from tests.store.servers import snapshot
from tests.store.test_earlier_versions import write_earlier

if TYPE_CHECKING:
    from collections.abc import Callable

    from pollconsumer.store.actions import MessageActions
    from pollconsumer.store.client.wire import Wire
    from tests.store.servers import Server

GROUP = Group("consumer", (QUEUE,), 1)
server = pytest.fixture(empty_server, params=["valkey", long("fakeredis")], name="server")
"""No sandbox is moved: the one in memory shows what the real one does."""
PASSING = {"lease", "next", "baton", "wanted", "successor_waits", "answered", "closing", "imported", "telling"}
"""Keys of the namespace that mean nothing elsewhere."""
LASTING = [f"{word}:consumer:mail" if word in BY_GROUP else word for word in CONTROL_KEYS if word not in PASSING]
WRITE = {"hash": "HSET", "list": "RPUSH", "set": "SADD", "zset": "ZADD", "string": "SET"}


class Memo:
    """What a host knows of the store."""

    def __init__(self, known: str | None = None) -> None:
        self.known = known

    def read(self) -> str | None:
        return self.known

    def write(self, store_id: str) -> None:
        self.known = store_id


@pytest.fixture
def everything(store: RedisStore) -> RedisStore:
    """Every key that a store may have, and more in each than fits into a page."""
    wire, key = store.wire, store.keys.queue
    wire.command("SET", store.keys.control("store-id"), "5" * 32)
    store.enqueue([message(f"m{n}", payload=b'{"a":"%d"}' % n) for n in range(1200)])
    for word, kept in QUEUE_KEYS.items():
        if word in ("stop_marker", "successor_waits", "records", "ready"):
            continue
        values: list[str | float | bytes] = [f"\x00\xff{word}{n}".encode("latin-1") for n in range(1200)]
        if kept.type == "hash":
            values = [part for value in values for part in (value, b"\x80" + bytes(str(value), "utf-8"))]
        if kept.type == "zset":
            values = [part for n, value in enumerate(values) for part in (n / 3 - 1e300 * (n % 2), value)]
        wire.command(WRITE[kept.type], key(QUEUE, word), *(values[:1] if kept.type == "string" else values))
    assert isinstance(Leases(wire, NAMESPACE).acquire(GROUP, "one", "{}", "{}"), Claim)
    wire.command("DEL", f"{store.keys.control('lease:consumer:mail:0')}")
    ours = {name: CONTROL_KEYS[name.partition(":")[0]] for name in LASTING}
    for name, (kind, _) in ours.items():
        of_kind: dict[str, list[str | float]] = {"hash": ["field", "value"], "zset": [1.5, "value"]}
        if not wire.command("EXISTS", store.keys.control(name)):
            wire.command(WRITE[kind], store.keys.control(name), *of_kind.get(kind, ["value"]))
    return store


def greeting(memo: Memo) -> Suitability:
    return Suitability(NAMESPACE, memo, lambda _: None)


@pytest.fixture
def elsewhere(server: Server) -> Callable[[], Wire]:
    """Another server: this one, without what was on it."""

    def emptied() -> Wire:
        wire = server.wire()
        wire.command("FLUSHALL")
        return wire

    return emptied


def test_what_is_imported_is_what_was_exported(everything: RedisStore, elsewhere: Callable[[], Wire]) -> None:
    before = snapshot(everything.wire)
    lines = exported(everything.wire)
    target = elsewhere()
    imported(target, lines)
    assert snapshot(target) == before
    assert exported(target)[-1] == lines[-1]


def test_keys_that_a_scan_does_not_show_are_exported_all_the_same(
    store: RedisStore, elsewhere: Callable[[], Wire], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of a slot of a cluster that moves from a node that was not scanned yet to one that was."""
    store.enqueue([message("a"), message("b", delay=1, queue="another")])
    before = snapshot(store.wire)
    closing = StoreCloser(store.wire, NAMESPACE)
    note = closing.close("e1", unexpected)
    with monkeypatch.context() as hidden:
        hidden.setattr(closing, "_scanned", lambda: iter(()))
        lines = [*export(closing, note)]
    target = elsewhere()
    imported(target, lines)
    assert snapshot(target) == before


def test_an_export_of_a_store_that_is_opened_meanwhile_has_no_end(store: RedisStore) -> None:
    store.enqueue([message("a"), message("b", delay=1, queue="another")])
    lines = len(exported(store.wire))
    closing = StoreCloser(store.wire, NAMESPACE)
    for opened_after in range(1, lines - 1):
        found = export(closing, closing.close("e1", unexpected))
        for _ in range(opened_after):
            next(found)
        closing.reopen()
        with pytest.raises(StoreRefused, match="changed during its export"):
            list(found)


def test_a_store_of_an_earlier_version_is_drained_where_it_was_imported(
    store: RedisStore, elsewhere: Callable[[], Wire]
) -> None:
    write_earlier(store)
    before = snapshot(store.wire)
    lines = exported(store.wire)
    target = elsewhere()
    imported(target, lines)
    assert snapshot(target) == before
    launch = Launch(RedisStore(target, NAMESPACE), 1 << 45)
    reserved = launch.reserve(99)
    assert {"ready", "urgent", "orphan"} <= {*names(reserved)}
    assert not launch.complete(*reserved).stale


def test_the_id_of_the_store_moves_with_it_so_that_hosts_recognise_it(
    everything: RedisStore, elsewhere: Callable[[], Wire]
) -> None:
    lines = exported(everything.wire)
    target = elsewhere()
    imported(target, lines)
    assert target.command("GET", everything.keys.control("store-id")) == b"5" * 32
    memo = Memo("5" * 32)
    if everything.wire.address.startswith("unix"):  # the other has no INFO
        greeting(memo)(target)


def test_fences_go_on_above_those_that_were_given_before_the_move(
    store: RedisStore, elsewhere: Callable[[], Wire]
) -> None:
    ahead = 1 << 46  # of the clock of the other server
    store.wire.command("HSET", store.keys.control("fences"), "last", ahead)
    lines = exported(store.wire)
    target = elsewhere()
    imported(target, lines)
    acquired = Leases(target, NAMESPACE).acquire(GROUP, "two", "{}", "{}")
    assert isinstance(acquired, Claim)
    assert int(acquired.fence) > ahead


def test_keys_that_expire_still_do(store: RedisStore, elsewhere: Callable[[], Wire]) -> None:
    store.enqueue([message("a")])
    store.wire.command("SET", store.keys.queue(QUEUE, "served"), "1", "PX", 50_000)
    lines = exported(store.wire)
    target = elsewhere()
    imported(target, lines)
    assert 0 < target.command("PTTL", store.keys.queue(QUEUE, "served")) <= 50_000


def test_a_key_that_expires_during_an_export_is_left_out_or_still_expires(
    store: RedisStore, elsewhere: Callable[[], Wire]
) -> None:
    store.enqueue([message("a")])
    wire, served = store.wire, store.keys.queue(QUEUE, "served")
    wire.command("SET", served, "1", "PX", 50_000)
    closing = StoreCloser(wire, NAMESPACE)
    note = closing.close("e1", unexpected)
    closed = closing.closed_key(KeyName(QUEUE, "served"))

    def lines_if_it_expires_after(is_last: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
        found = list[dict[str, Any]]()
        for line in export(closing, note):
            found.append(line)
            if is_last(line):
                wire.command("DEL", closed)
        return found

    after_its_page = lines_if_it_expires_after(lambda line: line.get("key") == "served")
    [_, end] = [line for line in after_its_page if line.get("key") == "served"]
    assert 0 < end["expires_in_ms"] <= 50_000
    wire.command("SET", closed, "1", "PX", 50_000)
    after_the_header = lines_if_it_expires_after(lambda line: "format" in line)
    assert [line for line in after_the_header if line not in after_its_page] == [after_the_header[-1]]
    imported(elsewhere(), after_the_header)


@pytest.mark.parametrize("left", [0, -2])
def test_a_key_that_an_earlier_export_found_expired_does_not_last_for_ever(
    store: RedisStore, elsewhere: Callable[[], Wire], left: int
) -> None:
    store.wire.command("SET", store.keys.queue(QUEUE, "served"), "1", "PX", 50_000)
    lines = exported(store.wire)
    target = elsewhere()
    imported(target, [line | {"expires_in_ms": left} if line.get("expires_in_ms", -1) > 0 else line for line in lines])
    wait_until(lambda: not target.command("EXISTS", store.keys.queue(QUEUE, "served")), "the key has expired")


# Closing


def call_each(store: RedisStore, person: MessageActions, launch: Launch) -> list[Callable[[], object]]:
    leases = Leases(store.wire, NAMESPACE)
    return [
        lambda: store.enqueue([message("new")]),
        lambda: store.enqueue([message("new", delay=1)]),
        lambda: store.enqueue([message("new", queue="another")]),
        lambda: store.producer.enqueue_one(message("new")),
        lambda: launch.step(wanted=1),
        lambda: store.promote(launch.claim, QUEUE, 1),
        lambda: person.cancel(QUEUE, "a"),
        lambda: person.redrive(QUEUE, ["a"]),
        lambda: leases.acquire(GROUP, "two", "{}", "{}"),
        lambda: leases.renew(launch.claim, "{}"),
        lambda: store.maintenance.trim(QUEUE),
        lambda: store.maintenance.repair(QUEUE),
    ]


def test_nothing_changes_in_a_closed_store_whatever_a_connected_program_does(
    store: RedisStore, person: MessageActions
) -> None:
    store.enqueue([message("a"), message("b")])
    store.producer.enqueue_one(message("c"))
    launch = Launch(store)
    person.cancel(QUEUE, "b")
    exported(store.wire)
    before = snapshot(store.wire)
    for call in call_each(store, person, launch):
        with pytest.raises(PollConsumerError):
            call()
        assert snapshot(store.wire) == before


def test_a_producer_that_is_connected_is_told_that_the_store_was_closed(valkey: Server) -> None:
    producer = RedisStore(valkey.wire(lambda: Budget(1), greeting(Memo())), NAMESPACE)
    producer.enqueue([message("a")])
    exported(valkey.wire())
    with pytest.raises(StoreUnreachable, match="store closed: for its export") as caught:
        producer.enqueue([message("b")])
    assert not caught.value.sent


def test_whoever_connects_to_a_closed_store_is_told_so_whether_it_is_known_to_them_or_not(valkey: Server) -> None:
    wire, known, unknown = valkey.wire(), Memo(), Memo()
    greeting(known)(wire)
    exported(wire)
    for memo in (known, unknown):
        held = memo.known
        with pytest.raises(StoreUnreachable, match="store closed"):
            greeting(memo)(valkey.wire())
        assert memo.known == held


def test_a_store_closes_once_no_lease_is_held_and_gives_none_until_then(store: RedisStore, leases: Leases) -> None:
    acquired = leases.acquire(GROUP, "one", "{}", "{}")
    assert isinstance(acquired, Claim)
    looks = []

    def release(held: list[str]) -> None:
        looks.append(held)
        assert leases.acquire(GROUP, "two", "{}", "{}") == TurnedAway(())
        store.enqueue([message(f"m{len(looks)}")])
        if len(looks) == 2:
            leases.release(acquired, "{}")

    StoreCloser(store.wire, NAMESPACE).close("e1", release)
    assert looks == [["consumer:mail:0"]] * 2
    with pytest.raises(PollConsumerError):
        leases.acquire(GROUP, "two", "{}", "{}")


def test_a_mark_of_a_closing_store_that_does_not_expire_is_named_instead_of_turning_launches_away(
    store: RedisStore, leases: Leases
) -> None:
    store.wire.command("SET", mark := store.keys.control("closing"), "garbage")
    with pytest.raises(StoreRefused, match=mark):
        leases.acquire(GROUP, "one", "{}", "{}")
    store.wire.command("PEXPIRE", mark, 60_000)
    assert leases.acquire(GROUP, "one", "{}", "{}") == TurnedAway(())


def test_an_export_that_waits_while_another_one_closes_the_store_continues_with_it(
    store: RedisStore, leases: Leases
) -> None:
    acquired = leases.acquire(GROUP, "one", "{}", "{}")
    assert isinstance(acquired, Claim)
    others = []

    def release(_: list[str]) -> None:
        leases.release(acquired, "{}")
        others.append(StoreCloser(store.wire, NAMESPACE).close("e1", release))

    assert [StoreCloser(store.wire, NAMESPACE).close("e2", release)] == others


def test_giving_up_before_it_closes_leaves_the_store_as_it_was(store: RedisStore, leases: Leases) -> None:
    leases.acquire(GROUP, "one", "{}", "{}")
    before = snapshot(store.wire)

    def interrupted(_: list[str]) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        StoreCloser(store.wire, NAMESPACE).close("e1", interrupted)
    assert snapshot(store.wire) == before


class Suspended(StoreCloser):
    """After its last look at leases, for so long that one is given."""

    looks = 0

    def key_names(self) -> list[KeyName]:
        self.looks += 1
        if self.looks == 2:
            self.wire.command("DEL", self.keys.control("closing"))  # it expires
            Leases(self.wire, NAMESPACE).acquire(GROUP, "one", "{}", "{}")
        return super().key_names()


def test_a_lease_that_is_given_while_an_export_is_suspended_is_awaited(store: RedisStore) -> None:
    waited = []

    def end(held: list[str]) -> None:
        waited.append(held)
        store.wire.command("DEL", store.keys.control("lease:consumer:mail:0"))

    store.enqueue([message("a")])
    Suspended(store.wire, NAMESPACE).close("e1", end)
    assert waited == [["consumer:mail:0"]]


def test_an_unknown_key_is_named_and_the_store_stays_open(store: RedisStore) -> None:
    store.enqueue([message("a")])
    store.wire.command("SET", f"{{{NAMESPACE}:{QUEUE}}}:newer", 1)
    before = snapshot(store.wire)
    with pytest.raises(BadData, match=f"unknown key: {{{NAMESPACE}:{QUEUE}}}:newer; "):
        StoreCloser(store.wire, NAMESPACE).close("e1", unexpected)
    assert snapshot(store.wire) == before


def test_a_store_that_is_reopened_is_as_it_was(everything: RedisStore) -> None:
    before = snapshot(everything.wire)
    exported(everything.wire)
    StoreCloser(everything.wire, NAMESPACE).reopen()
    assert snapshot(everything.wire) == before
    with pytest.raises(NotFound, match="not closed"):
        StoreCloser(everything.wire, NAMESPACE).reopen()


def test_an_export_that_was_broken_off_is_continued_from_any_point(store: RedisStore) -> None:
    store.enqueue([message("a"), message("b", queue="another")])
    closing = StoreCloser(store.wire, NAMESPACE)
    queues = store.wire.command("SMEMBERS", store.keys.control("queues"))
    closing.close("e1", unexpected)
    whole = snapshot(store.wire)
    for queue in queues:  # as if it had died before it came to this one
        reopen(store.wire, queue.decode())
        assert snapshot(store.wire) != whole
        closing.close("e2", unexpected)
        assert snapshot(store.wire) == whole


def reopen(wire: Wire, queue: str) -> None:
    """A queue alone."""
    prefix = f"{{{NAMESPACE}:{queue}}}:"
    pairs = [(prefix + key.suffix, f"{prefix}closed:{key.suffix}") for key in QUEUE_KEYS.values()]
    wire.call("reopen", [name for pair in pairs for name in pair], [])


# Importing


def test_an_import_that_was_cut_off_after_any_line_is_continued(
    store: RedisStore, elsewhere: Callable[[], Wire], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_export, "FEWEST", 2)
    monkeypatch.setattr(store_export, "MOST", 2)
    store.enqueue([message(f"m{n}") for n in range(5)])
    before = snapshot(store.wire)
    lines = exported(store.wire)
    target = elsewhere()
    for cut in range(1, len(lines)):
        with pytest.raises(AssertionError, match="cut off"):
            imported(target, lines[:cut])
        assert (target.command("GET", f"{{{NAMESPACE}}}:store-id") or b"").startswith(b"closed ")
    imported(target, lines)
    assert snapshot(target) == before


def test_a_page_that_is_sent_twice_counts_once(everything: RedisStore, elsewhere: Callable[[], Wire]) -> None:
    before = snapshot(everything.wire)
    lines = exported(everything.wire)
    target = elsewhere()
    doubled = [line for line in lines for _ in range(2 if "values" in line else 1)]
    imported(target, doubled)
    assert snapshot(target) == before


def test_an_import_that_died_while_it_opened_the_store_is_finished(
    store: RedisStore, elsewhere: Callable[[], Wire]
) -> None:
    store.enqueue([message("a"), message("b", queue="another")])
    before = snapshot(store.wire)
    lines = exported(store.wire)
    target = elsewhere()
    importing = Import(StoreCloser(target, NAMESPACE), lambda _: None)
    importing.begin(lines[0])
    for line in lines[1:-1]:
        importing.take(line)
    reopen(target, QUEUE)
    imported(target, lines)
    assert snapshot(target) == before


def test_a_store_that_is_not_empty_is_not_imported_into(store: RedisStore, elsewhere: Callable[[], Wire]) -> None:
    store.enqueue([message("a")])
    lines = exported(store.wire)
    target = elsewhere()
    RedisStore(target, NAMESPACE).enqueue([message("another")])
    before = snapshot(target)
    with pytest.raises(StoreRefused, match="store not empty"):
        imported(target, lines)
    assert snapshot(target) == before


def test_a_part_of_another_export_is_kept_unless_it_is_to_be_removed(
    store: RedisStore, elsewhere: Callable[[], Wire]
) -> None:
    store.enqueue([message("a")])
    first = exported(store.wire, "e1")
    StoreCloser(store.wire, NAMESPACE).reopen()
    store.enqueue([message("b")])
    before = snapshot(store.wire)
    second = exported(store.wire, "e2")
    target = elsewhere()
    with pytest.raises(AssertionError, match="cut off"):
        imported(target, first[:-1])
    with pytest.raises(StoreRefused, match="part of another export: e1"):
        imported(target, second)
    imported(target, second, restart=True)
    assert snapshot(target) == before


def test_a_store_that_is_closed_for_its_export_is_not_imported_into(store: RedisStore) -> None:
    store.enqueue([message("a")])
    lines = exported(store.wire)
    with pytest.raises(StoreRefused, match="closed for its export"):
        imported(store.wire, lines, restart=True)


def test_a_half_imported_store_is_neither_exported_nor_reopened(
    store: RedisStore, elsewhere: Callable[[], Wire]
) -> None:
    store.enqueue([message("a")])
    lines = exported(store.wire)
    target = elsewhere()
    with pytest.raises(AssertionError, match="cut off"):
        imported(target, lines[:-1])
    with pytest.raises(StoreRefused, match="store not imported"):
        exported(target)
    with pytest.raises(StoreRefused, match="store not imported"):
        StoreCloser(target, NAMESPACE).reopen()


def test_an_element_that_is_missing_or_another_is_noticed_and_nothing_is_served(
    store: RedisStore, elsewhere: Callable[[], Wire]
) -> None:
    store.enqueue([message("a"), message("b")])
    store.wire.command("SET", store.keys.control("store-id"), "a string")
    lines = exported(store.wire)
    pages_of = [at for at, line in enumerate(lines) if "values" in line]
    for at in pages_of:
        target = elsewhere()
        damaged = [*lines]
        damaged[at] = lines[at] | {"values": [*lines[at]["values"][:-1], "another"]}
        with pytest.raises(StoreRefused, match="differs from the export"):
            imported(target, damaged)
        target = elsewhere()
        with pytest.raises(StoreRefused, match="differs from the export"):
            imported(target, [*lines[:at], *lines[at + 1 :]])
        assert StoreCloser(target, NAMESPACE).note() is not None


def test_a_page_of_a_list_that_is_missing_is_noticed_by_the_next_one(
    store: RedisStore, elsewhere: Callable[[], Wire], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_export, "FEWEST", 2)
    monkeypatch.setattr(store_export, "MOST", 2)
    store.enqueue([message(f"m{n}") for n in range(6)])
    lines = [line for line in exported(store.wire) if line.get("key") != "ready" or line.get("at") != 2]
    with pytest.raises(StoreRefused, match="changed during its import"):
        imported(elsewhere(), lines)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"format": "another"}, "not an export"),
        ({"version": 3}, "another version: 3"),
    ],
)
def test_what_is_no_export_of_this_version_is_refused(store: RedisStore, line: dict[str, Any], said: str) -> None:
    header = {"format": "pollconsumer store", "version": 1, "export": "e1"} | line
    before = snapshot(store.wire)
    with pytest.raises(BadData, match=said):
        imported(store.wire, [header])
    assert snapshot(store.wire) == before


@pytest.mark.parametrize(
    "line",
    [
        {},
        {"queue": QUEUE, "key": "unknown", "type": "list", "at": 0, "values": []},
        {"queue": "", "key": "lease:consumer:mail:0", "type": "hash", "at": 0, "values": []},
        {"queue": "}no", "key": "ready", "type": "list", "at": 0, "values": []},
        {"queue": QUEUE, "key": "ready", "type": "stream", "at": 0, "values": []},
        {"queue": QUEUE, "key": "ready", "type": "list", "at": "x", "values": []},
        {"queue": QUEUE, "key": "ready", "type": "list", "at": 0, "values": ["\u0100"]},
        {"queue": QUEUE, "key": "ready", "type": "list", "at": 0, "values": [1]},
        {"queue": QUEUE, "key": "ready", "type": "list", "at": 0, "values": []},
        {"queue": QUEUE, "key": "records", "type": "hash", "at": 0, "values": ["a field alone"]},
        {"queue": QUEUE, "key": "schedule", "type": "zset", "at": 0, "values": ["no score", "member"]},
        {"queue": QUEUE, "key": "schedule", "type": "zset", "at": 0, "values": ["nan", "member"]},
        {"queue": QUEUE, "key": "ready", "type": "list", "at": float("inf"), "values": ["a"]},
        {"queue": QUEUE, "key": "ready", "type": "list", "count": 1, "digest": ""},
        {"queue": QUEUE, "key": "ready", "type": "list", "count": 1, "digest": "", "expires_in_ms": 1 << 70},
    ],
)
def test_a_line_that_says_nothing_is_refused(wire: Wire, line: dict[str, Any]) -> None:
    importing = Import(StoreCloser(wire, NAMESPACE), lambda _: None)
    importing.begin({"format": "pollconsumer store", "version": 1, "export": "e1"})
    with pytest.raises(BadData):
        importing.take(line)


def test_other_totals_than_those_of_the_export_are_noticed(store: RedisStore, elsewhere: Callable[[], Wire]) -> None:
    store.enqueue([message("a"), message("b", queue="another")])
    lines = exported(store.wire)
    without = [line for line in lines if line.get("queue") != "another"]
    with pytest.raises(BadData, match="export damaged"):
        imported(elsewhere(), without)


# Contents


def test_a_page_has_few_large_values(store: RedisStore) -> None:
    key = f"{{{NAMESPACE}}}:large"
    store.wire.command("RPUSH", key, *[b"x" * 20_000] * 1000)
    found = [len(page.values) for page in pages(store.wire, key, "list")]
    assert sum(found) == 1000
    assert max(found) < 50


def test_elements_that_a_server_shows_twice_count_once(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch, elsewhere: Callable[[], Wire]
) -> None:
    store.enqueue([message("a"), message("b")])
    before = snapshot(store.wire)
    plain = pages

    def twice(wire: Wire, key: str, kind: str) -> Any:
        for page in plain(wire, key, kind):
            yield page
            if kind == "hash" and not shown.get(key):
                shown[key] = True
                yield page

    shown: dict[str, bool] = {}
    monkeypatch.setattr("pollconsumer.moving.store_export.pages", twice)
    lines = exported(store.wire)
    assert shown
    target = elsewhere()
    imported(target, lines)
    assert snapshot(target) == before


def test_a_key_that_changes_while_it_is_read_has_no_digest(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    key = f"{{{NAMESPACE}}}:hash"
    store.wire.command("HSET", key, "a", "1")
    monkeypatch.setattr(store_export, "length_of", lambda *_: 2)
    with pytest.raises(StoreRefused, match="changes while it is read"):
        digest_of(store.wire, key, "hash")
