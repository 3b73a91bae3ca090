"""The rights that the store's user needs: those documented are those used, and without one of them nothing is begun."""

from __future__ import annotations

import re
import secrets
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pollconsumer.core.errors import PermissionDenied
from pollconsumer.core.messages.message_steps import Step, StepEntry, as_recorded
from pollconsumer.core.recurrence import Recurrence
from pollconsumer.moving.store_closer import StoreCloser
from pollconsumer.store import rights
from pollconsumer.store.actions import HandlerPauses, MessageActions, run_again
from pollconsumer.store.audit_log import acting_as, audit_of
from pollconsumer.store.client.patience import Budget
from pollconsumer.store.client.wire import WAITING, ByPeople, Strict, Wire
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.leases import Group, Leases
from pollconsumer.store.queues.producer import Producer, StrictProducer
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.reading.batch_reader import BatchReader
from pollconsumer.store.reading.inspector import Inspector
from pollconsumer.store.records.steps import Settlement
from pollconsumer.store.scripts import linked
from pollconsumer.store.suitability import Suitability
from tests.conftest import NAMESPACE
from tests.interface.rights_page import PATTERNS
from tests.store.acting import HOUR, QUEUE, AllRecurrences, Launch, die, message, names
from tests.store.batching import HOME, OneBatch, member
from tests.store.commands_used import LUA, commands_of, plain_commands, scripts
from tests.store.moving import exported, imported
from tests.store.servers import snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.store.servers import Server

ROLES = {
    "producer": rights.PRODUCER.split(),
    "launch": rights.LAUNCH.split(),
    "operator": rights.OPERATOR.split(),
    "keeper": rights.KEEPER.split(),
}
SCRIPTS = {
    "producer": {"register", "rights", "enqueue", "enqueue_new", "signal", "open_batch", "close_batch", "mark"},
    "launch": {
        "acquire", "announce", "arrive", "begin", "checkpoint", "define", "due", "expire", "learn", "nudge", "offer",
        "number_members", "progress",
        "promote", "recover", "recur", "release", "renew", "repair", "retire", "reserve_one", "quarantine",
        "step", "trim", "unreserve", "withdraw", "cancel", "stop",
    },
    "operator": {
        "break", "cancel", "change", "hold", "note", "pause", "pause_handler", "purge", "put", "redrive", "stop",
        "trigger", "undefine", "wake",
    },
    "keeper": {"rights", "close", "fill", "reopen", "mark"},
}  # fmt: skip
"""The scripts of each role; a launch and an operator do what a producer does, too."""
PLAIN = {
    "producer": {
        "EVALSHA", "SCRIPT|LOAD", "INFO", "GET", "SET", "SISMEMBER", "SMEMBERS", "HEXISTS", "HMGET", "HSET", "ZSCORE",
    },
    "launch": {
        "BLPOP", "DEL", "HGET", "HMGET", "LPOP", "LRANGE", "LREM", "PEXPIRE", "RPUSH", "SADD", "SREM", "SISMEMBER",
        "SMEMBERS", "TIME", "TYPE", "ZADD",
    },
    "operator": {
        "DEL", "EXISTS", "HDEL", "HGET", "HGETALL", "HINCRBY", "HMGET", "HSCAN", "LLEN", "LRANGE",
        "SCARD", "SISMEMBER", "SRANDMEMBER", "TIME", "ZCARD", "ZCOUNT", "ZMSCORE", "ZRANGE",
        "ZRANGEBYLEX",
    },
    "keeper": {
        "EVALSHA", "SCRIPT|LOAD", "DEL", "EXISTS", "GET", "HGETALL", "HLEN", "HSCAN", "HSET", "INFO", "LLEN", "LRANGE",
        "PEXPIRE", "PTTL", "SCAN", "SCARD", "SMEMBERS", "SSCAN", "TIME", "TYPE", "UNLINK", "ZCARD", "ZRANGE",
    },
}  # fmt: skip
"""What Python sends itself, by role."""
LOGIN = {"AUTH", "SELECT", "SENTINEL", "ROLE"}
"""Anybody may send the first; the next is sent where the URL names a database, the others where it names Sentinels."""
OF_CLUSTERS = {"ASKING", "CLIENT", "CLUSTER", "LPOP"}
"""On nodes of a cluster."""
OF_BACKUPS = {"REPLCONF", "SYNC"}
"""What a replica sends as well."""
STORE_ID = "0123456789abcdef"
DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "rights.md"
REPLACING = {*rights.REPLACING.split()}
OF_FEW = {"producer": REPLACING, "operator": {*rights.CHANGING.split()}}
"""What few of a role need, and is checked where they do."""
NEW = "Name it here for its role; then bring store/rights.py and docs/reference/rights.md in line."


