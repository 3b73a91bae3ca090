"""The quick path leaves the same store, events and times as the general one."""

from __future__ import annotations

import asyncio
import decimal
import json
import re
import secrets
import signal
from contextlib import suppress
from contextvars import Context as Variables
from contextvars import ContextVar, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pollconsumer.core.errors import LeaseLost, UsageError
from pollconsumer.core.retry import Fatal, RetryIn, Yield
from pollconsumer.interface.testing.clock import VirtualClock
from pollconsumer.interface.testing.memory import MemoryOpener
from pollconsumer.interface.testing.sandbox_launch import SandboxLaunch
from pollconsumer.runtime.consumer_role import consume
from pollconsumer.runtime.handling.executors.descriptors import Table
from pollconsumer.runtime.handling.executors.inline import InlineExecutor
from pollconsumer.runtime.handling.handler import Handler, with_hooks
from pollconsumer.runtime.handling.hooks import Hooks
from pollconsumer.runtime.handling.interrupts.timeouts import limited
from pollconsumer.runtime.launch.held import LaunchPlan
from pollconsumer.runtime.session.passes.beginnings import MOST_TOGETHER
from pollconsumer.runtime.session.passes.quick_path import QuickPath
from pollconsumer.runtime.session.settlements import Settlements
from pollconsumer.store.leases import Group
from pollconsumer.store.records import rows
from tests.conftest import NAMESPACE
from tests.leaving_out import long
from tests.runtime.test_promoting import MIDNIGHT, OPTIONS
from tests.store.acting import Launch, Looking, message
from tests.store.servers import snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from pollconsumer.core.news.events import Event
    from pollconsumer.runtime.handling.context import Context

QUEUES = ("mail", "other")
HANDLERS = (
    "plain",
    "too",
    "limited",
    "async",
    "limited async",
    "context",
    "async context",
    "hooked",
    "watched",
    "no result",
    "once",
    "once too",
    "once with context",
)
ACTS = ("result", "no JSON", "enqueue", "checkpoint", "retry", "dead", "yield", "stop", "lose", "leak", "pause")


class Sent(NamedTuple):
    act: str = ""
    """Or malformed, or unknown."""
    handler: str = "plain"
    takes: int = 0
    """In milliseconds."""
    queue: str = "mail"
    crashes: int = 0
    priority: int = 0
    key: str = ""


class History(NamedTuple):
    """What is ready before a launch, and the launch's options."""

    sent: list[Sent]
    min_margin: float = 2.0
    timeout: float = 60.0
    tolerance_factor: float = 1.0
    max_messages: int | None = None


class Left(NamedTuple):
    store: str
    """Its contents."""
    events: list[Event]
    acts: list[tuple[str, float]]
    """What handlers and hooks did, and when."""


class Losing(SandboxLaunch):
    lost = False

    def lease_is_trusted(self) -> bool:
        return not self.lost

    def check_lease(self) -> bool:
        if self.lost:
            raise LeaseLost("lease lost", None, "by a test")
        return False


class Leaky(Table):
    """``leaks``: as if a handler had left no descriptor."""

    leaks = False

    def looks_unchanged(self) -> bool:
        return super().looks_unchanged() and not self.leaks

    def checked(self) -> tuple[bool, bool]:
        return super().checked()[0], self.leaks


