"""A store with something in nearly every key, and garbage for each.

The keys come from the keyspace, the fields and members from what stands there: a key that is added is covered without a
line here.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pollconsumer.core.durations import Histogram
from pollconsumer.core.messages.continuation import Continuation, encoded, identified, packed
from pollconsumer.core.messages.message_steps import Progress, Step, StepEntry, as_recorded
from pollconsumer.core.recurrence import Recurrence
from pollconsumer.store.actions import HandlerPauses, MessageActions
from pollconsumer.store.audit_log import acting_as, note
from pollconsumer.store.keyspace import QUEUE_KEYS, Keys
from pollconsumer.store.leases import Group, Leases
from pollconsumer.store.queues.batches import Batches, NewBatch
from pollconsumer.store.queues.outbox import pack
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.reading.ledger import _BLANK
from pollconsumer.store.records.reservations import Claim
from pollconsumer.store.records.steps import Limits
from tests.interface.keyspace_page import CONTROL_KEYS
from tests.store.acting import HOUR, QUEUE, AllRecurrences, Launch, chosen, complete_ago, die, finish, message, retry

if TYPE_CHECKING:
    from pollconsumer.core.messages.message import NewMessage
    from pollconsumer.store.client.wire import Wire

HANDLER, GROUP = "ok", "consumer:default,mail"
BY_GROUP = {
    "lease": f"lease:{GROUP}:0", "next": f"next:{GROUP}", "baton": f"baton:{GROUP}", "successor_waits": "sw:mover:",
    "durations": f"durations:{GROUP}", "durations_before": f"durations_before:{GROUP}",
}  # fmt: skip
"""Keys of the namespace that have a name behind their word."""
HUGE = b"9" * 40
VALUES = {
    "empty": b"",
    "a zero byte": b"\0",
    "a byte": b"\xff",
    "no UTF-8": b"\xff\xfe\x80 \xc3",
    "random": bytes((7 * n * n + 13 * n) % 256 for n in range(71)),
    "a word": b"garbage",
    "zero": b"0",
    "negative": b"-1",
    "a fraction": b"1.5",
    "not a number": b"nan",
    "infinite": b"1e999",
    "huge": HUGE,
    "an object": b'{"a":{"b":[1,"\\ud800"]}}',
    "an array": b"[[],{},null,1]",
    "deep": b"[" * 3000,
    "lines": b"\n\0\n\t \n",
    "a capital": b"C" + b"\xff" * 40,
}
"""Garbage for a value, by what it is."""
CHANGES = ("truncated", "longer", "one byte less", "flipped")
"""Garbage that is made of the value that stands there."""
TYPES = ("string", "list", "hash", "set", "zset")


class Keyed(NamedTuple):
    """A key of the keyspace: its word, its name on the server, its type, "" for one that is not known."""

    word: str
    name: str
    type: str


def keys_of(namespace: str) -> list[Keyed]:
    """Every key: those of the queue QUEUE, and of the namespace, whose types are those that stand there."""
    keys = Keys(namespace)
    suffixed = {"stop_marker": ":1", "successor_waits": f":{GROUP}"}
    of_queue = [
        Keyed(word, keys.queue(QUEUE, word) + suffixed.get(word, ""), key.type) for word, key in QUEUE_KEYS.items()
    ]
    of_namespace = [
        Keyed(f"{{}}:{word}", keys.control(BY_GROUP.get(word, word)), kind) for word, (kind, _) in CONTROL_KEYS.items()
    ]
    return [*of_queue, *of_namespace]


def kinds_of_garbage() -> list[str]:
    """What may stand in a key, by name: it has another type; its values, its fields or members, its scores are garbage;
    one is garbage beside the others."""
    return [
        *(f"type {each}" for each in TYPES),
        *(f"value {each}" for each in (*VALUES, *CHANGES)),
        *(f"name {each}" for each in VALUES),
        *(f"score {each}" for each in ("-1", "0", "-inf", "+inf", "1e300", "0.5")),
    ]


def damage(wire: Wire, key: Keyed, kind: str) -> bool:
    """Put garbage into a key. Returns whether there is such garbage for its type."""
    how, _, what = kind.partition(" ")
    if how == "type":
        return what != key.type and _give_type(wire, key, what)
    made = {"value": _damage_values, "name": _add_named, "score": _set_scores}[how](wire, key, what)
    if made:
        wire.all(made)
    return bool(made)


def _give_type(wire: Wire, key: Keyed, kind: str) -> bool:
    put = {
        "string": ("SET", "x"),
        "list": ("RPUSH", "x"),
        "hash": ("HSET", "f", "x"),
        "set": ("SADD", "x"),
        "zset": ("ZADD", "1", "x"),
    }
    command, *content = put[kind]
    wire.all([("DEL", key.name), (command, key.name, *content)])
    return True


def _garbage(what: str, held: bytes) -> bytes:
    if what in VALUES:
        return VALUES[what]
    return {
        "truncated": held[: len(held) // 2],
        "longer": held + b"\xff9",
        "one byte less": held[:-1],
        "flipped": bytes(each ^ (0x80 if at % 3 else 0x01) for at, each in enumerate(held)),
    }[what]


def _damage_values(wire: Wire, key: Keyed, what: str) -> list[tuple[Any, ...]]:
    """Every value of a hash, every element of a list, a set or a sorted set, or the string is this garbage."""
    name, kind = key.name, key.type
    if kind == "string" or not kind:
        held = wire.command("GET", name) or b"x 1"
        return [("SET", name, _garbage(what, held))]
    if kind == "hash":
        found = wire.command("HGETALL", name) or [b"plain", b"1 1"]
        return [
            ("HSET", name, field, _garbage(what, held)) for field, held in zip(found[::2], found[1::2], strict=True)
        ]
    if kind == "list":
        found = wire.command("LRANGE", name, 0, -1) or [b"plain"]
        return [("DEL", name), ("RPUSH", name, *(_garbage(what, held) for held in found))]
    if kind == "set":
        found = wire.command("SMEMBERS", name) or [b"plain"]
        return [("DEL", name), ("SADD", name, *(_garbage(what, held) for held in found))]
    found = wire.command("ZRANGE", name, 0, -1, "WITHSCORES") or [b"plain", b"1"]
    pairs = zip(found[1::2], found[::2], strict=True)
    return [("DEL", name), *(("ZADD", name, score, _garbage(what, held)) for score, held in pairs)]


def _add_named(wire: Wire, key: Keyed, what: str) -> list[tuple[Any, ...]]:
    """One more field or member, of this name, with each value that stands there in turn."""
    name, kind, given = key.name, key.type, VALUES[what]
    if kind == "hash":
        found = wire.command("HVALS", name) or [b"1"]
        return [("HSET", name, given, found[0]), ("HSET", name, given + b"2", b"")]
    if kind == "list":
        return [("LPUSH", name, given)]
    if kind == "set":
        return [("SADD", name, given)]
    return [("ZADD", name, 1, given)] if kind == "zset" else []


def _set_scores(wire: Wire, key: Keyed, what: str) -> list[tuple[Any, ...]]:
    """Every score of a sorted set is this."""
    if key.type != "zset":
        return []
    return [("ZADD", key.name, what, member) for member in wire.command("ZRANGE", key.name, 0, -1) or [b"plain"]]


def callback(batch: str, name: str) -> NewMessage:
    return message(f"{batch}:{name}", handler=HANDLER)._replace(continuation=encoded(Continuation(called_by=QUEUE)))


def member(number: int, batch: str = "b") -> NewMessage:
    return identified(message("", handler=HANDLER), f"{batch}.{number}", QUEUE)


def fill(wire: Wire, namespace: str) -> None:
    """Write what a store has, into the queue QUEUE, and a message into another."""
    store, person = RedisStore(wire, namespace), MessageActions(wire, namespace)
    ok = partial(message, handler=HANDLER)
    batches, keys = Batches(store.producer), store.keys
    callbacks = {name: packed(callback("b", name)) for name in ("then", "failed", "ended")}
    store.producer.register(QUEUE)
    batches.open(NewBatch(QUEUE, "b", callbacks))
    batches.open(NewBatch(QUEUE, "open", {"ended": packed(callback("open", "ended"))}, expires=HOUR))
    complete_ago(store, {"done": 5, "old": 90_000_000})
    launch = Launch(store, 1)
    store.enqueue([ok(name, headers={"a": "b"}) for name in ("dead", "failed", "begun", "stopped", "orphan", "left")])
    found = {each.id.decode(): each for each in launch.reserve(6)}
    launch.settle(
        die(found["dead"]), retry(found["failed"], HOUR), finish(found["left"], '{"a":1}', outgoing=pack([ok("on")], 1))
    )
    store.checkpoint(launch.claim, found["orphan"], b'{"a":1}')
    store.record(launch.claim, found["orphan"], StepEntry(1, 1, as_recorded(Step("charge", 1, "x")), "go"))
    store.report(launch.claim, {QUEUE: {b"orphan": Progress(1, 2, "half")}})
    launch.begin(found["begun"])
    store.enqueue([ok("counted"), ok("begun-2")])
    counted, begun = launch.reserve(2)
    launch.begin(begun)
    launch.complete(counted)
    wire.command("RPUSH", keys.queue(QUEUE, "uncounted"), bytes(12) + counted.row)  # as versions before left it
    MessageActions(wire, namespace).signal(QUEUE, "orphan", "go", {"by": "me"})
    person.stop(QUEUE, "stopped")
    limits = Limits(5, 100, HOUR, 10, HOUR)
    store.enqueue([ok("rated", rate_key="r"), ok("rated-2", rate_key="r", rate="1/1h"), ok("placed", concurrency="c")])
    launch.step(wanted=20, limits=limits._replace(max_in_flight=20))
    store.enqueue([ok("placed-0", concurrency="c"), ok("expired", expires=1)])
    launch.reserve(20)
    many = [
        ok("placed-2", concurrency="c"), ok("placed-3", concurrency="c"), ok("rated-3", rate_key="r", rate="1/1h"),
        ok("keyed", key="k", lifetime=HOUR), ok("keyed-2", key="k2"), ok("first", priority=-3), ok("last", priority=3),
        ok("late", delay=HOUR), ok("due", due=1.0), ok("large", payload=json.dumps({"a": "x" * 3000}).encode()),
        ok("expires", expires=HOUR), ok("lapsed", expires=1, delay=1), chosen("chosen", handler=HANDLER),
        ok("plain"), ok("plain-2"), ok("cancelled"),
    ]  # fmt: skip
    for each in many:
        store.enqueue([each])
    person.cancel(QUEUE, "cancelled")
    launch.step(wanted=3, limits=limits)
    link = packed(identified(ok(""), "chain+2"))
    store.enqueue([ok("chain")._replace(continuation=encoded(Continuation(links=[link]))), member(2, "open")])
    recurring = AllRecurrences(wire, namespace)
    defined = Recurrence("hourly", HANDLER, every=3600.0, queue=QUEUE)
    recurring.define(GROUP, [QUEUE], [defined], lambda _: None)
    store.maintenance.own_recurrences(GROUP, [QUEUE])
    put = Recurrence("put", HANDLER, every=3600.0, queue=QUEUE, at_run_time=True, created_by="me")
    recurring.put([(put, "now"), (replace(put, name="over", times=1), "now")])
    store.enqueue([member(0), member(1)])
    batches.close(QUEUE, "b", 2)
    HandlerPauses(wire, namespace).pause("another")
    leases, description = Leases(wire, namespace), {"role": "consumer", "queues": ["default", QUEUE]}
    held = leases.acquire(Group("consumer", ("default", QUEUE), 1), "x", json.dumps(description), json.dumps(_BLANK))
    assert isinstance(held, Claim)
    leases.learn(GROUP, {HANDLER: Histogram(0.5, {7: 4})})
    leases.release(held, json.dumps(_BLANK | {"launch_id": "x", "ended_ms": held.at}))
    with acting_as("me"):
        note(wire, keys, "cancel", QUEUE, ["x"])
        recurring.trigger(recurring.find("put"))
    store.maintenance.trim(QUEUE)
    store.enqueue([message("of-another", handler="other", queue="default")])


def dumped(wire: Wire) -> list[tuple[Any, ...]]:
    """The commands that put everything back."""
    keys = wire.command("KEYS", "*")
    contents = wire.all([("DUMP", key) for key in keys])
    return [("FLUSHALL",), *(("RESTORE", key, 0, content) for key, content in zip(keys, contents, strict=True))]