def needed(role: str) -> set[str]:
    found = PLAIN[role] | {command for script in SCRIPTS[role] for command in commands_of(script)}
    found -= OF_FEW.get(role, set())
    return found if role in ("producer", "keeper") else found | needed("producer")


def test_every_script_and_every_command_that_python_sends_has_a_role() -> None:
    assert scripts() == set.union(*SCRIPTS.values()), NEW
    assert plain_commands() | {"EVALSHA", "SCRIPT|LOAD"} == LOGIN.union(
        OF_BACKUPS, OF_CLUSTERS, WAITING, *PLAIN.values()
    ), NEW


def test_every_call_of_a_script_names_its_command() -> None:
    """What reads as a type is called with the command's name."""
    for path in LUA.rglob("*.lua"):
        text = path.read_text("utf-8").replace("redis.call(command, (select(i, ...)))", "")
        assert len(re.findall(r"redis\.p?call\b", text)) == len(re.findall(r"redis\.call(?:\(|, )'[A-Z]+'", text)), (
            path.name
        )


@pytest.mark.parametrize("role", ROLES)
def test_the_rights_of_a_role_are_the_commands_that_it_uses(role: str) -> None:
    assert {"EVALSHA", *ROLES[role]} == needed(role), NEW


@pytest.mark.parametrize("role", ROLES)
def test_the_access_list_that_is_documented_for_a_role_grants_its_rights_and_no_more(role: str) -> None:
    (line,) = re.findall(rf"^ACL SETUSER {role} ((?:.*\\\n)*.*)$", DOCUMENT.read_text("utf-8"), re.MULTILINE)
    assert set(re.findall(r"\+(\S+)", line)) == {command.lower() for command in needed(role)}
    assert " ".join(re.findall(r"[~%&]\S+", line)) == PATTERNS[role]


class Memo:
    def read(self) -> str | None:
        return None

    def write(self, store_id: str) -> None:
        """It is the server that is looked at here."""


class Users:
    """Connections as users with the rights of a role, less some."""

    def __init__(self, server: Server) -> None:
        self._server, self._admin = server, server.wire()
        self._wires: list[Wire] = []
        self._names: list[str] = []

    def wire(self, role: str, *, without: str | None = None, strict: Strict | None = None) -> Wire:
        name = f"{role}-{secrets.token_hex(4)}"
        granted = [f"+{command.lower()}" for command in ("EVALSHA", *ROLES[role]) if command != without]
        keys = PATTERNS[role].replace("pollconsumer", NAMESPACE).split()
        self._admin.command("ACL", "SETUSER", name, "on", ">secret", "resetchannels", *keys, "-@all", *granted)
        self._names.append(name)
        url = self._server.url.replace("unix://", f"unix://{name}:secret@")
        wire = Wire(url, lambda: Budget(1), greet=Suitability(NAMESPACE, Memo(), lambda _: None), strict=strict)
        self._wires.append(wire)
        return wire

    def seen(self) -> dict[str, Any]:
        return snapshot(self._admin)

    def close(self) -> None:
        for wire in self._wires:
            wire.close()
        for name in self._names:
            self._admin.command("ACL", "DELUSER", name)
        self._admin.command("SCRIPT", "FLUSH")