class Launched:
    def __init__(self, history: History, *, quickly: bool) -> None:
        self.clock = VirtualClock(MIDNIGHT)
        self.opener = MemoryOpener(NAMESPACE, self.clock)
        self.events: list[Event] = []
        self.acts: list[tuple[str, float]] = []
        self.quick, self.table = 0, Leaky()
        self.called: set[str] = set()
        self.unsettled_once: list[set[str]] = []
        """At each call: which of those handled at most once were called, and are not settled."""
        self.last_context: Context | None = None
        self.store = self.opener.store()
        self.once = {f"m{n}" for n, sent in enumerate(history.sent) if "once" in sent.handler}
        for n, sent in enumerate(history.sent):
            self._enqueue(n, sent)
        group, plan = Group("consumer", QUEUES, 1), LaunchPlan(history.timeout, 10.0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(secrets, "token_hex", lambda _: "launch")
            self.launch = Losing(self.opener, group, plan, self.clock, self.events.append)
            patch.setattr(QuickPath, "handle", _counted(self, QuickPath.handle) if quickly else lambda *_: 0)
            executor = InlineExecutor(self.clock, self.table)
            _, margin, _, factor, most = history
            options = OPTIONS._replace(
                queues=QUEUES, min_margin=margin, tolerance_factor=factor, max_messages=most, until_empty=True
            )
            alarm = signal.getsignal(signal.SIGALRM)
            with suppress(LeaseLost):
                self.launch.work(lambda launch: consume(launch, options, self._handlers(), [], executor))
        self._forget_what_was_begun_and_not_called()
        assert (signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)) == (alarm, (0.0, 0.0))
        self.left = Left(_rounded(repr(self._contents())), self.events, self.acts)
        self.opener.close()

    def _contents(self) -> dict[str, Any]:
        """Those of the store, whether messages that are handled at most once were settled together or one by one: the
        fields of totals then have another order, results are listed together, and kept a moment longer, and the first
        trim is at another moment."""
        contents = {
            key: dict(sorted(held.items())) if isinstance(held, dict) else held
            for key, held in snapshot(self.store.wire).items()
        }
        for look in map(partial(Looking, self.store), QUEUES):
            contents.get(look.key("counters"), {}).pop(b"id memory began", None)
            runs = contents.pop(look.key("result_runs"), [])
            contents[look.key("result_runs")] = sorted(name for run in runs[::2] for name in run[6:].split(b"\n"))
        return contents

    def _enqueue(self, n: int, sent: Sent) -> None:
        store = self.store
        payload = json.dumps({"n": n, "takes": sent.takes, "act": sent.act}).encode()
        payload = payload[sent.act == "malformed" :]
        handler = "unknown" if sent.act == "unknown" else sent.handler
        options: dict[str, Any] = {
            "queue": sent.queue,
            "handler": handler,
            "priority": sent.priority,
            "concurrency": sent.key,
        }
        store.enqueue([message(f"m{n}", payload=payload, key=f"{sent.key}{n}" * bool(sent.key), limit=9, **options)])
        for fence in range(1, sent.crashes + 1):
            dead = Launch(store, fence, slot=n, queue=sent.queue)
            store.give_up(dead.holder, sent.queue, [each.id for each in dead.reserve(99) if each.name == f"m{n}"])

    def _forget_what_was_begun_and_not_called(self) -> None:
        """Whoever loses the lease leaves some of these, if it began several together."""
        for look in map(partial(Looking, self.store), QUEUES):
            for name in look.ranked("in_flight"):
                row = self.store.wire.command("HGET", look.key("rows"), name)
                self.store.wire.command("HSET", look.key("rows"), name, bytes([row[0] & ~rows.BEGUN]) + row[1:])

    def _handlers(self) -> dict[str, Handler]:
        hooks = Hooks(print)
        hooks.on_failure.append(lambda *_: self.acts.append(("hook", self.clock())))
        around = Hooks(print)
        around.before.append(lambda context: self.acts.append((f"before {context.id}", self.clock())))
        around.after.append(lambda context, _: self.acts.append((f"after {context.id}", self.clock())))
        handlers = {name: Handler(name, self._handle, 2) for name in HANDLERS}
        for name in handlers:
            changes: dict[str, Any] = {"takes_context": "context" in name, "at_most_once": "once" in name}
            if "async" in name:
                changes |= {"run": self._begin, "asynchronous": True}
            handlers[name] = handlers[name]._replace(**changes)
        return handlers | {
            "watched": with_hooks(handlers["watched"], hooks),
            "hooked": with_hooks(handlers["hooked"], around),
            "no result": handlers["no result"]._replace(result_ttl=0.0),
            "limited": handlers["limited"]._replace(run=limited(self._handle, 30.0), timeout=30.0),
            "limited async": handlers["limited async"]._replace(timeout=30.0),
        }

    async def _begin(self, payload: dict[str, Any], context: Context | None) -> Any:
        if payload["n"] % 3 == 0:
            await asyncio.sleep(0)
        return self._handle(payload, context)

    def _handle(self, payload: dict[str, Any], context: Context | None) -> Any:
        act = payload["act"]
        looks = map(partial(Looking, self.store), QUEUES)
        in_flight = {name for look in looks for name in look.ranked("in_flight")}
        self.unsettled_once.append({name for name in in_flight & self.once if name in self.called})
        self.called.add(f"m{payload['n']}")
        unsettled = sorted(in_flight - self.once)
        given = f"context: {context is not None}, loop: {asyncio._get_running_loop() is not None}"  # noqa: SLF001  raises nothing
        given += f", alarm: {signal.getitimer(signal.ITIMER_REAL)[0] > 0}"
        self.acts.append((f"{act} {payload['n']}, {given}, unsettled: {unsettled}", self.clock()))
        self.clock.now_ms += payload["takes"]
        self.table.leaks = act == "leak"
        if act == "stop":
            self.launch.stopped = True
        if act == "lose":
            self.launch.lost = True
        if self.last_context is not None:
            with suppress(UsageError):  # that attempt has ended
                self.last_context.enqueue("plain")
                self.acts.append(("enqueued too late", self.clock()))
        self.last_context = context
        if act == "checkpoint" and context is not None:
            context.checkpoint({"n": payload["n"]})
        if context is not None and (act == "enqueue" or payload["n"] % 2 == 0):
            child = {"n": payload["n"] + 1000, "takes": 0, "act": ""}
            context.enqueue("plain", child, id=f"child{payload['n']}", queue="mail")
        if act == "pause":  # and end a pass, which does not look for news
            self.launch.progress.stops.paused = frozenset({"too"})
            raise Fatal("no")
        if act == "retry":
            raise RetryIn(1)
        if act == "dead":
            raise Fatal("no")
        if act == "yield":
            raise Yield
        return {"result": "kept", "no JSON": self}.get(act)


