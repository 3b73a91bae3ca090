"""Each act of a person says, and notes, what it did: also after a lost reply, and where another did the same."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pollconsumer.core.errors import BadData, NotFound, StoreUnreachable
from pollconsumer.core.recurrence import Recurrence
from pollconsumer.store import actions as module
from pollconsumer.store import recurrence_actions
from pollconsumer.store.actions import BatchActions, HandlerPauses, MessageActions, run_again
from pollconsumer.store.audit_log import acting_as, audit_of
from pollconsumer.store.client.patience import Budget
from pollconsumer.store.client.replies import Unanswered
from pollconsumer.store.keyspace import Keys
from pollconsumer.store.leases import Group, Leases
from pollconsumer.store.queues.producer import Producer
from pollconsumer.store.queues.redis_store import RedisStore
from pollconsumer.store.reading.inspector import Inspector
from pollconsumer.store.recurrence_actions import Recurrences
from tests.conftest import NAMESPACE, empty_server
from tests.leaving_out import long
from tests.store.acting import HOUR, QUEUE, Launch, die, message, release
from tests.store.batching import HOME, OTHER, OneBatch, member
from tests.store.servers import server_ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from pollconsumer.store.client.wire import Wire
    from tests.store.servers import Server

WAITING, DEAD, HELD = [f"w{n}" for n in range(7)], [f"d{n}" for n in range(5)], "held"
REFUSED = (BadData, NotFound)
Outcome = tuple[str, Any]


def person(wire: Wire) -> MessageActions:
    return MessageActions(wire, NAMESPACE)


def recurrences(wire: Wire) -> Recurrences:
    return Recurrences(wire, NAMESPACE)


def put(wire: Wire) -> None:
    rule = Recurrence("tick", "handler", every=60.0, queue=OTHER, at_run_time=True)
    recurrences(wire).put([(rule, "next")])


def resumed_recurrence(wire: Wire) -> None:
    recurrences(wire).resume(recurrences(wire).find("stands"))


def broken(wire: Wire) -> bool:
    fence = wire.command("HGET", Keys(NAMESPACE).control("lease:consumer:mail:0"), "fence") or b"1"
    return Leases(wire, NAMESPACE).break_("consumer:mail:0", fence.decode())


def of_batch(what: str) -> Callable[[Wire], Any]:
    def act(wire: Wire) -> Any:
        acting = BatchActions(wire, NAMESPACE)
        *_, done = getattr(acting, what)(acting._reader.batch("b", HOME))  # noqa: SLF001  the reader that it has anyway
        return done

    return act


ONCE: dict[str, Callable[[Wire], Any]] = {
    "cancel": lambda wire: person(wire).cancel(QUEUE, "w0"),
    "cancel_all": lambda wire: person(wire).cancel_all(QUEUE, [*WAITING, "unknown", HELD]),
    "stop what waits": lambda wire: person(wire).stop(QUEUE, "w0"),
    "redrive": lambda wire: person(wire).redrive(QUEUE, [*DEAD, "unknown", HELD]),
    "purge": lambda wire: person(wire).purge(QUEUE, [*DEAD, "unknown", HELD]),
    "queue pause": lambda wire: person(wire).pause(QUEUE, paused=True),
    "queue resume": lambda wire: person(wire).pause(OTHER, paused=False),
    "handler pause": lambda wire: HandlerPauses(wire, NAMESPACE).pause("handler"),
    "handler resume": lambda wire: HandlerPauses(wire, NAMESPACE).resume("resting"),
    "recurrence pause": lambda wire: recurrences(wire).pause(recurrences(wire).find("tick")),
    "recurrence resume": resumed_recurrence,
    "recurrence remove": lambda wire: recurrences(wire).remove("tick"),
    "lease break": broken,
    "batch cancel": of_batch("cancel"),
    "batch redrive": of_batch("redrive"),
}
"""What can be done once: whoever does it again does nothing."""
AGAIN: dict[str, Callable[[Wire], Any]] = {
    "stop what is in hand": lambda wire: person(wire).stop(QUEUE, HELD),
    "reschedule": lambda wire: person(wire).change(QUEUE, "w0", delay=2 * HOUR),
    "change": lambda wire: person(wire).change(QUEUE, "w0", priority=3, payload=b'{"n":1}'),
    "queue pause for": lambda wire: person(wire).pause(QUEUE, paused=True, lasts_ms=HOUR),
    "rerun": lambda wire: bool(run_again(Producer(wire, NAMESPACE), QUEUE, "d0")),
    "trigger": lambda wire: recurrences(wire).trigger(recurrences(wire).find("tick")),
    "put": put,
    "signal": lambda wire: MessageActions(wire, NAMESPACE).signal(QUEUE, "w0", "approved", value=True),
}
ACTS = ONCE | AGAIN


class Seen(NamedTuple):
    """What an act answered, what was noted, and how many messages are in each state."""

    outcome: Outcome
    notes: list[tuple[str, str, str, tuple[str, ...], int]]
    counts: list[tuple[Any, ...]]


class Losing:
    """A connection on which one reply is lost, after the server has carried the commands out. ``meanwhile`` is called
    before they are repeated."""

    def __init__(self, wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
        self._once, self._left = wire.once, -1
        self._meanwhile: Callable[[], Any] = lambda: None
        self.exchanges = 0
        monkeypatch.setattr(wire, "once", self)

    def lose(self, number: int, meanwhile: Callable[[], Any] = lambda: None) -> None:
        self._left, self._meanwhile, self.exchanges = number, meanwhile, 0

    def __call__(self, commands: Any, *, blocking: float = 0.0) -> Any:
        answers = self._once(commands, blocking=blocking)
        self.exchanges += 1
        self._left -= 1
        if self._left == 0:
            self._meanwhile()
            raise Unanswered("the reply is lost", sent=True)
        return answers


server = pytest.fixture(empty_server, params=["valkey", long("fakeredis")], name="server")


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PAGE_IDS", 3)


def filled(wire: Wire) -> None:
    """A store with something for each act."""
    wire.command("FLUSHALL")
    store = RedisStore(wire, NAMESPACE)
    Leases(wire, NAMESPACE).acquire(Group("consumer", (QUEUE,), 1), "one", "{}", '{"started_ms": 1}')
    batch = OneBatch(store)
    batch.add(*(member(number) for number in range(4)))
    batch.close(4)
    launch = batch.launches[QUEUE]
    launch.settle(*map(die, launch.reserve(2)))
    person(wire).cancel_all(QUEUE, [])
    store.enqueue([message(name) for name in (*DEAD, HELD)])
    for each in (reserved := Launch(store).reserve(9)):
        if each.name in DEAD:
            launch.settle(die(each))
    launch.settle(*(release(each) for each in reserved if each.name.startswith("b.")))
    store.enqueue([message(name, delay=HOUR) for name in WAITING])
    store.enqueue([message("other", queue=OTHER, delay=HOUR)])
    hourly = [Recurrence(n, "handler", every=3600.0, queue=QUEUE, at_run_time=True) for n in ("tick", "stands")]
    recurrences(wire).put([(each, "next") for each in hourly])
    recurrences(wire).pause(recurrences(wire).find("stands"))
    person(wire).pause(OTHER, paused=True)
    HandlerPauses(wire, NAMESPACE).pause("resting")


def done(act: Callable[[Wire], Any], wire: Wire, who: str = "ada") -> Outcome:
    with acting_as(who):
        try:
            return "did", act(wire)
        except REFUSED as refused:
            return "refused", type(refused)


def seen(outcome: Outcome, wire: Wire) -> Seen:
    what, answer = outcome
    if isinstance(answer, str):  # the id of an occurrence has its instant
        answer = re.sub("@.*", "@", answer)
    notes = [each[1:6] for each in reversed(audit_of(wire, NAMESPACE, 100))]
    counts = [each[1:11] for each in Inspector(wire, NAMESPACE).overview().queues]
    return Seen((what, answer), notes, [tuple(each) for each in counts])


def claimed(found: Seen) -> Counter[tuple[str, str, str]]:
    """How often each name was noted, by what was done to it; and what has no names."""
    return Counter((what, queue, name) for _, what, queue, names, _ in found.notes for name in names or ("",))


def undisturbed(server: Server, name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Seen, int]:
    wire = server.wire()
    filled(wire)
    losing = Losing(wire, monkeypatch)
    losing.lose(-1)
    found = done(ACTS[name], wire)
    return seen(found, wire), losing.exchanges


@pytest.mark.parametrize("name", ACTS)
def test_an_act_whose_reply_is_lost_says_and_notes_what_it_did(
    server: Server, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, exchanges = undisturbed(server, name, monkeypatch)
    assert expected.outcome[0] == "did"
    for number in range(1, exchanges + 1):
        wire = server.wire(lambda: Budget(5))
        filled(wire)
        Losing(wire, monkeypatch).lose(number)
        assert seen(done(ACTS[name], wire), wire) == expected, number


@pytest.mark.parametrize("name", ONCE)
def test_of_two_who_do_the_same_while_a_reply_is_lost_each_says_what_it_did(
    server: Server, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, exchanges = undisturbed(server, name, monkeypatch)
    for number in range(1, exchanges + 1):
        one, other = server.wire(), server.wire()
        filled(one)
        others: list[Outcome] = []
        Losing(one, monkeypatch).lose(number, lambda: others.append(done(ACTS[name], other, "bob")))  # noqa: B023
        first = done(ACTS[name], one)
        found = seen(first, one)
        assert found.counts == expected.counts, number
        assert claimed(found) == claimed(expected), number  # once, whoever has done it
        if isinstance(expected.outcome[1], list):
            assert sorted([*first[1], *others[0][1]]) == sorted(expected.outcome[1]), number
        for who, (what, answer) in (("ada", first), ("bob", others[0])):
            noted = any(each[0] == who for each in found.notes)
            if what == "refused" or answer in ([], False):
                assert not noted, number


def test_what_is_typed_thrice_is_done_once(server: Server) -> None:
    wires = [server.wire() for _ in range(3)]
    filled(wires[0])
    acts = [person(wire) for wire in wires]
    for what, ids in (("cancel_all", WAITING), ("purge", DEAD[:2]), ("redrive", DEAD[2:])):
        claims = [getattr(act, what)(QUEUE, ids) for act in acts]
        assert [len(claim) for claim in claims] == [len(ids), 0, 0]
    removed = [done(ONCE["recurrence remove"], wire) for wire in wires]
    assert [what for what, _ in removed] == ["did", "refused", "refused"]


def test_two_who_trigger_a_recurrence_in_the_same_millisecond_enqueue_two_occurrences(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = server.wire()
    filled(wire)
    now = server_ms(wire)
    monkeypatch.setattr(recurrence_actions, "now_ms", lambda _: now)
    ids = {ACTS["trigger"](wire) for _ in range(3)}
    assert len(ids) == 3
    assert {message.id for message in Inspector(wire, NAMESPACE).those(QUEUE, [each.encode() for each in ids])} == ids


def test_what_was_done_before_the_store_was_lost_is_noted(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    wire = server.wire(lambda: Budget(0))
    filled(server.wire())
    Losing(wire, monkeypatch).lose(4)
    with acting_as("ada"), pytest.raises(StoreUnreachable):
        person(wire).cancel_all(QUEUE, WAITING)
    assert [(each.what, each.number) for each in audit_of(wire, NAMESPACE, 9)] == [("cancel", 3)]