@pytest.fixture
def users(valkey: Server) -> Iterator[Users]:
    valkey.wire().command("SET", f"{{{NAMESPACE}}}:store-id", STORE_ID)
    users = Users(valkey)
    yield users
    users.close()


def leave_out_acl_check_cmd(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have new connections send their scripts as to a server that has none."""

    def without(name: str, *, shebang: bool) -> tuple[tuple[str, ...], bytes]:
        keys, text = linked(name, shebang=shebang)
        return keys, text.replace(b"redis.acl_check_cmd", b"redis.not_there")

    monkeypatch.setattr("pollconsumer.store.scripts.linked", without)


def produce(wire: Wire) -> None:
    RedisStore(wire, NAMESPACE).enqueue([message("a"), message("b", delay=1), message("c", key="k", priority=1)])


def launch(wire: Wire) -> None:
    group = Group("consumer", (QUEUE,), 1)
    Leases(wire, NAMESPACE).acquire(group, "launch", "{}", "{}")


def operate(wire: Wire) -> None:
    MessageActions(wire, NAMESPACE).purge(QUEUE, ["dead"])


def move(wire: Wire) -> None:
    StoreCloser(wire, NAMESPACE).close("e1", lambda _: None)


BEGINNINGS: dict[str, Callable[[Wire], None]] = {
    "producer": produce, "launch": launch, "operator": operate, "keeper": move,
}  # fmt: skip


@pytest.mark.parametrize(
    ("role", "command"), [(role, command) for role in ROLES for command in sorted(("EVALSHA", *ROLES[role]))]
)
def test_without_any_single_right_a_role_changes_nothing_and_is_told_which(
    users: Users, role: str, command: str
) -> None:
    before = users.seen()
    with pytest.raises(PermissionDenied, match=rf"(?i)\b{re.escape(command)}\b"):
        BEGINNINGS[role](users.wire(role, without=command))
    assert users.seen() == before


@pytest.mark.parametrize("missing", ["ZADD", "ZREM"])
@pytest.mark.parametrize("role", ["launch", "operator", "launch of another queue"])
def test_a_queue_of_its_own_access_rule_is_not_begun_either(
    users: Users, valkey: Server, role: str, missing: str
) -> None:
    """A selector may give a user less in one queue than in the next."""
    role, _, elsewhere = role.partition(" ")
    wire = users.wire(role)
    wire.command("INFO")
    name = users._names[-1]  # noqa: SLF001  the fixture's own
    rest = " ".join(f"+{command.lower()}" for command in ROLES[role] if command != missing) + " +evalsha"
    valkey.wire().command(
        "ACL", "SETUSER", name, "resetkeys", f"~{{{NAMESPACE}}}:*", f"(~{{{NAMESPACE}:{QUEUE}}}:* {rest})"
    )
    before = users.seen()
    begin: Callable[[Wire], object] = operate
    if role == "launch":
        begin = lambda wire: Launch(RedisStore(wire, NAMESPACE))  # noqa: E731  said in place
    if elsewhere:
        begin = lambda wire: RedisStore(wire, NAMESPACE).maintenance.expire(QUEUE)  # noqa: E731  said in place
    with pytest.raises(PermissionDenied, match=missing.lower()):
        begin(wire)
    assert users.seen() == before


def break_lease(wire: Wire) -> None:
    Leases(wire, NAMESPACE).break_("consumer:mail:0", "7")


def remove_recurrence(wire: Wire) -> None:
    AllRecurrences(wire, NAMESPACE).remove("hourly")


def pause_recurrence(wire: Wire) -> None:
    recurring = AllRecurrences(wire, NAMESPACE)
    recurring.pause(recurring.find("hourly"))


@pytest.mark.parametrize(
    ("do", "missing"), [(break_lease, "PEXPIRE"), (remove_recurrence, "ZREM"), (pause_recurrence, "ZREM")]
)
def test_a_person_without_a_right_to_the_last_write_makes_none(
    users: Users, valkey: Server, do: Callable[[Wire], None], missing: str
) -> None:
    near = RedisStore(valkey.wire(), NAMESPACE)
    near.wire.command("HSET", near.keys.control("lease:consumer:mail:0"), "fence", "7")
    Launch(near)
    hourly = Recurrence("hourly", "handler", every=3600.0, queue=QUEUE)
    AllRecurrences(near.wire, NAMESPACE).define("owner", [QUEUE], [hourly], print)
    before = users.seen()
    with pytest.raises(PermissionDenied, match=missing.lower()):
        do(users.wire("operator", without=missing))
    assert users.seen() == before


def test_a_producer_that_waits_for_replicas_is_refused_without_the_right_to(users: Users) -> None:
    before = users.seen()
    with pytest.raises(PermissionDenied, match=r"\+wait"):
        StrictProducer(users.wire("producer"), NAMESPACE, Strict(None, 0.5)).enqueue([message("a")])
    assert users.seen() == before


@pytest.mark.parametrize(
    ("role", "strict", "do"),
    [
        (
            "launch",
            Strict(None, 0.5),
            lambda wire: Leases(wire, NAMESPACE).acquire(Group("mover", (), 1), "one", "{}", "{}"),
        ),
        (
            "operator",
            ByPeople(None, 0.5, aof=True),
            lambda wire: MessageActions(wire, NAMESPACE).pause("q", paused=True),
        ),
    ],
)
def test_a_launch_and_a_person_whose_changes_wait_are_refused_without_the_right_to(
    users: Users, role: str, strict: Strict, do: Callable[[Wire], object]
) -> None:
    before = users.seen()
    with pytest.raises(PermissionDenied, match=rf"\+{strict.right.lower()}"):
        do(users.wire(role, strict=strict))
    assert users.seen() == before


@pytest.mark.parametrize("missing", sorted(REPLACING))
def test_a_producer_without_a_right_to_replace_what_waits_writes_nothing(
    users: Users, valkey: Server, missing: str
) -> None:
    new = message("b", key="k")._replace(key_rule="r0")
    RedisStore(valkey.wire(), NAMESPACE).enqueue([message("a", key="k", delay=HOUR)])
    wire = users.wire("producer")
    granted = [f"+{command.lower()}" for command in REPLACING - {missing}]
    wire.command("INFO")
    valkey.wire().command("ACL", "SETUSER", users._names[-1], *granted)  # noqa: SLF001  the fixture's own
    store, before = RedisStore(wire, NAMESPACE), users.seen()
    with pytest.raises(PermissionDenied, match=missing.lower()):
        store.enqueue([new])
    assert users.seen() == before
    valkey.wire().command("ACL", "SETUSER", users._names[-1], f"+{missing.lower()}")  # noqa: SLF001  the same
    assert store.enqueue([new]) == [("a", True)]


def test_an_operator_without_a_right_to_change_a_priority_changes_nothing(users: Users, valkey: Server) -> None:
    RedisStore(valkey.wire(), NAMESPACE).enqueue([message("a")])
    person, before = MessageActions(users.wire("operator"), NAMESPACE), users.seen()
    with pytest.raises(PermissionDenied, match="lrem"):
        person.change(QUEUE, "a", priority=1, payload=b"{}")
    assert users.seen() == before
    person.change(QUEUE, "a", payload=b'{"n":1}')
    person.change(QUEUE, "a", delay=HOUR)
    person.change(QUEUE, "a", delay=0)
    valkey.wire().command("ACL", "SETUSER", users._names[-1], "+lrem")  # noqa: SLF001  the fixture's own
    person.change(QUEUE, "a", priority=1)


def test_what_a_right_taken_away_in_between_cuts_short_is_handled_once_by_the_next_launch(
    users: Users, valkey: Server
) -> None:
    wire = users.wire("producer")
    store = RedisStore(wire, NAMESPACE)
    store.enqueue([message("a")])
    valkey.wire().command("ACL", "SETUSER", users._names[-1], "-rpush")  # noqa: SLF001  the fixture's own
    with pytest.raises(PermissionDenied, match=r"rpush|can't run this command"):  # Redis 7.0 does not say which
        store.enqueue([message("half")])
    valkey.wire().command("ACL", "SETUSER", users._names[-1], "+rpush")  # noqa: SLF001  the fixture's own
    assert store.enqueue([message("half")])[0].duplicate
    consumer = Launch(RedisStore(users.wire("launch"), NAMESPACE))
    assert names(consumer.reserve(9)) == ["a"]
    assert consumer.store.maintenance.repair(QUEUE) == 1
    assert names(consumer.reserve(9)) == ["half"]
    assert consumer.store.maintenance.repair(QUEUE) == 0


def test_a_server_without_acl_check_cmd_ends_a_script_that_lacks_a_right_and_the_next_launch_repairs_it(
    users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_out_acl_check_cmd(monkeypatch)
    consumer = Launch(RedisStore(users.wire("launch"), NAMESPACE))
    with pytest.raises(PermissionDenied, match=r"rpush|can't run this command"):  # Redis 7.0 does not say which
        RedisStore(users.wire("producer", without="RPUSH"), NAMESPACE).enqueue([message("half")])
    assert consumer.reserve(9) == []
    assert consumer.store.maintenance.repair(QUEUE) == 1
    assert names(consumer.reserve(9)) == ["half"]


def put_to_sleep(wire: Wire) -> None:
    """A message that awaits a signal."""
    store = RedisStore(wire, NAMESPACE)
    store.enqueue([message("a")])
    launch = Launch(store)
    (reservation,) = launch.reserve()
    waits = StepEntry(1, 1, as_recorded(Step("approved", 1, None, HOUR)), "approved")
    store.record(launch.claim, reservation, waits)
    launch.settle(Settlement.asleep(reservation, wakes_in_ms=HOUR, took=0))


def test_a_producer_with_its_rights_alone_wakes_a_message_by_a_signal(users: Users) -> None:
    launching = users.wire("launch")
    put_to_sleep(launching)
    assert MessageActions(users.wire("producer"), NAMESPACE).signal(QUEUE, "a", "approved", 1)
    assert RedisStore(launching, NAMESPACE).promote(Launch(RedisStore(launching, NAMESPACE)).claim, QUEUE, 1).moved


def test_a_producer_with_its_rights_alone_sees_that_what_is_in_hand_is_a_member(users: Users) -> None:
    store = RedisStore(users.wire("launch"), NAMESPACE)
    OneBatch(store).add(member(0))
    store.wire.command("SADD", store.keys.control("leases"), "default")
    assert Launch(store, fence=9, queue=QUEUE).reserve()
    reader = BatchReader(users.wire("producer"), NAMESPACE)
    assert reader.others(HOME, "b", [(QUEUE, "b.0")]) == []
    assert [reader.at_least(HOME, "b", count) for count in (0, 1)] == [1, 1]


def test_a_producer_without_a_right_to_the_last_write_of_a_signal_makes_none(users: Users) -> None:
    put_to_sleep(users.wire("launch"))
    before = users.seen()
    with pytest.raises(PermissionDenied, match="zadd"):
        MessageActions(users.wire("producer", without="ZADD"), NAMESPACE).signal(QUEUE, "a", "approved", 1)
    assert users.seen() == before


def test_a_store_is_moved_with_the_rights_for_that_alone(users: Users, valkey: Server) -> None:
    RedisStore(users.wire("producer"), NAMESPACE).enqueue([message("a"), message("b", delay=1, key="k")])
    before = users.seen()
    keeper = users.wire("keeper")
    lines = exported(keeper)
    valkey.wire().command("FLUSHALL")
    imported(keeper, lines)
    assert users.seen() == before


def test_the_three_roles_with_their_rights_alone_bring_messages_to_their_ends(users: Users) -> None:
    producer, launching, operator = (
        RedisStore(users.wire(role), NAMESPACE) for role in ("producer", "launch", "operator")
    )
    producer.enqueue(
        [message("a"), message("b", delay=1), message("c", key="k", priority=1), message("d", concurrency="x")]
    )
    leases = Leases(launching.wire, NAMESPACE)
    assert leases.acquire(Group("consumer", (QUEUE,), 1), "launch", "{}", "{}")
    consumer = Launch(launching)
    while not launching.promote(consumer.claim, QUEUE, 9).moved:
        pass
    reserved = consumer.reserve(9)
    assert sorted(names(reserved)) == ["a", "b", "c", "d"]
    consumer.step(completed=reserved[1:], settled=[die(reserved[0])])
    person = MessageActions(operator.wire, NAMESPACE)
    assert person.redrive(QUEUE, [reserved[0].name]) == [reserved[0].name]
    person.cancel(QUEUE, reserved[0].name)
    counts = Inspector(operator.wire, NAMESPACE).overview().queues[0]
    assert (counts.ready, counts.completed, counts.cancelled) == (0, 3, 1)


# Who did what


KEPT_FROM = {
    "producer": ("audit", "interventions", "leases", "launches", "ledger", "fences", "totals", "histograms", "seen",
                 "recurring", "paused_handlers", "lease:consumer:mail:0", "durations:consumer:mail"),
    "launch": ("audit",),
}  # fmt: skip
"""Keys of the namespace that a role cannot write."""
WRITES: dict[str, Callable[[str, str], tuple[str, ...]]] = {
    "DEL": lambda key, _: (key,), "UNLINK": lambda key, _: (key,), "RENAME": lambda key, other: (other, key),
    "HDEL": lambda key, _: (key, "a"), "HSET": lambda key, _: (key, "a", "1"), "HSETNX": lambda key, _: (key, "a", "1"),
    "HINCRBY": lambda key, _: (key, "a", "1"), "LPOP": lambda key, _: (key,), "RPOP": lambda key, _: (key,),
    "LPUSH": lambda key, _: (key, "a"), "RPUSH": lambda key, _: (key, "a"), "LREM": lambda key, _: (key, "1", "a"),
    "PEXPIRE": lambda key, _: (key, "1"), "SADD": lambda key, _: (key, "a"), "SREM": lambda key, _: (key, "a"),
    "SET": lambda key, _: (key, "a"), "ZADD": lambda key, _: (key, "1", "a"), "ZREM": lambda key, _: (key, "a"),
    "BLPOP": lambda key, _: (key, "1"),
}  # fmt: skip
"""The commands of producers and launches that write, with their arguments for a key, and for another."""


def person_of(wire: Wire) -> MessageActions:
    return MessageActions(wire, NAMESPACE)


@pytest.mark.parametrize("role", KEPT_FROM)
def test_no_command_of_a_producer_or_a_launch_reaches_who_did_what(users: Users, valkey: Server, role: str) -> None:
    keys, wire, admin = Keys(NAMESPACE), users.wire(role), valkey.wire()
    RedisStore(admin, NAMESPACE).enqueue([message("a", delay=HOUR)])
    with acting_as("ada"):
        person_of(users.wire("operator")).cancel(QUEUE, "a")
    wire.command("INFO")
    before = users.seen()
    used = [command for command in WRITES if command in ROLES[role]]
    reads = "EXISTS GET HEXISTS HGET HGETALL HLEN HMGET HSCAN HVALS INFO LINDEX LLEN LPOS LRANGE PTTL SCARD SCRIPT|LOAD"
    reads += " SISMEMBER SMEMBERS SMISMEMBER SRANDMEMBER TIME TYPE ZCARD ZRANGE ZRANGEBYLEX ZRANGEBYSCORE ZSCORE"
    assert {*ROLES[role]} - {*reads.split()} == {*used}
    for word in KEPT_FROM[role]:
        for command in used:
            key, other = keys.control(word), keys.queue(QUEUE, "records")
            with pytest.raises(PermissionDenied):
                wire.command(command, *WRITES[command](key, other))
            if command == "RENAME":
                with pytest.raises(PermissionDenied):
                    wire.command(command, key, other)
    assert users.seen() == before
    assert [each.who for each in audit_of(admin, NAMESPACE, 10)] == ["ada"]


def test_notes_that_a_producer_forges_under_the_former_key_are_unverified_and_hide_none(
    users: Users, valkey: Server
) -> None:
    key, admin = Keys(NAMESPACE).control("interventions"), valkey.wire()
    name = f"former-{secrets.token_hex(4)}"
    admin.command("ACL", "SETUSER", name, "on", ">secret", f"~{key}", "-@all", "+zadd")  # as the rights once were
    users._names.append(name)  # noqa: SLF001  the fixture's own
    former = Wire(valkey.url.replace("unix://", f"unix://{name}:secret@"), lambda: Budget(1))
    said = '{"who": "eve", "what": "cancel", "queue": "mail", "names": ["a"], "number": 1}'
    far = [(f"{1 << 60}", "inf", "1e300", "-inf", "99999999999999")[n % 5] for n in range(12_000)]
    for at in range(0, len(far), 1000):
        some = [part for n, each in enumerate(far[at : at + 1000]) for part in (each, f"{at + n}\n{said}")]
        former.command("ZADD", key, *some)
    former.command("ZADD", key, 1_700_000_000_000, f"once\n{said}")
    former.close()
    RedisStore(admin, NAMESPACE).enqueue([message(name, delay=HOUR) for name in "abc"])
    with acting_as("ada"):
        for each in "abc":
            person_of(users.wire("operator")).cancel(QUEUE, each)
    found = audit_of(admin, NAMESPACE, 10)
    assert [(each.who, each.names, each.verified) for each in found] == [
        *(("ada", (each,), True) for each in "cba"),
        ("eve", ("a",), False),
    ]


@pytest.mark.parametrize("do", ["cancel", "pause", "resume handler", "trigger", "break", "rerun", "put"])
def test_who_may_not_note_what_it_does_is_refused_before_it_does_anything(
    users: Users, valkey: Server, do: str
) -> None:
    near = RedisStore(valkey.wire(), NAMESPACE)
    near.wire.command("HSET", near.keys.control("lease:consumer:mail:0"), "fence", "7")
    near.enqueue([message("a", delay=HOUR), message("ended", delay=HOUR)])
    person_of(near.wire).cancel(QUEUE, "ended")
    hourly = Recurrence("hourly", "handler", every=3600.0, queue=QUEUE)
    AllRecurrences(near.wire, NAMESPACE).define("owner", [QUEUE], [hourly], print)
    HandlerPauses(near.wire, NAMESPACE).pause("handler")
    wire = users.wire("operator")
    wire.command("INFO")
    keys = PATTERNS["launch"].replace("pollconsumer", NAMESPACE).split()
    valkey.wire().command("ACL", "SETUSER", users._names[-1], "resetkeys", *keys)  # noqa: SLF001  the fixture's own
    acts: dict[str, Callable[[], object]] = {
        "cancel": lambda: person_of(wire).cancel(QUEUE, "a"),
        "pause": lambda: person_of(wire).pause(QUEUE, paused=True),
        "resume handler": lambda: HandlerPauses(wire, NAMESPACE).resume("handler"),
        "trigger": lambda: AllRecurrences(wire, NAMESPACE).trigger(AllRecurrences(wire, NAMESPACE).find("hourly")),
        "break": lambda: Leases(wire, NAMESPACE).break_("consumer:mail:0", "7"),
        "rerun": lambda: run_again(Producer(wire, NAMESPACE), QUEUE, "ended"),
        "put": lambda: AllRecurrences(wire, NAMESPACE).put([(replace(hourly, name="new", at_run_time=True), "next")]),
    }
    before = users.seen()
    with acting_as("ada"), pytest.raises(PermissionDenied, match="not permitted to write the audit log"):
        acts[do]()
    assert users.seen() == before
    if do not in ("resume handler", "break"):  # these are of the namespace, which a launch's keys leave out
        acts[do]()  # a program that names nobody
        assert users.seen() != before