def _rounded(text: str) -> str:
    """Both paths sum durations up, in another order."""
    return re.sub(r"\d+\.\d+", lambda number: f"{float(number[0]):.9f}", text)


def _counted(launched: Launched, handle: Callable[..., int]) -> Callable[..., int]:
    def counted(*arguments: Any) -> int:
        handled = handle(*arguments)
        launched.quick += handled
        return handled

    return counted


SENT = st.builds(
    Sent,
    st.sampled_from([*[""] * 20, *ACTS, "unknown", "malformed"]),
    st.sampled_from([*["plain"] * 12, *["too"] * 6, *["once"] * 4, *HANDLERS]),
    st.sampled_from([0, 0, 0, 1, 2, 5, 12, 40, 400]),
    st.sampled_from([*["mail"] * 3, "other"]),
    st.sampled_from([*[0] * 12, 1, 2, 5]),
    st.sampled_from([-1, 0, 0, 0, 1]),
    st.sampled_from([*[""] * 8, "key"]),
)
HISTORIES = st.builds(
    History,
    st.lists(SENT, min_size=1, max_size=40),
    st.sampled_from([0.0, 0.001, 0.004, 0.05, 2.0]),
    st.sampled_from([0.05, 0.2, 2.1, 60.0]),
    st.sampled_from([0.0, 1.0, 4.0]),
    st.none() | st.integers(1, 20),
)


def test_after_a_pass_that_ends_by_an_exception_the_alarm_signal_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Exception):
        pass

    def complete(*_: object) -> None:
        raise Broken

    before = signal.getsignal(signal.SIGALRM)
    monkeypatch.setattr(Settlements, "complete", complete)
    with pytest.raises(Broken):
        Launched(History([Sent(handler="limited")] * 9), quickly=True)
    assert (signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)) == (before, (0.0, 0.0))


@given(HISTORIES)
def test_both_paths_leave_the_same(history: History) -> None:
    assert Launched(history, quickly=True).left == Launched(history, quickly=False).left


@pytest.mark.parametrize("act", ["", long("result"), long("no JSON")])
@pytest.mark.parametrize("handler", HANDLERS)
def test_most_of_many_messages_take_the_quick_path(handler: str, act: str) -> None:
    launched = Launched(History([Sent(act, handler)] * 150), quickly=True)
    handled = [name for name, _ in launched.acts if "unsettled" in name]
    assert launched.quick > 0.87 * len(handled) >= 0.87 * 150


SIXTH = [
    *(Sent(act) for act in (*ACTS, "unknown", "malformed")),
    *(Sent(handler=handler) for handler in HANDLERS),
    *(
        Sent(act, handler)
        for act in ("result", "no JSON", "checkpoint", "retry")
        for handler in ("once with context", "async context")
    ),
    Sent(handler="once", key="key"),
    Sent(crashes=1),
    Sent(takes=400),
    Sent(handler="too", takes=40),
    Sent(takes=6),
]


@pytest.mark.parametrize("sixth", SIXTH, ids=str)
def test_both_leave_the_same_if_a_message_in_the_middle_is_unusual(sixth: Sent) -> None:
    sent = [*[Sent()] * 5, *[sixth] * 3, *[Sent()] * 5]
    quickly, generally = (Launched(History(sent), quickly=quickly) for quickly in (True, False))
    assert quickly.quick >= 4
    assert quickly.left == generally.left


def test_both_leave_what_is_paused_meanwhile() -> None:
    sent = [*[Sent(handler="too")] * 9, Sent("pause"), *[Sent(handler="too")] * 3, *[Sent()] * 9]
    quickly, generally = (Launched(History(sent), quickly=quickly) for quickly in (True, False))
    assert quickly.quick >= 12
    assert quickly.left == generally.left
    assert not quickly.called & {"m10", "m11", "m12"}


@pytest.mark.parametrize("priority", [-1, 1])
def test_a_message_that_may_have_killed_its_process_is_handled_alone_behind_others_too(priority: int) -> None:
    sent = [*[Sent(crashes=1)] * 3, *[Sent(priority=priority)] * 5]
    quickly, generally = (Launched(History(sent), quickly=quickly) for quickly in (True, False))
    assert quickly.quick
    assert quickly.left == generally.left


@pytest.mark.parametrize(("quickly", "takes"), [(True, 2), (False, 0)])
def test_a_message_handled_at_most_once_is_settled_before_another_is_handled(quickly: bool, takes: int) -> None:
    sent = [*[Sent()] * 2, *[Sent(handler="once", takes=takes)] * 9, *[Sent(handler="too")] * 3]
    launched = Launched(History(sent), quickly=quickly)
    assert launched.unsettled_once == [set()] * len(sent)
    assert (launched.quick >= 8) is quickly


def test_those_that_are_brief_are_begun_several_at_a_time_and_settled_before_any_other_is_handled() -> None:
    sent = [*[Sent()] * 2, *[Sent(handler="once")] * 30, *[Sent(handler="too")] * 3]
    unsettled = [len(names) for names in Launched(History(sent), quickly=True).unsettled_once]
    assert max(unsettled) == MOST_TOGETHER - 1
    assert unsettled[-3:] == [0, 0, 0]


def test_the_longer_they_take_the_fewer_are_begun_at_a_time() -> None:
    sent = [Sent(handler="once", takes=n % 2) for n in range(60)]
    unsettled = [len(names) for names in Launched(History(sent), quickly=True).unsettled_once]
    assert max(unsettled[40:]) == 1


@pytest.mark.parametrize(
    "sixth", [*(Sent(act, "once") for act in (*ACTS, "malformed")), Sent("", "once", 400)], ids=str
)
def test_both_leave_the_same_if_one_of_those_begun_together_is_unusual(sixth: Sent) -> None:
    sent = [*[Sent(handler="once")] * 5, sixth, *[Sent(handler="once")] * 20]
    quickly, generally = (Launched(History(sent), quickly=quickly) for quickly in (True, False))
    assert quickly.quick >= 4
    assert quickly.left == generally.left


def test_a_signal_among_those_begun_together_leaves_the_rest_uncharged() -> None:
    sent = [*[Sent(handler="once")] * 7, Sent("stop", "once"), *[Sent(handler="once")] * 6]
    quickly, generally = (Launched(History(sent), quickly=quickly) for quickly in (True, False))
    assert quickly.called == generally.called == {f"m{n}" for n in range(8)}
    assert quickly.left == generally.left


def test_a_pass_takes_no_more_than_so_many_messages() -> None:
    launched = Launched(History([Sent()] * 9, max_messages=6), quickly=True)
    assert launched.quick
    assert len(launched.acts) == 6


def test_the_margin_is_looked_at_before_each_message_of_a_pass() -> None:
    sent = [*[Sent()] * 20, *[Sent(takes=2)] * 30]
    launched = Launched(History(sent, min_margin=0.05, timeout=0.06, tolerance_factor=0.0), quickly=True)
    assert launched.quick > 20
    assert launched.acts[-1][1] < 0.01 <= launched.acts[-1][1] + 0.002


def test_a_message_that_is_not_brief_ends_a_pass_so_that_the_margin_follows_it() -> None:
    history = History([*[Sent()] * 5, *[Sent(takes=40)] * 6], min_margin=0.05, timeout=0.22, tolerance_factor=4.0)
    quickly, generally = (Launched(history, quickly=quickly) for quickly in (True, False))
    assert quickly.left == generally.left
    assert len(quickly.acts) == 9


TENANT = ContextVar("tenant", default="none")
KEPT = ContextVar("kept", default="none")


def reset() -> None:
    TENANT.reset(TENANT.set("of a message"))


def change_decimals() -> None:
    decimal.getcontext().prec = 3


CHANGES: dict[str, Callable[[], object]] = {
    "plain": lambda: TENANT.set("of a message"),
    "too": reset,
    "limited": lambda: KEPT.set("of a message"),
    "async": lambda: TENANT.set("of a message"),
    "context": change_decimals,
}
"""By handler, what it does with variables."""


def launched_with_tenant() -> None:
    TENANT.set("of the launch")


def launched_with_decimals() -> None:
    decimal.getcontext().prec = 20


@pytest.mark.parametrize("launched_with", [lambda: None, launched_with_tenant, launched_with_decimals])
def test_no_message_of_a_pass_sees_a_variable_that_another_has_set(launched_with: Callable[[], None]) -> None:
    found: list[tuple[str, str, int]] = []

    class Varying(Launched):
        def _handle(self, payload: dict[str, Any], context: Context | None) -> Any:
            found.append((TENANT.get(), KEPT.get(), copy_context().run(decimal.getcontext).prec))
            CHANGES[sent[payload["n"] % 1000].handler]()
            return super()._handle(payload, context)

    sent = [Sent(handler=handler) for handler in CHANGES for _ in range(6)] * 2
    launched, own = [], Variables()
    own.run(launched_with)
    expected = own.copy().run(lambda: (TENANT.get(), KEPT.get(), decimal.getcontext().prec))
    own.run(lambda: launched.append(Varying(History(sent), quickly=True)))
    assert set(found) == {expected}
    assert launched[0].quick > len(sent) / 2
